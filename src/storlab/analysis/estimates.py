"""Every metric of every cell over its rounds: median, mean, spread and the anytime-valid interval of the
mean.

Estimates describe. Their intervals hold one by one, uncorrected for how many there are, and assume roughly
normal rounds; which of two cells is better is for ``compare``, which pairs rounds and corrects.

Everything is computed by grouped expressions: a study of 10,000 trials with 100 metrics has a million rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
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
from storlab.analysis.summary import Estimate
from storlab.analysis.wording import plural

KEYS = ("cell", "source", "metric")


def estimates(
    rows: pl.DataFrame, cells: Mapping[int, Levels], confidence: float, min_rounds: int
) -> tuple[Estimate, ...]:
    """One ``Estimate`` for each cell × source × metric of ``rows``, in the order of the cells, then first
    seen.

    ``rows``: ``cell``, ``round``, ``source``, ``metric``, ``value``, ``unit``, ``better``; one row a round.
    Values that are null, NaN or infinite are left out, and a warning says in how many rounds.
    """
    if rows.is_empty():
        return ()
    table = _statistics(_with_scores(rows))
    factors = width_factors(table["n"].to_numpy(), 1 - confidence)
    sd = table["sd"].fill_null(float("nan")).to_numpy()
    halves = np.where(np.isfinite(factors), np.where(np.isfinite(factors), factors, 0.0) * sd, np.nan)
    table = table.with_columns(half=pl.Series(halves)).with_columns(pl.col("half").fill_nan(None))
    table = table.with_columns(low=pl.col("mean") - pl.col("half"), high=pl.col("mean") + pl.col("half"))
    return tuple(
        Estimate(
            cell=row["cell"],
            levels=dict(cells[row["cell"]]),
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


def _with_scores(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` with what needs the whole group: distance from the median, modified z-score, rank."""
    value, distance = pl.col("value"), pl.col("distance")
    finite = rows.with_columns(value=pl.when(value.is_finite()).then(value))
    return (
        finite.sort("round")
        .with_columns(distance=(value - value.median().over(KEYS)).abs())
        .with_columns(
            mad=distance.median().over(KEYS),
            deviation=distance.mean().over(KEYS),
            floor=ROUNDING * value.abs().max().over(KEYS),
            rank=value.rank("average").over(KEYS),
            order=pl.when(value.is_not_null()).then(pl.col("round")).rank("ordinal").over(KEYS),
        )
        .with_columns(
            z=pl.when(pl.col("mad") > pl.col("floor"))
            .then(MAD_TO_SD * distance / pl.col("mad"))
            .when(pl.col("deviation") > pl.col("floor"))
            .then(MEAN_DEVIATION_TO_SD * distance / pl.col("deviation"))
            .otherwise(0.0)
        )
    )


def _statistics(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a group, with ``n`` of at least 1; sorted by cell, groups of a cell in the order first seen."""
    value = pl.col("value")
    return (
        rows.group_by(KEYS, maintain_order=True)
        .agg(
            pl.col("unit").first(),
            pl.col("better").first(),
            n=value.count().cast(pl.Int64),
            missing=value.null_count(),
            median=value.median(),
            mean=value.mean(),
            sd=value.std(),
            floor=pl.col("floor").first(),
            outliers=pl.col("round").filter(pl.col("z") > OUTLIER_Z),
            rho=pl.corr("rank", "order"),
        )
        .filter(pl.col("n") > 0)
        .with_columns(sd=pl.when(pl.col("sd") <= pl.col("floor")).then(0.0).otherwise(pl.col("sd")))
        .with_columns(
            cv=pl.when(pl.col("mean") != 0).then(pl.col("sd") / pl.col("mean").abs()),
            drift=pl.col("rho").fill_nan(0.0) * (pl.col("n") - 1).sqrt(),
        )
        .sort("cell", maintain_order=True)
    )


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
