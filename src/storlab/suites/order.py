"""In which order groups and tests are run, and how often: shuffled, as in an earlier run, again and again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

from storlab.errors import UserError
from storlab.suites.model import Attempt, Group, Suite

_ITERATION = re.compile(r"(?P<group>.+) \(iteration (?P<number>[1-9]\d{0,8})\)", re.DOTALL)


def iteration_name(number: int) -> str:
    """What is added to a group's name for another iteration; nothing for the first."""
    return f" (iteration {number})" if number > 1 else ""


def split_iteration(name: str) -> tuple[str, int]:
    """A group's name without its iteration, and the number of that: 1 for a name that has none."""
    found = _ITERATION.fullmatch(name)
    return (found["group"], int(found["number"])) if found is not None else (name, 1)


def iteration(groups: Sequence[Group], number: int) -> list[Group]:
    """The groups of the first iteration, as those of another."""
    return [
        replace(
            group,
            name=f"{group.name}{iteration_name(number)}",
            folder=f"iteration-{number}/{group.folder}",
            iteration=number,
        )
        for group in groups
        if group.iteration == 1
    ]


def repeated(suite: Suite, iterations: int) -> Suite:
    again = [group for number in range(2, iterations + 1) for group in iteration(suite.groups, number)]
    return replace(suite, groups=(*suite.groups, *again))


def shuffled(groups: Sequence[Group], random: Random) -> list[Group]:
    """Groups in a random order, and the tests of each; what is around tests stays around them."""
    mixed = [replace(group, tests=tuple(random.sample(group.tests, len(group.tests)))) for group in groups]
    random.shuffle(mixed)
    return mixed


def order_of(attempts: Sequence[Attempt], surprising: Collection[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    """The guest in which a surprising test ran first, or else the first one; and its tests in the order in which they
    ended.
    """
    tests = [attempt for attempt in attempts if attempt.role == "test" and attempt.guest]
    guest = next((each.guest for each in tests if each.key in surprising), tests[0].guest if tests else "")
    return guest, list(dict.fromkeys(each.key for each in tests if each.guest == guest))


def replayed(suite: Suite, order: Sequence[tuple[str, str]]) -> Suite:
    """The tests in this order and no others, each within its group. Raises ``UserError`` where it has none of them."""
    groups = {group.name: group for group in suite.groups}
    wanted: dict[str, list[str]] = {}
    for name, path in order:
        wanted.setdefault(name, []).append(path)
    found = []
    for name, paths in wanted.items():
        group = groups.get(name) or _later(name, groups)
        there = {test.path: test for test in group.tests} if group is not None else {}
        tests = tuple(there[path] for path in paths if path in there)
        if group is not None and tests:
            found.append(replace(group, tests=tests))
    if not found:
        raise UserError(f"none of the tests that are to be repeated is in {suite.name}")
    return replace(suite, groups=tuple(found))


def _later(name: str, groups: Mapping[str, Group]) -> Group | None:
    first, number = split_iteration(name)
    return iteration([groups[first]], number)[0] if number > 1 and first in groups else None


def without_rest(
    groups: Sequence[Group], results: Collection[tuple[str, str]], *, whole_first: bool = True
) -> list[Group]:
    """Without tests of later iterations that were not run: nobody asked for more than fit in.

    ``whole_first``: all of the first iteration was asked for.
    """
    kept = [
        group
        if group.iteration == 1 and whole_first
        else replace(group, tests=tuple(test for test in group.tests if (group.name, test.path) in results))
        for group in groups
    ]
    return [group for group in kept if group.tests]


def remaining(groups: Iterable[Group], attempts: Iterable[Attempt]) -> list[Group]:
    """The groups with the tests that have no result yet: those of a run that is resumed.

    A test that was skipped because its guest could not be had, or that ended with the run, is not among the attempts.
    """
    done = {attempt.key for attempt in attempts if attempt.role == "test"}
    left = (replace(g, tests=tuple(t for t in g.tests if (g.name, t.path) not in done)) for g in groups)
    return [group for group in left if group.tests]
