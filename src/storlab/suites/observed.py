"""Results of a suite as comparisons and histories see them: of each run, what came of each test, try by try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from storlab.suites.environment import SuiteEnvironment
from storlab.suites.model import Outcome


@dataclass(frozen=True)
class Try:
    """One try of a test. ``elapsed``: seconds; ``None`` where nothing says how long it took."""

    outcome: Outcome
    elapsed: float | None

    @property
    def passed(self) -> bool | None:
        """Whether it passed; ``None`` where it was skipped, which says nothing."""
        return None if self.outcome is Outcome.SKIP else self.outcome is Outcome.PASS


@dataclass(frozen=True)
class Gap:
    """What the log of a run leaves open: ``count`` tests, with their names where it has them.

    ``planned``: results that were announced and did not come; ``no summary``: it ends before the one of its runner.
    ``stray``: results out of their order, or without their parent's; ``no end``: of its last line; ``no section``: it
    names sections, but not that of all tests.
    """

    kind: Literal["no result", "planned", "bailed out", "no summary", "stray", "no end", "no section"]
    count: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class ObservedRun:
    """One run. ``tests``: name → its tries, in order; ``asked``: tests that it was to run, whether or not they did.

    ``identity`` tells whether two are the same run under different names.
    """

    name: str
    identity: str
    started: datetime | None
    environment: SuiteEnvironment
    tests: Mapping[str, tuple[Try, ...]]
    asked: frozenset[str] = field(default_factory=frozenset)
    gaps: tuple[Gap, ...] = ()

    def first(self, test: str) -> Try | None:
        """The first try of a test, which is the one that counts: later ones are there only because it failed."""
        tries = self.tests.get(test)
        return tries[0] if tries else None
