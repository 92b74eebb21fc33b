"""What users expect of a suite's tests beside what the suite itself does: a list in TOML.

What it says of a test counts in place of the suite's own tables. An entry may hold until a day, and for some kernels
or versions of ZFS only, so that nothing is excused for ever.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct
from pydantic import Field, field_validator

from storlab.model import Model
from storlab.reach import Pattern, Prose
from storlab.suites.environment import SuiteEnvironment
from storlab.suites.model import Expectation, Expectations, Outcome
from storlab.suites.selection import matches


class OwnEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry as it is recorded with a run. ``until``: its last day, in ISO form; empty texts are for any."""

    tests: tuple[str, ...]
    outcome: Outcome
    reason: str
    always: bool = False
    until: str = ""
    kernel: Pattern = ""
    zfs: Pattern = ""

    def __str__(self) -> str:
        return f"{', '.join(self.tests)} ({self.outcome}, {self.reason})"

    def holds_in(self, environment: SuiteEnvironment | None) -> bool:
        """Whether it is about these guests; where nothing is known of them, only an entry for any is."""
        known = environment or SuiteEnvironment()
        wanted = ((self.kernel, known.kernel), (self.zfs, known.modules.get("zfs", "")))
        return all(fnmatchcase(has, pattern) for pattern, has in wanted if pattern)

    def is_over(self, day: dt.date) -> bool:
        return bool(self.until) and dt.date.fromisoformat(self.until) < day


class ExpectationTable(Model):
    """One entry of the list."""

    tests: Pattern | list[Pattern] = Field(
        description="which tests: patterns such as `zpool_trim/*`, as for `--test`; their `pre` and `post` scripts, too"
    )
    outcome: Literal["FAIL", "SKIP", "KILLED"] = Field(
        description="what they may end with; `KILLED` is also for a guest that crashed or hung"
    )
    reason: Prose = Field(min_length=1, description="why, such as the address of an issue; reports show it")
    always: bool = Field(False, description="a PASS would be unexpected, too")
    until: dt.date | None = Field(None, description="the last day on which it applies, such as `2027-01-31`")
    kernel: Pattern = Field("", description="only for kernels whose release matches this pattern, such as `6.12.*`")
    zfs: Pattern = Field("", description="only for versions of ZFS that match this pattern, such as `2.3.*`")

    @field_validator("tests")
    @classmethod
    def _some(cls, tests: str | list[str]) -> str | list[str]:
        if not tests or not all(tests):
            raise ValueError('name at least one test, or a pattern such as "zpool_trim/*"')
        return tests

    def entry(self) -> OwnEntry:
        tests = (self.tests,) if isinstance(self.tests, str) else tuple(self.tests)
        until = "" if self.until is None else self.until.isoformat()
        reason = " ".join(self.reason.split())
        return OwnEntry(tests, Outcome[self.outcome], reason, self.always, until, self.kernel, self.zfs)


class ExpectationFile(Model):
    """The whole file."""

    expect: list[ExpectationTable] = Field(
        min_length=1, description="the entries; of those about a test the first counts"
    )

    def entries(self) -> tuple[OwnEntry, ...]:
        return tuple(table.entry() for table in self.expect)


def with_own(
    tables: Expectations,
    own: Sequence[OwnEntry],
    scripts: Iterable[tuple[str, str]],
    environment: SuiteEnvironment | None,
    day: dt.date,
) -> Expectations:
    """The suite's tables with what the user's list says instead. ``scripts``: each path with its name in the tables."""
    valid = [entry for entry in own if entry.holds_in(environment) and not entry.is_over(day)]
    known, maybe = dict(tables.known), dict(tables.maybe)
    for path, name in scripts:
        entry = next((entry for entry in valid if _is_about(entry, path)), None)
        if entry is not None:
            known.pop(name, None)
            maybe.pop(name, None)
            (known if entry.always else maybe)[name] = Expectation(name, entry.outcome, entry.reason, entry.always)
    return replace(tables, known=known, maybe=maybe)


def notes_on(own: Sequence[OwnEntry], paths: Sequence[str], day: dt.date) -> Iterator[str]:
    """What is to be said of a list: entries that are over, and those that no test of the run is meant by."""
    for entry in own:
        if entry.is_over(day):
            yield f"not expected any more, its last day was {entry.until}: {entry}"
        elif not any(_is_about(entry, path) for path in paths):
            yield f"matches no test of this run: {entry}"


def _is_about(entry: OwnEntry, path: str) -> bool:
    return any(matches(path, pattern) for pattern in entry.tests)
