"""Reports of runs of suites: what has no result or lacks output is seen in each format."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace as with_fields

from storlab.cli.suite.finish import status_of
from storlab.records.suite import SuiteRun, read_suite_record, read_suite_run, write_suite_record
from storlab.report.suite.formats import render
from storlab.suite.ktap import MOST_JUDGED, Result, read_ktap
from storlab.suite.model import Absent, Outcome
from suite.samples import RUNFILE, suite_of
from suite.test_records import of, written

ABSENT = RUNFILE.replace("'create',", "'gone',").replace("[tests/disk]", "[tests/disk]\nuser = bob")


def passed(folder: Path, *more: Absent) -> SuiteRun:
    """A run in which each test passed that was found, and three were not found, plus ``more``."""
    suite = suite_of(ABSENT)
    suite = replace(suite, absent=(*suite.absent, *more))
    return written(folder, suite, *(of(suite, number) for number in range(suite.size)))


def groups_in_ktap(run: SuiteRun) -> dict[str, Result]:
    found = read_ktap(render(run, "ktap").splitlines())
    assert found is not None
    return {group.name: group for group in found.subtests}


def test_what_was_not_found_is_an_error_in_junit_beside_the_tests_of_its_group(tmp_path: Path) -> None:
    run = passed(tmp_path)
    assert status_of(run) == 4
    root = ElementTree.fromstring(render(run, "junit"))
    errors = {
        (case.attrib["classname"], case.attrib["name"]): error.attrib
        for case in root.iter("testcase")
        for error in case.findall("error")
    }
    missing = "1.run:14: test gone is left out: there is no gone or gone.ksh or gone.sh in /suite/tests/pool"
    unknown = "1.run:26: [tests/disk] is left out: user: unknown user 'bob'"
    assert errors == {
        ("tests/pool", "tests/pool/gone"): {"message": missing, "type": "NO RESULT"},
        ("tests/disk", "tests/disk/write"): {"message": unknown, "type": "NO RESULT"},
    }
    counts = {suite.attrib["name"]: (suite.attrib["tests"], suite.attrib["errors"]) for suite in root}
    assert counts == {"tests/acl:Linux": ("1", "0"), "tests/pool": ("3", "1"), "tests/disk": ("1", "1")}


def test_what_was_not_found_is_not_ok_in_ktap(tmp_path: Path) -> None:
    groups = groups_in_ktap(passed(tmp_path))
    assert {name: group.outcome for name, group in groups.items()} == {
        "tests/acl:Linux": Outcome.PASS,
        "tests/pool": Outcome.FAIL,
        "tests/disk": Outcome.FAIL,
    }
    assert list(groups["tests/pool"].failed) == ["tests/pool.tests/pool/gone"]


def test_tests_whose_names_are_not_known_are_as_many_errors_as_they_are(tmp_path: Path) -> None:
    run = passed(tmp_path, Absent("s.toml:3", "group xfs is left out: <no user>", 3), Absent("s.toml:9", "no a"))
    root = ElementTree.fromstring(render(run, "junit"))
    (found,) = (suite for suite in root if suite.attrib["name"] == "not found")
    assert [case.attrib["name"] for case in found] == [
        *(f"s.toml:3: group xfs is left out: <no user> ({number} of 3)" for number in (1, 2, 3)),
        "s.toml:9: no a",
    ]
    assert found.attrib["errors"] == found.attrib["tests"] == "4"
    assert len(groups_in_ktap(run)["not found"].subtests) == 4
    assert len(json.loads(render(run, "json"))["absent"]) == 4
    assert "6 tests that were asked for have no result." in render(run, "text")


def test_without_any_result_ktap_and_junit_call_tests_as_where_they_have_one(tmp_path: Path) -> None:
    run = written(tmp_path, suite_of(RUNFILE))
    in_ktap = {test.name for group in groups_in_ktap(run).values() for test in group.subtests}
    in_junit = {case.attrib["name"] for case in ElementTree.fromstring(render(run, "junit")).iter("testcase")}
    assert in_ktap == in_junit and "tests/pool/create" in in_ktap


@pytest.mark.parametrize("format_", ["text", "md", "html"])
def test_output_that_was_not_kept_is_reported_even_of_a_test_that_passed(tmp_path: Path, format_: str) -> None:
    suite = suite_of(RUNFILE)
    printed_more = of(suite, 0, dropped=12 << 20)
    run = written(tmp_path, suite, printed_more, *(of(suite, number) for number in range(1, suite.size)))
    text = render(run, format_)
    assert text.count("12.0 MiB of its output was not kept") == 1 and text.count("not kept") <= 2


def test_output_that_was_not_kept_is_reported_beside_other_reasons(tmp_path: Path) -> None:
    suite = suite_of(RUNFILE)
    run = written(tmp_path, suite, of(suite, 0, Outcome.KILLED, reason="it took longer than 60 s", dropped=3 << 30))
    assert "it took longer than 60 s; 3.00 GiB of its output was not kept" in render(run, "html")


@pytest.mark.parametrize("size", [1, MOST_JUDGED])
def test_subtests_in_a_report_are_those_by_which_a_test_was_judged(tmp_path: Path, size: int) -> None:
    suite = suite_of(RUNFILE)
    written(tmp_path, suite, of(suite, 0, folder="output/x"))
    write_suite_record(tmp_path, with_fields(read_suite_record(tmp_path), adapter="ktap"))
    (tmp_path / "output/x").mkdir(parents=True)
    (tmp_path / "output/x/stdout").write_bytes(b"1..1\nok 1 a\n" + b"#" * size + b"\nok 2 b\n")
    (test,) = groups_in_ktap(read_suite_run(tmp_path))["tests/acl:Linux"].subtests
    assert [each.name for each in test.subtests] == (["a", "b"] if size == 1 else ["a"])
