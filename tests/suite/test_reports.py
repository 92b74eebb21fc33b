"""Reports, comparisons and histories of suites: what is lost, missing, cut or not expected is in each format."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace as with_fields

from storlab.base.errors import UserError
from storlab.cli.suite.choose import past_in
from storlab.cli.suite.finish import status_of
from storlab.suites.ktap import MOST_JUDGED, Result, read_ktap
from storlab.suites.model import Absent, Expectations, Group, Leak, Outcome, Script, Suite, SuiteEnvironment
from storlab.suites.places.kinds import OWN_TESTS
from storlab.suites.records.folder import SuiteRecord, SuiteRun, read_suite_run
from storlab.suites.records.sources import read_source, read_sources
from storlab.suites.report.formats import render
from storlab.suites.report.listing import listed
from storlab.suites.report.view import view_of
from storlab.suites.run.execution import is_failure
from study.program import call
from suite.samples import RUNFILE, SUITE, of, passes, recorded, suite_of, written

ABSENT = RUNFILE.replace("'create',", "'gone',").replace("[tests/disk]", "[tests/disk]\nuser = bob")


def passed(folder: Path, *more: Absent) -> SuiteRun:
    """A run in which each test passed that was found, and three were not found, plus ``more``."""
    suite = suite_of(ABSENT)
    suite = replace(suite, absent=(*suite.absent, *more))
    return written(folder, suite, *passes(suite))


def groups_in_ktap(run: SuiteRun) -> dict[str, Result]:
    found = read_ktap(render(run, "ktap").splitlines())
    assert found is not None
    return {group.name: group for group in found.subtests}


def test_the_last_try_counts_and_one_that_needed_several_is_named(tmp_path: Path) -> None:
    view = view_of(written(tmp_path, SUITE, of(SUITE, 0, Outcome.FAIL), of(SUITE, 0, number=2)))
    assert view.counts == {Outcome.PASS: 1} and [row.why for row in view.flaky] == ["try 2"]


def test_reports_say_what_was_not_expected_and_what_has_no_result(tmp_path: Path) -> None:
    lost = of(SUITE, 0, Outcome.CRASHED, reason="the guest's kernel panicked: <oops>", folder="output/x")
    run = written(tmp_path, SUITE, lost, of(SUITE, 1))
    assert "1 result of 2 tests was not expected. 3 tests that were asked for have no result." in render(run, "text")
    assert "CRASHED tests/acl/allow (1.5 s): the guest's kernel panicked: <oops>" in render(run, "text")
    assert r"panicked: \<oops\>" in render(run, "md")
    page = render(run, "html")
    assert "panicked: &lt;oops&gt;" in page and "http" not in page.replace("http-equiv", "")
    root = ElementTree.fromstring(render(run, "junit"))
    assert [group.attrib["errors"] for group in root] == ["1", "0", "3"]
    names = [case.attrib["name"] for case in root.iter("testcase")]
    assert all(name.startswith("tests/") for name in names), "a test is called the same with and without a result"
    document = json.loads(render(run, "json"))
    assert document["unexpected"] == ["tests/acl/allow"] and len(document["without_result"]) == 3
    assert "KILLED\t   1" in render(run, "zts")


@pytest.mark.parametrize("name", ["text", "md", "html", "junit", "ktap", "json"])
def test_every_format_gives_the_line_by_which_a_failed_test_says_what_was_wrong(name: str, tmp_path: Path) -> None:
    failed = [of(SUITE, at, Outcome.FAIL, folder=f"output/{at}") for at in range(3)]
    for at, log in enumerate(("ERROR: zpool exited 1\n12:00:01.50 NOTE: cleaning up", "one\n12:00:01.50 it is so", "")):
        (tmp_path / f"output/{at}").mkdir(parents=True)
        (tmp_path / f"output/{at}/log").write_text(f"12:00:01.00 {log}\n")
    text = render(written(tmp_path, SUITE, *failed), name)
    assert "ERROR: zpool exited 1" in text and "it is so" in text
    assert name == "html" or ("cleaning up" not in text and "12:00" not in text.replace("T12:00", ""))


def test_a_test_that_lost_its_guest_and_passed_when_tried_again_is_not_as_expected(tmp_path: Path) -> None:
    """What lost a guest is never made up for by a try that passes."""
    crashed = of(SUITE, 0, Outcome.CRASHED, reason="the guest's kernel panicked")
    run = written(tmp_path, SUITE, crashed, of(SUITE, 0, number=2), *passes(first=1))
    assert status_of(run) == 3
    (row,) = view_of(run).unexpected
    assert row.attempt.outcome is Outcome.CRASHED
    assert row.why == "the guest's kernel panicked; PASS when tried again"
    for name in ("text", "md", "html", "junit"):
        assert "panicked; PASS when tried again" in render(run, name), name
    record = SuiteRecord(name="own", runner="root", groups=SUITE.groups, runfiles=(), testdir="/suite", retries=5)
    assert is_failure(of(SUITE, 0, Outcome.HUNG), record), "though tries are left"
    assert not is_failure(of(SUITE, 0, Outcome.FAIL), record)


def test_what_is_left_is_reported_though_a_failsafe_was_the_last_to_run(tmp_path: Path) -> None:
    *_, last = attempts = passes()
    leaks = [Leak("group", "left", last.path)]
    failsafe = with_fields(last, path="/suite/callbacks/failsafe", role="failsafe", leaks=leaks)
    assert [what for _, what in view_of(written(tmp_path, SUITE, *attempts, failsafe)).leaks] == ["group left"]


def test_what_was_not_found_is_an_error_in_junit_and_not_ok_in_ktap(tmp_path: Path) -> None:
    run = passed(tmp_path)
    assert status_of(run) == 4
    root = ElementTree.fromstring(render(run, "junit"))
    cases = ((case.attrib["classname"], case.attrib["name"], case.find("error")) for case in root.iter("testcase"))
    errors = {(group, name): error.attrib for group, name, error in cases if error is not None}
    missing = "1.run:14: test gone is left out: there is no gone or gone.ksh or gone.sh in /suite/tests/pool"
    unknown = "1.run:26: [tests/disk] is left out: user: unknown user 'bob'"
    assert errors == {
        ("tests/pool", "tests/pool/gone"): {"message": missing, "type": "NO RESULT"},
        ("tests/disk", "tests/disk/write"): {"message": unknown, "type": "NO RESULT"},
    }
    counts = {suite.attrib["name"]: (suite.attrib["tests"], suite.attrib["errors"]) for suite in root}
    assert counts == {"tests/acl:Linux": ("1", "0"), "tests/pool": ("3", "1"), "tests/disk": ("1", "1")}
    groups = groups_in_ktap(run)
    came = {"tests/acl:Linux": Outcome.PASS, "tests/pool": Outcome.FAIL, "tests/disk": Outcome.FAIL}
    assert {name: group.outcome for name, group in groups.items()} == came
    assert list(groups["tests/pool"].failed) == ["tests/pool.tests/pool/gone"]


def test_tests_whose_names_are_not_known_are_as_many_errors_as_they_are(tmp_path: Path) -> None:
    run = passed(tmp_path, Absent("s.toml:3", "group xfs is left out: <no user>", 3), Absent("s.toml:9", "no a"))
    root = ElementTree.fromstring(render(run, "junit"))
    (found,) = (suite for suite in root if suite.attrib["name"] == "not found")
    unnamed = [f"s.toml:3: group xfs is left out: <no user> ({number} of 3)" for number in (1, 2, 3)]
    assert [case.attrib["name"] for case in found] == [*unnamed, "s.toml:9: no a"]
    assert found.attrib["errors"] == found.attrib["tests"] == "4"
    assert len(groups_in_ktap(run)["not found"].subtests) == 4
    assert len(json.loads(render(run, "json"))["absent"]) == 4
    assert "6 tests that were asked for have no result." in render(run, "text")


def test_without_any_result_ktap_and_junit_call_tests_as_where_they_have_one(tmp_path: Path) -> None:
    run = written(tmp_path, SUITE)
    in_ktap = {test.name for group in groups_in_ktap(run).values() for test in group.subtests}
    in_junit = {case.attrib["name"] for case in ElementTree.fromstring(render(run, "junit")).iter("testcase")}
    assert in_ktap == in_junit and "tests/pool/create" in in_ktap


@pytest.mark.parametrize("format_", ["text", "md", "html"])
def test_output_that_was_not_kept_is_reported_even_of_a_test_that_passed(tmp_path: Path, format_: str) -> None:
    text = render(written(tmp_path, SUITE, of(SUITE, 0, dropped=12 << 20), *passes(first=1)), format_)
    assert text.count("12.0 MiB of its output was not kept") == 1 and text.count("not kept") <= 2
    killed = of(SUITE, 0, Outcome.KILLED, reason="it took longer than 60 s", dropped=3 << 30)
    page = render(written(tmp_path / "x", SUITE, killed), "html")
    assert "it took longer than 60 s; 3.00 GiB of its output was not kept" in page


@pytest.mark.parametrize("size", [1, MOST_JUDGED])
def test_subtests_in_a_report_are_those_by_which_a_test_was_judged(tmp_path: Path, size: int) -> None:
    recorded(written(tmp_path, SUITE, of(SUITE, 0, folder="output/x")), adapter="ktap")
    (tmp_path / "output/x").mkdir(parents=True)
    (tmp_path / "output/x/stdout").write_bytes(b"1..1\nok 1 a\n" + b"#" * size + b"\nok 2 b\n")
    (test,) = groups_in_ktap(read_suite_run(tmp_path))["tests/acl:Linux"].subtests
    assert [each.name for each in test.subtests] == (["a", "b"] if size == 1 else ["a"])


HERE = Path(__file__).parent
LOGS = HERE.parents[1] / "examples/suite/logs"


def run_at(folder: Path, name: str, outcome: Outcome, kernel: str = "6.12") -> Path:
    """A run whose first test had this outcome, as ``name`` in a folder."""
    run = written(folder / name, SUITE, of(SUITE, 0, outcome), *passes(first=1))
    recorded(run, environment=SuiteEnvironment(kernel=kernel))
    manifest = run.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"r1"', f'"{name}"'))
    return run.folder


def test_the_status_is_3_where_a_test_regressed_else_4_where_one_is_missing() -> None:
    assert call("suite", "compare", str(LOGS / "before"), str(LOGS / "after")).status == 3
    assert call("suite", "compare", str(LOGS / "after"), str(LOGS / "after/../before")).status == 3
    assert call("suite", "compare", str(LOGS / "before/1.log"), str(LOGS / "after/1.log")).status == 4
    assert call("suite", "compare", str(LOGS / "before/1.log"), str(LOGS / "before/2.log")).status in (0, None)


def test_a_list_has_how_often_tests_passed_what_came_last_and_names_as_their_author_has_them(tmp_path: Path) -> None:
    for name, outcome in (("a", Outcome.PASS), ("b", Outcome.FAIL), ("c", Outcome.SKIP)):
        run_at(tmp_path, name, outcome)
    past = past_in([tmp_path, tmp_path / "a"])
    first = past[SUITE.groups[0].name, SUITE.groups[0].tests[0].path]
    assert (first.passed, first.decided, first.last_outcome) == (1, 2, Outcome.FAIL) and len(past) == SUITE.size
    lines = [line for line in listed(SUITE, Expectations(), {}, past) if "passed 1 of 2, " in line]
    assert len(lines) == 1 and "last FAIL on 20" in lines[0]
    with pytest.raises(UserError, match="no run of a suite, and no folder of runs"):
        past_in([tmp_path / "none"])
    group = Group("own", (Script(f"{OWN_TESTS}/scrub/finds_nothing", "root"),))
    assert "  scrub/finds_nothing" in listed(Suite("x", (group,)), Expectations(), {}, {})


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
        (["history", str(HERE)], "is no run of a suite, and has none in it"),
        (["history", str(HERE / "samples.py")], "no result of a test in a form that is read: the console"),
        (["compare", str(LOGS / "before"), str(LOGS / "after"), "--format", "x"], "it is one of text, md, html, json"),
    ],
)
def test_what_can_not_be_compared_is_refused_in_one_line(arguments: list[str], words: str) -> None:
    ended = call("suite", *arguments)
    assert ended.status == 2 and words in ended.message and ended.message.count("\n") == 1
