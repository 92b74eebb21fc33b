"""Many latency distributions as the rows of one table: merged, and their percentiles found, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from storlab.formats.fio import histogram
from storlab.formats.fio.document import Latency
from storlab.percentiles import PERCENTILES, Floats, Ints, percentile_name, ranked

STATISTICS = ("mean", "min", "max", *map(percentile_name, PERCENTILES))
"""The columns of ``Latencies.statistics``."""

_MOST = np.iinfo(np.int64).max
_KEYS = tuple(f"{percentile:f}" for percentile in PERCENTILES)


@dataclass(frozen=True)
class Latencies:
    """Latencies in ns, a row for each distribution.

    ``counts[i]`` operations of row ``rows[i]`` are in bin ``bins[i]``; ``rows`` ascend. A row without bins may
    have fio's own ``percentiles`` (a column for each of ``PERCENTILES``, NaN where unknown), which can't be merged.
    """

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
        percentiles = np.full((number, len(PERCENTILES)), np.nan)
        alone = np.bincount(into, minlength=number)[into] == 1
        percentiles[into[alone]] = self.percentiles[part[alone]]
        without = np.bincount(into, ~self.has_bins[part], number) > 0
        kept = ~without[into]
        return Latencies(n, minimum, maximum, mean, percentiles, *self._added(part[kept], into[kept]))

    def _added(self, part: Ints, into: Ints) -> tuple[Ints, Ints, Ints]:
        """Rows, bins and counts of the bins of each ``part``, added up in row ``into``."""
        sizes = np.bincount(self.rows, minlength=self.n.size)
        starts = np.cumsum(sizes) - sizes
        lengths = sizes[part]
        ends = np.cumsum(lengths)
        entries = np.arange(lengths.sum()) + np.repeat(starts[part] - (ends - lengths), lengths)
        key = np.repeat(into, lengths) * histogram.BINS + self.bins[entries]
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        counts = np.add.reduceat(self.counts[entries[order]], first) if first.size else self.counts[:0]
        return key[first] // histogram.BINS, key[first] % histogram.BINS, counts

    def statistics(self) -> Floats:
        """``STATISTICS`` of every row, s; NaN where unknown, and where no operation was measured."""
        percentiles = self.percentiles.copy()
        rows, at = ranked(self.rows, self.counts, PERCENTILES)
        percentiles[rows] = histogram.VALUE_NS[self.bins[at]]
        found = np.column_stack([self.mean, self.minimum, self.maximum, percentiles]) / 1e9
        found[self.n == 0] = np.nan
        return found


def latencies(blocks: Sequence[Latency]) -> Latencies:
    """The table of fio's latency objects, whose bins are all fio's."""
    keys = [histogram.BIN_OF_VALUE[key] for block in blocks for key in block.bins]
    counts = np.array([count for block in blocks for count in block.bins.values()], dtype=np.int64)
    used = counts > 0
    return Latencies(
        n=np.array([block.n for block in blocks], dtype=np.int64),
        minimum=np.array([block.minimum for block in blocks], dtype=np.int64),
        maximum=np.array([block.maximum for block in blocks], dtype=np.int64),
        mean=np.array([block.mean or 0.0 for block in blocks]),
        percentiles=np.array(list(map(_own, blocks))).reshape(-1, len(PERCENTILES)),
        rows=np.repeat(np.arange(len(blocks)), [len(block.bins) for block in blocks])[used],
        bins=np.array(keys, dtype=np.int64)[used],
        counts=counts[used],
    )


def _own(block: Latency) -> list[float]:
    if block.bins:
        return _UNKNOWN
    return [block.percentile.get(key, np.nan) for key in _KEYS]


_UNKNOWN = [np.nan] * len(PERCENTILES)
