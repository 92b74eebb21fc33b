"""A run of two levels, made of numbers: a load that counts its operations, and a probe that watches underneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from storlab.analysis.design import Design
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison, Underneath
from storlab.metrics import Declarations, MetricSpec

LOAD = (
    MetricSpec("iops", "1/s", "higher", quantity="throughput"),
    MetricSpec("ios", "1", quantity="operations"),
    MetricSpec("write.ios", "1", quantity="operations"),
)
PROBE = (
    MetricSpec("disk.{disk}.flushes", "1", noun="flushes of the disk", evidence="rare"),
    MetricSpec("disk.{disk}.writes", "1", noun="writes at the disk"),
    MetricSpec("disk.{disk}.reads", "1", noun="reads at the disk"),
    MetricSpec("disk.{disk}.write_size", "B", across="merge", noun="a write at the disk"),
    MetricSpec("switches", "1", noun="context switches", evidence="shared"),
    MetricSpec("pressure", "1", across="max", noun="of the time some task waited for io"),
    MetricSpec("servers.cpu", "1", noun="of CPU time of the servers", evidence="busy"),
    MetricSpec("load.1m", "1", across="max", evidence="none"),
    MetricSpec("bandwidth", "B/s", quantity="throughput"),
)
SOURCE = "probe:seen"
SECONDS = 2.0

Numbers = Mapping[str, Sequence[float]]


def steady(value: float, rounds: int = 8, by: float = 0.01, start: int = 0) -> list[float]:
    """A value that varies a little, and not in the same way for every ``start``."""
    return [value * (1 + by * (((start + n) * 7) % 5 - 2)) for n in range(rounds)]


def run(a: Numbers, b: Numbers, **asked: object) -> tuple[pl.DataFrame, pl.DataFrame, Design]:
    """``a`` and ``b``: metric → values, round by round; ``ios`` 1000 where it is not given."""
    rows, trials = [], []
    levels = {1: "one", 2: "other"}
    units = {spec.name: spec.unit for spec in (*LOAD, *PROBE)}
    rounds = len(a["iops"])
    for cell, given in ((1, a), (2, b)):
        numbers = {"ios": [1000.0] * rounds, **given}
        for n in range(rounds):
            trial = 2 * n + cell
            trials.append((trial, n + 1, cell, "done", None, SECONDS))
            for name, values in numbers.items():
                source = "load" if name in ("iops", "ios", "write.ios") else SOURCE
                unit = units.get(name) or next(s.unit for s in PROBE if s.member(name))
                rows.append((trial, n + 1, cell, None, None, source, name, values[n], unit, "neither"))
    names = ("trial", "round", "cell", "node", "job", "source", "metric", "value", "unit", "better")
    types = (pl.Int64, pl.Int64, pl.Int64, pl.String, pl.String, pl.String, pl.String, pl.Float64, pl.String, pl.String)
    metrics = pl.DataFrame(rows, schema=dict(zip(names, types, strict=True)), orient="row").with_columns(
        better=pl.when(pl.col("metric") == "iops").then(pl.lit("higher")).otherwise("better")
    )
    columns = {"trial": pl.Int64, "round": pl.Int64, "cell": pl.Int64, "status": pl.String, "reason": pl.String}
    frame = pl.DataFrame(trials, schema={**columns, "measured": pl.Float64}, orient="row")
    cells = tuple((cell, {"kind": level}) for cell, level in levels.items())
    design = Design("t", "iops", {"kind": ("one", "other")}, cells)
    declared = Declarations.union([("load", LOAD), (SOURCE, PROBE)])
    return frame, metrics, replace(design, declared=declared, **asked)  # type: ignore[arg-type]


def compared(a: Numbers, b: Numbers, **asked: object) -> Comparison:
    """The one comparison of such a run, once it has ended."""
    (found,) = summarise(*run(a, b, **asked), ended=True).comparisons
    return found


def why(a: Numbers, b: Numbers, **asked: object) -> Underneath:
    """What differs underneath it."""
    found = compared(a, b, **asked).why
    assert found is not None
    return found
