"""What is said of sweeps, as data. All numbers are in base units; a ``level`` is the factor's, by its name."""

from __future__ import annotations

from dataclasses import dataclass

from storlab.findings import AnyFinding


@dataclass(frozen=True)
class Step:
    """One point of a line: the level, the number that it is, and its cell."""

    level: str
    number: float
    cell: int


@dataclass(frozen=True)
class Line:
    """One combination of levels of the other factors, with its steps in ascending order."""

    levels: dict[str, str]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Sweep:
    """A factor whose levels are numbers. ``unit``: "B", "s", or nothing for plain numbers."""

    factor: str
    unit: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Knee:
    """Where more load begins to buy latency rather than throughput, on one line of a sweep; or why nowhere."""

    factor: str
    levels: dict[str, str]  # of the other factors
    source: str
    throughput: str  # metric
    latency: str  # metric
    level: str | None  # null: no knee within the range, or none that the rounds agree on
    low: str | None  # the knee lies between these levels
    high: str | None
    rate: float | None  # mean throughput at the knee
    time: float | None  # mean latency at the knee
    rounds: int
    confidence: float | None  # of low and high; null where the rounds are too few to have one
    reason: AnyFinding


@dataclass(frozen=True)
class Objective:
    """Up to which step of a sweep a metric stays within its limit, on one line of it."""

    factor: str
    levels: dict[str, str]  # of the other factors
    source: str
    metric: str
    unit: str
    limit: float | None  # null: nothing was measured, so its unit is unknown
    below: bool  # the metric should stay below the limit; else above it
    holds_to: str | None  # it holds at every step up to this one; null: not established at the first
    fails_from: str | None  # it does not hold at this step and all beyond; null: not established at the last
    crossing: float | None  # the factor's number where the fitted curve meets the limit; null: not within the range
    rounds: int
    # Of holds_to and fails_from together, after correction for how many objectives there are; null where that is not
    # known, as one round may tell of the next: then they are true of these rounds.
    confidence: float | None
    settled: bool  # more rounds could say no more: its two ends are neighbours, or ends of the range
    reason: AnyFinding
    missing: bool = False  # no step of this line has a measurement, so it neither holds nor fails
