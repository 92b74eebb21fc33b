"""The lines that the ZFS Test Suite's runner and its ``zts-report.py`` print, and those of them that are read back.

Scripts of many people read these, so they are the same byte for byte, but for times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from storlab.suites.expectations import NOT_APPLICABLE, expected, is_surprising_pass
from storlab.suites.model import Attempt, Expectations, Outcome, report_name

_WIDTH = 80  # columns of a line, with its end
_ORDER = (Outcome.PASS, Outcome.FAIL, Outcome.SKIP, Outcome.KILLED)
_RESULT = re.compile(
    r"Test(?: \((?P<identifier>[^)]*)\))?: (?P<path>\S+) \(run as (?P<user>\S+)\) *"
    r"\[(?P<minutes>\d+):(?P<seconds>\d\d)\] \[(?P<outcome>[A-Z]+)\](?P<rerun> \(RERAN\))?"
)
_MOST_MINUTES = 10**6
ONLY_MAYBES = 2
"""Exit status of ``zts-report.py --no-maybes`` if only tests failed that may fail."""


def console_line(attempt: Attempt, runner: str) -> str:
    """What the runner prints once a script has ended, with its line feed. ``runner``: the user who runs the suite."""
    minutes, seconds = divmod(int(attempt.elapsed), 60)
    identifier = f" ({attempt.identifier})" if attempt.identifier else ""
    begin = f"Test{identifier}: {attempt.path} (run as {attempt.user or runner}) "
    end = f"[{minutes:02d}:{seconds:02d}] [{attempt.outcome.classic}]\n"
    return begin + " " * (_WIDTH - len(begin) - len(end)) + end


def log_line(at: datetime, line: bytes) -> bytes:
    return at.strftime("%H:%M:%S.%f ")[:11].encode() + b" " + line + b"\n"


def summary(attempts: Iterable[Attempt], seconds: float, folder: str) -> str:
    """What the runner prints at the end; nothing if nothing ran."""
    counts = Counter(attempt.outcome.classic for attempt in attempts)
    total = sum(counts.values())
    if not total:
        return ""
    lines = ["", "Results Summary"]
    lines += [f"{outcome}\t{counts[outcome]: 4d}" for outcome in _ORDER if counts[outcome]]
    hours, rest = divmod(int(seconds), 3600)
    lines += ["", f"Running Time:\t{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"]
    lines += [f"Percent passed:\t{counts[Outcome.PASS] / total * 100:.1f}%", f"Log directory:\t{folder}"]
    return "\n".join(lines) + "\n"


def report(attempts: Iterable[Attempt], expectations: Expectations, *, maybes: bool = True) -> str:
    """What ``zts-report.py`` prints of these results; without ``maybes``, as with its option ``--no-maybes``."""
    results = {report_name(attempt.path): attempt for attempt in attempts}
    known, surprising = _sorted_out(results, expectations, maybes)
    lines = ["", "Tests with results other than PASS that are expected:"]
    lines += [f"    {outcome} {name} ({reason})" for name, outcome, reason in known]
    lines += ["", "Tests with result of PASS that are unexpected:"]
    for name in sorted(results):
        if is_surprising_pass(results[name], name, expectations):
            lines.append(f"    PASS {name} (expected {expectations.known[name].outcome})")
    lines += ["", "Tests with results other than PASS that are unexpected:"]
    for name, outcome in surprising:
        wanted = expectations.known[name].outcome if name in expectations.known else Outcome.PASS
        lines.append(f"    {outcome} {name} (expected {wanted})")
    return "\n".join(lines) + "\n"


def failed_maybes(attempts: Iterable[Attempt], expectations: Expectations) -> list[Attempt]:
    """The tests that may fail and did, if nothing else went wrong: those that ``zfs-tests.sh -R`` runs again."""
    results = tuple(attempts)
    if report_status(results, expectations, maybes=False) != ONLY_MAYBES:
        return []
    last = {report_name(attempt.path): attempt for attempt in results}
    surprising = _sorted_out(last, expectations, maybes=False)[1]
    return [last[name] for name, _ in surprising if last[name].outcome is Outcome.FAIL]


def report_status(attempts: Iterable[Attempt], expectations: Expectations, *, maybes: bool = True) -> int:
    """The exit status of ``zts-report.py``: 0 if all results are expected, otherwise 1.

    Without ``maybes``, as with its option ``--no-maybes``: 2 if all that is unexpected are tests that may fail and did.
    """
    results = {report_name(attempt.path): attempt for attempt in attempts}
    surprising = [name for name, _ in _sorted_out(results, expectations, maybes)[1]]
    if any(expected(results[name], name, expectations) is None for name in surprising):
        return 1
    return ONLY_MAYBES if surprising else 0


def _sorted_out(
    results: Mapping[str, Attempt], expectations: Expectations, maybes: bool = True
) -> tuple[list[tuple[str, Outcome, str]], list[tuple[str, Outcome]]]:
    """Of what did not pass: what is expected and worth a line, with its reason; and what is not expected."""
    known: list[tuple[str, Outcome, str]] = []
    surprising: list[tuple[str, Outcome]] = []
    for name in sorted(results):
        outcome = results[name].outcome.classic
        if outcome is Outcome.PASS:
            continue
        found = expected(results[name], name, expectations)
        if found is None or not (maybes or found.always or outcome is Outcome.SKIP):
            surprising.append((name, outcome))
        elif found.test == name:
            named = expectations.known.get(name, found)  # whose reason is given, whichever outcome was expected
            if not (named.always and named.reason == NOT_APPLICABLE):
                known.append((name, outcome, named.reason))
    return known, surprising


@dataclass(frozen=True)
class ResultLine:
    """A line of a runner's console or ``log`` that says what came of a script. ``elapsed``: whole seconds."""

    path: str
    identifier: str
    user: str
    elapsed: int
    outcome: Outcome


def read_results(lines: Iterable[str]) -> Iterator[ResultLine]:
    """What a runner said of each script; all other lines are passed over."""
    for line in lines:
        found = _RESULT.match(line)
        if found is None or found["outcome"] not in Outcome.__members__ or len(found["minutes"]) > 7:
            continue
        elapsed = min(int(found["minutes"]), _MOST_MINUTES) * 60 + int(found["seconds"])
        outcome = Outcome[found["outcome"]]
        yield ResultLine(found["path"], found["identifier"] or "", found["user"], elapsed, outcome)
