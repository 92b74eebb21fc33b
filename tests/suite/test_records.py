"""Runs of suites as their folders have them: what a crash leaves is read, and what is damaged is named."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from storlab.analysis.suite.history import history_of
from storlab.cli.suite.choose import asked_for
from storlab.cli.suite.finish import status_of
from storlab.errors import RecordsError, UserError
from storlab.record import to_json
from storlab.records.manifest import Manifest, write_manifest
from storlab.records.suite import (
    CONSOLES,
    ENVIRONMENT,
    Results,
    SuiteRecord,
    SuiteRun,
    read_suite_record,
    read_suite_run,
    write_suite_record,
)
from storlab.records.suite.sources import read_source
from storlab.report.suite.formats import render
from storlab.report.suite.view import view_of
from storlab.run.suite import environment
from storlab.run.suite.output import MOST, ScriptOutput
from storlab.run.suite.queue import Queue, remaining
from storlab.suite.environment import SuiteEnvironment
from storlab.suite.expectations import read_expectations
from storlab.suite.model import Attempt, Leak, Outcome, Suite
from suite.samples import HERE, REPORT, RUNFILE, suite_of

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def of(suite: Suite, which: int, /, outcome: Outcome = Outcome.PASS, **more: object) -> Attempt:
    """What came of a suite's test."""
    group, test = [(group, test) for group in suite.groups for test in group.tests][which]
    attempt = Attempt(group.name, test.path, "test", outcome, BEGAN, 1.5, user="root")
    return replace(attempt, **more)


@pytest.fixture
def suite() -> Suite:
    return suite_of(RUNFILE)


def written(folder: Path, suite: Suite, *attempts: Attempt) -> SuiteRun:
    """A run with these results, written and read back."""
    argv = ("storlab",)
    write_manifest(folder, Manifest("r1", "Suite ours", "0.1", argv, BEGAN, suite="ours", finished=BEGAN))
    tables = read_expectations(REPORT, "report.py")
    record = SuiteRecord("ours", "tester", suite.groups, (), HERE, expectations=tables, absent=suite.absent)
    write_suite_record(folder, record)
    with Results(folder) as results:
        for attempt in attempts:
            results.add(attempt)
    return read_suite_run(folder)


def test_what_is_written_is_read_back(tmp_path: Path, suite: Suite) -> None:
    attempts = (
        of(suite, 0),
        of(suite, 1, Outcome.HUNG, reason="why", leaks=[Leak("process", "sleep", "/t/a")], code=None, signal="SIGKILL"),
    )
    run = written(tmp_path, suite, *attempts)
    assert run.attempts == attempts and run.asked.groups == suite.groups
    assert [path for _, path in run.without_result] == [
        f"{HERE}/tests/pool/{n}" for n in ("create", "destroy", "rename")
    ]


def test_a_line_that_a_killed_process_did_not_finish_is_dropped(tmp_path: Path, suite: Suite) -> None:
    written(tmp_path, suite, of(suite, 0))
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b'{"group":"half')
    assert len(read_suite_run(tmp_path).attempts) == 1
    with Results(tmp_path) as results:
        results.add(of(suite, 1))
    assert len(read_suite_run(tmp_path).attempts) == 2


def test_a_damaged_line_is_named(tmp_path: Path, suite: Suite) -> None:
    written(tmp_path, suite, of(suite, 0))
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b'{"group":3}\n')
    with pytest.raises(RecordsError, match=r"results\.jsonl:2 is damaged"):
        read_suite_run(tmp_path)


def test_the_status_tells_unexpected_from_missing_results(tmp_path: Path, suite: Suite) -> None:
    whole = [of(suite, number) for number in range(suite.size)]
    for outcome, status in ((Outcome.PASS, 0), (Outcome.FAIL, 3), (Outcome.SKIP, 0)):
        folder = tmp_path / outcome
        folder.mkdir()
        assert status_of(written(folder, suite, *whole[1:], replace(whole[0], outcome=outcome))) == status
    (tmp_path / "less").mkdir()
    assert status_of(written(tmp_path / "less", suite, *whole[1:])) == 4


def test_the_last_try_counts_and_one_that_needed_several_is_named(tmp_path: Path, suite: Suite) -> None:
    run = written(tmp_path, suite, of(suite, 0, Outcome.FAIL), of(suite, 0, number=2))
    view = view_of(run)
    assert view.counts == {Outcome.PASS: 1} and [row.why for row in view.flaky] == ["try 2"]


def test_reports_say_what_was_not_expected_and_what_has_no_result(tmp_path: Path, suite: Suite) -> None:
    lost = of(suite, 0, Outcome.CRASHED, reason="the guest's kernel panicked: <oops>", folder="output/x")
    run = written(tmp_path, suite, lost, of(suite, 1))
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


def test_what_has_a_result_is_not_run_again(suite: Suite) -> None:
    left = remaining(suite.groups, [of(suite, 0), of(suite, 3)])
    assert [(group.name, [test.path.rpartition("/")[2] for test in group.tests]) for group in left] == [
        ("tests/disk", ["write"]),
        ("tests/pool", ["create", "rename"]),
    ]
    queue = Queue.of(left)
    assert queue.take() == left[0] and len(queue) == 1


def test_output_is_kept_in_pieces_of_any_size_up_to_a_bound(tmp_path: Path) -> None:
    with ScriptOutput(tmp_path) as output:
        output.listener("stdout")(b"on", 1.0)
        output.listener("stderr")(b"err\n", 2.0)
        output.listener("stdout")(b"e\ntwo", 3.0)
    assert (tmp_path / "stdout").read_bytes() == b"one\ntwo"
    assert (tmp_path / "merged").read_bytes() == b"err\none\ntwo\n"
    assert output.last == 3.0 and output.dropped == 0
    with ScriptOutput(tmp_path / "long") as output:
        for _ in range(MOST // (8 << 20) + 1):
            output.listener("stdout")(b"x" * (8 << 20), 1.0)
    assert output.dropped == 8 << 20 and (tmp_path / "long/stdout").stat().st_size == MOST


def test_patterns_come_from_files_too_and_what_can_not_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("a*\n\n# no\nb  # why\n")
    chosen = {"test": None, "tags": "", "shard": "1/2"}
    asked = asked_for(["x"], tests=None, exclude=[f"@{tmp_path}/slow", "c"], **chosen)  # type: ignore[arg-type]
    assert asked.selection.excluded == ("a*", "b", "c") and asked.selection.share == (1, 2)
    for wrong in ({"tests": tmp_path / "none", "exclude": None}, {"tests": None, "exclude": ["@/none"]}):
        with pytest.raises(UserError):
            asked_for(["x"], **wrong, **chosen)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="there is no file"):
        asked_for(["no/such.run"], tests=None, exclude=None, **chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("format_", ["text", "md", "html", "json"])
def test_a_guest_that_is_not_what_the_first_one_was_is_named_in_reports(
    tmp_path: Path, suite: Suite, format_: str
) -> None:
    written(tmp_path, suite)
    first = SuiteEnvironment(kernel="6.12", modules={"zfs": "2.3.2"}, cpus=1)
    record = replace(read_suite_record(tmp_path), environment=first)
    write_suite_record(tmp_path, record)
    folder = tmp_path / CONSOLES / "003-guest-2"
    folder.mkdir(parents=True)
    same, other = replace(first, memory=1), replace(first, kernel="6.13", modules={})
    place: Any = None
    with pytest.MonkeyPatch.context() as patch:
        for found in (same, other):
            patch.setattr(environment, "environment_of", AsyncMock(return_value=found))
            differs = asyncio.run(environment.record_difference(place, place, first, folder))
            assert (folder / ENVIRONMENT).exists() is (found is other) is bool(differs)
    run = read_suite_run(tmp_path)
    assert "guest-2: kernel 6.13 and not 6.12, ZFS none and not 2.3.2" in render(run, format_)


def test_what_ran_in_another_environment_counts_there(tmp_path: Path, suite: Suite) -> None:
    attempts = (of(suite, 0, console="001-guest-1"), of(suite, 1, Outcome.FAIL, console="002-guest-1"))
    written(tmp_path, suite, *attempts)
    first = SuiteEnvironment(kernel="6.12", cpus=1)
    write_suite_record(tmp_path, replace(read_suite_record(tmp_path), environment=first))
    folder = tmp_path / CONSOLES / "002-guest-1"
    folder.mkdir(parents=True)
    (folder / ENVIRONMENT).write_bytes(to_json(replace(first, kernel="6.13")))
    old, new = read_source(tmp_path)
    assert (old.environment.kernel, new.environment.kernel) == ("6.12", "6.13")
    assert [len(each.tests) for each in (old, new)] == [1, 1] and not old.tests.keys() & new.tests.keys()
    assert new.asked == new.tests.keys() and not old.asked & new.asked and old.asked > old.tests.keys()
    assert [each.environment.kernel for each in history_of([old, new]).tests] in (["6.12", "6.13"], ["6.13", "6.12"])
