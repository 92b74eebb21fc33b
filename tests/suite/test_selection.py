"""Which tests are run, and in which order: by names, tags, shares, an earlier run or log, a seed, again and again."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storlab.base.errors import UserError
from storlab.cli.suite.choose import asked_for
from storlab.cli.suite.options import Choice
from storlab.suites.model import Absent, Attempt, Group, Outcome, Role, Script, Suite
from storlab.suites.records.folder import SuiteRun, read_suite_run
from storlab.suites.run.execution import Queue
from storlab.suites.selection import (
    Failures,
    Selection,
    iteration,
    iteration_name,
    matches,
    order_of,
    parse_share,
    parse_tags,
    repeated,
    replayed,
    select,
    shared,
    shuffled,
    without_rest,
)
from storlab.suites.zts_text import console_line
from study.program import call
from suite.samples import BEGAN, HERE, SUITE, attempt, recorded, written


def chosen(selection: Selection) -> list[str]:
    suite = select(SUITE, selection)
    return [test.path.removeprefix("/suite/tests/") for group in suite.groups for test in group.tests]


def test_a_pattern_is_the_end_of_a_path_from_some_component_on() -> None:
    assert chosen(Selection(tests=("create", "acl/*"))) == ["acl/allow", "pool/create"]
    assert chosen(Selection(tests=("pool/*",), excluded=("*me",))) == ["pool/create", "pool/destroy"]
    assert chosen(Selection(keys=frozenset({("tests/pool", "/suite/tests/pool/destroy")}))) == ["pool/destroy"]
    assert matches("/a/b/c", "/a/b/c") and not matches("/a/bc", "c")
    assert not matches("a/" * 2000, "*a" * 500 + "b")  # however many ways there are: at once


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (Selection(tests=("nothing",)), "no test of ours is called 'nothing'"),
        (Selection(excluded=("nothing",)), "no test of ours is called 'nothing'"),
        (Selection(excluded=("*",)), "no test of ours is left"),
        (Selection(tags="fast"), "no group of ours has the tags 'fast'; there are all, pool"),
    ],
)
def test_a_choice_that_is_no_test_is_refused(selection: Selection, says: str) -> None:
    with pytest.raises(UserError, match=says):
        chosen(selection)


@pytest.mark.parametrize(
    ("tags", "count"),
    [("pool", 3), ("not pool", 2), ("all and not (pool or none)", 2), ("none, pool", 3), ("not not pool", 3)],
)
def test_tags_are_an_expression(tags: str, count: int) -> None:
    assert len(chosen(Selection(tags=tags))) == count


CREATED = ("tests/pool", "/suite/tests/pool/create")
DENIED = frozenset({CREATED, ("tests/acl", "/suite/tests/acl/deny")})
ABSENT = (
    Absent("ours.run:3", "[tests/acl] is left out", 2, ("/suite/tests/acl/allow", "/suite/tests/acl/deny"), ("all",)),
    Absent("command line", "nobody knows what it holds"),
)


@pytest.mark.parametrize(
    ("selection", "tests"),
    [
        (Selection(), [2, 1]),
        (Selection(tags="all"), [2, 1]),
        (Selection(tags="pool and not all"), [1]),
        (Selection(tests=("acl/*",), excluded=("allow",)), [1, 1]),
        (Selection(tests=("pool/*",)), [1]),
        (Selection(keys=frozenset({CREATED})), [1]),
        (Selection(failed=Failures(DENIED)), [1, 1]),
    ],
)
def test_what_is_absent_counts_only_as_far_as_it_was_asked_for(selection: Selection, tests: list[int]) -> None:
    pool = Group("tests/pool", (Script("/suite/tests/pool/create", "root"),), tags=("pool",))
    acl = tuple(Script(f"/suite/tests/acl/{name}", "root") for name in ("allow", "x"))
    both = Group("tests/all", acl, tags=("all",))
    assert [each.tests for each in select(Suite("ours", (pool, both), ABSENT), selection).absent] == tests


def test_an_expression_or_a_share_that_is_none_is_refused() -> None:
    for tags in ("and", "a and", "(a", "a)", "a b", "not", "()", "(" * 990):
        with pytest.raises(UserError, match="--tags"):
            parse_tags(tags)
    for share in ("0/3", "4/3", "1", "1/0", "-1/2", "1/2/3", "x/y"):
        with pytest.raises(UserError, match="it must be K/N"):
            parse_share(share)


@given(st.recursive(st.sampled_from(["a", "b", "c"]), lambda inner: st.tuples(inner, inner), max_leaves=8), st.data())
def test_an_expression_means_what_python_means_by_it(tree: object, data: st.DataObject) -> None:
    def text(node: object) -> str:
        if isinstance(node, tuple):
            operator = data.draw(st.sampled_from(["and", "or"]))
            return f"({text(node[0])} {operator} {data.draw(st.sampled_from(['', 'not ']))}{text(node[1])})"
        return str(node)

    written = text(tree)
    has = data.draw(st.sets(st.sampled_from("abc")))
    assert parse_tags(written)(has) == eval(written, {}, {name: name in has for name in "abc"})


_GROUPS = st.lists(st.integers(1, 5), max_size=12).map(
    lambda sizes: [
        Group(f"g{number}", tuple(Script(f"/g{number}/{test}", "root") for test in range(size)))
        for number, size in enumerate(sizes)
    ]
)


@given(_GROUPS, st.integers(1, 5))
def test_all_shares_together_are_all_groups_once_each_and_about_equally_long(groups: list[Group], parts: int) -> None:
    shares = [shared(groups, (part, parts), {}) for part in range(1, parts + 1)]
    together = [group.name for share in shares for group in share]
    assert sorted(together) == sorted(group.name for group in groups)
    loads = [sum(len(group.tests) for group in share) for share in shares]
    longest = max((len(group.tests) for group in groups), default=0)
    assert max(loads) - min(loads) <= longest
    for share in shares:
        assert [group for group in groups if group in share] == share


def test_recorded_times_make_shares_even() -> None:
    groups = [Group(name, (Script(f"/{name}", "root"),)) for name in "abc"]
    times = {("a", "/a"): 10.0, ("b", "/b"): 1.0, ("c", "/c"): 1.0}
    assert [g.name for g in shared(groups, (1, 2), times)] == ["a"]
    assert [g.name for g in shared(groups, (2, 2), times)] == ["b", "c"]


def failed(*scripts: tuple[str, str], by_identifier: bool = False) -> Selection:
    return Selection(failed=Failures(frozenset(scripts), by_identifier))


def test_what_failed_is_run_again_with_all_of_a_group_whose_set_up_failed_wherever_the_suite_is() -> None:
    assert chosen(failed(("tests/pool", "/suite/tests/pool/rename"))) == ["pool/rename"]
    for script in ("setup", "cleanup"):
        everything = ["pool/create", "pool/destroy", "pool/rename"]
        assert chosen(failed(("tests/pool", f"/suite/tests/pool/{script}"))) == everything
    path = "/home/me/zfs/tests/zfs-tests/tests/functional/acl/posix/one"
    here = Group("posix", (Script(path, "root"), Script("/own/acl/posix/one", "root")))
    kept = select(Suite("ours", (here,)), failed(("posix", "acl/posix/one")))
    assert [test.path for group in kept.groups for test in group.tests] == [path], "one's own are known by whole paths"
    assert chosen(failed(("Linux", "/suite/tests/acl/allow"), by_identifier=True)) == ["acl/allow"]
    for wrong in (("", "/suite/tests/acl/allow"), ("tests/acl:Linux", "/suite/tests/acl/allow")):
        with pytest.raises(UserError, match="no test of ours is left"):
            chosen(failed(wrong, by_identifier=True))


def keys(groups: object) -> list[tuple[str, str]]:
    return [(group.name, test.path) for group in groups for test in group.tests]  # type: ignore[attr-defined]


def ran_as(group: str, path: str, guest: str, outcome: Outcome = Outcome.PASS) -> Attempt:
    return replace(attempt("x", outcome), group=group, path=path, guest=guest)


@given(st.integers(0, 2**32))
def test_a_seed_gives_the_same_order_another_one_another_and_no_test_is_lost(seed: int) -> None:
    groups = SUITE.groups
    assert len({tuple(keys(shuffled(groups, Random(seed + more)))) for more in range(20)}) > 3
    mixed = shuffled(groups, Random(seed))
    assert mixed == shuffled(groups, Random(seed)) and sorted(keys(mixed)) == sorted(keys(groups))
    assert {group.name: group.pre for group in mixed} == {group.name: group.pre for group in groups}


def test_a_guest_s_order_is_that_in_which_a_surprising_result_came() -> None:
    attempts = [ran_as("g", "/a", "guest-1"), ran_as("h", "/b", "guest-2"), ran_as("h", "/c", "guest-2", Outcome.FAIL)]
    assert order_of(attempts, {("h", "/c")}) == ("guest-2", [("h", "/b"), ("h", "/c")])
    assert order_of(attempts, set()) == ("guest-1", [("g", "/a")]) and order_of([], set()) == ("", [])


def test_a_replay_has_the_tests_of_then_in_the_order_of_then() -> None:
    wanted = list(reversed(keys(SUITE.groups)))
    again = replayed(SUITE, [*wanted, ("tests/pool", "/gone"), ("gone", "/x")])
    assert keys(again.groups) == wanted
    (later,) = replayed(SUITE, [("tests/pool (iteration 3)", "/suite/tests/pool/create")]).groups
    assert (later.name, later.iteration, len(later.tests)) == ("tests/pool (iteration 3)", 3, 1)
    with pytest.raises(UserError, match="none of the tests that are to be repeated is in ours"):
        replayed(SUITE, [("gone", "/x")])


def test_an_empty_queue_asks_for_more_and_of_a_later_iteration_only_what_ran_was_asked_for() -> None:
    groups = SUITE.groups
    later = iter([iteration(groups, 2), []])
    queue = Queue(groups, lambda: next(later))
    taken: list[Group] = []
    while (group := queue.take()) is not None:
        taken.append(group)
    assert [group.iteration for group in taken] == [1, 1, 1, 2, 2, 2]
    assert len({group.folder for group in taken}) == 6
    first = list(SUITE.groups)
    both = [*first, *iteration(first, 2)]
    done = {(both[3].name, both[3].tests[0].path)}
    assert keys(without_rest(both, done)) == [*keys(first), *done]
    assert keys(without_rest(both, done, whole_first=False)) == [*done]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing to run: name a suite"),
        (["zts", "--limit", "soon"], "--limit soon: write a time up to 30 days, such as 10m"),
        (["zts", "--limit", "0s"], "--limit 0s: write a time"),
        (["--replay", "gone"], "--replay gone: gone is no run"),
    ],
)
def test_an_order_or_a_limit_that_can_not_be_is_refused(arguments: list[str], says: str) -> None:
    ran_as = call("suite", "run", *arguments)
    assert ran_as.status == 2 and says in ran_as.message and ran_as.message.count("\n") == 1


INSTALLED = "/usr/share/zfs/zfs-tests/tests/functional"
POOL = ["pool/create", "pool/destroy", "pool/rename"]
EVERYTHING = ["acl/allow", "disk/write", *POOL]
GROUPS = {"acl": "tests/acl:Linux", "disk": "tests/disk", "pool": "tests/pool"}
ROLES: dict[str, Role] = {"setup": "pre", "cleanup": "post"}
FAIL, PASS, SKIP = Outcome.FAIL, Outcome.PASS, Outcome.SKIP


def result(name: str, outcome: Outcome, iteration: int = 1, number: int = 1) -> Attempt:
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
    have = {each.key for each in results}
    passes = [result(name, PASS, number + 1) for number in range(iterations) for name in EVERYTHING]
    return [*(each for each in passes if each.key not in have), *results]


def write_run(folder: Path, results: Sequence[Attempt], groups: Sequence[Group] = SUITE.groups) -> SuiteRun:
    return written(folder, dataclasses.replace(SUITE, groups=tuple(groups)), *results)


def selection_of(failed_of: Path, test: list[str] | None = None) -> Selection:
    return asked_for(["x"], Choice(test=test), failed_of=failed_of).selection


def names_of(suite: Suite) -> list[str]:
    return [test.path.removeprefix(f"{HERE}/tests/") for group in suite.groups for test in group.tests]


def again(failed_of: Path, test: list[str] | None = None) -> list[str]:
    return names_of(select(SUITE, selection_of(failed_of, test)))


def of_run(folder: Path, *results: Attempt, iterations: int = 1) -> list[str]:
    """The tests that are run again of a run with these results; all others passed."""
    write_run(folder, whole(*results, iterations=iterations), repeated(SUITE, iterations).groups)
    return again(folder)


def of_log(folder: Path, *results: Attempt | str) -> list[str]:
    """The tests that are run again by a log with these results and other lines."""
    log = folder / "log"
    log.write_text("".join(each if isinstance(each, str) else console_line(each, "tester") for each in results))
    return again(log)


CREATE, DESTROY = "pool/create", "pool/destroy"
SKIPPED = [result(name, SKIP) for name in POOL]
PASSED = [result(name, PASS) for name in POOL[1:]]
AGAIN: dict[str, tuple[list[Attempt], list[str]]] = {
    "one that did not pass": ([result("acl/allow", PASS), result("disk/write", Outcome.KILLED)], ["disk/write"]),
    "skipped, as their set-up failed": ([result("pool/setup", FAIL), *SKIPPED], POOL),
    "skipped, as their set-up hung": ([result("pool/setup", Outcome.HUNG), *SKIPPED], POOL),
    "a clean-up that failed": ([result(CREATE, PASS), result("pool/cleanup", FAIL)], POOL),
    "a set-up that passed later does not make up": (
        [result("pool/setup", FAIL), result(CREATE, SKIP), result("pool/setup", PASS), *PASSED], POOL,
    ),
    "a retry makes up, though other guests' results stand between": (
        [result(CREATE, FAIL), result("acl/allow", PASS), result(CREATE, PASS, number=2), result(DESTROY, FAIL),
         result(DESTROY, FAIL, number=2)],
        [DESTROY],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AGAIN)
def test_what_did_not_pass_in_a_run_or_by_a_log_is_run_again(case: str, tmp_path: Path) -> None:
    results, run_again = AGAIN[case]
    assert of_run(tmp_path / "run", *results) == run_again and of_log(tmp_path, *results) == run_again
    if "disk/write" not in run_again:
        assert of_log(tmp_path, *results, result("disk/write", FAIL)) == ["disk/write", *run_again]


def test_failures_behind_a_logs_summary_count_and_it_names_as_many_as_it_counts(tmp_path: Path) -> None:
    first = result(CREATE, FAIL), result(DESTROY, FAIL), "\nResults Summary\nFAIL\t   2\n\n"
    assert of_log(tmp_path, *first, result(CREATE, PASS), result(DESTROY, FAIL)) == [DESTROY]
    with pytest.raises(UserError, match="its summary counts 2 failures that no line of it names"):
        of_log(tmp_path, result(CREATE, FAIL), "\nResults Summary\nPASS\t   9\nFAIL\t   3\n")


def test_tests_without_a_result_are_run_again_if_they_were_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [each for each in whole() if not each.path.endswith("/write")])
    assert again(tmp_path / "a") == ["disk/write"]
    some = select(SUITE, Selection(tests=(CREATE, "disk/*"))).groups
    write_run(tmp_path / "b", [result("pool/setup", FAIL), result(CREATE, SKIP), result("disk/write", PASS)], some)
    assert again(tmp_path / "b") == [CREATE]
    write_run(tmp_path / "c", [result("acl/allow", PASS), result("pool/setup", FAIL)], SUITE.groups[:1])
    assert again(tmp_path / "c") == POOL, "a set-up that ended a run until a failure"


def test_nothing_is_run_again_if_all_passed_or_the_log_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="all tests passed there"):
        of_run(tmp_path / "run", result("pool/setup", PASS), result("pool/rename", SKIP))
    recorded(read_suite_run(tmp_path / "run"), absent=(Absent("own.run:7", "test gone is left out"),))
    with pytest.raises(UserError, match="all tests that were found passed there"):
        again(tmp_path / "run")
    for line, says in ((result(CREATE, PASS), "all tests passed there"), ("nothing\n", "no line of it says what came")):
        with pytest.raises(UserError, match=says):
            of_log(tmp_path, line)


def test_results_that_nobody_expected_are_run_again_even_skips_and_passes(tmp_path: Path) -> None:
    folder = f"{INSTALLED}/pool"
    group = pool_in(folder)
    outcomes = {"create": PASS, "destroy": SKIP, "rename": SKIP}  # known to fail, to pass, known to skip
    results = [replace(result(f"pool/{name}", each), path=f"{folder}/{name}") for name, each in outcomes.items()]
    write_run(tmp_path, results, [group])
    kept = names_of(select(Suite("ours", (group,)), selection_of(tmp_path)))
    assert kept == [f"{folder}/{name}" for name in ("create", "destroy")]


def test_a_failure_in_any_iteration_counts(tmp_path: Path) -> None:
    for failing in (1, 2):
        assert of_run(tmp_path / str(failing), result("disk/write", FAIL, failing), iterations=2) == ["disk/write"]
    assert of_run(tmp_path / "setup", result("pool/setup", FAIL, 2), iterations=2) == POOL
    for outcomes in ((FAIL, PASS), (PASS, FAIL), (PASS, FAIL, PASS)):
        lines = [(result(CREATE, PASS), result(DESTROY, each)) for each in outcomes]
        assert of_log(tmp_path, *(each for two in lines for each in two)) == [DESTROY]
        assert of_log(tmp_path, *(result("disk/write", each) for each in outcomes)) == ["disk/write"]


def test_logs_and_names_of_tests_narrow_each_other_and_a_log_may_be_of_a_source_tree(tmp_path: Path) -> None:
    assert of_log(tmp_path, result("pool/create", FAIL), result("disk/write", FAIL)) == ["disk/write", "pool/create"]
    assert again(tmp_path / "log", ["pool/*"]) == ["pool/create"]
    there = "/home/me/zfs/tests/zfs-tests/tests/functional/pool"
    (tmp_path / "log").write_text(console_line(replace(result("pool/create", FAIL), path=f"{there}/create"), "me"))
    installed = Suite("ours", (pool_in(f"{INSTALLED}/pool"),))
    assert names_of(select(installed, selection_of(tmp_path / "log"))) == [f"{INSTALLED}/pool/create"]
