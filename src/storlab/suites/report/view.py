"""What a report on a run of a suite says, whatever its format."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from storlab.report.language.format import duration, plural, quantity
from storlab.suites.expectations import expected, is_surprising_pass, notes_on
from storlab.suites.model import LOST, Attempt, Expectation, Outcome, report_name, test_name
from storlab.suites.records.folder import SuiteRecord, SuiteRun, who_lacks

ORDER = tuple(Outcome)


@dataclass(frozen=True)
class Row:
    """One script's result. ``name``: below the suite's tests. ``why``: what it is expected for, or what happened.

    ``said``: if there is no reason, the line of its output that tells most. ``later``: what came of it afterwards,
    if it had lost a guest.
    """

    attempt: Attempt
    name: str
    expectation: Expectation | None
    surprising: bool
    lacks: tuple[str, ...] = ()
    who_lacks: str = ""
    later: Attempt | None = None
    said: str = ""

    @property
    def not_kept(self) -> str:
        """How much of a script's output its folder lacks; empty if it has all."""
        dropped = float(self.attempt.dropped)
        return f"{quantity(dropped, 'B')} of its output was not kept" if dropped else ""

    @property
    def why(self) -> str:
        """In words; empty if there is nothing to say."""
        parts = [self.attempt.reason or self.said, self.not_kept]
        if self.expectation is not None:
            parts.append(f"expected: {self.expectation.reason}")
        elif self.surprising and self.attempt.outcome is Outcome.PASS:
            parts.append("it was expected not to pass")
        if self.lacks and self.attempt.outcome is not Outcome.SKIP:
            parts.append(f"{self.who_lacks} lacks {', '.join(self.lacks)}")
        if self.attempt.number > 1:
            parts.append(f"try {self.attempt.number}")
        if self.later is not None and self.later.role == "test":
            parts.append(f"{self.later.outcome} when tried again")
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class View:
    """A run of a suite as its reports show it."""

    run: SuiteRun
    rows: tuple[Row, ...]  # what came of each test and each script around it, at last
    counts: dict[Outcome, int]  # of tests
    absent: int

    @property
    def unexpected(self) -> list[Row]:
        return [row for row in self.rows if row.surprising]

    @property
    def known(self) -> list[Row]:
        """Results other than PASS and SKIP that were expected, for a reason."""
        return [row for row in self.rows if row.expectation is not None and row.attempt.outcome is not Outcome.SKIP]

    @property
    def skipped(self) -> list[Row]:
        return [row for row in self.rows if row.attempt.outcome is Outcome.SKIP and not row.surprising]

    @property
    def leaks(self) -> list[tuple[str, str]]:
        leaks = (leak for attempt in self.run.attempts for leak in attempt.leaks)
        return list(
            dict.fromkeys((test_name(leak.by, self.run.asked.testdir), f"{leak.kind} {leak.what}") for leak in leaks)
        )

    @property
    def patience(self) -> str:
        """How much longer than their suite says tests were given; empty if they were not."""
        scale = max((each.scale for each in self.run.attempts if each.guest), default=1.0)
        return f"Time-outs: up to {scale:.1f} times the suite's, for tests that still worked." if scale > 1.05 else ""

    @property
    def flaky(self) -> list[Row]:
        return [row for row in self.rows if row.attempt.number > 1 and row.attempt.outcome is Outcome.PASS]

    @property
    def environments(self) -> list[str]:
        """Guests whose results are not like those of the run's first guest, and why, each once."""
        known = self.run.asked.environment
        if known is None:
            return []
        return list(
            dict.fromkeys(
                f"{console.partition('-')[2]}: {found.differences(known)}" for console, found in self.run.others
            )
        )

    @property
    def notes(self) -> list[str]:
        return list(notes_on(self.run.asked.own, self.run.asked.paths, self.run.started.date()))

    @property
    def missing(self) -> list[str]:
        return [test_name(path, self.run.asked.testdir) for _, path in self.run.without_result]

    @property
    def executed(self) -> int:
        return sum(count for outcome, count in self.counts.items() if outcome is not Outcome.SKIP)

    @property
    def answer(self) -> str:
        tests = plural(len(self.run.results), "test")
        unexpected, missing = len(self.unexpected), len(self.run.without_result) + self.absent
        said = []
        if unexpected:
            said.append(
                f"{plural(unexpected, 'result')} of {tests} {'was' if unexpected == 1 else 'were'} not expected."
            )
        elif self.executed:
            said.append(f"All results of {tests} are as expected.")
        if self.run.results and not self.executed:
            said.append("No test was executed: all were skipped.")
        if missing:
            said.append(f"{plural(missing, 'test')} that {'was' if missing == 1 else 'were'} asked for "
                        f"{'has' if missing == 1 else 'have'} no result.")  # fmt: skip
        return " ".join(said) or "Nothing was run."

    @property
    def counted(self) -> str:
        counts = ", ".join(f"{self.counts[outcome]} {outcome}" for outcome in ORDER if self.counts.get(outcome))
        return f"{counts or 'no results'}; {duration(self.run.seconds)}"


def view_of(run: SuiteRun) -> View:
    """What is to be said of a run. If a script ran more than once, its last result counts, unless it had lost a guest:
    a kernel that panicked once is not made up for by a try that passes.
    """
    last: dict[tuple[str, str, str], Attempt] = {}
    later: dict[tuple[str, str, str], Attempt] = {}
    for attempt in run.attempts:
        if attempt.role == "failsafe":
            continue
        key = (attempt.group, attempt.path, attempt.role)
        earlier = last.pop(key, None)
        if earlier is not None and earlier.outcome in LOST and attempt.outcome not in LOST:
            last[key], later[key] = earlier, attempt
        else:
            last[key] = attempt
    lacks = run.asked.lacked
    rows = tuple(
        replace(_row(attempt, run, tuple(lacks.get(attempt.path, ()))), later=later.get(key))
        for key, attempt in last.items()
    )
    counts = Counter(row.attempt.outcome for row in rows if row.attempt.role == "test")
    return View(run, rows, dict(counts), sum(each.tests for each in run.asked.absent))


def _row(attempt: Attempt, run: SuiteRun, lacks: tuple[str, ...]) -> Row:
    foreign = report_name(attempt.path) == attempt.path
    name = test_name(attempt.path, run.asked.testdir)
    tables, who = run.expectations, who_lacks(run.asked.here)
    if attempt.outcome is Outcome.PASS:
        return Row(attempt, name, None, is_surprising_pass(attempt, name, tables), lacks, who)
    found = expected(attempt, name, tables)
    # Tests that no table is about may skip themselves; those of the ZFS Test Suite are skipped for a reason, or not.
    own_skip = attempt.outcome is Outcome.SKIP and foreign
    surprising = found is None and not own_skip
    told = surprising or attempt.outcome is Outcome.SKIP
    said = run.telling(attempt) if told and not attempt.reason else ""
    return Row(attempt, name, found, surprising, lacks, who, said=said)


_NOT_FOUND = "not found"  # the group of tests whose names are not known
_NO_RESULT = "it has no result"


def tests_without_result(view: View) -> dict[str, dict[str, str]]:
    """Group → test → why it has no result. A test is called what it is called where it has one: it is the same test."""
    asked = view.run.asked
    groups: dict[str, dict[str, str]] = {}
    for group, path in view.run.without_result:
        groups.setdefault(group, {})[test_name(path, asked.testdir)] = _NO_RESULT
    for group, name, why in _absent(asked):
        groups.setdefault(group, {}).setdefault(name, why)
    return groups


def _absent(asked: SuiteRecord) -> Iterator[tuple[str, str, str]]:
    """Group, name and reason of each test that was not found; as many as the exit status and the text count."""
    by_folder = {posixpath.dirname(test.path): group.name for group in asked.groups for test in group.tests}
    for each in asked.absent:
        for path in each.paths:
            folder = posixpath.dirname(path)
            group = by_folder.get(folder) or folder.removeprefix(f"{asked.testdir}/")
            yield group, test_name(path, asked.testdir), str(each)
        if not each.paths:  # they are called by the place that asks for them
            for number in range(1, each.tests + 1):
                yield _NOT_FOUND, f"{each} ({number} of {each.tests})" if each.tests > 1 else str(each), str(each)
