"""A user's own list of what is expected: which results it excuses, until when and where, and what is wrong with one."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tools.suite_reference import EXPECTATIONS

from storlab.errors import StudyError
from storlab.records.suite import SuiteRun, read_suite_run, write_suite_record
from storlab.report.suite.formats import render
from storlab.report.suite.view import view_of
from storlab.run.suite.own_files import read_own_expectations
from storlab.suite.environment import SuiteEnvironment
from storlab.suite.model import Expectation, Expectations, Outcome
from storlab.suite.own_expectations import OwnEntry, with_own
from study.program import call
from suite.samples import HERE, RUNFILE, suite_of
from suite.test_records import of, written

DAY = dt.date(2026, 5, 1)
ACL, POOL = f"{HERE}/tests/acl/allow", f"{HERE}/tests/pool/create"
GUESTS = SuiteEnvironment(kernel="6.12.117+deb12-amd64", modules={"zfs": "2.3.2-2"})


def entry(tests: str = "acl/*", **fields: object) -> OwnEntry:
    return structs.replace(OwnEntry((tests,), Outcome.FAIL, "issue 1"), **fields)


def excused(*own: OwnEntry, tables: Expectations = Expectations(), day: dt.date = DAY) -> Expectations:  # noqa: B008
    return with_own(tables, own, [(ACL, "acl/allow"), (POOL, "pool/create")], GUESTS, day)


def test_an_entry_is_about_what_its_pattern_matches() -> None:
    assert excused(entry()).maybe == {"acl/allow": Expectation("acl/allow", Outcome.FAIL, "issue 1", False)}
    assert excused(entry("*", always=True)).known.keys() == {"acl/allow", "pool/create"}


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({"kernel": "6.12.*"}, True), ({"kernel": "6.13.*"}, False), ({"zfs": "2.3.*"}, True), ({"zfs": "2.2*"}, False),
        ({"until": "2026-05-01"}, True), ({"until": "2026-04-30"}, False),
    ],
)  # fmt: skip
def test_an_entry_holds_until_its_day_and_where_it_says(fields: dict[str, str], counts: bool) -> None:
    assert bool(excused(entry(**fields)).maybe) == counts


def test_of_guests_that_nothing_is_known_of_only_an_entry_for_any_counts() -> None:
    assert not entry(kernel="6.*").holds_in(None) and entry().holds_in(None)


def test_it_counts_in_place_of_the_suites_own_table_and_the_first_entry_in_place_of_others() -> None:
    theirs = Expectations({"acl/allow": Expectation("acl/allow", Outcome.SKIP, "theirs", True)})
    merged = excused(entry(reason="first"), entry(reason="second"), tables=theirs)
    assert not merged.known and merged.maybe["acl/allow"].reason == "first"
    assert excused(entry("pool/*"), tables=theirs).known == theirs.known


def failed(folder: Path) -> SuiteRun:
    suite = suite_of(RUNFILE)
    return written(folder, suite, of(suite, 0, Outcome.FAIL, code=1))


def test_a_report_with_a_list_says_what_is_expected_and_which_entries_are_idle(tmp_path: Path) -> None:
    run = failed(tmp_path)
    assert len(view_of(run).unexpected) == 1
    (tmp_path / "mine.toml").write_text(
        '[[expect]]\ntests = "acl/*"\noutcome = "FAIL"\nreason = "issue 1"\n'
        '[[expect]]\ntests = "*"\noutcome = "FAIL"\nreason = "old"\nuntil = 2020-01-01\n'
        '[[expect]]\ntests = ["gone"]\noutcome = "SKIP"\nreason = "no device"\n'
    )
    said = call("suite", "report", str(tmp_path), "--expect", str(tmp_path / "mine.toml")).output
    assert "Not expected" not in said and "expected: issue 1" in said
    assert "not expected any more, its last day was 2020-01-01: * (FAIL, old)" in said
    assert "matches no test of this run: gone (SKIP, no device)" in said
    for form in ("md", "html"):
        text = call("suite", "report", str(tmp_path), "-f", form, "--expect", str(tmp_path / "mine.toml")).output
        assert "its last day was 2020-01-01" in text.replace("\\", "")


def test_a_pass_that_is_never_to_come_is_reported(tmp_path: Path) -> None:
    suite = suite_of(RUNFILE)
    run = written(tmp_path, suite, of(suite, 0))
    write_suite_record(tmp_path, structs.replace(run.asked, own=(entry("*", always=True),)))
    (row,) = view_of(read_suite_run(tmp_path)).unexpected
    assert row.why == "it was expected not to pass"
    assert "not to pass" in render(read_suite_run(tmp_path), "text")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expect"),
        ('[[expect]]\ntests = "a"\nreason = "x"\n', r"mine.toml: line 1: expect.0.outcome"),
        ('[[expect]]\ntests = "a"\noutcome = "PASS"\nreason = "x"\n', r"mine.toml: line 3: expect.0.outcome"),
        ('[[expect]]\ntests = []\noutcome = "FAIL"\nreason = "x"\n', r"mine.toml: line 2: expect.0.tests"),
        ('[[expect]]\ntests = "a"\noutcome = "FAIL"\nreason = ""\n', r"mine.toml: line 4: expect.0.reason"),
        ('[[expect]]\ntests = "a"\noutcome = "FAIL"\nreason = "x"\nuntil = "soon"\n', "line 5: expect.0.until"),
        ('[[expect]]\ntest = "a"\noutcome = "FAIL"\nreason = "x"\n', r"mine.toml: line 2: expect.0.test"),
    ],
)
def test_what_is_wrong_with_a_list_is_named_with_line_and_key(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(StudyError, match=said):
        read_own_expectations(path)
    (tmp_path / "run").mkdir()
    failed(tmp_path / "run")
    ended = call("suite", "report", str(tmp_path / "run"), "--expect", str(path))
    assert ended.status == 2 and "Traceback" not in ended.message


@given(st.text(max_size=200))
def test_any_text_is_a_list_or_is_refused(text: str) -> None:
    path = Path("/dev/shm/storlab-expectations.toml")
    path.write_text(text)
    try:
        read_own_expectations(path)
    except StudyError as error:
        assert str(error)
    finally:
        path.unlink()


def test_the_example_of_the_reference_is_whole(tmp_path: Path) -> None:
    assert len(read_own_expectations(EXPECTATIONS)) == 2
