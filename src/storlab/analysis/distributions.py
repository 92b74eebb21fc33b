"""Latencies of all operations of a cell: of all its rounds, nodes and jobs together, and of each node by itself.

They come from merged histograms, never from percentiles of parts, and each percentile has bounds between which it lies
for certain (``storlab.percentiles``). They describe the operations that were measured. They are no estimates of what
another round would give: for that, each round counts once (``estimates``), and operations are not repeats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from storlab.analysis.block import histograms_of
from storlab.analysis.design import Design
from storlab.analysis.estimates import numbered
from storlab.analysis.summary import Distribution, Percentile
from storlab.metrics import PERCENTILES, Declarations
from storlab.percentiles import between, edges_at, nearest_rank

KEYS = ("cell", "source", "metric", "node")
UNIT = "s"


def distributions(
    histograms: pl.DataFrame | None, metrics: pl.DataFrame, done: pl.DataFrame, design: Design
) -> tuple[Distribution, ...]:
    """Of every histogram of latencies, by cell in the design's order; nodes by themselves where there are several.

    All frames as in ``docs/reference/records.md``; ``done`` has a column ``trial``, one for each cell and round.
    A source's own histogram of all its jobs is taken where it has one, and else those of its jobs are added.
    """
    if histograms is None or histograms.is_empty():
        return ()
    cells = dict(design.cells)
    latencies = histograms_of(design.declared, histograms, "latency")
    bins = _bins(histograms, latencies, done, list(cells))
    of = ["cell", "source", "metric"]
    several = bins.group_by(of).agg(pl.col("node").n_unique()).filter(pl.col("node") > 1)
    nodes = bins.join(several, on=of, how="semi")
    together = bins.with_columns(node=pl.lit(None, pl.String))
    slowest, rounds = _slowest(metrics, latencies, design.declared, done), _rounds(histograms, done)
    found = [
        Distribution(
            **{name: row[name] for name in (*KEYS, "operations")},
            levels=dict(cells[row["cell"]]),
            unit=UNIT,
            rounds=rounds[row["cell"], row["source"], row["metric"]],
            percentiles=_percentiles(row, slowest.get(tuple(row[name] for name in KEYS))),
        )
        for part in (together, nodes)
        for row in _edges(part)
    ]
    place = {cell: at for at, cell in enumerate(cells)}
    found.sort(key=lambda each: (place[each.cell], each.source, each.metric, numbered(each.node or "")))
    return tuple(found)


def _bins(histograms: pl.DataFrame, latencies: pl.DataFrame, done: pl.DataFrame, cells: Sequence[int]) -> pl.DataFrame:
    """Bins of all rounds: ``KEYS``, ``lower``, ``upper``, ``count``."""
    rows = (
        histograms.lazy()
        .filter(pl.col("cell").is_in(cells), pl.col("count") > 0)
        .join(latencies.lazy(), on=["source", "metric"], how="semi")
        .join(done.lazy().select("trial"), on="trial", how="semi")
    )
    of = ["trial", *KEYS]
    whole, jobs = rows.filter(pl.col("job").is_null()), rows.filter(pl.col("job").is_not_null())
    alone = jobs.join(whole.select(of).unique(), on=of, how="anti", nulls_equal=True)
    return pl.concat([whole, alone]).group_by(*KEYS, "lower", "upper").agg(pl.col("count").sum()).collect()


def _rounds(histograms: pl.DataFrame, done: pl.DataFrame) -> dict[tuple[int, str, str], int]:
    had = histograms.lazy().filter(pl.col("count") > 0).join(done.lazy().select("trial"), on="trial", how="semi")
    rounds = had.group_by("cell", "source", "metric").agg(pl.col("round").n_unique()).collect()
    return {(cell, source, metric): n for cell, source, metric, n in rounds.iter_rows()}


def _edges(bins: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """For each of ``KEYS``: ``operations``, ``most`` (the last bin's end), ``low`` and ``high`` of each percentile."""
    if bins.is_empty():
        return
    own = bins.group_by(KEYS).agg(operations=pl.col("count").sum(), most=pl.col("upper").max()).sort(KEYS)
    rows = bins.join(own.with_row_index("of"), on=KEYS, nulls_equal=True)
    of, lower, upper, counts = (rows[name].to_numpy() for name in ("of", "lower", "upper", "count"))
    _, low, high = edges_at(of.astype(np.int64), lower, upper, counts, PERCENTILES)
    for at, row in enumerate(own.iter_rows(named=True)):
        ranks = [nearest_rank(p, row["operations"]) for p in PERCENTILES]
        yield {**row, "low": low[at], "high": high[at], "ranks": ranks}


def _percentiles(row: Mapping[str, Any], slowest: float | None) -> tuple[Percentile, ...]:
    found = []
    for p, begin, end, rank in zip(PERCENTILES, row["low"], row["high"], row["ranks"], strict=True):
        bounds = between(float(begin), float(end))
        value, high = bounds.value, slowest
        if math.isinf(bounds.high):
            value = bounds.low
        elif slowest is None or end < row["most"]:
            high = bounds.high
        else:
            high = max(bounds.high, slowest)
        found.append(Percentile(p, value, bounds.low, high, row["operations"] - rank))
    return tuple(found)


def _slowest(
    metrics: pl.DataFrame, latencies: pl.DataFrame, declared: Declarations, done: pl.DataFrame
) -> dict[tuple[object, ...], float]:
    names = [(source, of, declared[source].statistic(of, "max")) for source, of, *_ in latencies.iter_rows()]
    most = pl.DataFrame(names, schema=dict.fromkeys(("source", "of", "metric"), pl.String), orient="row")
    rows = (
        metrics.filter(pl.col("job").is_null())
        .join(most, on=["source", "metric"])
        .join(done.select("trial"), on="trial", how="semi")
        .with_columns(metric=pl.col("of"))
        .group_by(KEYS)
        .agg(pl.col("value").max())
    )
    return {tuple(key): value for *key, value in rows.iter_rows() if value is not None}
