"""What lost a guest is never made up for by a try that passes, and no result or output takes another's place."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace as with_fields

from storlab.cli.suite.finish import status_of
from storlab.errors import RecordsError
from storlab.records.suite import OUTPUT, RESULTS, Results, read_results
from storlab.report.suite.formats import render
from storlab.report.suite.view import view_of
from storlab.run.suite.output import ScriptOutput
from storlab.run.suite.part import Part, place_of
from storlab.run.suite.until_failure import is_failure
from storlab.suite.model import Group, Leak, Outcome, Script
from suite.samples import RUNFILE, suite_of
from suite.test_records import of, written


def test_a_test_that_lost_its_guest_and_passed_when_tried_again_is_not_as_expected(tmp_path: Path) -> None:
    suite = suite_of(RUNFILE)
    crashed = with_fields(of(suite, 0), outcome=Outcome.CRASHED, reason="the guest's kernel panicked")
    others = (of(suite, number) for number in range(1, suite.size))
    run = written(tmp_path, suite, crashed, with_fields(of(suite, 0), number=2), *others)
    assert status_of(run) == 3
    (row,) = view_of(run).unexpected
    assert row.attempt.outcome is Outcome.CRASHED
    assert row.why == "the guest's kernel panicked; PASS when tried again"
    for name in ("text", "md", "html", "junit"):
        assert "panicked; PASS when tried again" in render(run, name), name


def test_a_loss_is_a_failure_though_tries_are_left() -> None:
    suite = suite_of(RUNFILE)
    from storlab.records.suite import SuiteRecord

    record = SuiteRecord(name="own", runner="root", groups=suite.groups, runfiles=(), testdir="/suite", retries=5)
    attempt = of(suite, 0)
    assert is_failure(with_fields(attempt, outcome=Outcome.HUNG), record)
    assert not is_failure(with_fields(attempt, outcome=Outcome.FAIL), record)


def test_what_is_left_is_reported_though_a_failsafe_was_the_last_to_run(tmp_path: Path) -> None:
    suite = suite_of(RUNFILE)
    attempts = [of(suite, number) for number in range(suite.size)]
    leak = Leak("group", "left", attempts[-1].path)
    failsafe = with_fields(attempts[-1], path="/suite/callbacks/failsafe", role="failsafe", leaks=[leak])
    run = written(tmp_path, suite, *attempts, failsafe)
    assert [what for _, what in view_of(run).leaks] == ["group left"]


def test_tests_of_one_name_have_folders_of_their_own() -> None:
    tests = [Script(f"/suite/tests/g/{name}", "root") for name in ("x/a", "y/a", "y/b")]
    assert [place_of(test.path, tests) for test in tests] == ["x/a", "y/a", "b"]
    assert place_of("/suite/tests/g/x/a", tests[:1]) == "a"


def test_no_name_of_a_test_leads_out_of_the_runs_folder(tmp_path: Path) -> None:
    """A guest says which tests there are, and root's files lie beside the run's folder."""
    names = [f"/suite/tests/g/{name}" for name in ("cron.d", "../../../../../etc/cron.d", "..")]
    group = Group("g", tuple(Script(name, "root") for name in names), folder="g")
    part = Part(mock.Mock(record=mock.Mock(folder=tmp_path)), mock.Mock(), group, {})
    places = {part._place(test, "test", 1, "") for test in group.tests}
    assert len(places) == 3 and all(".." not in place and place.startswith(f"{OUTPUT}/g") for place in places)


def test_a_folder_of_a_strangers_records_is_within_the_run(tmp_path: Path) -> None:
    suite = suite_of(RUNFILE)
    written(tmp_path, suite, with_fields(of(suite, 0), folder="output/pool"))
    results = tmp_path / RESULTS
    for folder in ("../etc", "/etc", "output/../../etc", ".."):
        results.write_bytes(results.read_bytes().replace(b'"output/pool"', f'"{folder}"'.encode()))
        with pytest.raises(RecordsError, match="folder"):
            read_results(tmp_path)
        results.write_bytes(results.read_bytes().replace(f'"{folder}"'.encode(), b'"output/pool"'))
    assert read_results(tmp_path)[0].folder == "output/pool"


def test_whatever_a_guest_says_the_record_of_it_can_be_read_again(tmp_path: Path) -> None:
    suite = suite_of(RUNFILE)
    leaks = [Leak("user", "u" * 70_000, "/t/1")] + [Leak("user", f"u{number}", "/t/1") for number in range(2000)]
    with Results(tmp_path) as results:
        results.add(with_fields(of(suite, 0), reason="r" * 100_000, leaks=leaks))
    (read,) = read_results(tmp_path)
    assert read.reason.startswith("rrr") and len(read.reason) < 3000
    assert len(read.leaks) == 1000 and len(read.leaks[0].what) < 3000


def test_the_output_of_a_try_that_was_interrupted_is_not_taken_for_that_of_the_next(tmp_path: Path) -> None:
    with ScriptOutput(tmp_path / "test") as output:
        output.listener("stdout")(b"[failed, exit status 1]\n", 0.0)
    (tmp_path / "test" / "killed.txt").write_text("stacks")
    with ScriptOutput(tmp_path / "test"):
        pass
    assert list((tmp_path / "test").iterdir()) == []
