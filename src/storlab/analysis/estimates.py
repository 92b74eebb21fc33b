"""Every metric of every cell over its rounds: median, mean, spread and the anytime-valid interval of the
mean.

Estimates describe. Their intervals hold one by one, uncorrected for how many there are, and assume roughly
normal rounds; which of two cells is better is for ``compare``, which pairs rounds and corrects.

Everything is computed by grouped expressions: a study may well have a million rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from storlab.analysis.anytime import ROUNDING, width_factors
from storlab.analysis.checks import (
    DRIFT_FROM,
    DRIFT_Z,
    MAD_TO_SD,
    MEAN_DEVIATION_TO_SD,
    OUTLIER_Z,
    OUTLIERS_FROM,
    drift_warning,
    outlier_warning,
)
from storlab.analysis.design import Levels
from storlab.analysis.series import Recorded
from storlab.analysis.summary import Estimate
from storlab.analysis.wording import plural

_NEVER_NEGATIVE = ("B/s", "1/s", "B", "s", "B²/s²", "1/s²")

ROWS_AT_ONCE = 100_000
"""Ranks and scores take several times the memory of the values themselves."""


def estimates(
    recorded: Recorded, cells: Mapping[int, Levels], confidence: float, min_rounds: int
) -> tuple[Estimate, ...]:
    """One ``Estimate`` for each series of ``recorded`` that has a value.

    Values that are null, NaN or infinite are left out, and a warning says in how many rounds.
    """
    if recorded.values.is_empty():
        return ()
    statistics = pl.concat(_statistics(_with_scores(part)) for part in _parts(recorded.values))
    table = _with_intervals(recorded.series.join(statistics, on="series", maintain_order="left"), 1 - confidence)
    return tuple(
        Estimate(
            cell=row["cell"],
            levels=cells[row["cell"]],
            source=row["source"],
            metric=row["metric"],
            unit=row["unit"],
            better=row["better"],
            rounds=row["n"],
            median=row["median"],
            mean=row["mean"],
            sd=row["sd"],
            cv=row["cv"],
            low=row["low"],
            high=row["high"],
            confidence=confidence,
            warnings=_warnings(row, min_rounds),
        )
        for row in table.iter_rows(named=True)
    )


def _parts(values: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """``values``, sorted by series, in parts of whole series and about ``ROWS_AT_ONCE`` rows."""
    begin = 0
    while begin < values.height:
        last = min(begin + ROWS_AT_ONCE, values.height) - 1
        end = values["series"].search_sorted(values["series"][last], side="right")
        yield values[begin:end]
        begin = end


def _with_scores(values: pl.DataFrame) -> pl.DataFrame:
    """``values`` (``series``, ``round``, ``value``) with what needs whole series: z-scores, ranks.

    Values are divided by ``scale``, a power of two near the largest, which is exact: squares of 1e300 or of 1e-300 are
    no floats.
    """
    value, distance = pl.col("value"), pl.col("distance")
    largest = value.abs().max().over("series")
    return (
        values.with_columns(value=pl.when(value.is_finite()).then(value))
        .with_columns(scale=pl.when(largest > 0).then(pl.lit(2.0).pow(largest.log(2).floor())).otherwise(1.0))
        .with_columns(value=value / pl.col("scale"))
        .with_columns(distance=(value - value.median().over("series")).abs())
        .with_columns(
            mad=distance.median().over("series"),
            deviation=distance.mean().over("series"),
            floor=ROUNDING * value.abs().max().over("series"),
            rank=value.rank("average").over("series"),
            order=pl.when(value.is_not_null()).then(pl.col("round")).rank("ordinal").over("series"),
        )
        .select(
            "series",
            "round",
            "value",
            "scale",
            "floor",
            "rank",
            "order",
            z=pl.when(pl.col("mad") > pl.col("floor"))
            .then(MAD_TO_SD * distance / pl.col("mad"))
            .when(pl.col("deviation") > pl.col("floor"))
            .then(MEAN_DEVIATION_TO_SD * distance / pl.col("deviation"))
            .otherwise(0.0),
        )
    )


def _statistics(scored: pl.DataFrame) -> pl.DataFrame:
    """One row a series that has a value."""
    value = pl.col("value")
    return (
        scored.group_by("series", maintain_order=True)
        .agg(
            n=value.count().cast(pl.Int64),
            missing=value.null_count(),
            median=value.median(),
            least=value.min(),
            mean=value.mean(),
            sd=value.std(),
            floor=pl.col("floor").first(),
            scale=pl.col("scale").first(),
            outliers=pl.col("round").filter(pl.col("z") > OUTLIER_Z).sort(),
            rho=pl.corr("rank", "order"),
        )
        .filter(pl.col("n") > 0)
        .with_columns(sd=pl.when(pl.col("sd") <= pl.col("floor")).then(0.0).otherwise(pl.col("sd")))
        .with_columns(
            cv=pl.when(pl.col("mean") != 0).then(pl.col("sd") / pl.col("mean").abs()),
            drift=pl.col("rho").fill_nan(0.0) * (pl.col("n") - 1).sqrt(),
        )
        .with_columns(pl.col("median", "least", "mean", "sd") * pl.col("scale"))
        .with_columns(sd=pl.when(pl.col("sd").is_finite()).then("sd"))
    )


def _with_intervals(table: pl.DataFrame, alpha: float) -> pl.DataFrame:
    """``table`` with ``low`` and ``high`` of the mean; null where ``n`` allows no interval, or none of floats.

    Times, sizes and rates can't be negative: of their intervals only what lies above 0 is given, which loses nothing.
    """
    factors = pl.Series(width_factors(table["n"].to_numpy(), alpha))
    half = factors * pl.col("sd")
    half = pl.when(half.is_finite() & (pl.col("mean").abs() + half).is_finite()).then(half)
    whole = pl.col("mean") - half
    above = pl.when(pl.col("unit").is_in(_NEVER_NEGATIVE) & (pl.col("least") >= 0)).then(whole.clip(lower_bound=0.0))
    return table.with_columns(low=above.otherwise(whole), high=pl.col("mean") + half)


def _warnings(row: Mapping[str, object], min_rounds: int) -> tuple[str, ...]:
    n, missing, drift, outliers = row["n"], row["missing"], row["drift"], row["outliers"]
    assert isinstance(n, int) and isinstance(missing, int) and isinstance(outliers, list)
    found = []
    if n < min_rounds:
        found.append(f"Only {n} of at least {min_rounds} rounds.")
    if missing:
        found.append(f"No finite value in {plural(missing, 'round')}: left out.")
    if n > 1 and row["sd"] == 0:
        found.append("The same value in every round: the interval is a point, right for counts only.")
    if n >= OUTLIERS_FROM and outliers:
        found.append(outlier_warning(outliers))
    if n >= DRIFT_FROM and isinstance(drift, float) and abs(drift) > DRIFT_Z:
        found.append(drift_warning(drift > 0, "The value"))
    return tuple(found)
