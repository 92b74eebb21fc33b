"""Simulated machines and studies with known truth. Every generator takes its seed from the test that uses it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from benchmarks.soundness.engine import first_verdicts, lies_beyond, missed
from numpy.typing import NDArray

from storlab.analysis.design import CompareSpec, Design
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.verdict import Rules, judge

Values = dict[tuple[str, ...], list[float | None]]
"""Values by levels, one a round; ``None`` is a trial that failed."""

Factors = dict[str, tuple[str, ...]]

MACHINES = ("normal", "heavy tails", "no mean", "drift", "regimes", "AR(1)", "counts", "bursts")


def noise(kind: str, studies: int, slots: int, rng: np.random.Generator) -> Floats:
    """Logs of what a machine gives in each slot of time, whatever runs there; shape ``(studies, slots)``."""
    shape = (studies, slots)
    steady = 0.05 * rng.normal(size=shape)
    if kind == "heavy tails":
        return np.asarray(0.05 * rng.standard_t(3, size=shape))
    if kind == "no mean":
        return np.asarray(0.05 * rng.standard_cauchy(size=shape))
    if kind == "drift":  # to half the speed
        return np.asarray(steady - np.linspace(0, 0.7, slots))
    if kind == "regimes":
        slow: NDArray[np.bool_] = np.cumsum(rng.random(shape) < 0.05, axis=1) % 2 == 1
        return np.asarray(steady - 0.5 * slow)
    if kind == "AR(1)":
        for slot in range(1, slots):
            steady[:, slot] += 0.9 * steady[:, slot - 1]
    elif kind == "counts":
        return np.asarray(np.log(rng.choice([100.0, 101.0], size=shape)))
    elif kind == "bursts":
        return steady - 3 * (rng.random(shape) < 0.05)
    return steady


def log_ratios(kind: str, studies: int, rounds: int, rng: np.random.Generator, effect: float = 0.0) -> Floats:
    """Log ratios a ÷ b of studies that run both in each round, in an order of its own; ``effect`` is their truth."""
    slots = noise(kind, studies, 2 * rounds, rng)
    first = rng.random((studies, rounds)) < 0.5
    even, odd = slots[:, ::2], slots[:, 1::2]
    return np.where(first, even - odd, odd - even) + effect


def running(values: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (n − 1) of the first n values of each row, for every n."""
    n = np.arange(1, values.shape[1] + 1)
    mean = np.cumsum(values, axis=1) / n
    squares = np.maximum(np.cumsum(values**2, axis=1) - n * mean**2, 0.0)
    return mean, np.sqrt(squares / np.maximum(n - 1, 1))


def first_difference(values: Floats, rules: Rules) -> NDArray[np.int64]:
    """Round of the first verdict better or worse in each row, with a look after every round; 0 where there is none."""
    found = first_verdicts(values, rules)
    return np.where(found.equivalent, 0, found.at)


def ever(verdicts: set[str], values: Floats, rules: Rules) -> NDArray[np.bool_]:
    """Whether any look at each row, one after every round, gives one of these verdicts.

    As in the engine of the simulations, a verdict is only asked for where there is as much evidence as it takes.
    """
    looks = missed(values, 0.0, rules.alpha) & (verdicts != {"equivalent"})
    if "equivalent" in verdicts:
        edge = math.log1p(rules.margin)
        looks |= np.logical_and(*(lies_beyond(values, -side * edge, side, rules.one_sided) for side in (1, -1)))
    looks[:, : rules.min_rounds - 1] = False
    asked = ((row[: n + 1] for n in np.nonzero(at)[0]) for row, at in zip(values, looks, strict=True))
    return np.array([any(judge(seen, "a", "b", rules).verdict in verdicts for seen in row) for row in asked])


def at_most(share: float, studies: int) -> float:
    """The share, and three of its standard errors: a change of generator alone breaks nothing."""
    return share + 3 * math.sqrt(share * (1 - share) / studies)


def tables(
    values: Values,
    factors: Factors,
    *,
    metric: str = "write.bandwidth",
    better: str = "higher",
    sources: dict[tuple[str, ...], str] | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame, tuple[tuple[int, dict[str, str]], ...]]:
    """Trials, metrics and cells of a run."""
    cells = tuple((number, dict(zip(factors, levels, strict=True))) for number, levels in enumerate(values, 1))
    trials, metrics, trial = [], [], 0
    for number in range(1, max(map(len, values.values())) + 1):
        for cell, (levels, series) in enumerate(values.items(), 1):
            if number > len(series):
                continue
            trial += 1
            value = series[number - 1]
            status, reason = ("done", None) if value is not None else ("failed", "fio was killed.")
            trials.append((trial, number, cell, status, reason))
            if value is not None:
                source = (sources or {}).get(levels, "load")
                metrics.append((trial, number, cell, None, source, None, metric, value, "B/s", better, "sum"))
    return trial_frame(trials), metric_frame(metrics), cells


def trial_frame(rows: Sequence[tuple[int, int, int, str, str | None]]) -> pl.DataFrame:
    names = {"trial": pl.Int64, "round": pl.Int64, "cell": pl.Int64, "status": pl.String, "reason": pl.String}
    return pl.DataFrame(rows, schema=names, orient="row")


def metric_frame(rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
    columns = ("trial", "round", "cell", "node", "source", "job", "metric", "value", "unit", "better", "across")
    types = [pl.Int64] * 3 + [pl.String] * 4 + [pl.Float64] + [pl.String] * 3
    return pl.DataFrame(rows, schema=dict(zip(columns, types, strict=True)), orient="row")


def design(
    factors: Factors,
    cells: tuple[tuple[int, dict[str, str]], ...],
    comparisons: tuple[CompareSpec, ...] | None = None,
    primary: str = "bandwidth",
) -> Design:
    return Design("A study", primary, factors, cells, comparisons)
