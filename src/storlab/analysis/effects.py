"""What the analysis of factors says, as data: whose variation a metric's variation is, and the means behind it.

How it is computed is in ``factorial``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Part = Literal["factor", "interaction", "others", "rounds", "residual"]
"""``others``: interactions that are not listed one by one. ``residual``: what remains between trials of one cell."""


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
    method: str  # one sentence
    warnings: tuple[str, ...] = ()


def read_effects(data: dict[str, Any]) -> Effects:
    """``data``, of JSON, as ``Effects``. Raises ``KeyError`` or ``TypeError`` where it is something else."""
    nested = {
        "factors": tuple(data["factors"]),
        "shares": tuple(Share(**{**row, "factors": tuple(row["factors"])}) for row in data["shares"]),
        "main": tuple(LevelMean(**row) for row in data["main"]),
        "pairs": tuple(LevelMean(**row) for row in data["pairs"]),
        "warnings": tuple(data["warnings"]),
    }
    return Effects(**{**data, **nested})
