"""What the analysis of factors says, as data: whose variation a metric's variation is, and the means behind it.

How it is computed is in ``factorial``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from storlab.findings import AnyFinding

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
