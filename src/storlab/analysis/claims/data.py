"""What became of a claim, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from storlab.findings import AnyFinding


@dataclass(frozen=True)
class Expected:
    """What is claimed: that a ratio is ``word`` ("more", "less") than ``limit``, within a margin, or a range."""

    word: Literal["more", "less", "equivalent", "between"]
    limit: float = 1.0
    low: float = 0.0
    high: float | None = None
    margin: float | None = None


ClaimVerdict = Literal["holds", "does not hold", "undecided", "missing"]


@dataclass(frozen=True)
class Claim:
    """One claim with its answer: of left ÷ right, or, without ``right``, of the metric's value in one cell."""

    name: str  # in the words of the study
    said_by: str
    verdict: ClaimVerdict
    reason: AnyFinding
    metric: str
    source: str  # workload or probe; empty where nothing was measured
    unit: str
    left: dict[str, str]
    right: dict[str, str]  # empty for a value
    expected: Expected
    rounds: int = 0
    value: float | None = None  # ratio or value: the typical one
    low: float | None = None
    high: float | None = None
    confidence: float | None = None  # of this interval
    warnings: tuple[AnyFinding, ...] = ()
