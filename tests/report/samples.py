"""Smaller made-up runs: block requests counted, two long trials imported, and a sweep of two factors."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from analysis.test_sweeps import sweep
from storlab.analysis.design import Design
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import CellState, Estimate, Summary
from storlab.blockio.requests import UNITS
from storlab.findings.runs import RoundsDone, WasImported
from storlab.measurements import HISTOGRAM_COLUMNS, METRIC_COLUMNS, REQUEST_COLUMNS
from storlab.records.manifest import Manifest
from storlab.records.tables import COLUMNS, ExaminedSeries, findings_frame
from storlab.report.charts.theme import Chart
from storlab.report.model.input import ReportInput
from storlab.timeseries.findings import findings
from storlab.timeseries.variability import Floats, variability
from storlab.tools.sysbench.importer import DECLARED

from .sample_run import declared

KIB = 1024
BEGAN = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
SYSTEMS = ("xfs-16k", "ext4-bigalloc", "ext4-16k")
LOADS = ("storm", "database")
REASON = "mkfs.ext4: Warning: 16384-byte blocks too big for system (max 4096), forced to continue."
CELLS = tuple(
    (number, {"fs": system, "load": load})
    for number, (load, system) in enumerate(((load, system) for load in LOADS for system in SYSTEMS), start=1)
)
DESIGN = Design(
    title="Who goes below 16k?", primary="write.aligned.16k", factors={"fs": SYSTEMS, "load": LOADS}, cells=CELLS,
    stopped=RoundsDone(2, 2), declared=declared(),
)  # fmt: skip
PLACES: dict[str, Any] = {
    "trial": pl.Int64, "round": pl.Int64, "cell": pl.Int64, "node": pl.String, "source": pl.String,
}  # fmt: skip

# operation, flags, length, alignment of the offset, requests in round 1 and in round 2
Kind = tuple[str, str, int, int, int, int]
_KINDS: dict[str, list[Kind]] = {
    "xfs-16k": [
        ("write", "", 16 * KIB, 16 * KIB, 900, 900), ("write", "", 256 * KIB, 1 << 20, 99, 100),
        ("write", "sync+meta", 16 * KIB, 16 * KIB, 1, 0), ("read", "readahead", 16 * KIB, 16 * KIB, 5, 5),
    ],
    "ext4-bigalloc": [
        ("write", "", 4 * KIB, 16 * KIB, 9980, 9970), ("write", "", 2 << 20, 4 << 20, 2, 2),
        ("write", "sync+meta", 20 * KIB, 16 * KIB, 10, 20), ("write", "fua+sync+meta", 4 * KIB, 4 * KIB, 7, 7),
        ("write", "sync", 64 * KIB, 512, 1, 1), ("read", "meta", 4 * KIB, 4 * KIB, 3, 3),
        ("flush", "preflush", 0, 0, 12, 12),
    ],
}  # fmt: skip


def block_sample() -> ReportInput:
    requests = pl.DataFrame(list(_requests()), schema=PLACES | REQUEST_COLUMNS, orient="row")
    summary = summarise(_trials(), pl.DataFrame(schema=PLACES | METRIC_COLUMNS), DESIGN, requests=requests)
    manifest = Manifest("20260314-092653-b10c", DESIGN.title, "0.1.0", (), BEGAN)
    return ReportInput(summary, manifest=manifest, declared=DESIGN.declared)


def imported_sample() -> ReportInput:
    """A run that another tool's histograms were made into: no more is known."""
    bins = {"all.granularity": {4 * KIB: 26, 16 * KIB: 74}, "all.alignment": {4 * KIB: 27, 16 * KIB: 73}}
    rows = [
        (1, 1, 1, "host", "probe:alignment", None, metric, float(size), float(size + 512), count)
        for metric, counts in bins.items()
        for size, count in counts.items()
    ]
    histograms = pl.DataFrame(rows, schema=PLACES | HISTOGRAM_COLUMNS, orient="row")
    design = replace(DESIGN, title="Imported", factors={"file": ("vda",)}, cells=((1, {"file": "vda"}),))
    trials = _trials().filter(trial=1)
    summary = summarise(trials, pl.DataFrame(schema=PLACES | METRIC_COLUMNS), design, histograms=histograms)
    manifest = Manifest("20260314-092653-1397", "Imported", "0.1.0", (), BEGAN)
    return ReportInput(summary, histograms=histograms, manifest=manifest, declared=DESIGN.declared)


def _trials() -> pl.DataFrame:
    rows = [
        ((round_ - 1) * len(CELLS) + cell, round_, cell, "done" if known else "unsupported", None if known else REASON)
        for round_ in (1, 2)
        for cell, levels in CELLS
        for known in [levels["fs"] in _KINDS]
    ]
    names = {"trial": pl.Int64, "round": pl.Int64, "cell": pl.Int64, "status": pl.String, "reason": pl.String}
    return pl.DataFrame(rows, schema=names, orient="row")


def _requests() -> Any:
    for trial, round_, cell, status, _ in _trials().iter_rows():
        levels = dict(CELLS)[cell]
        for operation, flags, length, offset, *counts in _KINDS[levels["fs"]] if status == "done" else ():
            count = counts[round_ - 1] * (1 if levels["load"] == "storm" else 2)
            units = [count * _touched(length, offset, unit) for unit in UNITS]
            yield (
                *(trial, round_, cell, "a", "probe:alignment", "loop0"),
                *(operation, flags, length, offset, None, count, *units),
            )


def _touched(length: int, offset: int, unit: int) -> int:
    """Units that a request touches which begins ``offset`` bytes into one, as far as that is so little."""
    return ((offset % unit) + length - 1) // unit + 1 if length else 0


LEVELS = ("off", "on")
INTERVAL = 10.0


def values_of(level: str, n: int = 1000) -> Floats:
    """Transactions a second; what ends in "on" falls by 4 % at 60 % of its time, and "off" has some outliers."""
    on = level.endswith("on")
    drawn = np.random.default_rng(int(on))
    values = drawn.normal(5400 if on else 5300, 40, n)
    if on:
        values[int(0.6 * n) :] -= 216
    else:
        values[::97] -= 300
    return values


def series_sample(levels: Sequence[str] = LEVELS, n: int = 1000, factor: str = "doublewrite") -> ReportInput:
    """Of ``levels`` of ``factor``, with ``n`` samples of each."""
    series, examined = [], []
    estimates: list[Estimate] = []
    t = INTERVAL * np.arange(1, n + 1, dtype=np.float64)
    for cell, level in enumerate(levels, start=1):
        values = values_of(level, n)
        place = {"trial": cell, "round": 1, "cell": cell, "node": "host", "source": "sysbench"}
        rows = pl.DataFrame({"t": t, "value": values})
        fixed = {**place, "job": None, "metric": "tps", "unit": "1/s"}
        literals = [pl.lit(value, dtype=COLUMNS["series"][name]).alias(name) for name, value in fixed.items()]
        series.append(rows.with_columns(literals).select(list(COLUMNS["series"])))
        found = findings(t, values)
        if found is not None:
            examined.append(ExaminedSeries({**place, "node": None}, "tps", "1/s", found))
        estimates += _estimates(cell, {factor: level}, values)
    cells = tuple(CellState(cell, {factor: level}, "measured", 1) for cell, level in enumerate(levels, start=1))
    summary = Summary("Two long trials", "tps", 0.95, 1, WasImported(), cells, tuple(estimates))
    began = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
    manifest = Manifest("20260314-092653-abcd", "Two long trials", "0.1.0", (), began)
    known = declared("sysbench", specs=DECLARED)
    return ReportInput(
        summary, series=pl.concat(series), findings=findings_frame(examined), manifest=manifest, declared=known
    )


def _estimates(cell: int, levels: dict[str, str], values: Floats) -> list[Estimate]:
    found = variability(values, INTERVAL)
    numbers = {
        "tps": (found.mean, "1/s"), "tps.variance": (found.variance, "1/s²"), "tps.sigma": (found.sigma, "1/s"),
        "tps.cv": (found.cv or 0.0, "1"), "tps.outliers": (float(found.outliers), "1"),
        "tps.longest_stall": (found.longest_stall, "s"),
    }  # fmt: skip
    return [
        Estimate(
            cell, levels, "sysbench", metric, unit, "higher" if metric == "tps" else "lower",
            *(1, value, value, None, None, None, None, 0.95),
        )
        for metric, (value, unit) in numbers.items()
    ]  # fmt: skip


def sweep_sample(jobs: tuple[str, ...] = ("1", "2", "4")) -> ReportInput:
    return ReportInput(sweep(jobs=jobs, rounds=10))


def marked(chart: Chart) -> list[str]:
    """The levels that a chart of latency against throughput marks as knees."""
    assert isinstance(chart, alt.LayerChart)
    rings = chart.layer[2].data
    assert isinstance(rings, pl.DataFrame)
    return rings["label"].to_list()
