"""Latency histograms: fio's bins, and percentiles from any histogram.

The bins are those of fio 3 (``stat.h`` and ``stat.c``: FIO_IO_U_PLAT_BITS 6, 29 groups): one bin for each
nanosecond up to 127 ns, then 64 bins of equal width to every power of two. fio prints a bin by one
value, its middle. A latency differs from the value printed for its bin by at most 1/128 (0.8 %) of itself:
that is the error of every percentile taken from bins. Bins are added without loss, so percentiles of several
jobs, nodes or trials come from their added bins; percentiles themselves are never averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BITS = 6
_PER_GROUP = 1 << _BITS
BINS = 29 * _PER_GROUP
"""Number of bins. The last one also takes all that is longer: 17.1 s and more."""

RELATIVE_ERROR = 1 / (2 * _PER_GROUP)
"""Largest distance of a latency from its bin's value, as a share of the latency (the last bin excepted)."""

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
"""The percentiles that become metrics, named ``p50`` to ``p99.99``."""


def _edges() -> tuple[Ints, Ints, Ints]:
    """Lower edge, upper edge and fio's printed value of every bin, ns."""
    index = np.arange(BINS, dtype=np.int64)
    error_bits = np.maximum((index >> _BITS) - 1, 0)
    width = np.int64(1) << error_bits
    exact = index < 2 * _PER_GROUP
    lower = np.where(exact, index, (np.int64(_PER_GROUP) << error_bits) + (index % _PER_GROUP) * width)
    return lower, lower + width, lower + width // 2


LOWER_NS, UPPER_NS, VALUE_NS = _edges()
LOWER: Floats = LOWER_NS / 1e9
UPPER: Floats = UPPER_NS / 1e9
LAST_LOWER = float(LOWER[-1])

BIN_OF_VALUE: dict[str, int] = {str(value): index for index, value in enumerate(VALUE_NS.tolist())}
"""The bin that fio prints as this key of ``clat_ns.bins``."""


def bin_edges(value_ns: int) -> tuple[int, int]:
    """Edges (inclusive, exclusive; ns) of the bin that fio prints as ``value_ns``.

    Raises ``ValueError`` where fio has no bin of that value.
    """
    index = BIN_OF_VALUE.get(str(value_ns))
    if index is None:
        raise ValueError(f"{value_ns} is not the value of one of fio's {BINS} latency bins")
    return int(LOWER_NS[index]), int(UPPER_NS[index])


def bin_index(latency_ns: npt.ArrayLike) -> Ints:
    """The bins of latencies in ns, as fio's ``plat_val_to_idx`` has them; same shape as the input."""
    latency = np.asarray(latency_ns, dtype=np.int64)
    # A float64 has its exponent (plus 1023) in the bits from 52, the mantissa below it: together the exponent and
    # the mantissa's first bits count the bins from 64 ns on. Exact below 2^53, beyond all bins.
    index: Ints = latency.astype(np.float64).view(np.int64)
    index >>= 52 - _BITS
    index -= (1023 + _BITS - 1) * _PER_GROUP
    np.minimum(index, BINS - 1, out=index)
    return np.maximum(index, np.clip(latency, 0, _PER_GROUP - 1), out=index)


def fio_percentiles(counts: Ints, percentiles: Sequence[float] = PERCENTILES) -> Ints:
    """Percentiles in ns from counts of all ``BINS`` bins; equal to what fio prints from the same counts."""
    return VALUE_NS[_ranked_one(counts, percentiles)]


def percentiles(histogram: pl.DataFrame, wanted: Sequence[float] = PERCENTILES) -> dict[float, float]:
    """Percentiles in s of a histogram: a frame with ``lower``, ``upper`` (s) and ``count``, in any order.

    The definition is fio's (``calc_clat_percentiles``): the first bin, from below, at which the count so far
    reaches the share p of all (nearest rank), and of that bin its representative value: the middle, or in a
    bin of one nanosecond the only value it can hold. Equal bins may occur repeatedly: they count together.
    Raises ``ValueError`` for an empty histogram, or a percentile outside 0 < p ≤ 100.
    """
    ordered = histogram.select("lower", "upper", "count").sort("lower")
    lower, upper = ordered["lower"].to_numpy(), ordered["upper"].to_numpy()
    at = _ranked_one(ordered["count"].to_numpy(), wanted)
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


def _ranked_one(counts: Ints, wanted: Sequence[float]) -> Ints:
    if not counts.size:
        raise ValueError("a histogram without any operation has no percentiles")
    _, at = ranked(np.zeros(counts.size, dtype=np.int64), counts, wanted)
    position: Ints = at[0]
    return position


def frame(counts: Ints) -> pl.DataFrame:
    """Counts of all ``BINS`` bins as a histogram frame (``lower``, ``upper``, ``count``) of the used bins."""
    used = np.flatnonzero(counts)
    return pl.DataFrame({"lower": LOWER[used], "upper": UPPER[used], "count": counts[used]})


def percentile_name(percentile: float) -> str:
    """``p50``, ``p99.9``."""
    return f"p{percentile:g}"
