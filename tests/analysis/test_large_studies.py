"""A large study is summarised whole. How fast: ``benchmarks/analyse.py``."""

from __future__ import annotations

import numpy as np
import polars as pl

from storlab.analysis.summarise import summarise

from .simulate import design

LEVELS, SIZES, ROUNDS, METRICS = 4, 25, 100, 100


def test_of_ten_thousand_trials_with_a_hundred_metrics_all_is_summarised() -> None:
    rng = np.random.default_rng(1)
    factors = {"fs": tuple(f"fs{n}" for n in range(LEVELS)), "bs": tuple(f"{n}k" for n in range(SIZES))}
    cells = tuple(
        (1 + a * SIZES + b, {"fs": fs, "bs": bs})
        for a, fs in enumerate(factors["fs"])
        for b, bs in enumerate(factors["bs"])
    )
    count = len(cells) * ROUNDS
    trial = np.arange(count)
    trials = pl.DataFrame(
        {"trial": trial + 1, "round": trial // len(cells) + 1, "cell": trial % len(cells) + 1}
    ).with_columns(status=pl.lit("done"), reason=pl.lit(None, pl.String))
    of_metric = np.tile(np.arange(METRICS), count)
    names = np.array(["write.bandwidth", *(f"m{n}" for n in range(1, METRICS))])
    metrics = trials.select(
        pl.col("trial", "round", "cell").repeat_by(METRICS).explode(empty_as_null=True, keep_nulls=True)
    ).with_columns(
        pl.Series("metric", names[of_metric]),
        pl.Series("value", np.exp(0.05 * rng.normal(size=count * METRICS))),
        node=pl.lit(None, pl.String),
        job=pl.lit(None, pl.String),
        source=pl.lit("load"),
        unit=pl.lit("B/s"),
        better=pl.lit("higher"),
    )
    summary = summarise(trials, metrics, design(factors, cells))
    assert (len(summary.estimates), len(summary.comparisons)) == (10_000, 6 * SIZES + 6)
