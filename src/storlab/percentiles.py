"""Percentiles from histograms, by fio's definition, for many histograms at once.

Bins are added without loss, so percentiles of several jobs, nodes or trials come from their added bins; percentiles
themselves are never averaged. Their error is that of the bins: half a bin's width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
"""The percentiles that become metrics, named ``p50`` to ``p99.99``."""


def percentile_name(percentile: float) -> str:
    """``p50``, ``p99.9``."""
    return f"p{percentile:g}"


def percentiles(histogram: pl.DataFrame, wanted: Sequence[float] = PERCENTILES) -> dict[float, float]:
    """Percentiles in s of a histogram: a frame with ``lower``, ``upper`` (s) and ``count``, in any order.

    The definition is fio's (``calc_clat_percentiles``): the first bin, from below, at which the count so far
    reaches the share p of all (nearest rank), and of that bin its representative value: the middle, or in a
    bin of one nanosecond the only value it can hold. Equal bins may occur repeatedly: they count together.
    Raises ``ValueError`` for an empty histogram, or a percentile outside 0 < p ≤ 100.
    """
    ordered = histogram.select("lower", "upper", "count").sort("lower")
    lower, upper = ordered["lower"].to_numpy(), ordered["upper"].to_numpy()
    at = ranked_one(ordered["count"].to_numpy(), wanted)
    width = upper[at] - lower[at]
    value = np.where(width < 1.5e-9, lower[at], lower[at] + width / 2)
    return dict(zip(wanted, value.tolist(), strict=True))


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
        # long double, and divided first, as in fio: otherwise p99.9 of 1000 operations may be another rank.
        rank = np.ceil(np.longdouble(p) / 100 * total).astype(np.int64)
        below = running < np.repeat(rank, sizes)
        at[:, column] = starts + (np.add.reduceat(below, starts, dtype=np.int64) if starts.size else 0)
    return rows[starts], at


def ranked_one(counts: Ints, wanted: Sequence[float]) -> Ints:
    """``ranked`` of one histogram: the position for each percentile."""
    if not counts.size:
        raise ValueError("a histogram without any operation has no percentiles")
    _, at = ranked(np.zeros(counts.size, dtype=np.int64), counts, wanted)
    position: Ints = at[0]
    return position
