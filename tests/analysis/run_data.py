"""Runs to compare, made of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl

from storlab.analysis.design import Design
from storlab.analysis.runs.merged_runs import RunData
from storlab.metrics import Declarations, MetricSpec
from storlab.timeseries.variability import declares

from .simulate import trial_frame

START = datetime(2026, 3, 14, 9, tzinfo=UTC)


def run(
    name: str,
    values: Mapping[str, Sequence[float]],
    *,
    starts: Sequence[float] | None = None,
    factor: str = "fs",
    metric: str = "bandwidth",
    unit: str = "B/s",
    better: str = "higher",
    primary: str = "bandwidth",
    machine: str = "boot-1",
    host: str | None = "lab1",
    compared: bool = True,
) -> RunData:
    """A run with one factor. ``values``: by level, of each round. ``starts``: of each trial, in s, in that order.

    Trials take 5 s, and by default follow each other every 10 s, round by round.
    """
    cells = tuple((number, {factor: level}) for number, level in enumerate(values, start=1))
    places = [(cell, n) for n in range(1, max(map(len, values.values())) + 1) for cell, _ in cells]
    places = [(cell, n) for cell, n in places if n <= len(values[cells[cell - 1][1][factor]])]
    begun = starts if starts is not None else [10.0 * at for at in range(len(places))]
    trials = trial_frame([(at, n, cell, "done", None) for at, (cell, n) in enumerate(places, start=1)]).with_columns(
        started=pl.Series([START + timedelta(seconds=at) for at in begun[: len(places)]]),
        duration=pl.lit(5.0),
        machine=pl.lit(machine),
        host=pl.lit(host, pl.String),
    )
    known = {"node": None, "job": None, "source": "load", "metric": metric, "unit": unit, "better": better}
    metrics = trials.select("trial", "round", "cell").with_columns(
        *(pl.lit(value, pl.String).alias(column) for column, value in known.items()),
        value=pl.Series([values[cells[cell - 1][1][factor]][n - 1] for cell, n in places], dtype=pl.Float64),
    )
    design = Design(name, primary, {factor: tuple(values)}, cells, compared=compared)
    return RunData(name, design, trials, metrics)


def with_variance(name: str, mean: float, variance: float) -> RunData:
    """One trial of a metric with what its samples varied by."""
    found = run(name, {"x": [mean]}, compared=False)
    parts = {"variance": variance, "sigma": variance**0.5, "cv": variance**0.5 / mean, "outliers": 3.0}
    rows = [found.metrics.with_columns(metric=pl.lit(f"bandwidth.{n}"), value=pl.lit(v)) for n, v in parts.items()]
    throughput = MetricSpec("bandwidth", "B/s", "higher", quantity="throughput", series=True)
    declared = Declarations.union([("load", (throughput, *declares(throughput)))])
    return replace(found, metrics=pl.concat([found.metrics, *rows]), design=replace(found.design, declared=declared))


def two_factors(name: str, values: Mapping[tuple[str, str], Sequence[float]], *, compared: bool = True) -> RunData:
    """A run with the factors ``fs`` and ``bs``."""
    flat = run(name, {f"{fs}/{bs}": each for (fs, bs), each in values.items()}, factor="both", compared=compared)
    cells = tuple((number, dict(zip(("fs", "bs"), places, strict=True))) for number, places in enumerate(values, 1))
    factors = {f: tuple(dict.fromkeys(levels[f] for _, levels in cells)) for f in ("fs", "bs")}
    return replace(flat, design=replace(flat.design, factors=factors, cells=cells))
