"""In which order tests are run: shuffled by a seed, as they ran before, again and again."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import UserError
from storlab.run.suite.queue import Queue
from storlab.suite.model import Attempt, Group, Outcome
from storlab.suite.order import iteration, order_of, replayed, shuffled, without_rest
from study.program import call
from suite.samples import RUNFILE, attempt, suite_of


def keys(groups: object) -> list[tuple[str, str]]:
    return [(group.name, test.path) for group in groups for test in group.tests]  # type: ignore[attr-defined]


def ran(group: str, path: str, guest: str, outcome: Outcome = Outcome.PASS) -> Attempt:
    return msgspec.structs.replace(attempt("x", outcome), group=group, path=path, guest=guest)


@given(st.integers(0, 2**32))
def test_a_seed_gives_the_same_order_and_no_test_is_lost(seed: int) -> None:
    groups = suite_of(RUNFILE).groups
    mixed = shuffled(groups, Random(seed))
    assert mixed == shuffled(groups, Random(seed)) and sorted(keys(mixed)) == sorted(keys(groups))
    assert {group.name: group.pre for group in mixed} == {group.name: group.pre for group in groups}


def test_seeds_differ() -> None:
    groups = suite_of(RUNFILE).groups
    assert len({tuple(keys(shuffled(groups, Random(seed)))) for seed in range(50)}) > 20


def test_a_guest_s_order_is_that_in_which_a_surprising_result_came() -> None:
    attempts = [ran("g", "/a", "guest-1"), ran("h", "/b", "guest-2"), ran("h", "/c", "guest-2", Outcome.FAIL)]
    assert order_of(attempts, {("h", "/c")}) == ("guest-2", [("h", "/b"), ("h", "/c")])
    assert order_of(attempts, set()) == ("guest-1", [("g", "/a")]) and order_of([], set()) == ("", [])


def test_a_replay_has_the_tests_of_then_in_the_order_of_then() -> None:
    suite = suite_of(RUNFILE)
    wanted = list(reversed(keys(suite.groups)))
    again = replayed(suite, [*wanted, ("tests/pool", "/gone"), ("gone", "/x")])
    assert keys(again.groups) == wanted
    (later,) = replayed(suite, [("tests/pool (iteration 3)", "/suite/tests/pool/create")]).groups
    assert (later.name, later.iteration, len(later.tests)) == ("tests/pool (iteration 3)", 3, 1)
    with pytest.raises(UserError, match="none of the tests that are to be repeated is in ours"):
        replayed(suite, [("gone", "/x")])


def test_an_empty_queue_asks_for_more() -> None:
    groups = suite_of(RUNFILE).groups
    later = iter([iteration(groups, 2), []])
    queue = Queue.of(groups, lambda: next(later))
    taken: list[Group] = []
    while (group := queue.take()) is not None:
        taken.append(group)
    assert [group.iteration for group in taken] == [1, 1, 1, 2, 2, 2]
    assert len({group.folder for group in taken}) == 6


def test_of_a_later_iteration_only_what_ran_was_asked_for() -> None:
    first = list(suite_of(RUNFILE).groups)
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
    ran = call("suite", "run", *arguments)
    assert ran.status == 2 and says in ran.message and ran.message.count("\n") == 1
