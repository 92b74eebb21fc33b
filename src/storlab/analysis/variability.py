"""How much the samples within trials vary, as frames that charts show: over time, distributions, differences.

All of it describes these trials. Samples depend on each other, and one trial is one trial, so nothing here judges.

``samples`` have the columns ``level, round, t, value``: one row a sample, ``t`` in s, ``value`` in any unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storlab.analysis.questions import Planned
from storlab.analysis.runs.merged_runs import Merged
from storlab.timeseries import variability
from storlab.timeseries.variability import STATISTICS, Floats, course, even_step, times_least, whiskers_of

QUANTILES = np.arange(5, 996, 5) / 1000
"""Which are compared: half a per cent at either end would be the outliers, which have a chart of their own."""
_MOST_OUTLIERS = 400  # of a level; more are a cloud in which none is seen
_PARTS = 12
_TOGETHER = {"sum": pl.Expr.sum, "mean": pl.Expr.mean, "min": pl.Expr.min}
_GOLDEN = (np.sqrt(5) - 1) / 2
_Columns = dict[str, Floats | float]


def samples(series: pl.DataFrame, source: str, metric: str, across: str, cells: Mapping[str, int]) -> pl.DataFrame:
    """``level, round, t, value`` of this metric: all jobs and nodes of a trial together, at their own interval.

    ``series`` as in ``docs/reference/records.md``; ``cells``: level → cell. Only instants that all nodes have count.
    ``across``: how values combine; of percentiles, which don't, it is the largest at an instant.
    """
    names = pl.DataFrame(list(cells.items()), schema={"level": pl.String, "cell": pl.Int64}, orient="row")
    rows = series.filter(pl.col("value").is_finite() & pl.col("t").is_finite(), source=source, metric=metric)
    whole = pl.col("job").is_null()
    lanes = ["cell", "round", "trial", "node"]
    rows = rows.filter(whole | ~whole.any().over(lanes)).sort("t")
    rows = rows.with_columns(
        parts=pl.struct("node", "job").n_unique().over("trial"), step=pl.col("t").diff().over(*lanes, "job")
    )
    # Tools report each interval some milliseconds late. Where several are added up, it counts which interval it is.
    interval = pl.col("step").median().over("trial").round_sig_figs(2)
    slot = ((pl.col("t") / interval).round() * interval).round(6)
    rows = rows.with_columns(t=pl.when((pl.col("parts") > 1) & (interval > 0)).then(slot).otherwise("t"))
    together = _TOGETHER.get(across, pl.Expr.max)(pl.col("value"))
    return (
        rows.group_by(*lanes, "job", "t", maintain_order=True)
        .agg(pl.col("value").mean(), pl.col("parts").first())
        .group_by("cell", "round", "t", maintain_order=True)
        .agg(together, pl.col("parts").first(), there=pl.len())
        .filter(pl.col("there") >= pl.col("parts"))
        .join(names, on="cell")
        .select("level", "round", "t", "value")
        .sort("level", "round", "t")
    )


def over_time(samples: pl.DataFrame, step: float) -> pl.DataFrame:
    """``level, round, t, mean, low, high, variance, count`` in steps of ``step`` s; the last is of the population."""
    rows = []
    for (level, at), part in _groups(samples, "level", "round"):
        found = course(_array(part, "t"), _array(part, "value"), step)
        rows.append(pl.DataFrame(vars(found)).select(pl.lit(level).alias("level"), pl.lit(at).alias("round"), pl.all()))
    return pl.concat(rows) if rows else _none("level", "t", "mean", "low", "high", "variance", "count")


def over_rounds(course: pl.DataFrame) -> pl.DataFrame:
    """``level, t, mean, low, high``: of what ``over_time`` found, the rounds' median, and how far rounds lie apart."""
    return (
        course.group_by("level", "t", maintain_order=True)
        .agg(pl.col("mean").median(), low=pl.col("mean").min(), high=pl.col("mean").max())
        .sort("level", "t")
    )


def bulk(samples: pl.DataFrame) -> tuple[float, float]:
    """Between which values all but the least and the largest half per cent of each level's samples lie."""
    ends = samples.group_by("level").agg(
        low=pl.col("value").quantile(0.005, "linear"), high=pl.col("value").quantile(0.995, "linear")
    )
    return float(str(ends["low"].min())), float(str(ends["high"].max()))


def variances(samples: pl.DataFrame) -> pl.DataFrame:
    """``level, variance, factor``: of the population, and how many times the smallest it is (null: that is 0)."""
    found = samples.group_by("level", maintain_order=True).agg(variance=pl.col("value").var(ddof=0))
    factors = times_least(found["variance"].to_list())
    return found.with_columns(factor=pl.Series(factors, dtype=pl.Float64))


def interval(samples: pl.DataFrame) -> float:
    """Between samples, in s: the median; 1 for fewer than two instants."""
    return float(str(samples["t"].unique().sort().diff().median() or 1.0))


def histogram(samples: pl.DataFrame) -> pl.DataFrame:
    """``level, low, high, share, outside``: the part of each level's samples in each of the bins that all share.

    ``outside``: how many of the level's samples lie so far away that no bin holds them.
    """
    groups = _by_level(samples).values()
    edges = variability.shared_edges(values[variability.near(values)] for values in groups) if groups else np.zeros(2)

    def bins(values: Floats) -> _Columns:
        outside = int(((values < edges[0]) | (values > edges[-1])).sum())
        share = variability.shares(values, edges)
        return {"low": edges[:-1], "high": edges[1:], "share": share, "outside": outside}

    return _of_levels(samples, bins, "low", "high", "share", "outside")


def densities(samples: pl.DataFrame) -> pl.DataFrame:
    """``level, value, density``: samples per unit, with an area of 1; none of a level that does not vary."""

    def curve(values: Floats) -> _Columns | None:
        found = variability.density(values)
        return None if found is None else {"value": found[0], "density": found[1]}

    return _of_levels(samples, curve, "value", "density")


def bells(samples: pl.DataFrame) -> pl.DataFrame:
    """``level, value, density, mean, sigma``: what normal distributions of the same μ and σ would be."""

    def curve(values: Floats) -> _Columns | None:
        mean, sigma = float(values.mean()), float(values.std())
        if sigma <= 1e-12 * abs(mean):
            return None
        at, density = variability.bell(mean, sigma)
        return {"value": at, "density": density, "mean": mean, "sigma": sigma}

    return _of_levels(samples, curve, "value", "density", "mean", "sigma")


def boxes(samples: pl.DataFrame, whiskers: float, *by: str) -> pl.DataFrame:
    """``*by, low, first, median, third, high``: quartiles, and the last samples that are no outliers, which begin
    ``whiskers`` interquartile ranges from the quartiles.
    """
    numbers = ("low", "first", "median", "third", "high")
    rows = []
    for names, part in _groups(samples, *by):
        found = variability.box(_array(part, "value"), whiskers)
        rows.append((*names, *(getattr(found, name) for name in numbers)))
    schema = {name: samples.schema[name] for name in by} | dict.fromkeys(numbers, pl.Float64())
    return pl.DataFrame(rows, schema=schema, orient="row")


def outlying(samples: pl.DataFrame, whiskers: float) -> pl.DataFrame:
    """``level, value, aside, of``: outliers as in ``boxes``, with a place between −0.5 and 0.5: none hides another.

    ``of``: how many there are of the level; rows are at most ``_MOST_OUTLIERS``, evenly over their sizes, both ends
    among them.
    """

    def outliers(values: Floats) -> _Columns:
        found = np.sort(variability.box(values, whiskers).outliers)
        count = len(found)
        if count > _MOST_OUTLIERS:
            found = found[np.linspace(0, count - 1, _MOST_OUTLIERS).round().astype(np.int64)]
        # Multiples of the golden ratio fill an interval evenly, and are the same in each report.
        return {"value": found, "aside": (np.arange(len(found)) * _GOLDEN) % 1 - 0.5, "of": np.full(len(found), count)}

    return _of_levels(samples, outliers, "value", "aside", "of")


def quantile_differences(samples: pl.DataFrame, base: str) -> pl.DataFrame:
    """``level, quantile, difference``: each level's quantiles against those of level ``base``, as a share of them."""
    other = _by_level(samples).get(base, np.zeros(0))

    def differences(values: Floats) -> _Columns:
        fewest = min(len(values), len(other))
        at = QUANTILES[(QUANTILES * fewest >= 1) & ((1 - QUANTILES) * fewest >= 1)]
        difference = variability.quantile_differences(values, other, at) if len(at) else at
        known = np.isfinite(difference)
        return {"quantile": at[known], "difference": difference[known]}

    return _of_levels(samples.filter(pl.col("level") != base), differences, "quantile", "difference")


def step_of(samples: pl.DataFrame, most: int) -> float:
    """The length of parts of a trial, in s: a round one, so that there are at most ``most``, of a sample at least."""
    return max(even_step(float(str(samples["t"].max() or 0.0)), most), interval(samples))


def parts(samples: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """``samples`` with ``part``, from 0: at most ``_PARTS`` of the same round length; and that length, in s."""
    step = step_of(samples, _PARTS)
    part = ((pl.col("t") / step - 1e-9).ceil() - 1).clip(lower_bound=0).cast(pl.Int64)
    return samples.with_columns(part=part), step


def _groups(frame: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[object, ...], pl.DataFrame]]:
    return iter(frame.group_by(*by, maintain_order=True))


def _array(frame: pl.DataFrame, column: str) -> Floats:
    return frame[column].to_numpy()


def _by_level(samples: pl.DataFrame) -> dict[str, Floats]:
    return {str(level): _array(part, "value") for (level,), part in _groups(samples, "level")}


def _of_levels(samples: pl.DataFrame, make: Callable[[Floats], _Columns | None], *columns: str) -> pl.DataFrame:
    """``level`` and ``columns``: what ``make`` makes of each level's values."""
    made = ((level, make(values)) for level, values in _by_level(samples).items())
    frames = [pl.DataFrame(each).select(pl.lit(level).alias("level"), pl.all()) for level, each in made if each]
    return pl.concat(frames) if frames else _none("level", *columns)


def _none(*columns: str) -> pl.DataFrame:
    return pl.DataFrame(schema=dict.fromkeys(columns, pl.Float64) | {"level": pl.String})


# How much samples vary within the trials of two runs that are compared: described side by side, and never judged.
#
# The words are those of the field: population variance, σ, coefficient of variation, outliers, longest stall, and the
# *variance factor*: the larger variance by the smaller. What each is stands in ``docs/reference/metrics.md``. Samples
# of one trial depend on each other, so neither a variance nor the factor has an interval here.


@dataclass(frozen=True)
class Spread:
    """Of one side: means over its trials, in base units; ``None`` where the trials don't have it."""

    trials: int
    mean: float | None
    variance: float | None
    sigma: float | None
    cv: float | None
    outliers: float | None
    longest_stall: float | None


@dataclass(frozen=True)
class Varying:
    """Both sides of one comparison. ``factor``: larger variance ÷ smaller; ``None`` where the smaller is 0.

    ``whiskers``: interquartile ranges from the quartiles, beyond which samples are outliers.
    """

    a: str
    b: str
    within: dict[str, str]
    source: str
    metric: str
    unit: str
    of_a: Spread
    of_b: Spread
    factor: float | None
    larger: str  # the side that varies more; empty where neither does
    whiskers: float


def varying(merged: Merged) -> tuple[Varying, ...]:
    """Of each comparison within a combination whose metric has a variance on both sides."""
    found = []
    for item in merged.planned:
        if not item.question.pooled and not item.problem and not item.waiting:
            of_a, of_b = (_spread(merged, cell, item) for cell in item.cells[0])
            if of_a.variance is not None and of_b.variance is not None:
                whiskers = whiskers_of(merged.declared[item.question.source], item.question.metric)
                found.append(_varying(item, of_a, of_b, of_a.variance, of_b.variance, whiskers))
    return tuple(found)


def _varying(item: Planned, of_a: Spread, of_b: Spread, a: float, b: float, whiskers: float) -> Varying:
    q = item.question
    larger = "" if a == b else q.a if a > b else q.b
    factor = times_least((a, b))[0 if a >= b else 1]
    return Varying(q.a, q.b, dict(q.within), q.source, q.metric, q.unit, of_a, of_b, factor, larger, whiskers)


def _spread(merged: Merged, cell: int, item: Planned) -> Spread:
    source, metric = item.question.source, item.question.metric
    values = [s.value for s in merged.samples(cell, (source, metric))]
    names = (merged.declared[source].statistic(metric, each) for each in STATISTICS)
    each = ([s.value for s in merged.samples(cell, (source, name))] for name in names)
    return Spread(len(values), _mean(values), *map(_mean, each))


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None
