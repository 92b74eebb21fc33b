"""Percentiles from histograms, by fio's definition, for many histograms at once.

Bins are added without loss, so percentiles of several jobs, nodes or trials come from their added bins; percentiles
themselves are never averaged. What bins leave open is stated as bounds, between which the percentile of all operations
lies for certain. They are exact, for bins of any widths, and also where bins of several widths overlap: of operations
x(j) in bins from l(j) to u(j), the one of rank k lies between the lower edge of rank k and the upper edge of rank k,
each counted in an order of its own. Bins of one and the same set give the edges of a single bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from storlab.metrics import PERCENTILES

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bounded:
    """A percentile: ``value`` is the middle of its bounds, low ≤ x < high, in the histogram's unit.

    Of a bin one nanosecond wide, ``value`` is the only latency that it can hold.
    """

    value: float
    low: float
    high: float


def percentiles(histogram: pl.DataFrame, wanted: Sequence[float] = PERCENTILES) -> dict[float, float]:
    """Percentiles in s of a histogram: a frame with ``lower``, ``upper`` (s) and ``count``, in any order.

    The definition is fio's (``calc_clat_percentiles``): the first bin, from below, at which the count so far
    reaches the share p of all (nearest rank), and of that bin its representative value: the middle, or in a
    bin of one nanosecond the only value it can hold. Equal bins may occur repeatedly: they count together.
    Raises ``ValueError`` for an empty histogram, or a percentile outside 0 < p ≤ 100.
    """
    return {p: found.value for p, found in bounded(histogram, wanted).items()}


def bounded(histogram: pl.DataFrame, wanted: Sequence[float] = PERCENTILES) -> dict[float, Bounded]:
    """The same, each with its bounds. Bins of different widths may overlap, as those of several tools do."""
    lower, upper, counts = (histogram[name].to_numpy() for name in ("lower", "upper", "count"))
    _, low, high = edges_at(np.zeros(len(counts), dtype=np.int64), lower, upper, counts, wanted)
    if not len(low):
        raise ValueError("a histogram without any operation has no percentiles")
    return {p: between(float(low[0, i]), float(high[0, i])) for i, p in enumerate(wanted)}


def percentiles_of_bins(
    bins: Sequence[tuple[float, float, int]], wanted: Sequence[float] = PERCENTILES
) -> dict[float, float]:
    """``percentiles`` of one histogram: lower and upper edges, counts."""
    lower, upper, counts = (np.array(column) for column in zip(*bins, strict=True))
    return percentiles_of_each(np.zeros(len(bins), dtype=np.int64), lower, upper, counts, wanted)[0]


def percentiles_of_each(
    rows: Ints, lower: Floats, upper: Floats, counts: Ints, wanted: Sequence[float] = PERCENTILES
) -> list[dict[float, float]]:
    """``percentiles`` of many histograms: bin ``i`` belongs to histogram ``rows[i]``. One for each row that there is,
    ascending.
    """
    _, low, high = edges_at(rows, lower, upper, counts, wanted)
    return [
        {p: between(*edges).value for p, edges in zip(wanted, zip(*own, strict=True), strict=True)}
        for own in zip(low.tolist(), high.tolist(), strict=True)
    ]


def between(low: float, high: float) -> Bounded:
    """The percentile that lies between these edges."""
    width = high - low
    return Bounded(low if width < 1.5e-9 else low + width / 2, low, high)


def edges_at(
    rows: Ints, lower: Floats, upper: Floats, counts: Ints, wanted: Sequence[float]
) -> tuple[Ints, Floats, Floats]:
    """For each histogram and percentile the edges between which it lies, as a line and a column of two arrays.

    Bin ``i`` belongs to histogram ``rows[i]``, in any order. Returns the rows that there are, ascending, and for each
    the lower and the upper edges. Raises ``ValueError`` as ``ranked`` does.
    """
    found = []
    for edges in (lower, upper):
        order = np.lexsort((edges, rows))
        present, at = ranked(rows[order], counts[order], wanted)
        found.append(edges[order][at])
    return present, found[0], found[1]


def ranked(rows: Ints, counts: Ints, wanted: Sequence[float]) -> tuple[Ints, Ints]:
    """For each histogram and percentile the position of the count at which the running sum reaches its share.

    ``counts[i]`` belongs to histogram ``rows[i]``; ``rows`` ascend, as do the bins of each. Returns the rows
    that there are, and positions in ``counts``, a line for each of them and a column for each percentile.
    Raises ``ValueError`` where the counts of one are all 0, or for a p outside 0 < p ≤ 100.
    """
    if not all(0 < p <= 100 for p in wanted):
        raise ValueError(f"percentiles are greater than 0 and at most 100, not {list(wanted)}")
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    sizes = np.diff(starts, append=rows.size)
    running = np.cumsum(counts, dtype=np.int64)
    running -= np.repeat((running - counts)[starts], sizes)
    total = running[starts + sizes - 1]
    if (total <= 0).any():
        raise ValueError("a histogram without any operation has no percentiles")
    at = np.empty((starts.size, len(wanted)), dtype=np.int64)
    for column, p in enumerate(wanted):
        below = running < np.repeat(_ranks(p, total), sizes)
        at[:, column] = starts + (np.add.reduceat(below, starts, dtype=np.int64) if starts.size else 0)
    return rows[starts], at


def nearest_rank(percentile: float, operations: int) -> int:
    """The rank, from 1, of the operation that is this percentile of so many."""
    return int(_ranks(percentile, np.array([operations]))[0])


def _ranks(p: float, total: Ints) -> Ints:
    # long double, and divided first, as in fio: otherwise p99.9 of 1000 operations may be another rank.
    return np.asarray(np.ceil(np.longdouble(p) / 100 * total), dtype=np.int64)
