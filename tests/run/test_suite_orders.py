"""Suites run again, shuffled, as before, for so long; with tries more, missing programs, and JSON; in guests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.guests import needs_guests
from run.test_suites import laboratory, planted
from storlab.records.suite import SuiteRun, read_suite_run

pytestmark = pytest.mark.slow

# The file counts how often it ran in this guest, and the test fails the third time.
COUNTS = "n=$(cat /tmp/n 2> /dev/null || echo 0); n=$((n + 1)); echo $n > /tmp/n; test $n -ne 3"
SUITE = f"""
[guests]
disks = 0
[groups.a]
tests = [{{ name = "one", run = "true" }}, {{ name = "counts", run = "{COUNTS}" }}, {{ name = "two", run = "true" }}]
[groups.b]
tests = [{{ name = "three", run = "true" }}]
"""
SLEEPS = """
[guests]
disks = 0
[groups.a]
tests = [{ name = "first", run = "sleep 3" }, { name = "second", run = "true" }, { name = "third", run = "true" }]
"""
FLAKY = {
    "tests/flaky": "test -e /tmp/seen && exit 0; touch /tmp/seen; exit 1",
    "tests/calls": "perf stat true || true",
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    yield from laboratory(tmp_path_factory.mktemp("orders"))


def order(run: SuiteRun) -> list[tuple[str, str]]:
    return [(each.group, each.path.rpartition("/")[2]) for each in run.attempts if each.role == "test"]


def suite_file(lab: Laboratory, text: str) -> Path:
    path = lab.folder / "suite.toml"
    path.write_text(text)
    return path


GUEST = ("--cpus", "1", "--memory", "640M", "--timeout-scale", "2.5")


@needs_guests
def test_a_shuffled_suite_runs_until_a_test_fails_and_is_replayed(lab: Laboratory) -> None:
    path = suite_file(lab, SUITE)
    one, two = lab.folder / "one", lab.folder / "two"
    said = lab.storlab("suite", "run", path, "--until-failure", "--seed", "5", *GUEST, "--out", one, timeout=300)
    assert said.status == 3 and "a/counts did not pass in iteration 3." in said.stderr, said
    run = read_suite_run(one)
    assert run.asked.seed == 5 and run.finished is not None and run.without_result == []
    assert order(run)[-1] == ("a (iteration 3)", "counts") and 9 <= len(order(run)) <= 12

    refused = lab.storlab("suite", "resume", one, timeout=60)
    assert refused.status == 2 and "did not pass in iteration 3. Nothing is left to resume" in refused.stderr, refused
    said = lab.storlab("suite", "run", "--replay", one, "--out", two, timeout=300)
    again = read_suite_run(two)
    assert said.status == 3 and order(again) == order(run), said
    assert (again.asked.cpus, again.asked.memory, again.asked.scale) == (1, 640 << 20, 2.5)


@needs_guests
def test_a_limit_ends_a_run_that_is_resumed(lab: Laboratory) -> None:
    out = lab.folder / "limited"
    said = lab.storlab("suite", "run", suite_file(lab, SLEEPS), "--limit", "2s", "--out", out, timeout=300)
    run = read_suite_run(out)
    assert said.status == 4 and order(run) == [("a", "first")], said
    assert "The limit of 2 s was reached" in run.stopped and "The limit of 2 s was reached" in said.stdout
    said = lab.storlab("suite", "resume", out, "--limit", "1ms", timeout=300)
    run = read_suite_run(out)
    assert said.status == 4 and order(run) == [("a", "first")] and "The limit of 0.001 s" in run.stopped, said
    said = lab.storlab("suite", "resume", out, timeout=300)
    run = read_suite_run(out)
    assert said.status == 0 and order(run) == [("a", "first"), ("a", "second"), ("a", "third")], said
    assert run.finished is not None and not run.stopped


@needs_guests
def test_a_run_until_a_failure_that_a_limit_ended_has_further_iterations_once_it_is_resumed(lab: Laboratory) -> None:
    out = lab.folder / "further"
    text = SUITE.replace('"one", run = "true"', '"one", run = "test -e /tmp/n || sleep 3"')
    said = lab.storlab(
        "suite", "run", suite_file(lab, text), "--until-failure", "--limit", "2s", "--out", out, timeout=300
    )
    run = read_suite_run(out)
    assert said.status == 4 and order(run) == [("a", "one")] and run.finished is None, said
    said = lab.storlab("suite", "resume", out, timeout=300)  # in a fresh guest, in which the test counts from one again
    assert said.status == 3 and "a/counts did not pass in iteration 3." in said.stderr, said
    ran = order(read_suite_run(out))
    assert ran[:2] == [("a", "one"), ("a", "counts")] and ran[-1] == ("a (iteration 3)", "counts"), ran
    assert len(ran) == len(set(ran)) == 10


@needs_guests
def test_json_retries_and_missing_programs(lab: Laboratory) -> None:
    runfile = planted(lab.folder / "own", FLAKY, "[tests]\ntests = ['flaky', 'calls']\nuser = root\n")
    arguments = ("suite", "run", runfile, "--tests", runfile.parent, "--out", lab.folder / "flaky")
    refused = lab.storlab(*arguments, timeout=300)
    assert refused.status == 2 and "lacks programs that tests seem to call (perf: tests/calls)" in refused.stderr
    assert not (lab.folder / "flaky").exists()

    said = lab.storlab(*arguments, "--allow-missing", "--retries", "2", "--json", timeout=300)
    document = json.loads(said.stdout)
    assert said.status == 0 and document["counts"] == {"PASS": 2} and document["unexpected"] == [], said
    assert [(each["name"], each["number"]) for each in document["results"]] == [("tests/flaky", 2), ("tests/calls", 1)]
    text = lab.storlab("suite", "report", lab.folder / "flaky").stdout
    assert "Passed at a later try only" in text and "the guest image lacks perf" in said.stderr
