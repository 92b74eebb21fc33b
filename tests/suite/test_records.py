"""Runs of suites as their folders have them: what a crash or a full disk leaves, what is damaged, and the table."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from msgspec.structs import replace

from storlab.base.errors import RecordsError, UserError
from storlab.base.record import to_json
from storlab.cli.suite.choose import asked_for
from storlab.cli.suite.finish import status_of
from storlab.cli.suite.options import Choice
from storlab.suites.history import history_of
from storlab.suites.model import Attempt, Group, Leak, Outcome, Script, Suite, SuiteEnvironment
from storlab.suites.records.derived import COLUMNS, merged_suite_runs, write_tests
from storlab.suites.records.folder import CONSOLES, ENVIRONMENT, OUTPUT, RESULTS, Results, read_results, read_suite_run
from storlab.suites.records.sources import observed, read_source
from storlab.suites.report.formats import render
from storlab.suites.run import record
from storlab.suites.run.execution import Queue
from storlab.suites.run.output import MOST, ScriptOutput
from storlab.suites.run.part import Part, place_of
from storlab.suites.selection import remaining, repeated
from suite.samples import BEGAN, HERE, SUITE, attempt, passes, recorded
from suite.samples import of as of
from suite.samples import written as written


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    leaks = [Leak("process", "sleep", "/t/a")]
    attempts = (of(SUITE, 0), of(SUITE, 1, Outcome.HUNG, reason="why", leaks=leaks, code=None, signal="SIGKILL"))
    run = written(tmp_path, SUITE, *attempts)
    assert run.attempts == attempts and run.asked.groups == SUITE.groups
    left = [f"{HERE}/tests/pool/{name}" for name in ("create", "destroy", "rename")]
    assert [path for _, path in run.without_result] == left


def test_a_line_that_a_killed_process_did_not_finish_is_dropped_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    written(tmp_path, SUITE, of(SUITE, 0))
    with (tmp_path / RESULTS).open("ab") as file:
        file.write(b'{"group":"half')
    assert len(read_suite_run(tmp_path).attempts) == 1
    with Results(tmp_path) as results:
        results.add(of(SUITE, 1))
    assert len(read_suite_run(tmp_path).attempts) == 2
    with (tmp_path / RESULTS).open("ab") as file:
        file.write(b'{"group":3}\n')
    with pytest.raises(RecordsError, match=r"results\.jsonl:3 is damaged"):
        read_suite_run(tmp_path)
    (tmp_path / "suite.json").unlink()
    with pytest.raises(RecordsError, match="it was stopped before any test was known"):
        read_suite_run(tmp_path)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes: as on a full disk, a write takes what fits, and the next one is refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 50])
def test_a_result_that_finds_no_room_leaves_nothing_that_a_later_one_follows(tmp_path: Path, room: int) -> None:
    first, refused, later = attempt("pool/a"), attempt("pool/b", Outcome.FAIL), attempt("pool/c")
    path = tmp_path / RESULTS
    with Results(tmp_path) as results:
        results.add(first)
        before = path.read_bytes()
        with room_for(len(before) + room), pytest.raises(OSError, match="File too large"):
            results.add(refused)
        assert path.read_bytes() == before
        results.add(later)
    assert read_results(tmp_path) == [first, later]


def test_the_status_tells_unexpected_from_missing_results_and_from_none_at_all(tmp_path: Path) -> None:
    for outcome, status in ((Outcome.PASS, 0), (Outcome.FAIL, 3), (Outcome.SKIP, 0)):
        assert status_of(written(tmp_path / outcome, SUITE, *passes(first=1), of(SUITE, 0, outcome))) == status
    assert status_of(written(tmp_path / "less", SUITE, *passes(first=1))) == 4
    skipped = (of(SUITE, number, Outcome.SKIP) for number in range(SUITE.size))
    assert status_of(written(tmp_path / "none", SUITE, *skipped)) == 125


def test_runs_of_shares_are_one_report_which_names_shares_that_no_run_has(tmp_path: Path) -> None:
    runs = []
    for share, at in enumerate((0, 1), 1):
        (tmp_path / f"{share}/output").mkdir(parents=True)
        (tmp_path / f"{share}/output/log").write_text(f"12:00:00.00 UNSUPPORTED: {share}\n")
        alone = Suite("ours", (SUITE.groups[at],))
        skipped = of(alone, 0, Outcome.SKIP, folder="output")
        runs.append(written(tmp_path / str(share), alone, skipped, *passes(alone, 1)))
        recorded(runs[-1], share=(share, 3))
    whole = merged_suite_runs([run.folder for run in runs])
    text = render(whole, "text")
    assert len(whole.results) == sum(len(run.results) for run in runs) and "No run has --shard 3/3." in text
    assert all(f"UNSUPPORTED: {share}" in render(whole, name) for share in (1, 2) for name in ("text", "md", "html"))
    with pytest.raises(UserError, match=r"tests/acl/allow is in .*: `storlab suite compare` compares runs"):
        merged_suite_runs([runs[0].folder, written(tmp_path / "again", SUITE).folder])
    recorded(runs[1], testdir="/other")
    with pytest.raises(UserError, match="2 is no part of the same suite: its testdir is /other, that of"):
        merged_suite_runs([run.folder for run in runs])


def test_what_has_a_result_is_not_run_again() -> None:
    left = remaining(SUITE.groups, [of(SUITE, 0), of(SUITE, 3)])
    names = [(group.name, [test.path.rpartition("/")[2] for test in group.tests]) for group in left]
    assert names == [("tests/disk", ["write"]), ("tests/pool", ["create", "rename"])]
    queue = Queue(left)
    assert queue.take() == left[0] and len(queue) == 1


def test_output_is_kept_in_pieces_up_to_a_bound_and_that_of_an_interrupted_try_is_no_later_ones(tmp_path: Path) -> None:
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
    with ScriptOutput(tmp_path / "test") as output:
        output.listener("stdout")(b"[failed, exit status 1]\n", 0.0)
    (tmp_path / "test" / "killed.txt").write_text("stacks")
    with ScriptOutput(tmp_path / "test"):
        pass
    assert list((tmp_path / "test").iterdir()) == []


def test_patterns_come_from_files_too_and_what_can_not_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("a*\n\n# no\nb  # why\n")
    asked = asked_for(["x"], Choice(exclude=[f"@{tmp_path}/slow", "c"], shard="1/2"))
    assert asked.selection.excluded == ("a*", "b", "c") and asked.selection.share == (1, 2)
    for name, tests, exclude in (("x", tmp_path / "none", None), ("x", None, ["@/none"]), ("no/such.run", None, None)):
        with pytest.raises(UserError, match="there is no file" if name != "x" else "none"):
            asked_for([name], Choice(tests=tests, exclude=exclude))


FIRST = SuiteEnvironment(kernel="6.12", modules={"zfs": "2.3.2"}, cpus=1)


@pytest.mark.parametrize("format_", ["text", "md", "html", "json"])
def test_a_guest_that_is_not_what_the_first_one_was_is_named_in_reports(tmp_path: Path, format_: str) -> None:
    recorded(written(tmp_path, SUITE), environment=FIRST)
    folder = tmp_path / CONSOLES / "003-guest-2"
    folder.mkdir(parents=True)
    same, other = replace(FIRST, memory=1), replace(FIRST, kernel="6.13", modules={})
    place: Any = None
    with pytest.MonkeyPatch.context() as patch:
        for found in (same, other):
            patch.setattr(record, "environment_of", mock.AsyncMock(return_value=found))
            differs = asyncio.run(record.record_difference(place, place, FIRST, folder))
            assert (folder / ENVIRONMENT).exists() is (found is other) is bool(differs)
    run = read_suite_run(tmp_path)
    assert "guest-2: kernel 6.13 and not 6.12, ZFS none and not 2.3.2" in render(run, format_)


def test_what_ran_in_another_environment_counts_there(tmp_path: Path) -> None:
    attempts = (of(SUITE, 0, console="001-guest-1"), of(SUITE, 1, Outcome.FAIL, console="002-guest-1"))
    recorded(written(tmp_path, SUITE, *attempts), environment=FIRST)
    folder = tmp_path / CONSOLES / "002-guest-1"
    folder.mkdir(parents=True)
    (folder / ENVIRONMENT).write_bytes(to_json(replace(FIRST, kernel="6.13")))
    old, new = read_source(tmp_path)
    assert (old.environment.kernel, new.environment.kernel) == ("6.12", "6.13")
    assert [len(each.tests) for each in (old, new)] == [1, 1] and not old.tests.keys() & new.tests.keys()
    assert new.asked == new.tests.keys() and not old.asked & new.asked and old.asked > old.tests.keys()
    assert [each.environment.kernel for each in history_of([old, new]).tests] in (["6.12", "6.13"], ["6.13", "6.12"])


def test_no_name_of_a_test_leads_out_of_the_runs_folder_and_each_has_its_own(tmp_path: Path) -> None:
    """A guest says which tests there are, and root's files lie beside the run's folder."""
    tests = [Script(f"/suite/tests/g/{name}", "root") for name in ("x/a", "y/a", "y/b")]
    assert [place_of(test.path, tests) for test in tests] == ["x/a", "y/a", "b"]
    assert place_of("/suite/tests/g/x/a", tests[:1]) == "a"
    names = [f"/suite/tests/g/{name}" for name in ("cron.d", "../../../../../etc/cron.d", "..")]
    group = Group("g", tuple(Script(name, "root") for name in names), folder="g")
    part = Part(mock.Mock(record=mock.Mock(folder=tmp_path)), mock.Mock(), group, {})
    places = {part._place(test, "test", 1, "") for test in group.tests}
    assert len(places) == 3 and all(".." not in place and place.startswith(f"{OUTPUT}/g") for place in places)


def test_a_folder_of_a_strangers_records_is_within_the_run(tmp_path: Path) -> None:
    written(tmp_path, SUITE, of(SUITE, 0, folder="output/pool"))
    results = tmp_path / RESULTS
    good = results.read_bytes()
    for folder in (b"../etc", b"/etc", b"output/../../etc", b".."):
        results.write_bytes(good.replace(b'"output/pool"', b'"%s"' % folder))
        with pytest.raises(RecordsError, match="folder"):
            read_results(tmp_path)
    results.write_bytes(good)
    assert read_results(tmp_path)[0].folder == "output/pool"


def test_whatever_a_guest_says_the_record_of_it_can_be_read_again(tmp_path: Path) -> None:
    leaks = [Leak("user", "u" * 70_000, "/t/1")] + [Leak("user", f"u{number}", "/t/1") for number in range(2000)]
    with Results(tmp_path) as results:
        results.add(of(SUITE, 0, reason="r" * 100_000, leaks=leaks))
    (read,) = read_results(tmp_path)
    assert read.reason.startswith("rrr") and len(read.reason) < 3000
    assert len(read.leaks) == 1000 and len(read.leaks[0].what) < 3000


def test_the_table_has_what_the_records_have(tmp_path: Path) -> None:
    leaks = [Leak("pool", "tank", "/t/a")]
    write_tests(written(tmp_path, SUITE, of(SUITE, 0, Outcome.FAIL, code=1), of(SUITE, 0, number=2, leaks=leaks)))
    table = pl.read_parquet(tmp_path / "tests.parquet")
    assert list(table.columns) == list(COLUMNS)
    assert table["test"].to_list() == ["tests/acl/allow"] * 2 and table["outcome"].to_list() == ["FAIL", "PASS"]
    assert table["code"].to_list() == [1, None] and table["leaks"].to_list() == [[], ["/t/a: pool tank"]]


def test_the_environment_is_recorded_and_older_runs_have_none(tmp_path: Path) -> None:
    run = written(tmp_path, SUITE, of(SUITE, 0))
    assert str(observed(run)[0].environment) == "environment not recorded"
    known = replace(FIRST, cpus=2, accelerator="kvm")
    (found,) = observed(recorded(run, environment=known))
    assert str(found.environment) == "kernel 6.12, ZFS 2.3.2, CPUs 2, accelerator kvm"


def test_each_iteration_counts_as_a_run(tmp_path: Path) -> None:
    suite = repeated(SUITE, 3)
    groups = [group for group in suite.groups if group.name.startswith("tests/pool")]
    came = (Outcome.PASS, Outcome.FAIL, Outcome.PASS)
    tests = ((group.name, group.tests[0].path) for group in groups)
    attempts = (Attempt(*test, "test", each, BEGAN, 1.0, user="root") for test, each in zip(tests, came, strict=True))
    runs = observed(written(tmp_path, suite, *attempts))
    found = [{name: [each.outcome for each in tries] for name, tries in run.tests.items()} for run in runs]
    assert found == [{"tests/pool/create": [outcome]} for outcome in came]
    assert len({run.identity for run in runs}) == 3 and len({run.asked for run in runs}) == 1
