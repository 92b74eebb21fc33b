"""What claims, sweeps and factors came to, as data, in base units; a ``level`` is a factor's, by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from storlab.findings import AnyFinding


@dataclass(frozen=True)
class Expected:
    """What is claimed: that a ratio is ``word`` ("more", "less") than ``limit``, within a margin, or a range."""

    word: Literal["more", "less", "equivalent", "between"]
    limit: float = 1.0
    low: float | None = None  # of a range; null: it has no such end, or its unit is unknown
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
    settled: bool = True  # more rounds could say no more, or a comparison says when they do
    warnings: tuple[AnyFinding, ...] = ()


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


# What the analysis of factors says, as data: whose variation a metric's variation is, and the means behind it.
#
# How it is computed is in ``factorial``.

Part = Literal["factor", "interaction", "others", "rounds", "blocks", "residual"]
"""``others``: interactions that are not listed one by one. ``blocks``: what cells of a round have in common because
something was set up once for them. ``residual``: what remains between trials of one cell."""


@dataclass(frozen=True)
class Share:
    """One part of the variation of a metric's logarithm; all shares of a metric sum to 1."""

    part: Part
    factors: tuple[str, ...]  # one for a factor, two for an interaction, else none
    share: float
    df: int  # degrees of freedom


@dataclass(frozen=True)
class LevelMean:
    """The geometric mean of a metric at one level of a factor, or at one level each of two factors.

    Over all their combinations with the other factors, each of which counts the same.
    """

    levels: dict[str, str]
    mean: float  # in the metric's base unit


@dataclass(frozen=True)
class Effects:
    """What each factor has to do with one metric of one source. ``shares`` is empty where ``warnings`` say why."""

    source: str
    metric: str
    unit: str
    better: str
    within: dict[str, str]  # levels that do not vary here
    factors: tuple[str, ...]  # that vary
    rounds: int
    trials: int
    shares: tuple[Share, ...]
    main: tuple[LevelMean, ...]  # by factor, in the order of its levels
    pairs: tuple[LevelMean, ...]  # of every two factors
    blocks: bool | None  # whether blocks are random beside rounds; null if there are no shares
    warnings: tuple[AnyFinding, ...] = ()


@dataclass(frozen=True)
class Interaction:
    """Means of two factors' levels: a row for each level of ``down``, a column for each of ``across``.

    ``means`` in the metric's base unit, and ``ratios`` to the first column of the row: where the factors do not
    interact, all rows have the same. ``None``: that combination was not measured, or the first column was not.
    """

    down: str
    across: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    means: tuple[tuple[float | None, ...], ...]
    ratios: tuple[tuple[float | None, ...], ...]
    share: float


def interactions(found: Effects, least: float) -> tuple[Interaction, ...]:
    """Those of two factors with a share of at least ``least``, the strongest first.

    Columns are of the factor with fewer levels, or else of the one that comes first in the study.
    """
    strong = [each for each in found.shares if each.part == "interaction" and each.share >= least]
    strong.sort(key=lambda each: -each.share)
    return tuple(_interaction(found, each) for each in strong)


def _interaction(found: Effects, share: Share) -> Interaction:
    means = {
        frozenset(mean.levels.items()): mean.mean for mean in found.pairs if mean.levels.keys() == set(share.factors)
    }
    levels = {
        name: tuple(dict.fromkeys(mean.levels[name] for mean in found.main if name in mean.levels))
        for name in share.factors
    }
    across, down = sorted(share.factors, key=lambda name: len(levels[name]))  # stable: the first one where they tie
    table = tuple(
        tuple(means.get(frozenset({(down, row), (across, column)})) for column in levels[across])
        for row in levels[down]
    )
    ratios = tuple(tuple(mean / row[0] if mean and row[0] else None for mean in row) for row in table)
    return Interaction(down, across, levels[down], levels[across], table, ratios, share.share)
