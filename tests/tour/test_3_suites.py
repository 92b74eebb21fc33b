"""The tour, third part: a suite of six scripts in a guest, where one hangs and one panics the kernel.

Each has its own outcome with the cause, whatever follows runs in a fresh guest, and other tools can read the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from laboratory import Ended, Laboratory, opened
from laboratory.samples import sample
from storlab.suites.model import Attempt, Outcome
from storlab.suites.records.folder import SuiteRun, read_suite_run

pytestmark = pytest.mark.needs("guests")

SUITE = sample(__file__, "cases/six.toml")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Laboratory, Ended, SuiteRun]]:
    """The suite, once it was run."""
    with opened(Laboratory(tmp_path_factory.mktemp("suite"))) as lab:
        file = Path(lab.folder / "six.toml")
        file.write_text(SUITE)
        guest = ("--cpus", "1", "--memory", "256M", "--timeout-scale", "1")
        said = lab.storlab("suite", "run", file, *guest, "--out", lab.out, timeout=400)
        yield lab, said, read_suite_run(lab.out)


def attempt(run: SuiteRun, name: str) -> Attempt:
    """The last one of a test."""
    return [each for each in run.attempts if each.path.endswith(name)][-1]


def test_each_script_has_its_outcome_and_the_rest_runs_on(suite: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, said, run = suite
    assert {key[1].rpartition("/")[2]: each.outcome for key, each in run.results.items()} == {
        "passes": Outcome.PASS,
        "fails": Outcome.FAIL,
        "hangs": Outcome.KILLED,
        "panics": Outcome.CRASHED,
        "leaves": Outcome.PASS,
        "writes": Outcome.PASS,
    }, said
    assert said.status == 3 and run.finished is not None and run.without_result == []


def test_the_one_that_hangs_was_killed_with_what_it_waited_for(suite: tuple[Laboratory, Ended, SuiteRun]) -> None:
    lab, _, run = suite
    killed = attempt(run, "hangs")
    assert "did not end for TERM" in killed.reason
    assert "nanosleep" in (lab.out / killed.folder / "killed.txt").read_text()


def test_the_one_that_panics_took_its_guest_along_and_its_trace_is_kept(
    suite: tuple[Laboratory, Ended, SuiteRun],
) -> None:
    lab, _, run = suite
    lost = attempt(run, "panics")
    assert lost.reason == "the guest's kernel panicked: sysrq triggered crash"
    assert (lab.out / lost.folder / "stdout").read_text() == "going down\n"
    consoles = "".join(path.read_text(errors="replace") for path in (lab.out / "guests").glob("*/console.log"))
    assert "sysrq_handle_crash" in consoles


def test_output_is_kept_as_it_was_printed(suite: tuple[Laboratory, Ended, SuiteRun]) -> None:
    lab, _, run = suite
    passes = lab.out / attempt(run, "passes").folder
    assert (passes / "stdout").read_text() == "out\n"
    assert (passes / "stderr").read_text() == "err\n"


def test_what_a_script_left_behind_is_named(suite: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, said, _ = suite
    assert "user left-behind" in said.stdout, said


def test_other_tools_can_read_the_result(suite: tuple[Laboratory, Ended, SuiteRun]) -> None:
    lab, _, _ = suite
    document = json.loads(lab.storlab("suite", "report", lab.out, "--format", "json").stdout)
    assert document["counts"] == {"PASS": 3, "FAIL": 1, "KILLED": 1, "CRASHED": 1}
    junit = ElementTree.fromstring(lab.storlab("suite", "report", lab.out, "--format", "junit").stdout)
    assert sum(int(each.attrib["tests"]) for each in junit) == 6
    page = (lab.out / "report.html").read_text()
    assert "the guest&#39;s kernel panicked" in page and "src=" not in page
