"""A made-up run that looks like a real one: what every test of the report renders.

Three file systems and one that this machine lacks, two loads, eight rounds on two nodes; one trial failed, and the
machine slowed down over the run. All of it comes from one seed, so golden files stay as they are. Estimates and
comparisons are made by simpler means than those of the analysis.
"""

import math
import random
import statistics
from dataclasses import replace

import polars as pl

from storlab.analysis.summary import (
    CellState,
    Comparison,
    Difference,
    Estimate,
    FactDifference,
    Method,
    Summary,
    Undecided,
    Underneath,
    Verdict,
)
from storlab.findings import Compared, Reported
from storlab.findings.answers import Differs, IncludesOne, NotExamined, WithinMargin
from storlab.findings.rounds import TooFewRounds
from storlab.findings.runs import RoundsDone
from storlab.report.model.input import ReportInput

from .sample_run import (
    CELLS,
    DISK_FULL,
    FAILED,
    LOADS,
    NO_ZFS,
    NODES,
    ROUNDS,
    SYSTEMS,
    Cell,
    declared,
    facts,
    manifest,
    tables,
)

_HOST, _TRACE = "probe:host-load", "probe:alignment"
_FLUSHES = Difference(
    source=_HOST, metric="disk.target.flushes", unit="1", per="operation", noun="flushes of the disk", a=0.251,
    b=1.004, ratio=0.2512, low=0.2466, high=0.2559, evidence=6.1, agreeing=8, moves="against",
    alike=(f"{_TRACE}:flush.requests",),
)  # fmt: skip
_SIZE = replace(
    _FLUSHES, metric="disk.target.write_size", unit="B", per="", noun="a write at the disk", a=16384.0, b=8192.0,
    ratio=2.0, low=1.97, high=2.03, moves="with", alike=(),
)  # fmt: skip
_SWITCHES = replace(
    _FLUSHES, metric="context_switches", noun="context switches", a=3.04, b=4.41, ratio=0.69, low=0.61, high=0.78,
    moves="unclear", same_rate=True, alike=(),
)  # fmt: skip
_PRESSURE = replace(
    _FLUSHES, metric="pressure.io.some", per="", noun="of the time some task waited for io", a=0.61, b=0.83,
    ratio=0.74, low=0.64, high=0.85, agreeing=7, moves="unclear", alike=(),
)  # fmt: skip
_NONE = replace(
    _FLUSHES, source=f"{_HOST}@store", a=0.0, b=2.5, ratio=None, low=None, high=None, moves="unclear", alike=()
)
_SERVICE = replace(_PRESSURE, source=_TRACE, metric="write.service.p50", unit="s", noun="", a=0.00031, b=0.0012)
WHY = {
    ("ext4", "xfs", "write.bandwidth"): Underneath(8, 24, 6, 0.95, (_FLUSHES, _SIZE, _SWITCHES, _PRESSURE)),
    ("ext4", "btrfs", "write.bandwidth"): Underneath(
        7, 23, 6, 0.95, (_NONE, _SERVICE), (FactDifference("scheduler of loop", "none", "mq-deadline"),),
        NotExamined((("probe:stalls", "idle.longest"),), 0),
    ),
    ("xfs", "btrfs", "write.bandwidth"): Underneath(7, 24, 6, 0.95),
    ("ext4", "xfs", "read.bandwidth"): Underneath(8, 24, 6, 0.95, (_SIZE,)),
}  # fmt: skip
"""What differs underneath: with and without a ratio, a noun, settings; of a decided comparison nothing at all."""


def _values(metrics: pl.DataFrame, cell: int, source: str, metric: str) -> dict[int, float]:
    rows = metrics.filter(cell=cell, source=source, metric=metric)
    grouped = rows.group_by("round").agg(
        pl.when(pl.col("node").is_null().any())
        .then(pl.col("value").filter(pl.col("node").is_null()).sum())
        .otherwise(pl.col("value").sum())
        .alias("value")
    )
    return {int(number): float(value) for number, value in grouped.sort("round").iter_rows()}


def summary(metrics: pl.DataFrame) -> Summary:
    return Summary(
        title="File systems under small writes and large reads",
        primary="bandwidth",
        confidence=0.95,
        rounds_done=ROUNDS,
        stopped=RoundsDone(ROUNDS, ROUNDS),
        cells=_cells(),
        estimates=tuple(_estimates(metrics)),
        comparisons=tuple(replace(c, why=WHY.get((c.a, c.b, c.metric))) for c in _comparisons(metrics)),
        by_node=tuple(_by_node(metrics)),
        warnings=(
            Reported(
                "The machine slowed down by about 8 % from the first round to the last. Comparisons are paired by "
                "round and stay valid; values of single cells are less certain than their intervals say."
            ),
        ),
        method=Method("compared", 1.0, 0.95, 12, 5, drawn=True, rested=False),
    )


def _cells() -> tuple[CellState, ...]:
    states = []
    for cell in CELLS:
        if cell.system == "zfs":
            states.append(CellState(cell.number, cell.levels, "unsupported", 0, 0, (NO_ZFS,)))
        elif cell.number == FAILED[0]:
            states.append(CellState(cell.number, cell.levels, "partly failed", ROUNDS - 1, 1, (DISK_FULL,)))
        else:
            states.append(CellState(cell.number, cell.levels, "measured", ROUNDS))
    return tuple(states)


def _estimates(metrics: pl.DataFrame) -> list[Estimate]:
    result = []
    for cell in CELLS:
        rows = metrics.filter(cell=cell.number).select("source", "metric", "unit", "better").unique(maintain_order=True)
        for source, metric, unit, better in rows.iter_rows():
            values = list(_values(metrics, cell.number, source, metric).values())
            result.append(_estimate(cell, source, metric, unit, better, values))
    return result


def _by_node(metrics: pl.DataFrame) -> list[Estimate]:
    result = []
    for node in NODES:
        for cell in CELLS:
            metric = f"{cell.kind}.bandwidth"
            rows = metrics.filter(cell=cell.number, node=node, source=cell.load, metric=metric).sort("round")
            if rows.height:
                found = _estimate(cell, cell.load, metric, "B/s", "higher", rows["value"].to_list())
                result.append(replace(found, node=node))
    return result


def _interval(values: list[float], width: float) -> tuple[float, float, float]:
    """The mean between its ends, ``width`` standard errors to both sides."""
    mean, half = statistics.fmean(values), width * statistics.stdev(values) / math.sqrt(len(values))
    return mean - half, mean, mean + half


def _estimate(cell: Cell, source: str, metric: str, unit: str, better: str, values: list[float]) -> Estimate:
    low, mean, high = _interval(values, 2.36)
    sd = statistics.stdev(values)
    few = TooFewRounds(len(values), ROUNDS)
    return Estimate(
        cell=cell.number, levels=cell.levels, source=source, metric=metric, unit=unit, better=better,
        rounds=len(values), median=statistics.median(values), mean=mean, sd=sd, cv=sd / mean, low=low, high=high,
        confidence=0.95, warnings=(few,) if len(values) < ROUNDS else (),
    )  # fmt: skip


def _comparisons(metrics: pl.DataFrame) -> list[Comparison]:
    result = []
    systems = SYSTEMS[:3]
    pairs = [(a, b) for i, a in enumerate(systems) for b in systems[i + 1 :]]
    for load in LOADS:
        kind = "write" if load == "random-write" else "read"
        cells = {cell.system: cell.number for cell in CELLS if cell.load == load}
        wanted = ((f"{kind}.bandwidth", "B/s", "higher"), (f"{kind}.latency.p99", "s", "lower"))
        for metric, unit, better in wanted:
            for a, b in pairs:
                left = _values(metrics, cells[a], load, metric)
                right = _values(metrics, cells[b], load, metric)
                logs = [math.log(left[number] / right[number]) for number in left if number in right]
                result.append(_comparison(a, b, load, metric, unit, better, logs))
    return result


def _undecided(logs: list[float]) -> Undecided:
    """Leaning where all rounds are on one side."""
    agreeing = max(sum(x > 0 for x in logs), sum(x < 0 for x in logs))
    return Undecided("leaning" if agreeing == len(logs) else "no evidence", agreeing, 6)


def _comparison(a: str, b: str, load: str, metric: str, unit: str, better: str, logs: list[float]) -> Comparison:
    low, ratio, high = map(math.exp, _interval(logs, 4.0))
    margin = 0.05
    higher, lower = sum(x > 0 for x in logs), sum(x < 0 for x in logs)
    verdict: Verdict
    so: Differs | WithinMargin | IncludesOne
    if low > 1 or high < 1:
        verdict = "better" if (low > 1) == (better == "higher") else "worse"
        so = Differs(better)
    elif high < 1 + margin and low > 1 / (1 + margin):
        verdict, so = "equivalent", WithinMargin(margin)
    else:
        verdict, so = "undecided", IncludesOne(margin)
    return Comparison(
        factor="filesystem", a=a, b=b, within={"load": load}, pooled=False, source=load, metric=metric, unit=unit,
        better=better, rounds=len(logs), ratio=ratio, low=low, high=high, confidence=1 - 0.05 / 6, margin=margin,
        verdict=verdict, reason=Compared(a, b, higher, lower, len(logs), so, ratio, low, high),
        rounds_to_decide=6 if verdict == "undecided" else None,
        undecided=_undecided(logs) if verdict == "undecided" else None,
    )  # fmt: skip


def sample(seed: int = 7) -> ReportInput:
    """The made-up run; the same for the same ``seed``."""
    rng = random.Random(seed)
    trials, metrics, series, histograms = tables(rng)
    return ReportInput(
        summary=summary(metrics), trials=trials, metrics=metrics, series=series, histograms=histograms,
        declared=declared(*{cell.load for cell in CELLS}), manifest=manifest(seed), facts=facts(),
    )  # fmt: skip


def with_one_load(run: ReportInput) -> ReportInput:
    """Half of it: random writes alone. There is a chart of each kind still."""
    load, summary = LOADS[0], run.summary
    cells = {cell.number for cell in CELLS if cell.load == load}
    own = pl.col("cell").is_in(cells)
    return replace(
        run,
        summary=replace(
            summary,
            cells=tuple(each for each in summary.cells if each.cell in cells),
            estimates=tuple(each for each in summary.estimates if each.cell in cells),
            comparisons=tuple(each for each in summary.comparisons if each.source == load),
            by_node=tuple(each for each in summary.by_node if each.cell in cells),
        ),
        trials=run.trials.filter(own),
        metrics=run.metrics.filter(own),
        series=run.series.filter(own),
        histograms=run.histograms.filter(own),
    )
