"""``storlab suite compare`` and ``history`` from the command line, in each format."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from storlab.cli.suite.choose import past_in
from storlab.cli.suite.listing import listed
from storlab.errors import UserError
from storlab.records.suite import write_suite_record
from storlab.records.suite.sources import console, read_source, read_sources
from storlab.run.suite.places.guest import OWN_TESTS
from storlab.suite.environment import SuiteEnvironment
from storlab.suite.model import Expectations, Group, Outcome, Script, Suite
from study.program import call
from suite.samples import RUNFILE, suite_of
from suite.test_records import of, written

LOGS = Path(__file__).parents[2] / "examples/suite/logs"


def run_at(folder: Path, name: str, outcome: Outcome, kernel: str = "6.12") -> Path:
    """A run whose first test had this outcome, as ``name`` in a folder."""
    suite = suite_of(RUNFILE)
    whole = [of(suite, number) for number in range(1, suite.size)]
    (folder / name).mkdir(parents=True)
    run = written(folder / name, suite, of(suite, 0, outcome), *whole)
    environment = SuiteEnvironment(kernel=kernel)
    write_suite_record(run.folder, msgspec.structs.replace(run.asked, environment=environment))
    manifest = run.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"r1"', f'"{name}"'))
    return run.folder


def test_the_status_is_3_where_a_test_regressed_else_4_where_one_is_missing() -> None:
    assert call("suite", "compare", str(LOGS / "before"), str(LOGS / "after")).status == 3
    assert call("suite", "compare", str(LOGS / "after"), str(LOGS / "after/../before")).status == 3
    assert call("suite", "compare", str(LOGS / "before/1.log"), str(LOGS / "after/1.log")).status == 4
    assert call("suite", "compare", str(LOGS / "before/1.log"), str(LOGS / "before/2.log")).status in (0, None)


def test_earlier_runs_say_how_often_tests_passed_how_long_they_take_and_what_came_last(tmp_path: Path) -> None:
    for name, outcome in (("a", Outcome.PASS), ("b", Outcome.FAIL), ("c", Outcome.SKIP)):
        run_at(tmp_path, name, outcome)
    past = past_in([tmp_path, tmp_path / "a"])
    suite = suite_of(RUNFILE)
    first = past[suite.groups[0].name, suite.groups[0].tests[0].path]
    assert (first.passed, first.decided, first.last_outcome) == (1, 2, Outcome.FAIL) and len(past) == suite.size
    lines = [line for line in listed(suite, Expectations(), {}, past) if "passed 1 of 2, " in line]
    assert len(lines) == 1 and "last FAIL on 20" in lines[0]
    with pytest.raises(UserError, match="no run of a suite, and no folder of runs"):
        past_in([tmp_path / "none"])


def test_a_list_calls_own_tests_as_their_author_does() -> None:
    group = Group("own", (Script(f"{OWN_TESTS}/scrub/finds_nothing", "root"),))
    assert next(line for line in listed(Suite("x", (group,)), Expectations(), {}, {}) if "finds" in line) == (
        "  scrub/finds_nothing"
    )


@pytest.mark.parametrize("format_", ["text", "md", "html", "json"])
def test_each_format_names_what_regressed(format_: str, tmp_path: Path) -> None:
    out = tmp_path / "page"
    call("suite", "compare", str(LOGS / "before"), str(LOGS / "after"), "--format", format_, "-o", str(out))
    text = out.read_text()
    assert "rsend/send-c_volume" in text and "snapshot/snapshot_002_pos" in text
    if format_ == "json":
        tests = json.loads(text)["comparisons"][0]["tests"]
        assert [each["test"] for each in tests if each["change"] == "regressed"] == ["rsend/send-c_volume"]


def test_earlier_runs_count_if_they_are_of_the_same_environment(tmp_path: Path) -> None:
    for number in range(25):
        run_at(tmp_path / "runs", f"n{number:02}", Outcome.PASS)
    before, after = run_at(tmp_path, "before", Outcome.PASS), run_at(tmp_path, "after", Outcome.FAIL)
    runs = str(tmp_path / "runs")
    alone = call("suite", "compare", str(before), str(after))
    assert "1 undecided, 4 unchanged" in alone.output and alone.status in (0, None)
    assert call("suite", "compare", str(before), str(after), "--history", runs).status == 3
    other = run_at(tmp_path, "other", Outcome.PASS, kernel="6.18")
    ended = call("suite", "compare", str(other), str(after), "--history", runs)
    assert ended.status in (0, None) and "25 of 25 earlier runs are of other environments" in ended.output
    assert "The runs differ in their environment: kernel 6.12; kernel 6.18." in ended.output
    assert call("suite", "compare", str(other), str(after), "--history", runs, "--any-environment").status == 3


def test_a_run_counts_once_however_often_it_is_named(tmp_path: Path) -> None:
    for name, outcome in (("a", Outcome.PASS), ("b", Outcome.FAIL)):
        run_at(tmp_path, name, outcome)
    assert len(read_sources([tmp_path, tmp_path / "a"])) == 2
    assert [run.name for run in read_source(tmp_path)] == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert call("suite", "compare", str(tmp_path / "a"), str(tmp_path)).status == 2
    history = call("suite", "history", str(tmp_path), "--format", "json").output
    [flaky] = [each for each in json.loads(history)["tests"] if each["flaky"]]
    assert flaky["test"] == "tests/acl/allow" and flaky["pass_rate"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "none", "none"], "there is no none"),
        (["compare", str(LOGS / "before")], "name at least two runs"),
        (["history", str(Path(__file__).parent)], "is no run of a suite, and has none in it"),
        (["history", str(Path(__file__))], "has no line that says what came of a test"),
        (["compare", str(LOGS / "before"), str(LOGS / "after"), "--format", "x"], "it is one of text, md, html, json"),
    ],
)
def test_what_can_not_be_compared_is_refused_in_one_line(arguments: list[str], words: str) -> None:
    ended = call("suite", *arguments)
    assert ended.status == 2 and words in ended.message and ended.message.count("\n") == 1


def test_a_console_has_the_tests_and_not_what_is_around_them() -> None:
    lines = [
        "noise",
        "Test (Linux): /usr/share/zfs/zfs-tests/tests/functional/acl/setup (run as root) [00:00] [PASS]",
        "Test: /usr/share/zfs/zfs-tests/tests/functional/acl/one (run as root) [10:00] [KILLED]",
        "Test: /usr/share/zfs/zfs-tests/tests/functional/acl/one (run as root) [00:01] [PASS] (RERAN)",
    ]
    [(name, tries)] = console(lines, "log").tests.items()
    assert name == "acl/one" and [each.outcome for each in tries] == [Outcome.KILLED, Outcome.PASS]
