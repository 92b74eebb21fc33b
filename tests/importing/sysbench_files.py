"""Texts of sysbench in ``golden/``, and what is read of them."""

from __future__ import annotations

from pathlib import Path

from storlab.importing.importer import Part
from storlab.importing.sysbench import SysbenchImporter
from storlab.measurements import Measurements

GOLDEN = Path(__file__).parent / "golden"
OLTP = (GOLDEN / "sysbench-oltp.txt").read_bytes()
FILEIO = (GOLDEN / "sysbench-fileio.txt").read_bytes()
RATE = (GOLDEN / "sysbench-rate.txt").read_bytes()
CHECKPOINTS = (GOLDEN / "sysbench-checkpoints.txt").read_bytes()
HISTOGRAM = (GOLDEN / "sysbench-histogram.txt").read_bytes()


def parts(text: bytes) -> list[Part]:
    return list(SysbenchImporter().read(text, "x.txt", {}))


def one(text: bytes) -> Measurements:
    (part,) = parts(text)
    return part.measured


def values(measured: Measurements) -> dict[str, float]:
    return dict(measured.metrics.select("metric", "value").iter_rows())


def series(measured: Measurements, metric: str) -> list[tuple[float, float]]:
    return list(measured.series.filter(metric=metric).select("t", "value").iter_rows())
