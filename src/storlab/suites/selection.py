"""Which tests of a suite are run, in which order, and how often."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from storlab.base.errors import UserError
from storlab.base.text import grouped
from storlab.suites.model import Absent, Attempt, Group, Script, Suite, report_name

_SHARE = re.compile(r"(?P<part>[1-9]\d{0,5})/(?P<parts>[1-9]\d{0,5})")
_WORD = re.compile(r"\s*(?:(?P<sign>[()])|(?P<word>[^\s(),]+))")
_OPERATORS = ("and", "or", "not")

Tags = Callable[[Collection[str]], bool]
"""Whether a group with these tags is run."""


@dataclass(frozen=True)
class Failures:
    """Scripts that failed before, by group and by their names in reports, which are the same wherever a suite lies.

    ``by_identifier``: groups are known by their identifiers, as logs do not name them.
    """

    scripts: frozenset[tuple[str, str]]
    by_identifier: bool = False

    def has(self, group: Group, script: Script | None) -> bool:
        known = group.identifier if self.by_identifier else group.name
        return script is not None and (known, report_name(script.path)) in self.scripts

    def wants(self, group: Group, test: Script) -> bool:
        """Whether a test is to be run again: it failed, or its group's set-up or clean-up did."""
        return any(self.has(group, script) for script in (test, group.pre, group.post))

    def names(self, path: str) -> bool:
        return any(name == report_name(path) for _, name in self.scripts)


@dataclass(frozen=True)
class Selection:
    """What was asked for. Nothing asked for is everything.

    ``tests``, ``excluded``: patterns. ``tags``: an expression. ``keys``: tests by group and path. ``failed``: only
    what is to be run again because of these.
    """

    tests: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    tags: str = ""
    keys: frozenset[tuple[str, str]] | None = None
    share: tuple[int, int] = (1, 1)
    failed: Failures | None = None


EVERYTHING = Selection()


def select(suite: Suite, selection: Selection, times: Mapping[tuple[str, str], float] | None = None) -> Suite:
    """The suite with these tests only. Raises ``UserError`` if a pattern or tag meets nothing, or all is left out.

    ``times``: seconds that tests took before, by which shares are made even.
    """
    if not suite.groups and not suite.absent:
        raise UserError(f"{suite.name} has no tests")
    for pattern in (*selection.tests, *selection.excluded):
        if not any(matches(test.path, pattern) for group in suite.groups for test in group.tests):
            raise UserError(
                f"no test of {suite.name} is called {pattern!r}: `storlab suite list {suite.name}` lists all"
            )
    tagged = parse_tags(selection.tags)
    groups = [group for group in suite.groups if tagged(group.tags)]
    if not groups and suite.groups:
        known = ", ".join(sorted({tag for group in suite.groups for tag in group.tags})) or "none"
        raise UserError(f"no group of {suite.name} has the tags {selection.tags!r}; there are {known}")
    kept = [replace(group, tests=tuple(t for t in group.tests if _wanted(group, t, selection))) for group in groups]
    kept = shared([group for group in kept if group.tests], selection.share, times or {})
    if not kept and suite.groups:
        raise UserError(f"no test of {suite.name} is left to run")
    absent = (_asked(each, tagged, selection) for each in suite.absent)
    return replace(suite, groups=tuple(kept), absent=tuple(each for each in absent if each is not None))


def _wanted(group: Group, test: Script, selection: Selection) -> bool:
    return (
        _named(test.path, selection)
        and (selection.keys is None or (group.name, test.path) in selection.keys)
        and (selection.failed is None or selection.failed.wants(group, test))
    )


def _asked(absent: Absent, tagged: Tags, selection: Selection) -> Absent | None:
    """What was asked for of something that can't be run: all of it, if its tests are not known."""
    if not absent.paths:
        return absent
    if selection.keys is not None or not tagged(absent.tags):
        return None
    failed = selection.failed
    paths = tuple(path for path in absent.paths if _named(path, selection) and (failed is None or failed.names(path)))
    return replace(absent, tests=len(paths), paths=paths) if paths else None


def _named(path: str, selection: Selection) -> bool:
    return (not selection.tests or any(matches(path, pattern) for pattern in selection.tests)) and not any(
        matches(path, pattern) for pattern in selection.excluded
    )


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern of fnmatch(3) is the path, or the end of it from some component on."""
    parts = path.split("/")
    return any(fnmatch.fnmatchcase("/".join(parts[begin:]), pattern) for begin in range(len(parts)))


def parse_tags(text: str) -> Tags:
    """An expression of tags with ``and``, ``or``, ``not`` and parentheses; a comma is an ``or``, as test-runner has it.

    Raises ``UserError``.
    """
    if not text.strip():
        return lambda tags: True
    words = _words(text.replace(",", " or "), text)
    if len(words) > 1000:
        raise UserError("--tags has more than 1000 words")
    try:
        read, rest = _either(words, 0)
    except RecursionError:
        raise UserError("--tags has too many parentheses") from None
    if rest != len(words):
        raise UserError(f"--tags {text!r}: {words[rest]!r} was not expected there")
    return read


def _words(text: str, written: str) -> list[str]:
    words, at = [], 0
    while text[at:].strip():
        found = _WORD.match(text, at)
        if found is None:
            raise UserError(f"--tags {written!r} can't be read from {text[at:].strip()!r} on")
        words.append(found["sign"] or found["word"])
        at = found.end()
    return words


def _either(words: Sequence[str], at: int) -> tuple[Tags, int]:
    first, at = _both(words, at)
    while at < len(words) and words[at] == "or":
        second, at = _both(words, at + 1)
        first = (lambda a, b: lambda tags: a(tags) or b(tags))(first, second)
    return first, at


def _both(words: Sequence[str], at: int) -> tuple[Tags, int]:
    first, at = _single(words, at)
    while at < len(words) and words[at] == "and":
        second, at = _single(words, at + 1)
        first = (lambda a, b: lambda tags: a(tags) and b(tags))(first, second)
    return first, at


def _single(words: Sequence[str], at: int) -> tuple[Tags, int]:
    word = words[at] if at < len(words) else ""
    if word == "not":
        read, at = _single(words, at + 1)
        return (lambda tags: not read(tags)), at
    if word == "(":
        read, at = _either(words, at + 1)
        if at >= len(words) or words[at] != ")":
            raise UserError("--tags: a parenthesis is not closed")
        return read, at + 1
    if not word or word == ")" or word in _OPERATORS:
        raise UserError(f"--tags: a tag is missing{f' before {word!r}' if word else ' at the end'}")
    return (lambda tags: word in tags), at + 1


def parse_share(text: str) -> tuple[int, int]:
    """``K/N``: the share K of N. Raises ``UserError``."""
    found = _SHARE.fullmatch(text)
    part, parts = (int(found["part"]), int(found["parts"])) if found else (2, 1)
    if part > parts:
        raise UserError(f"--shard {text}: it must be K/N with K from 1 to N, such as 1/3")
    return part, parts


def shared(groups: Sequence[Group], share: tuple[int, int], times: Mapping[tuple[str, str], float]) -> list[Group]:
    """One share of the groups, each whole. The longest first, each to the share that has least so far (LPT).

    R. L. Graham, Bounds on multiprocessing timing anomalies, 1969. All shares together are all groups, each once.
    """
    part, parts = share
    if parts == 1:
        return list(groups)
    loads = [0.0] * parts
    mine = set()
    for group in longest_first(groups, times):
        least = loads.index(min(loads))
        loads[least] += duration(group, times)
        if least == part - 1:
            mine.add(group.name)
    return [group for group in groups if group.name in mine]


def longest_first(groups: Sequence[Group], times: Mapping[tuple[str, str], float]) -> list[Group]:
    """Those that take longest come first; as they were, if they take equally long."""
    return sorted(groups, key=lambda group: -duration(group, times))


def duration(group: Group, times: Mapping[tuple[str, str], float]) -> float:
    """What a group took before; for tests that never ran, what others took in the middle, or 1."""
    known = sorted(times.values())
    usual = known[len(known) // 2] if known else 1.0
    return sum(times.get((group.name, test.path), usual) for test in group.tests)


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
    """The tests in this order and no others, each within its group. Raises ``UserError`` if it has none of them."""
    groups = {group.name: group for group in suite.groups}
    found = []
    for name, paths in grouped(order).items():
        first, number = split_iteration(name)
        group = groups.get(name)
        if group is None and number > 1 and first in groups:
            group = iteration([groups[first]], number)[0]
        there = {test.path: test for test in group.tests} if group is not None else {}
        tests = tuple(there[path] for path in paths if path in there)
        if group is not None and tests:
            found.append(replace(group, tests=tests))
    if not found:
        raise UserError(f"none of the tests that are to be repeated is in {suite.name}")
    return replace(suite, groups=tuple(found))


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
