"""Latencies of what a traced command issued beside those of all else: as a table, and as rows for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from storlab.blockio.trace_output import ByIssuer
from storlab.percentiles import percentiles
from storlab.report.language.format import quantity
from storlab.text import printable

_ISSUERS = {"command": "the command", "kernel": "kernel threads", "others": "other processes"}
"""As JSON and as the table have it, in the order of ``ByIssuer``."""
_MEDIAN, _P99 = 50.0, 99.0
_HEADINGS = ("ISSUER", "DISK", "OPS", "I/Os", "MEDIAN", "P99", "MAX")


@dataclass(frozen=True)
class Latency:
    """From issue to completion, in s, of one issuer's operations on a disk.

    ``max`` is the upper bound of the worst bin.
    """

    issuer: str
    disk: str
    operation: str
    count: int
    median: float
    p99: float
    max: float


def latency_rows(latencies: ByIssuer) -> list[Latency]:
    """In the order of issuers; of each, disks by name and the most frequent operation first."""
    return [row for issuer, bins in zip(_ISSUERS, latencies, strict=True) for row in _rows_of(issuer, bins)]


def _rows_of(issuer: str, latency: pl.DataFrame) -> list[Latency]:
    service = latency.filter(pl.col("what") == "service", pl.col("count") > 0)
    rows = []
    for (disk, operation), bins in service.group_by("disk", "operation"):
        count, longest = bins.select(pl.col("count").sum(), pl.col("upper").max()).row(0)
        if count <= 0:
            continue  # a sum beyond 2^63: of no machine
        found = percentiles(bins, (_MEDIAN, _P99))
        rows.append(Latency(issuer, str(disk), str(operation), count, found[_MEDIAN], found[_P99], longest))
    return sorted(rows, key=lambda row: (row.disk, -row.count, row.operation))


def latency_table(rows: Sequence[Latency]) -> str:
    """Within 80 columns where disks have ordinary names; empty where nothing was measured."""
    if not rows:
        return ""
    disks = [printable(row.disk) for row in rows]
    wide = max(map(len, ("DISK", *disks)))
    lines: list[tuple[str, ...]] = [_HEADINGS]
    for disk, row in zip(disks, rows, strict=True):
        times = (quantity(seconds, "s") for seconds in (row.median, row.p99, row.max))
        lines.append((_ISSUERS[row.issuer], disk, printable(row.operation), f"{row.count}", *times))
    form = f"{{:<15}} {{:<{wide}}} {{:<12}}" + " {:>9}" * 4
    return "".join(f"{form.format(*cells)}\n" for cells in lines)
