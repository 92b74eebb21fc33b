"""Two sides of a comparison, brought together round by round as log ratios.

Logs, because effects of storage multiply: a slow moment of the machine takes the same share of both sides,
and "twice as fast" must mean the same as "half as slow" the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from storlab.analysis.anytime import ROUNDING, Floats
from storlab.analysis.wording import listed

Rounds = NDArray[np.int64]


def _no_rounds() -> Rounds:
    return np.empty(0, dtype=np.int64)


def _no_values() -> Floats:
    return np.empty(0, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Side:
    """One level's values of one metric: in each round that was done, in order; NaN where the metric is
    missing.
    """

    name: str
    rounds: Rounds = field(default_factory=_no_rounds)
    values: Floats = field(default_factory=_no_values)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Log ratios a ÷ b of the rounds done on both sides, in order of the rounds.

    ``problem`` says why where there can be no ratio, however many rounds follow (``no_ratio`` makes a sentence of it);
    ``log_ratios`` is then empty.
    """

    rounds: Rounds = field(default_factory=_no_rounds)
    log_ratios: Floats = field(default_factory=_no_values)
    problem: str = ""
    warnings: tuple[str, ...] = ()


def pair(a: Side, b: Side) -> Pairs:
    """``a`` ÷ ``b`` in each round that both have.

    A value that is missing or not above 0 in any of them has no logarithm. Leaving just that round out would
    select rounds by their result, so the whole comparison has no ratio then.
    """
    rounds, of_a, of_b = a.rounds, a.values, b.values
    unpaired: tuple[str, ...] = ()
    if not np.array_equal(a.rounds, b.rounds):
        rounds, in_a, in_b = np.intersect1d(a.rounds, b.rounds, assume_unique=True, return_indices=True)
        of_a, of_b = a.values[in_a], b.values[in_b]
        unpaired = tuple(
            f"Left out: {listed(alone.tolist())}, done for {x.name} but not for {y.name}."
            for x, y in ((a, b), (b, a))
            if len(alone := np.setdiff1d(x.rounds, y.rounds))
        )
    problem = without_logarithm(a.name, rounds, of_a) or without_logarithm(b.name, rounds, of_b)
    if problem:
        return Pairs(rounds, problem=problem, warnings=unpaired)
    # Difference of logs: the quotient of two extreme values could overflow.
    return Pairs(rounds, snap(np.log(of_a) - np.log(of_b)), warnings=unpaired)


def snap(log_ratios: Floats) -> Floats:
    """Ratios that differ from 1 by rounding only are 1: no verdict may rest on the last bit of a float."""
    return np.where(np.abs(log_ratios) <= ROUNDING, 0.0, log_ratios)


def pool(parts: Sequence[Pairs]) -> Pairs:
    """Per round the mean of the log ratios of ``parts``, in the rounds that all of them have.

    Rounds stay the unit: combinations measured in the same round share its disturbances.
    """
    if not parts:
        return Pairs()
    problem = next((part.problem for part in parts if part.problem), "")
    rounds = parts[0].rounds
    if all(np.array_equal(part.rounds, rounds) for part in parts):
        return Pairs(rounds, problem=problem) if problem else _mean_of([p.log_ratios for p in parts], rounds)
    for part in parts[1:]:
        rounds = np.intersect1d(rounds, part.rounds, assume_unique=True)
    if problem:
        return Pairs(rounds, problem=problem)
    incomplete = sorted({number for part in parts for number in part.rounds.tolist()} - set(rounds.tolist()))
    rows = [part.log_ratios[np.isin(part.rounds, rounds, assume_unique=True)] for part in parts]
    left_out = (f"Left out: {listed(incomplete)}, not done in every combination.",) if incomplete else ()
    return _mean_of(rows, rounds, left_out)


def _mean_of(rows: Sequence[Floats], rounds: Rounds, warnings: tuple[str, ...] = ()) -> Pairs:
    return Pairs(rounds, snap(np.mean(rows, axis=0)), warnings=warnings)


def without_logarithm(name: str, rounds: Rounds, values: Floats) -> str:
    """Why ``values`` (of these ``rounds``) have no logarithm, in words; an empty text where they have."""
    if bool((values > 0).all()) and bool((values < np.inf).all()):  # NaN fails the first
        return ""
    missing = ~np.isfinite(values)
    if missing.any():
        return f"{name} lacks the metric in {listed(rounds[missing].tolist())}"
    if (values == 0).all():
        return f"{name} is 0 in every round"
    what = "0 or negative" if (values < 0).any() else "0"
    return f"{name} is {what} in {listed(rounds[values <= 0].tolist())}"


def no_ratio(problem: str, metric: str) -> str:
    """Why there is no verdict, as a sentence for the reader. ``problem``: as ``without_logarithm`` has it."""
    return f"{problem}, so there is no ratio of {metric}, which a verdict would be about; its values are in the tables."
