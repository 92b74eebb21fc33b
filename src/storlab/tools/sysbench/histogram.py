"""The histogram of latencies that sysbench prints with ``--histogram``, between its intervals and its closing block.

Source: ``src/sb_histogram.c`` of sysbench 1.0.20, and what it prints. It has 1024 buckets, in even steps of logarithms
from 0.001 ms to 100 s; a latency is counted in the bucket whose value is nearest, in logarithms, and the first and the
last also take all beyond. Buckets without latencies are left out. A line has its bucket's value to three decimals of a
millisecond, which below 0.03 ms is that of several buckets: where not all of these are there, it can't be told which
are, and they become one bin.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import polars as pl

from storlab.grouping import grouped
from storlab.measurements import HISTOGRAM_COLUMNS

BEGIN = b"\nLatency histogram (values are in milliseconds)\n"
LONGEST = 1 << 17
"""Bytes; 1024 lines of 70."""

_LINE = re.compile(rb" *(\d+\.\d{3}) \|\** +(\d{1,15})\n")
Edges = tuple[float, float]

_BUCKETS = 1024
_LEAST, _MOST = 1e-6, 100.0  # s


def read_histogram(block: bytes, metric: str) -> tuple[pl.DataFrame, int]:
    """``HISTOGRAM_COLUMNS`` of the lines in ``block``, in s; and how many of its lines can't be read.

    ``block`` begins with ``BEGIN``, or is empty. A line without its line feed is cut short.
    """
    _, *lines = block[len(BEGIN) :].splitlines(keepends=True) or [b""]  # without the heading
    counts: dict[bytes, list[int]] = {}
    damaged = 0
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is not None and found[1] in _bins():
            counts.setdefault(found[1], []).append(int(found[2]))
        elif line.strip():
            damaged += 1
    rows = [
        (None, metric, lower, upper, count)
        for value, each in counts.items()
        for (lower, upper), count in _placed(_bins()[value], each)
    ]
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row").sort("lower"), damaged


def _placed(bins: list[Edges], counts: list[int]) -> list[tuple[Edges, int]]:
    """The counts of all lines with the same value, and the bins of that value; one bin, where not all are there."""
    if len(bins) == len(counts):
        return list(zip(bins, counts, strict=True))
    return [((bins[0][0], bins[-1][1]), sum(counts))]


@cache
def _bins() -> dict[bytes, list[Edges]]:
    """A bucket's value as it is printed → the edges in s of the buckets that are printed like that, ascending."""
    step = np.log(_MOST / _LEAST) / (_BUCKETS - 1)
    values = _LEAST * np.exp(np.arange(_BUCKETS) * step)
    edges = _LEAST * np.exp((np.arange(_BUCKETS + 1) - 0.5) * step)
    edges[0] = 0.0
    each = zip(values.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return grouped((b"%.3f" % (value * 1e3), (lower, upper)) for value, lower, upper in each)
