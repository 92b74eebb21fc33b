"""``--failed-of``: what of an earlier run is to be run again, by its folder or by a log."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from storlab.cli.suite.choose import asked_for
from storlab.errors import UserError
from storlab.records.manifest import Manifest, write_manifest
from storlab.records.suite import Results, SuiteRecord, read_suite_record, write_suite_record
from storlab.suite.expectations import read_expectations
from storlab.suite.model import Absent, Attempt, Group, Outcome, Role, Script, Suite
from storlab.suite.order import iteration_name, repeated
from storlab.suite.selection import Selection, select
from storlab.suite.zts_text import console_line
from suite.samples import HERE, REPORT, RUNFILE, suite_of

INSTALLED = "/usr/share/zfs/zfs-tests/tests/functional"
BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SUITE = suite_of(RUNFILE)
POOL = ["pool/create", "pool/destroy", "pool/rename"]
EVERYTHING = ["acl/allow", "disk/write", *POOL]
GROUPS = {"acl": "tests/acl:Linux", "disk": "tests/disk", "pool": "tests/pool"}
ROLES: dict[str, Role] = {"setup": "pre", "cleanup": "post"}
FAIL, PASS, SKIP = Outcome.FAIL, Outcome.PASS, Outcome.SKIP


def result(name: str, outcome: Outcome, iteration: int = 1, number: int = 1) -> Attempt:
    """What came of one of our scripts."""
    folder, _, script = name.partition("/")
    group = GROUPS[folder] + iteration_name(iteration)
    identifier = GROUPS[folder].partition(":")[2]
    role = ROLES.get(script, "test")
    path = f"{HERE}/tests/{name}"
    return Attempt(group, path, role, outcome, BEGAN, 1.5, user="root", number=number, identifier=identifier)


def pool_in(folder: str) -> Group:
    """The group of the pool's tests, in another folder."""
    pool = SUITE.groups[-1]
    scripts = (Script(f"{folder}/{posixpath.basename(test.path)}", test.user) for test in pool.tests)
    return Group(pool.name, tuple(scripts))


def whole(*results: Attempt, iterations: int = 1) -> list[Attempt]:
    """These results, after a pass of every test in every iteration but of those that have one."""
    have = {each.key for each in results}
    passes = [result(name, PASS, number + 1) for number in range(iterations) for name in EVERYTHING]
    return [*(each for each in passes if each.key not in have), *results]


def write_run(folder: Path, results: Sequence[Attempt], groups: Sequence[Group] = SUITE.groups) -> None:
    write_manifest(folder, Manifest("r1", "Suite ours", "0.1", ("storlab",), BEGAN, suite="ours", finished=BEGAN))
    tables = read_expectations(REPORT, "report.py")
    write_suite_record(folder, SuiteRecord("ours", "tester", tuple(groups), (), HERE, expectations=tables))
    with Results(folder) as records:
        for each in results:
            records.add(each)


def selection(failed_of: Path, test: list[str] | None = None) -> Selection:
    chosen = asked_for(["x"], tests=None, test=test, exclude=None, tags="", shard="1/1", failed_of=failed_of)
    return chosen.selection


def names(suite: Suite) -> list[str]:
    return [test.path.removeprefix(f"{HERE}/tests/") for group in suite.groups for test in group.tests]


def again(failed_of: Path, test: list[str] | None = None) -> list[str]:
    """The tests that are run again."""
    return names(select(SUITE, selection(failed_of, test)))


def of_run(folder: Path, *results: Attempt, iterations: int = 1) -> list[str]:
    """The tests that are run again of a run with these results; all others passed."""
    write_run(folder, whole(*results, iterations=iterations), repeated(SUITE, iterations).groups)
    return again(folder)


def of_log(folder: Path, *results: Attempt | str) -> list[str]:
    """The tests that are run again by a log with these results and other lines."""
    log = folder / "log"
    log.write_text("".join(each if isinstance(each, str) else console_line(each, "tester") for each in results))
    return again(log)


def test_tests_that_did_not_pass_in_a_run_are_run_again(tmp_path: Path) -> None:
    assert of_run(tmp_path, result("disk/write", Outcome.KILLED)) == ["disk/write"]


def test_tests_that_did_not_pass_by_a_log_are_run_again(tmp_path: Path) -> None:
    assert of_log(tmp_path, result("acl/allow", PASS), result("disk/write", Outcome.KILLED)) == ["disk/write"]
    assert of_log(tmp_path, result("acl/allow", FAIL), result("disk/write", PASS)) == ["acl/allow"]


def test_a_test_without_a_result_is_run_again(tmp_path: Path) -> None:
    write_run(tmp_path, [each for each in whole() if not each.path.endswith("/write")])
    assert again(tmp_path) == ["disk/write"]


def test_what_was_not_found_is_not_said_to_have_passed(tmp_path: Path) -> None:
    write_run(tmp_path, whole(result("pool/rename", SKIP)))
    asked = replace(read_suite_record(tmp_path), absent=(Absent("own.run:7", "test gone is left out"),))
    write_suite_record(tmp_path, asked)
    with pytest.raises(UserError, match="all tests that were found passed there"):
        again(tmp_path)


def test_nothing_is_run_again_if_all_passed_or_the_log_has_no_result(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(UserError, match="all tests passed there"):
        of_run(tmp_path / "run", result("pool/setup", PASS), result("pool/rename", SKIP))
    with pytest.raises(UserError, match="all tests passed there"):
        of_log(tmp_path, result("pool/create", PASS))
    with pytest.raises(UserError, match="no line of it says what came of a test"):
        of_log(tmp_path, "nothing\n")


@pytest.mark.parametrize("outcome", [FAIL, Outcome.HUNG])
def test_tests_that_were_skipped_as_their_set_up_failed_are_run_again(tmp_path: Path, outcome: Outcome) -> None:
    skipped = [result(name, SKIP) for name in POOL]
    (tmp_path / "run").mkdir()
    assert of_run(tmp_path / "run", result("pool/setup", outcome), *skipped) == POOL
    assert of_log(tmp_path, result("pool/setup", outcome), *skipped, result("disk/write", FAIL)) == [
        "disk/write",
        *POOL,
    ]


def test_tests_are_run_again_if_their_clean_up_failed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert of_run(tmp_path / "run", result("pool/cleanup", FAIL)) == POOL
    assert of_log(tmp_path, result("pool/create", PASS), result("pool/cleanup", FAIL)) == POOL


def test_a_set_up_that_passed_later_does_not_make_up_for_one_that_failed(tmp_path: Path) -> None:
    skipped, passed = result("pool/create", SKIP), [result(name, PASS) for name in POOL[1:]]
    setups = result("pool/setup", FAIL), result("pool/setup", PASS)
    (tmp_path / "run").mkdir()
    assert of_run(tmp_path / "run", setups[0], skipped, setups[1], *passed) == POOL
    assert of_log(tmp_path, *setups, *passed) == POOL


def test_of_a_group_whose_set_up_failed_only_tests_that_were_asked_for_are_run_again(tmp_path: Path) -> None:
    some = select(SUITE, Selection(tests=("pool/create", "disk/*"))).groups
    write_run(tmp_path, [result("pool/setup", FAIL), result("pool/create", SKIP), result("disk/write", PASS)], some)
    assert again(tmp_path) == ["pool/create"]


def test_a_set_up_that_ended_a_run_until_failure_has_its_group_run_again(tmp_path: Path) -> None:
    write_run(tmp_path, [result("acl/allow", PASS), result("pool/setup", FAIL)], SUITE.groups[:1])
    assert again(tmp_path) == POOL


def test_results_that_nobody_expected_are_run_again_even_skips_and_passes(tmp_path: Path) -> None:
    folder = f"{INSTALLED}/pool"
    group = pool_in(folder)
    outcomes = {"create": PASS, "destroy": SKIP, "rename": SKIP}  # known to fail, to pass, known to skip
    results = [replace(result(f"pool/{name}", each), path=f"{folder}/{name}") for name, each in outcomes.items()]
    write_run(tmp_path, results, [group])
    kept = names(select(Suite("ours", (group,)), selection(tmp_path)))
    assert kept == [f"{folder}/{name}" for name in ("create", "destroy")]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_in_any_iteration_of_a_run_counts(tmp_path: Path, failing: int) -> None:
    assert of_run(tmp_path, result("disk/write", FAIL, failing), iterations=2) == ["disk/write"]


def test_a_set_up_that_failed_in_a_later_iteration_counts(tmp_path: Path) -> None:
    assert of_run(tmp_path, result("pool/setup", FAIL, 2), iterations=2) == POOL


@pytest.mark.parametrize("outcomes", [(FAIL, PASS), (PASS, FAIL), (PASS, FAIL, PASS)])
def test_a_failure_in_any_iteration_of_a_log_counts(tmp_path: Path, outcomes: Sequence[Outcome]) -> None:
    lines = [(result("pool/create", PASS), result("pool/destroy", each)) for each in outcomes]
    assert of_log(tmp_path, *(each for two in lines for each in two)) == ["pool/destroy"]
    assert of_log(tmp_path, *(result("disk/write", each) for each in outcomes)) == ["disk/write"]


def test_a_retry_that_passed_makes_up_for_a_failure(tmp_path: Path) -> None:
    retried = result("pool/create", FAIL), result("pool/create", PASS, number=2)
    failed = result("pool/destroy", FAIL), result("pool/destroy", FAIL, number=2)
    (tmp_path / "run").mkdir()
    assert of_run(tmp_path / "run", *retried, *failed) == ["pool/destroy"]
    # Other guests' results stand between those of one.
    assert of_log(tmp_path, retried[0], result("acl/allow", PASS), retried[1], *failed) == ["pool/destroy"]


def test_what_passed_when_zfs_tests_ran_it_again_after_the_summary_is_made_up_for(tmp_path: Path) -> None:
    first = result("pool/create", FAIL), result("pool/destroy", FAIL), "\nResults Summary\nFAIL\t   2\n\n"
    assert of_log(tmp_path, *first, result("pool/create", PASS), result("pool/destroy", FAIL)) == ["pool/destroy"]


def test_a_log_and_names_of_tests_narrow_each_other(tmp_path: Path) -> None:
    assert of_log(tmp_path, result("pool/create", FAIL), result("disk/write", FAIL)) == ["disk/write", "pool/create"]
    assert again(tmp_path / "log", ["pool/*"]) == ["pool/create"]


def test_a_log_may_be_of_a_suite_in_a_source_tree(tmp_path: Path) -> None:
    there = "/home/me/zfs/tests/zfs-tests/tests/functional/pool"
    (tmp_path / "log").write_text(console_line(replace(result("pool/create", FAIL), path=f"{there}/create"), "me"))
    installed = Suite("ours", (pool_in(f"{INSTALLED}/pool"),))
    assert names(select(installed, selection(tmp_path / "log"))) == [f"{INSTALLED}/pool/create"]
