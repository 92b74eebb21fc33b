"""A suite again and again until a test fails: the next iteration, and when there is none any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from msgspec.structs import replace as with_fields

from storlab.suites.expectations import expected
from storlab.suites.model import LOST, Attempt, Group, Outcome
from storlab.suites.order import iteration, shuffled, without_rest
from storlab.suites.records import SuiteRecord, read_suite_run, write_suite_record
from storlab.suites.texts.zts import report_name


class UntilFailure:
    """The iterations of one run. ``ends``: whether none is to be begun any more, for another reason than a failure.

    ``failed``: whether one was found.
    """

    def __init__(self, folder: Path, record: SuiteRecord, ends: Callable[[], bool] = lambda: False) -> None:
        self._folder, self._record, self._ends = folder, record, ends
        self.failed = False

    def failure(self, attempt: Attempt) -> str:
        """What to say of a script that is the first to fail unexpectedly; empty for any other."""
        if self.failed or not is_failure(attempt, self._record):
            return ""
        self.failed = True
        number = next(group.iteration for group in self._record.groups if group.name == attempt.group)
        return f"{report_name(attempt.path)} did not pass in iteration {number}."

    def failed_before(self, attempts: Iterable[Attempt]) -> str:
        """The same of a run that is resumed, by what it has."""
        return next((said for attempt in attempts if (said := self.failure(attempt))), "")

    def more(self) -> Sequence[Group]:
        """The next iteration, which is recorded first; none where the run is to end."""
        if self.failed or self._ends():
            return ()
        number = max((group.iteration for group in self._record.groups), default=0) + 1
        if 0 < self._record.iterations < number:
            return ()
        again = iteration(self._record.groups, number)
        if self._record.seed is not None:
            again = shuffled(again, Random(self._record.seed + number))
        self._write((*self._record.groups, *again))
        return again

    def forget_rest(self) -> None:
        """Tests of an iteration that was cut short were not asked for; nor those after the failure that was sought."""
        done = {attempt.key for attempt in read_suite_run(self._folder).attempts if attempt.role == "test"}
        self._write(tuple(without_rest(self._record.groups, done, whole_first=not self.failed)))

    def _write(self, groups: tuple[Group, ...]) -> None:
        self._record = with_fields(self._record, groups=groups)
        write_suite_record(self._folder, self._record)


def is_failure(attempt: Attempt, record: SuiteRecord) -> bool:
    """Whether a script did not pass, at its last try, or lost its guest, and nobody expected that."""
    if attempt.outcome in (Outcome.PASS, Outcome.SKIP):
        return False
    if attempt.role == "test" and attempt.number <= record.retries and attempt.outcome not in LOST:
        return False
    expectations = record.expected_on(datetime.now(UTC).date())
    return expected(attempt, report_name(attempt.path), expectations) is None
