"""KTAP, the kernel's form of the Test Anything Protocol: lines as results, those of subtests within them.

Source: Documentation/dev-tools/ktap.rst of Linux 6.12. Subtests are indented, or, as kselftest prints them, behind
``#``; times of the kernel's log before a line are passed over. Whatever is no line of KTAP is a diagnostic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from storlab.base.reading import open_file
from storlab.suites.model import Outcome

_LOG_TIME = re.compile(r"\[\s{0,12}\d{1,10}\.\d{1,9}\] ")
_INDENT = re.compile(r"(?: {1,2}|\t|# ?)*")
_STEP = re.compile(r"# ?|\t| {1,2}")
_VERSION = re.compile(r"K?TAP version \d+\s*\Z")
_PLAN = re.compile(r"1\.\.(?P<count>\d{1,9})\s*(?:#\s*SKIP\b\s*(?P<why>.*))?\Z", re.IGNORECASE)
_RESULT = re.compile(r"(?P<bad>not )?ok\b(?: +(?P<number>\d{1,9}))?(?: +-)?(?: +(?P<rest>.*))?\Z")
_DIRECTIVE = re.compile(r"(?:^|\s)#\s*(?P<word>SKIP|TODO|XFAIL|TIMEOUT|ERROR)\b:?\s*(?P<why>.*)\Z", re.IGNORECASE)
_BAIL = re.compile(r"Bail out!\s*(?P<why>.*)\Z")
MOST_JUDGED = 16 * 1024**2
"""Bytes of what a program prints by which it is judged."""
_DEEPEST = 32
_LONGEST = 4096  # characters of a line that is looked at


@dataclass(frozen=True)
class Result:
    """A result and those of its subtests. ``why``: what stands behind its directive; ``todo``: why it may fail.

    ``lacking``: how many subtests were planned and did not come. ``stray``: how many are not the next one by their
    number, or beyond the plan, or have no line of their own: lines are missing, or there twice.
    """

    name: str
    outcome: Outcome
    why: str = ""
    subtests: tuple[Result, ...] = ()
    planned: int | None = None  # subtests
    todo: str = ""
    lacking: int = 0
    stray: int = 0
    bailed: bool = False  # it ended before its plan, and said so

    @property
    def failed(self) -> Iterator[str]:
        """The names of the innermost results that failed."""
        inner = [name for each in self.subtests for name in each.failed]
        if inner:
            yield from (f"{self.name}.{name}" if self.name else name for name in inner)
        elif self.outcome is Outcome.FAIL:
            yield self.name

    @property
    def leaves(self) -> int:
        return sum(each.leaves for each in self.subtests) or 1

    @property
    def missing(self) -> int:
        """How many results were planned, here and below, and did not come."""
        return self.lacking + sum(each.missing for each in self.subtests)

    @property
    def strays(self) -> int:
        """How many results stray, here and below."""
        return self.stray + sum(each.strays for each in self.subtests)

    @property
    def complete(self) -> bool:
        return self.planned is not None and not self.missing


@dataclass
class _Level:
    """Results in one place. Several programs may print there, one after the other: ``done``, ``last``, ``planned`` are
    of the one that prints now.
    """

    results: list[Result] = field(default_factory=list)
    planned: int | None = None
    skipped: str | None = None  # why the whole level was
    done: int = 0
    last: int = 0  # number
    begun: bool = False  # a version was printed
    ended: bool = False  # by its plan, which came after results
    before: tuple[int, int] = (0, 0)  # that lack and stray, of programs before

    @property
    def counted(self) -> tuple[int, int]:
        beyond = 0 if self.planned is None else self.done - self.planned
        empty = self.begun and self.planned is None and not self.done
        return self.before[0] + max(-beyond, 0), self.before[1] + max(beyond, 0) + empty

    def begin(self) -> None:
        self.before, self.planned, self.done, self.last, self.ended = self.counted, None, 0, 0, False

    def take(self, result: Result, number: int | None) -> None:
        self.stray(self.ended or number not in (None, self.last + 1))
        self.results.append(result)
        self.done, self.last = self.done + 1, self.last + 1 if number is None else number

    def stray(self, many: int) -> None:
        self.before = self.before[0], self.before[1] + many

    def within(self, result: Result) -> Result:
        """``result`` with these as its subtests."""
        lacking, stray = self.counted
        return replace(result, subtests=tuple(self.results), planned=self.planned, lacking=lacking, stray=stray)


def read_ktap(lines: Iterable[str]) -> Result | None:
    """All results, as subtests of one without a name; ``None`` if no line is KTAP."""
    levels: list[tuple[int, _Level]] = [(0, _Level())]
    seen, bailed = False, None
    for written in lines:
        line = _LOG_TIME.sub("", written[:_LONGEST], count=1).rstrip()
        prefix = _INDENT.match(line)
        assert prefix is not None
        text, depth = line[prefix.end() :], min(len(_STEP.findall(prefix[0])), _DEEPEST)
        if found := _BAIL.match(text):
            seen, bailed = True, found["why"] or "it bailed out"
            break
        if _VERSION.match(text):
            seen = True
            level = _enter(levels, depth)
            if level.done or level.planned is not None:
                level.begin()
            level.begun = True
        elif plan := _PLAN.match(text):
            seen = True
            level = _enter(levels, depth)
            if level.planned is not None:
                level.begin()
            level.planned, level.skipped, level.ended = int(plan["count"]), plan["why"], level.done > 0
        elif (result := _RESULT.match(text)) and (depth == 0 or "#" not in prefix[0] or seen):
            seen = True
            _take(levels, depth, _result(result), result["number"])
    if not seen:
        return None
    while len(levels) > 1:
        _close(levels)
    root = levels[0][1]
    whole = root.within(Result("", _of(root), root.skipped or ""))
    if bailed is None:
        return whole
    return replace(whole, outcome=Outcome.FAIL, why=f"Bail out! {bailed}", bailed=True)


def programs(lines: Iterable[str]) -> list[list[str]]:
    """The lines of each program, if several print one after the other: a version that is not indented begins one."""
    found: list[list[str]] = [[]]
    for line in lines:
        if _VERSION.match(_LOG_TIME.sub("", line[:_LONGEST], count=1)):
            found.append([])
        found[-1].append(line)
    return found


def _enter(levels: list[tuple[int, _Level]], depth: int) -> _Level:
    """The level of this depth; what is deeper has ended."""
    while levels[-1][0] > depth:
        _close(levels)
    if levels[-1][0] < depth:
        levels.append((depth, _Level()))
    return levels[-1][1]


def _take(levels: list[tuple[int, _Level]], depth: int, result: Result, number: str | None) -> None:
    """A result, whose subtests are those of the deeper level before it."""
    below = _Level()
    while levels[-1][0] > depth:
        if levels[-2][0] > depth:
            _close(levels)
        else:
            below = levels.pop()[1]
    if levels[-1][0] < depth:  # no level of this depth has begun yet
        levels.append((depth, _Level()))
    outcome = result.outcome
    if outcome is Outcome.PASS and any(each.outcome is Outcome.FAIL for each in below.results):
        outcome = Outcome.FAIL
    levels[-1][1].take(below.within(replace(result, outcome=outcome)), None if number is None else int(number))


def _close(levels: list[tuple[int, _Level]]) -> None:
    """A level that ended without a result of its own above."""
    level, (depth, above) = levels.pop()[1], levels[-1]
    if not (above.results or above.planned is not None or any(above.before)):  # KUnit indents a version line once
        levels[-1] = depth, level
        level.stray(len(levels) == 1)
    elif level.results or level.planned:
        above.results.append(level.within(Result("(no result)", _of(level))))
        above.stray(1)


def _of(level: _Level) -> Outcome:
    outcomes = {each.outcome for each in level.results}
    if Outcome.FAIL in outcomes:
        return Outcome.FAIL
    if outcomes == {Outcome.SKIP} or (not outcomes and level.skipped is not None):
        return Outcome.SKIP
    return Outcome.PASS if outcomes else Outcome.FAIL


def _result(found: re.Match[str]) -> Result:
    rest = found["rest"] or ""
    directive = _DIRECTIVE.search(rest)
    name = (rest[: directive.start()] if directive else rest).strip() or f"test {found['number'] or ''}".strip()
    word = directive["word"].upper() if directive else ""
    why = directive["why"].strip() if directive else ""
    if word == "SKIP":
        return Result(name, Outcome.SKIP, why)
    if word in ("TODO", "XFAIL"):
        return Result(name, Outcome.PASS, why or "expected to fail")
    bad = bool(found["bad"]) or word in ("TIMEOUT", "ERROR")
    return Result(name, Outcome.FAIL if bad else Outcome.PASS, f"{word.lower()} {why}".strip() if word else why)


def judged(result: Result | None, code: int | None) -> tuple[Outcome, str]:
    """What a program's results and its exit status mean together, and why. kselftest's 4 is a SKIP."""
    by_status = {0: Outcome.PASS, 4: Outcome.SKIP}.get(-1 if code is None else code, Outcome.FAIL)
    if result is None:
        return by_status, "" if by_status is not Outcome.PASS else "it printed no line of KTAP"
    failed = list(result.failed) if result.subtests else []
    if result.bailed:
        return Outcome.FAIL, result.why
    if failed:
        named = ", ".join(failed[:5]) + (f" and {len(failed) - 5} more" if len(failed) > 5 else "")
        return Outcome.FAIL, f"{len(failed)} of {result.leaves} subtests failed: {named}"
    if result.missing:
        return Outcome.FAIL, f"{result.missing} planned results are missing"
    if by_status is Outcome.FAIL:
        return Outcome.FAIL, f"no subtest failed, and yet its status is {code}" if code is not None else ""
    if result.outcome is Outcome.SKIP or by_status is Outcome.SKIP:
        return Outcome.SKIP, result.why or next((each.why for each in result.subtests if each.why), "")
    return result.outcome, "" if result.outcome is Outcome.PASS else "there are no results"


def printed_in(folder: Path) -> str:
    """What a program printed to its standard output, as far as it is judged by it; empty if nothing is kept of it."""
    try:
        with open_file(folder / "stdout") as file:
            return file.read(MOST_JUDGED).decode(errors="replace")
    except FileNotFoundError:
        return ""


def judge_text(text: str, code: int | None, most: int = MOST_JUDGED) -> tuple[Outcome, str]:
    """What a program printed and its exit status mean together, and why. ``text``: its first ``most`` bytes, decoded.

    Where the end of the text is missing, a result that failed may have been there, unless a plan says otherwise.
    """
    result = read_ktap(text.splitlines())
    outcome, why = judged(result, code)
    if outcome is Outcome.FAIL or (result is not None and result.complete):
        return outcome, why
    # Never too short: invalid bytes were decoded to U+FFFD, whose three bytes replace three at most.
    if len(text.encode(errors="replace")) >= most:
        read = f"only the first {most / 1024**2:g} MiB of its output were read"
        return Outcome.FAIL, f"{read}, and no plan says how many results there are"
    return outcome, why


def ktap_text(results: Sequence[Result], indent: str = "") -> Iterator[str]:
    yield f"{indent}KTAP version 1"
    yield f"{indent}1..{len(results)}"
    for number, result in enumerate(results, 1):
        if result.subtests:
            yield from ktap_text(result.subtests, f"{indent}  ")
        if result.why and result.outcome is Outcome.FAIL:
            yield f"{indent}# {_plain(result.why)}"
        bad = "not " if result.outcome is Outcome.FAIL else ""
        directive = f" # SKIP {_plain(result.why)}".rstrip() if result.outcome is Outcome.SKIP else ""
        directive = f" # TODO {_plain(result.todo)}" if result.todo else directive
        yield f"{indent}{bad}ok {number} {_plain(result.name).replace('#', '')}{directive}"


def _plain(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
