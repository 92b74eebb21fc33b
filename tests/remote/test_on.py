"""``--on``: a command runs on another machine, and what it shows and leaves is here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laboratory import Ended, Laboratory
from laboratory.hosts import Hosts, place_on
from laboratory.studies import directory
from remote.conftest import jobs_of

pytestmark = pytest.mark.needs("root", "sshd", "ssh")

SHORT = directory("command = { argv = ['sleep', '0.1'] }", rounds=4)


def test_a_run_on_another_machine_ends_as_one_of_this_machine(here: Laboratory) -> None:
    there = here.run(SHORT, "--on", "lab1").with_status(0)
    done = [(record.trial, record.round, record.status) for record in here.records()]
    assert done == [(number, number, "done") for number in range(1, 5)]
    assert "round 4 of 4" in there.stderr, there
    assert f"Run:    {here.out}" in there.stdout and (here.out / "report.html").exists(), there
    here.storlab("run", here.study(SHORT), "--out", here.folder / "own", "--seed", "1")
    own, far = (json.loads((folder / "manifest.json").read_text()) for folder in (here.folder / "own", here.out))
    assert [own[key] for key in ("seed", "storlab", "plan")] == [far[key] for key in ("seed", "storlab", "plan")]


def test_commands_that_run_nothing_are_shown_too(here: Laboratory) -> None:
    plan = here.storlab("plan", here.study(SHORT), "--on", "lab1")
    assert plan.status == 0 and "A test" in plan.stdout, plan
    found = json.loads(here.storlab("doctor", "--json", "--on", "lab1").stdout)
    assert {check["name"] for check in found} >= {"root", "CPUs", "agent"}


@pytest.mark.needs("dd")
def test_a_trace_counts_what_is_done_there_and_its_file_comes_back(here: Laboratory) -> None:
    # The disks' counts are of all processes, and nothing else writes 52k. Reserved at once, the file is in one piece.
    dd = "dd if=/dev/zero of=/var/tmp/traced bs=52k count=8 oflag=direct conv=fsync,notrunc"
    write = ["sh", "-c", f"fallocate -l 416k /var/tmp/traced && {dd}"]
    words = ("--op", "write", "--length", "52k", "--out", here.folder / "counts.json")
    traced = here.storlab("trace", *words, "--on", "lab1", "--", *write)
    assert traced.status == 0 and "8+0 records out" in traced.stderr, traced
    counted = json.loads((here.folder / "counts.json").read_text())["disks"].values()
    assert [each["granularity"] for each in counted] == [{"53248": 8}], traced
    assert here.storlab("trace", "--on", "lab1", "--", "false").status == 1
    assert here.storlab("trace", "--no-such", "--on", "lab1").status == 2


def test_a_run_is_extended_where_it_was_run_and_nowhere_else(here: Laboratory) -> None:
    assert here.run(SHORT, "--on", "lab1").status == 0
    refused = here.storlab("resume", here.out, "--rounds", "6")
    assert refused.status == 2 and f"storlab resume {here.out} --on lab1" in refused.stderr, refused
    extended = here.storlab("resume", here.out, "--rounds", "6", "--on", "lab1")
    assert extended.status == 0 and [record.trial for record in here.records()] == [*range(1, 7)], extended
    page = here.folder / "report.md"
    reported = here.storlab("report", here.out, "--format", "md", "--output", page, "--on", "lab1")
    assert reported.status == 0 and page.read_text().startswith("# A test"), reported
    cleaned = here.storlab("clean", here.out, "--on", "lab1")
    assert cleaned.status == 0 and "nothing is left to tear down" in cleaned.stdout, cleaned


def test_files_that_a_study_names_go_along(here: Laboratory, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "small.fio").write_text("[small]\nrw=randwrite\nbs=4k\nsize=1M\nioengine=psync\n")
    ran = here.run(directory("fio = { job_file = 'jobs/small.fio' }"), "--on", "lab1")
    assert ran.status == 0 and len(here.records()) == 1, ran


@pytest.mark.parametrize(
    ("study", "words", "said"),
    [
        (SHORT, ("--set", "repeat.no-such=1"), "no-such"),
        (SHORT, ("--set", "scratch=/nowhere/at/all"), "there is no directory /nowhere/at/all"),
        (SHORT, ("--tied", "--fail-on", "worse"), "the study compares nothing"),
    ],
)
def test_what_is_refused_there_is_refused_here(here: Laboratory, study: str, words: tuple[str, ...], said: str) -> None:
    refused = here.run(study, *words, "--on", "lab1")
    assert refused.status == 2 and said in refused.stderr, refused
    assert not here.out.exists()


def test_the_exit_status_is_that_of_the_run(here: Laboratory) -> None:
    failed = here.run(directory("command = { argv = ['false'] }"), "--on", "lab1")
    assert failed.status == 3 and "trial 1" in failed.stderr, failed


def test_a_machine_without_this_very_storlab_is_refused_with_the_command(here: Laboratory, machines: Hosts) -> None:
    def refused(ran: Ended, host: str) -> bool:
        return ran.status == 2 and f"`storlab lab prepare {host}` brings it there" in ran.stderr

    assert refused(here.run(SHORT, "--on", "lab2"), "lab2")
    place = place_on(machines["lab1"])
    other = place.with_name("0.0.9-0123456789ab")
    place.rename(other)
    try:
        assert refused(here.run(SHORT, "--on", "lab1"), "lab1")
    finally:
        other.rename(place)
    assert list(jobs_of(machines).glob("*")) == []


@pytest.mark.parametrize(
    ("host", "said"),
    [("nobody.invalid", "Could not resolve hostname"), ("-oProxyCommand=true", "is no SSH destination")],
)
def test_a_machine_that_cannot_be_reached_is_named_before_anything_runs(here: Laboratory, host: str, said: str) -> None:
    refused = here.run(SHORT, f"--on={host}")
    assert refused.status == 2 and said in refused.stderr, refused
    assert not here.out.exists()


def test_a_question_is_asked_here(here: Laboratory, machines: Hosts) -> None:
    """Nobody is there to answer it, and that is said there as it would be here."""
    assert here.run(SHORT, "--on", "lab1").status == 0
    state = machines["lab1"].home / ".local" / "state" / "storlab" / "runs"
    state.mkdir(exist_ok=True)
    (state / "20260101-000000-abcd").symlink_to("/root/gone")
    asked = here.storlab("clean", "--on", "lab1")
    assert asked.status == 2 and "This would be torn down" in asked.stdout, asked
    assert "nothing was torn down" in asked.stderr, asked
    assert here.storlab("clean", "--yes", "--on", "lab1").status == 0
