"""Latency histograms in fio's bins; and many distributions as the rows of one table, merged all at once.

The bins are those of fio 3 (``stat.h`` and ``stat.c``: FIO_IO_U_PLAT_BITS 6, 29 groups): one bin for each
nanosecond up to 127 ns, then 64 bins of equal width to every power of two. fio prints a bin by one
value, its middle. A latency differs from the value printed for its bin by at most 1/128 (0.8 %) of itself:
that is the error of every percentile taken from bins. Bins are added without loss, so percentiles of several
jobs, nodes or trials come from their added bins; percentiles themselves are never averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from storlab.metrics import PERCENTILES
from storlab.percentiles import Floats, Ints, ranked
from storlab.tools.fio.blocks import Latency

_BITS = 6
_PER_GROUP = 1 << _BITS
BINS = 29 * _PER_GROUP
"""Number of bins. The last one also takes all that is longer: 17.1 s and more."""


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


EXACT = ("mean", "min", "max")
"""The first columns of ``Latencies.statistics``; those of the percentiles follow."""

_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Latencies:
    """Latencies in ns, a row for each distribution.

    ``counts[i]`` operations of row ``rows[i]`` are in bin ``bins[i]``; ``rows`` ascend. A row without bins may
    have fio's own ``percentiles`` (a column for each of ``wanted``, NaN where unknown), which can't be merged.
    """

    wanted: tuple[float, ...]

    n: Ints
    minimum: Ints
    maximum: Ints
    mean: Floats
    percentiles: Floats
    rows: Ints
    bins: Ints
    counts: Ints

    @property
    def has_bins(self) -> npt.NDArray[np.bool_]:
        found = np.zeros(self.n.size, dtype=np.bool_)
        found[self.rows] = True
        return found

    def merged(self, part: Ints, into: Ints, number: int) -> Latencies:
        """A table of ``number`` rows: ``into[i]`` takes in the operations of row ``part[i]``, for every i.

        Bins are added, means weighted by operations, the extremes are those of the extremes. Where only some
        have bins the result has none; fio's own percentiles survive only where a single part had operations.
        """
        used = self.n[part] > 0
        part, into = part[used], into[used]
        n = np.zeros(number, dtype=np.int64)
        np.add.at(n, into, self.n[part])
        minimum, maximum = np.full(number, _MOST), np.zeros(number, dtype=np.int64)
        np.minimum.at(minimum, into, self.minimum[part])
        np.maximum.at(maximum, into, self.maximum[part])
        mean: Floats = np.bincount(into, self.mean[part] * (self.n[part] / n[into]), number).astype(np.float64)
        percentiles = np.full((number, len(self.wanted)), np.nan)
        alone = np.bincount(into, minlength=number)[into] == 1
        percentiles[into[alone]] = self.percentiles[part[alone]]
        without = np.bincount(into, ~self.has_bins[part], number) > 0
        kept = ~without[into]
        added = self._added(part[kept], into[kept])
        return Latencies(self.wanted, n, minimum, maximum, mean, percentiles, *added)

    def _added(self, part: Ints, into: Ints) -> tuple[Ints, Ints, Ints]:
        """Rows, bins and counts of the bins of each ``part``, added up in row ``into``."""
        sizes = np.bincount(self.rows, minlength=self.n.size)
        starts = np.cumsum(sizes) - sizes
        lengths = sizes[part]
        ends = np.cumsum(lengths)
        entries = np.arange(lengths.sum()) + np.repeat(starts[part] - (ends - lengths), lengths)
        key = np.repeat(into, lengths) * BINS + self.bins[entries]
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        counts = np.add.reduceat(self.counts[entries[order]], first) if first.size else self.counts[:0]
        return key[first] // BINS, key[first] % BINS, counts

    def statistics(self) -> Floats:
        """``EXACT`` and the percentiles of every row, s; NaN where unknown, and where no operation was measured."""
        percentiles = self.percentiles.copy()
        rows, at = ranked(self.rows, self.counts, self.wanted)
        percentiles[rows] = VALUE_NS[self.bins[at]]
        found = np.column_stack([self.mean, self.minimum, self.maximum, percentiles]) / 1e9
        found[self.n == 0] = np.nan
        return found


def latencies(blocks: Sequence[Latency], wanted: tuple[float, ...] = PERCENTILES) -> Latencies:
    """The table of fio's latency objects, whose bins are all fio's, with these percentiles."""
    names = [f"{percentile:f}" for percentile in wanted]
    keys = [BIN_OF_VALUE[key] for block in blocks for key in block.bins]
    counts = np.array([count for block in blocks for count in block.bins.values()], dtype=np.int64)
    used = counts > 0
    own = [[np.nan if block.bins else block.percentile.get(name, np.nan) for name in names] for block in blocks]
    return Latencies(
        wanted,
        n=np.array([block.n for block in blocks], dtype=np.int64),
        minimum=np.array([block.minimum for block in blocks], dtype=np.int64),
        maximum=np.array([block.maximum for block in blocks], dtype=np.int64),
        mean=np.array([block.mean or 0.0 for block in blocks]),
        percentiles=np.array(own).reshape(-1, len(wanted)),
        rows=np.repeat(np.arange(len(blocks)), [len(block.bins) for block in blocks])[used],
        bins=np.array(keys, dtype=np.int64)[used],
        counts=counts[used],
    )
