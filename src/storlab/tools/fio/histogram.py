"""Latency histograms in fio's bins; and many distributions as the rows of one table, merged all at once.

The bins are those of fio 3 (``stat.h`` and ``stat.c``: FIO_IO_U_PLAT_BITS 6, 29 groups): one bin for each
nanosecond up to 127 ns, then 64 bins of equal width to every power of two. fio prints a bin by one
value, its middle. A latency differs from the value printed for its bin by at most 1/128 (0.8 %) of itself:
that is the error of every percentile taken from bins. Bins are added without loss, so percentiles of several
jobs, nodes or trials come from their added bins; percentiles themselves are never averaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from storlab.base.errors import ParseError
from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, Measurements, empty, merge_histograms
from storlab.metrics import PERCENTILES, percentile_name
from storlab.percentiles import Floats, Ints, edges_at, ranked
from storlab.tools.fio.blocks import Latency
from storlab.tools.fio.log_lines import AT_ONCE, DIRECTIONS, LONGEST, Phases, lines_before, table, texts

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


# fio's histogram logs (``--write_hist_log`` with ``log_hist_msec``): latencies over time, and not only their means.
#
# A line is ``time ms, direction, block size, count, count, …``: of how many operations of this direction, since its
# line before, the completion latency lay in which bin (HOWTO, "Log File Formats"; fio 3.33, ``iolog.c``,
# ``flush_hist_samples``). ``log_hist_coarseness=C`` adds up 2^C neighbouring bins of ``Latencies``, so
# the number of counts says it. What ended after a job's last line is in none: up to an interval's operations.

OVER_TIME = (50.0, 99.0)
"""The percentiles of which there are series."""

PACKED_HISTOGRAMS = "hold addresses in place of counts, as fio writes them with log_store_compressed (run it without)"
"""Source: fio, ``iolog.c`` (``gz_work``), which packs samples as they are in memory."""

_CHUNK = 1 << 19  # bytes: about 90 lines of all bins
_BEFORE = 3  # fields ahead of the counts
_COARSEST = 6
_WIDTHS = {_BEFORE + (BINS >> coarseness): coarseness for coarseness in range(_COARSEST + 1)}
_MOST_CELLS = LONGEST + 1
_MOST_COUNTED = 1 << 48  # of a count: what is more is a difference of counters that started again
_LINE = re.compile(rb" ?(?P<time>\d{1,18}), ?[012], ?\d{1,18}(, ?\d{1,15})+")


def read_histogram_logs(
    logs: Mapping[int, Path], interval: float, jobs: Sequence[str] = (), phases: Phases = AT_ONCE
) -> Measurements:
    """Series and histograms from logs by number of their job, with lines every ``interval`` s (``log_hist_msec``).

    Series: ``d.latency.p50`` and ``d.latency.p99``, ``t`` the end of the interval, none where nothing completed;
    ``phases`` that ran one after another do so in ``t``, too.
    Histograms: ``d.latency`` and ``latency``, over all of the time. Of all jobs together, and of each where ``jobs``
    names them all. A warning says how exact they are where bins were added up.

    Raises ``ParseError`` with file and line.
    """
    lengths = phases.intervals(interval)
    begins = (np.cumsum(lengths) - lengths).tolist()
    read = [_read(path, interval, begins[phases.of_log(number)]) for number, path in logs.items()]
    named = dict(zip(jobs, read, strict=True)) if len(jobs) == len(read) else {}
    owners: list[tuple[str | None, pl.DataFrame]] = [(None, pl.concat([_NOTHING, *(counts for counts, _ in read)]))]
    owners += [(job, counts) for job, (counts, _) in named.items() if len(read) > 1]
    series, histograms = [empty(SERIES_COLUMNS)], [empty(HISTOGRAM_COLUMNS)]
    for job, counts in owners:
        series += _series(counts, interval, job)
        histograms += _histograms(counts, job)
    if len(read) == 1:  # what is of all jobs is of this one
        for frames in (series, histograms):
            frames += [frame.with_columns(job=pl.lit(job)) for job in named for frame in list(frames)]
    coarsest = max((coarseness for _, coarseness in read), default=0)
    return Measurements(series=pl.concat(series), histograms=pl.concat(histograms), warnings=_warnings(coarsest))


def with_histogram_logs(measured: Measurements, logs: Measurements) -> Measurements:
    histograms, warnings = measured.histograms, [*measured.warnings, *logs.warnings]
    if histograms.is_empty() and not logs.histograms.is_empty():
        histograms = logs.histograms
        counted = int(histograms.filter(pl.col("job").is_null(), metric="latency")["count"].sum())
        ios = int(measured.metrics.filter(pl.col("job").is_null(), metric="ios")["value"].sum())
        if counted < ios:
            warnings.append(
                f"its histogram of latencies lacks {ios - counted} of {ios} operations, "
                "which ended after the last line of its histogram log"
            )
    series = pl.concat([measured.series, logs.series])
    return replace(measured, series=series, histograms=histograms, warnings=tuple(warnings))


_NOTHING = pl.DataFrame(
    schema={"direction": pl.Int64, "cell": pl.Int64, "lower": pl.Float64, "upper": pl.Float64, "count": pl.Int64}
)


def _warnings(coarseness: int) -> tuple[str, ...]:
    if not coarseness:
        return ()
    error = 100 * min(2**coarseness / 128, 0.5)
    return (f"percentiles over time are known to within {error:.2g} % (log_hist_coarseness={coarseness})",)


def _read(path: Path, interval: float, begin: int) -> tuple[pl.DataFrame, int]:
    """What is not 0 in a log, a row for each: ``direction, cell, lower, upper, count``; and how coarse its bins are.

    ``begin``: the cell at which it begins.
    """
    frames, coarseness = [pl.DataFrame(schema={"key": pl.Int64, "count": pl.Int64})], 0
    for text, offset in texts(path, _CHUNK):
        numbers = table(text)
        if numbers is None or not _fits(numbers):
            raise _first_wrong(text, path, offset)
        if offset and _WIDTHS[numbers.shape[1]] != coarseness:
            line = lines_before(path, offset) + 1
            raise ParseError("has another number of counts than the lines before", str(path), line)
        coarseness = _WIDTHS[numbers.shape[1]]
        frames.append(_counts(numbers, coarseness, interval))
    # By one number: with the edges as keys this would take most of the time.
    summed = pl.concat(frames).group_by("key").agg(pl.col("count").sum()).sort("key")
    place, first = np.divmod(summed["key"].to_numpy(), BINS)
    direction, cell = np.divmod(place, _MOST_CELLS)
    last = first + (1 << coarseness) - 1
    columns = {"direction": direction, "cell": cell + begin, "lower": LOWER[first], "upper": UPPER[last]}
    return pl.DataFrame({**columns, "count": summed["count"]}), coarseness


def _fits(numbers: Ints) -> bool:
    if numbers.shape[1] not in _WIDTHS or numbers[:, 0].max() > LONGEST:
        return False
    return bool(numbers[:, 1].max() < len(DIRECTIONS) and numbers[:, _BEFORE:].max() < _MOST_COUNTED)


def _counts(numbers: Ints, coarseness: int, interval: float) -> pl.DataFrame:
    line, bins = np.nonzero(numbers[:, _BEFORE:])
    # A line comes with the first completion after its interval, however late: rounded down, as other logs of latency.
    cell = np.maximum((numbers[:, 0] / (1000 * interval) + 0.1).astype(np.int64), 1)
    key = (numbers[line, 1] * _MOST_CELLS + cell[line]) * BINS + (bins << coarseness)
    return pl.DataFrame({"key": key, "count": numbers[line, _BEFORE + bins]})


def _series(counts: pl.DataFrame, interval: float, job: str | None) -> Iterator[pl.DataFrame]:
    for direction in sorted(counts["direction"].unique()):
        mine = counts.filter(pl.col("direction") == direction)
        rows, lower, upper, count = (mine[name].to_numpy() for name in ("cell", "lower", "upper", "count"))
        cells, low, high = edges_at(rows, lower, upper, count, OVER_TIME)
        for at, percentile in enumerate(OVER_TIME):
            width = high[:, at] - low[:, at]
            value = np.where(width < 1.5e-9, low[:, at], low[:, at] + width / 2)
            metric = f"{DIRECTIONS[direction]}.latency.{percentile_name(percentile)}"
            same = {"job": pl.lit(job, pl.String), "metric": pl.lit(metric), "unit": pl.lit("s")}
            yield pl.DataFrame({"t": cells * interval, "value": value}).with_columns(**same).select(*SERIES_COLUMNS)


def _histograms(counts: pl.DataFrame, job: str | None) -> Iterator[pl.DataFrame]:
    names = pl.col("direction").replace_strict(dict(enumerate(DIRECTIONS)), return_dtype=pl.String)
    ways = counts.with_columns(metric=names + ".latency")
    for each in (ways, ways.with_columns(metric=pl.lit("latency"))):
        merged = merge_histograms(each)
        yield merged.select(pl.lit(job, pl.String).alias("job"), *list(HISTOGRAM_COLUMNS)[1:])


def _first_wrong(text: bytes, path: Path, offset: int) -> ParseError:
    before = lines_before(path, offset)
    lines = text.splitlines()
    for number, line in enumerate(lines, start=before + 1):
        shown = line[:60].decode(errors="replace")
        found = _LINE.fullmatch(line)
        if found is None or line.count(b",") != lines[0].count(b","):
            return ParseError(f"not a line of a histogram log of fio: {shown!r}", str(path), number)
        if line.count(b",") + 1 not in _WIDTHS:
            counts = max(line.count(b",") + 1 - _BEFORE, 0)
            return ParseError(f"has {counts} counts, and no histogram log of fio 3 has so many", str(path), number)
        if int(found["time"]) > LONGEST:
            return ParseError("times are Unix time: run fio without log_unix_epoch", str(path), number)
    return ParseError("not a histogram log of fio", str(path), before + 1)
