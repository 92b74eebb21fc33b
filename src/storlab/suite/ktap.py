"""KTAP, the kernel's form of the Test Anything Protocol: lines as results, those of subtests within them.

Source: Documentation/dev-tools/ktap.rst of Linux 6.12. Subtests are indented, or, as kselftest prints them, behind
``#``; times of the kernel's log before a line are passed over. Whatever is no line of KTAP is a diagnostic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from storlab.suite.model import Outcome

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
    """A result and those of its subtests. ``why``: what stands behind its directive; ``todo``: why it may fail."""

    name: str
    outcome: Outcome
    why: str = ""
    subtests: tuple[Result, ...] = ()
    planned: int | None = None  # subtests
    todo: str = ""

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
        """How many results have no subtests."""
        return sum(each.leaves for each in self.subtests) or 1

    @property
    def missing(self) -> int:
        """How many results were planned, here and below, and did not come."""
        own = max((self.planned or 0) - len(self.subtests), 0)
        return own + sum(each.missing for each in self.subtests)

    @property
    def complete(self) -> bool:
        """Whether a plan says that all results are here."""
        return self.planned is not None and not self.missing


@dataclass
class _Level:
    results: list[Result] = field(default_factory=list)
    planned: int | None = None
    skipped: str | None = None  # why the whole level was


def read_ktap(lines: Iterable[str]) -> Result | None:
    """All results, as subtests of one without a name; ``None`` where no line is KTAP."""
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
            _enter(levels, depth)
        elif plan := _PLAN.match(text):
            seen = True
            level = _enter(levels, depth)
            level.planned, level.skipped = int(plan["count"]), plan["why"]
        elif (result := _RESULT.match(text)) and (depth == 0 or "#" not in prefix[0] or seen):
            seen = True
            _take(levels, depth, _result(result))
    if not seen:
        return None
    while len(levels) > 1:
        _close(levels)
    root = levels[0][1]
    whole = Result("", _of(root), root.skipped or "", tuple(root.results), root.planned)
    return replace(whole, outcome=Outcome.FAIL, why=f"Bail out! {bailed}") if bailed is not None else whole


def _enter(levels: list[tuple[int, _Level]], depth: int) -> _Level:
    """The level of this depth; what is deeper has ended."""
    while levels[-1][0] > depth:
        _close(levels)
    if levels[-1][0] < depth:
        levels.append((depth, _Level()))
    return levels[-1][1]


def _take(levels: list[tuple[int, _Level]], depth: int, result: Result) -> None:
    """A result, whose subtests are those of the deeper level before it."""
    below = _Level()
    while levels[-1][0] > depth:
        deeper = levels.pop()[1]
        if levels[-1][0] > depth:
            _keep(levels[-1][1], deeper)
        elif levels[-1][0] == depth:
            below = deeper
        else:  # no level of this depth has begun yet
            levels.append((depth, _Level()))
            below = deeper
    if levels[-1][0] < depth:
        levels.append((depth, _Level()))
    outcome = result.outcome
    if outcome is Outcome.PASS and any(each.outcome is Outcome.FAIL for each in below.results):
        outcome = Outcome.FAIL
    levels[-1][1].results.append(replace(result, outcome=outcome, subtests=tuple(below.results), planned=below.planned))


def _close(levels: list[tuple[int, _Level]]) -> None:
    """A level that ended without a result of its own above."""
    level = levels.pop()[1]
    _keep(levels[-1][1], level)


def _keep(above: _Level, level: _Level) -> None:
    if not above.results and above.planned is None:  # KUnit indents subtests twice, and their version line once
        above.results, above.planned = level.results, level.planned
    elif level.results or level.planned:
        above.results.append(Result("(no result)", _of(level), "", tuple(level.results), level.planned))


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
    if result.why.startswith("Bail out!"):
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
    """Results as lines of KTAP."""
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
