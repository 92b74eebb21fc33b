"""What became of a claim, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ClaimVerdict = Literal["holds", "does not hold", "undecided", "missing"]


@dataclass(frozen=True)
class Claim:
    """One claim with its answer: of left ÷ right, or, without ``right``, of the metric's value in one cell."""

    name: str  # in the words of the study
    said_by: str
    verdict: ClaimVerdict
    reason: str  # one sentence
    metric: str
    source: str  # workload or probe; empty where nothing was measured
    unit: str
    left: dict[str, str]
    right: dict[str, str]  # empty for a value
    expected: str  # "more than 2×", "from 1.9 to 2.1"
    rounds: int = 0
    value: float | None = None  # ratio or value: the typical one
    low: float | None = None
    high: float | None = None
    confidence: float | None = None  # of this interval
    warnings: tuple[str, ...] = ()
