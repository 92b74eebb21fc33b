"""A made-up run that looks like a real one: what every test of the report renders.

Three file systems and one that this machine lacks, two loads, eight rounds on two nodes; one trial failed, and the
machine slowed down over the run. All of it comes from one seed, so golden files stay as they are.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from storlab.analysis.summary import CellState, Comparison, Estimate, Summary, Verdict
from storlab.report.input import ReportInput

SYSTEMS = ("ext4", "xfs", "btrfs", "zfs")
LOADS = ("random-write", "sequential-read")
NODES = ("a", "b")
ROUNDS = 8
FAILED = (3, 5)  # cell, round
NO_ZFS = "the kernel module zfs is not available: modprobe zfs ended with status 1"
DISK_FULL = "/dev/loop3 (btrfs) is full after 812 MiB; give the layer 'file' a larger size"
MIB = 2.0**20

# bandwidth in B/s per node, latency in s
_TRUE = {
    ("ext4", "random-write"): (24.7 * MIB, 1.2e-3),
    ("xfs", "random-write"): (17.3 * MIB, 1.7e-3),
    ("btrfs", "random-write"): (4.79 * MIB, 6.1e-3),
    ("ext4", "sequential-read"): (512 * MIB, 0.24e-3),
    ("xfs", "sequential-read"): (521 * MIB, 0.23e-3),
    ("btrfs", "sequential-read"): (371 * MIB, 0.35e-3),
}
_QUANTILES = ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))


@dataclass(frozen=True)
class Cell:
    number: int
    system: str
    load: str

    @property
    def levels(self) -> dict[str, str]:
        return {"filesystem": self.system, "load": self.load}

    @property
    def kind(self) -> str:
        return "write" if self.load == "random-write" else "read"


CELLS = tuple(
    Cell(number, system, load)
    for number, (load, system) in enumerate(((load, system) for load in LOADS for system in SYSTEMS), start=1)
)


def _drift(number: int) -> float:
    return 1.0 - 0.012 * (number - 1)


def sample(seed: int = 7) -> ReportInput:
    """The made-up run; the same for the same ``seed``."""
    rng = random.Random(seed)
    trials, metrics, series, histograms = _tables(rng)
    return ReportInput(
        summary=_summary(metrics),
        trials=trials,
        metrics=metrics,
        series=series,
        histograms=histograms,
        manifest=_manifest(seed),
        facts=_facts(),
    )


def _tables(rng: random.Random) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    trials: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    series: list[dict[str, Any]] = []
    histograms: list[dict[str, Any]] = []
    start = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
    for number in range(1, ROUNDS + 1):
        order = list(CELLS)
        rng.shuffle(order)
        for cell in order:
            place = {"trial": len(trials) + 1, "round": number, "cell": cell.number}
            status = "unsupported" if cell.system == "zfs" else "failed" if (cell.number, number) == FAILED else "done"
            trials.append(
                place
                | {
                    "status": status,
                    "reason": {"unsupported": NO_ZFS, "failed": DISK_FULL, "done": None}[status],
                    "started": None if status == "unsupported" else start + timedelta(seconds=2.6 * len(trials)),
                    "duration": 2.4,
                    "measured": 2.0,
                    "start_skew": 0.0003,
                    "factor.filesystem": cell.system,
                    "factor.load": cell.load,
                }
            )
            if status == "done":
                _trial(rng, cell, number, place, metrics, series, histograms)
    frame = pl.DataFrame(trials, schema_overrides={"started": pl.Datetime("us", "UTC")}, infer_schema_length=None)
    return (
        frame,
        pl.DataFrame(metrics, infer_schema_length=None),
        pl.DataFrame(series, infer_schema_length=None),
        pl.DataFrame(histograms, infer_schema_length=None),
    )


def _trial(
    rng: random.Random,
    cell: Cell,
    number: int,
    place: dict[str, Any],
    metrics: list[dict[str, Any]],
    series: list[dict[str, Any]],
    histograms: list[dict[str, Any]],
) -> None:
    bandwidth, latency = _TRUE[cell.system, cell.load]
    luck = _drift(number) * math.exp(rng.gauss(0, 0.035))
    merged: dict[int, int] = {}
    speeds = []
    for node in NODES:
        speed = bandwidth * luck * math.exp(rng.gauss(0, 0.01))
        speeds.append(speed)
        here = place | {"node": node, "source": cell.load, "job": None}
        block = 4096 if cell.kind == "write" else 131072
        metrics.append(here | _metric(f"{cell.kind}.bandwidth", speed, "B/s", "higher", "sum"))
        metrics.append(here | _metric(f"{cell.kind}.iops", speed / block, "1/s", "higher", "sum"))
        for second in range(1, 31):
            dip = 0.35 if cell.system == "btrfs" and second % 10 in (7, 8) else 1.0
            value = speed * dip * math.exp(rng.gauss(0, 0.06))
            series.append(
                here | {"metric": f"{cell.kind}.bandwidth", "t": float(second), "value": value, "unit": "B/s"}
            )
        for bin_number, count in _bins(rng, latency / luck).items():
            merged[bin_number] = merged.get(bin_number, 0) + count
            lower, upper = 10e-6 * 1.1**bin_number, 10e-6 * 1.1 ** (bin_number + 1)
            histograms.append(here | {"metric": f"{cell.kind}.latency", "lower": lower, "upper": upper, "count": count})
    together = place | {"node": None, "source": cell.load, "job": None}
    metrics.append(together | _metric(f"{cell.kind}.bandwidth", sum(speeds), "B/s", "higher", "sum"))
    for quantile, name in _QUANTILES:
        value = _quantile(merged, quantile)
        metrics.append(together | _metric(f"{cell.kind}.latency.{name}", value, "s", "lower", "merge"))
    host = place | {"node": "host", "source": "probe:host-load", "job": None}
    for name, load in (("load.1m", 6.9), ("load.5m", 3.3), ("load.15m", 2.1)):
        metrics.append(host | _metric(name, load * math.exp(rng.gauss(0, 0.05)), "1", "neither", "max"))
    metrics.append(host | _metric("cpu.iowait", 0.31 + rng.random() / 10, "1", "neither", "mean"))
    stall = 1.9 if cell.system == "btrfs" and cell.kind == "write" else 0.04
    stalls = place | {"node": None, "source": "probe:stalls", "job": None}
    metrics.append(stalls | _metric("longest", stall * math.exp(rng.gauss(0, 0.3)), "s", "lower", "max"))


def _metric(name: str, value: float, unit: str, better: str, across: str) -> dict[str, Any]:
    return {"metric": name, "value": value, "unit": unit, "better": better, "across": across}


def _bins(rng: random.Random, typical: float) -> dict[int, int]:
    """Counts of about 6,000 operations in bins a tenth apart, with a tail of one operation in fifty."""
    counts: dict[int, int] = {}
    for _ in range(300):
        tail = rng.random() < 0.02
        value = typical * math.exp(rng.gauss(2.5 if tail else 0, 0.7 if tail else 0.25))
        bin_number = max(0, math.floor(math.log(value / 10e-6, 1.1)))
        counts[bin_number] = counts.get(bin_number, 0) + (1 if tail else 20)
    return dict(sorted(counts.items()))


def _quantile(bins: dict[int, int], quantile: float) -> float:
    wanted, seen = quantile * sum(bins.values()), 0
    for bin_number, count in sorted(bins.items()):
        seen += count
        if seen >= wanted:
            return 10e-6 * 1.1 ** (bin_number + 1)
    raise AssertionError("no bin holds the quantile")


def _values(metrics: pl.DataFrame, cell: int, source: str, metric: str) -> dict[int, float]:
    rows = metrics.filter(cell=cell, source=source, metric=metric)
    grouped = rows.group_by("round").agg(
        pl.when(pl.col("node").is_null().any())
        .then(pl.col("value").filter(pl.col("node").is_null()).sum())
        .otherwise(pl.col("value").sum())
        .alias("value")
    )
    return {int(number): float(value) for number, value in grouped.sort("round").iter_rows()}


def _summary(metrics: pl.DataFrame) -> Summary:
    return Summary(
        title="File systems under small writes and large reads",
        primary="bandwidth",
        confidence=0.95,
        rounds_done=ROUNDS,
        stopped="all comparisons but one reached ±5 %, and the study's maximum of 8 rounds was reached",
        cells=_cells(),
        estimates=tuple(_estimates(metrics)),
        comparisons=tuple(_comparisons(metrics)),
        by_node=tuple(_by_node(metrics)),
        warnings=(
            "The machine slowed down by about 8 % from the first round to the last. Comparisons are paired by "
            "round and stay valid; values of single cells are less certain than their intervals say.",
        ),
        method="Each comparison pairs the trials of one round and averages the log ratios. Intervals are "
        "anytime-valid: they hold though they were looked at after every round. They are corrected for the "
        "number of comparisons (Bonferroni).",
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


def _estimate(cell: Cell, source: str, metric: str, unit: str, better: str, values: list[float]) -> Estimate:
    mean, sd = statistics.fmean(values), statistics.stdev(values)
    half = 2.36 * sd / math.sqrt(len(values))
    few = f"only {len(values)} of {ROUNDS} rounds: one trial failed"
    return Estimate(
        cell=cell.number,
        levels=cell.levels,
        source=source,
        metric=metric,
        unit=unit,
        better=better,
        rounds=len(values),
        median=statistics.median(values),
        mean=mean,
        sd=sd,
        cv=sd / mean,
        low=mean - half,
        high=mean + half,
        confidence=0.95,
        warnings=(few,) if len(values) < ROUNDS else (),
    )


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


def _comparison(a: str, b: str, load: str, metric: str, unit: str, better: str, logs: list[float]) -> Comparison:
    mean, half = statistics.fmean(logs), 4.0 * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high, margin = math.exp(mean - half), math.exp(mean + half), 0.05
    verdict: Verdict
    if low > 1 or high < 1:
        verdict = "better" if (low > 1) == (better == "higher") else "worse"
        reason = "the whole interval lies on one side of 1"
    elif high < 1 + margin and low > 1 / (1 + margin):
        verdict, reason = "equivalent", "the whole interval lies within ±5 %"
    else:
        verdict, reason = "undecided", f"{a} against {b}: the interval includes 1 and reaches beyond ±5 %"
    return Comparison(
        factor="filesystem",
        a=a,
        b=b,
        within={"load": load},
        pooled=False,
        source=load,
        metric=metric,
        unit=unit,
        better=better,
        rounds=len(logs),
        ratio=math.exp(mean),
        low=low,
        high=high,
        confidence=1 - 0.05 / 6,
        margin=margin,
        verdict=verdict,
        reason=reason,
        rounds_to_decide=6 if verdict == "undecided" else None,
    )


STUDY = """\
title   = "File systems under small writes and large reads"
primary = "bandwidth"

[repeat]
until = "±5%"
min   = 5
max   = 8

[factors.filesystem]
ext4  = [{ layer = "file", size = "1G" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
xfs   = [{ layer = "file", size = "1G" }, { layer = "loop" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
btrfs = [{ layer = "file", size = "1G" }, { layer = "loop" }, { layer = "mkfs", type = "btrfs" }, { layer = "mount" }]
zfs   = [{ layer = "file", size = "1G" }, { layer = "zpool" }, { layer = "zfs" }]

[factors.load]
levels = ["random-write", "sequential-read"]
"""


def _manifest(seed: int) -> dict[str, Any]:
    node = {
        "kernel": "6.1.0-18-amd64",
        "cpus": 4,
        "memory": 8 * 2**30,
        "tools": {"fio": "3.33", "mkfs.ext4": "1.47.0", "mkfs.xfs": "6.1.0"},
        "btf": True,
    }
    return {
        "title": "File systems under small writes and large reads",
        "description": "Which file system on a loop device is the better home for a small database?",
        "study_text": STUDY,
        "study_file": "file-systems.toml",
        "seed": seed,
        "run": "2026-03-14-092653-file-systems",
        "started": "2026-03-14T09:26:53+00:00",
        "finished": "2026-03-14T09:31:02+00:00",
        "storlab": "0.1.0",
        "argv": ["storlab", "run", "file-systems.toml", "--seed", str(seed)],
        "nodes": dict.fromkeys(NODES, node),
        "plan": {
            "factors": {"filesystem": list(SYSTEMS), "load": list(LOADS)},
            "cells": [
                {
                    "cell": cell.number,
                    "levels": cell.levels,
                    "stack": [
                        {"layer": "file", "size": 2**30},
                        {"layer": "loop"},
                        {"layer": "mkfs", "type": cell.system},
                        {"layer": "mount"},
                    ],
                    "workloads": [cell.load],
                }
                for cell in CELLS
            ],
        },
        "platform_notes": ["This machine is a virtual machine: its host's load can't be seen from here."],
    }


def _facts() -> dict[int, dict[str, dict[str, dict[str, object]]]]:
    info = (
        "meta-data=/dev/loop3   isize=512    agcount=4, agsize=65536 blks\n         =             sectsz=512   attr=2"
    )
    facts: dict[int, dict[str, dict[str, dict[str, object]]]] = {}
    for cell in CELLS:
        if cell.system == "zfs":
            continue
        facts[cell.number] = {
            node: {
                "file": {"path": "/var/tmp/storlab/disk.img", "size": 2**30, "preallocated": True},
                "loop": {"device": "/dev/loop3", "logical_sector": 512, "direct_io": True},
                "mkfs": {"type": cell.system, "output": info},
                "mount": {"options": ["rw", "noatime"], "line": f"/dev/loop3 /mnt {cell.system} rw,noatime 0 0"},
            }
            for node in NODES
        }
    return facts
