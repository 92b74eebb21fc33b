"""Frames of requests (``REQUEST_COLUMNS``): added up, by length, and how they lie in units of a size.

A request's *alignment* is the largest power of two that divides both its length and its offset on the disk. Offset 0
is divided by everything, so there the length alone decides. Nothing is below 512 bytes, the kernel's sector.
A flush has no data and so no alignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from storlab.base.units import size_text
from storlab.measurements import REQUEST_COLUMNS
from storlab.metrics import Better, Domain, MetricSpec, Value

UNITS = (4096, 8192, 16384, 32768, 65536)
"""Bytes: the units (of a file system's block, of a device's indirection) for which requests are judged."""

UNIT_COLUMNS = tuple(f"units_{unit >> 10}k" for unit in UNITS)
KEYS = ("disk", "operation", "flags", "length", "offset_alignment", "comm")
"""The columns that say what a request was; all others add up."""


def request_frame(rows: Iterable[Sequence[object]]) -> pl.DataFrame:
    """Rows in the order of ``REQUEST_COLUMNS`` as a frame, each key once, in a fixed order."""
    return added_up(pl.DataFrame(list(rows), schema=REQUEST_COLUMNS, orient="row"))


def added_up(requests: pl.DataFrame, by: Sequence[str] = KEYS) -> pl.DataFrame:
    """Counts and units of equal ``by`` added; an unknown number of units makes the sum unknown.

    The result has the columns ``by``, ``count`` and those of units, ordered by ``by``. Rows of no request, which only a
    damaged file has, are left out: a share of nothing is not a number.
    """
    found = requests.group_by(by).agg(pl.col("count").sum(), *map(sum_or_null, UNIT_COLUMNS))
    return found.filter(pl.col("count") > 0).sort(by)


def sum_or_null(column: str) -> pl.Expr:
    """The sum of ``column``; unknown where any of its values is."""
    return pl.when(pl.col(column).null_count() == 0).then(pl.col(column).sum()).alias(column)


FLOOR = 512
"""Bytes: the least alignment there is."""


WITHOUT_PLACE = ("drv_in", "drv_out", "other")
"""Operations that only the driver understands, as which a program asks a disk for its serial number: they may have a
length, and lie nowhere on the disk."""

_HAS_DATA = (pl.col("length") > 0) & ~pl.col("operation").is_in(WITHOUT_PLACE).fill_null(False)


def data_requests(requests: pl.DataFrame) -> pl.DataFrame:
    """Only what has a length and a place: flushes and zone operations have no length."""
    return requests.filter(_HAS_DATA)


def joint_alignment(length: int, offset: int) -> int | None:
    """The alignment of one request, in bytes; ``None`` for one without data."""
    if length == 0:
        return None
    both = length | offset
    return max(both & -both, FLOOR)


def with_alignment(requests: pl.DataFrame) -> pl.DataFrame:
    """``requests`` with two more columns, in bytes, null where there is no length, or no place.

    ``length_alignment``: the largest power of two that divides the length; ``alignment``: that divides the offset too.
    """
    length = pl.col("length")
    both = length | pl.col("offset_alignment")  # lowest bit set of the two; an offset of 0 adds none
    return requests.with_columns(
        pl.when(_HAS_DATA).then((length & -length).clip(FLOOR)).alias("length_alignment"),
        pl.when(_HAS_DATA).then((both & -both).clip(FLOOR)).alias("alignment"),
    )


def shares(requests: pl.DataFrame, units: Sequence[int] = UNITS, by: Sequence[str] = ("operation",)) -> pl.DataFrame:
    """How much of the data requests of each ``by`` is at least ``unit``-aligned: a row for each of them and each unit.

    Columns, after ``by`` and ``unit`` (bytes):

    - ``requests``, ``bytes``: all that have a length;
    - ``aligned``, ``aligned_bytes``: those whose joint alignment is at least the unit, and so made of whole units;
    - ``offset_aligned``: those whose offset alone is;
    - ``below``: those shorter than the unit;
    - ``share``, ``byte_share``, ``offset_share``: ``aligned``, ``aligned_bytes`` and ``offset_aligned``, of all;
    - ``amplification``: bytes that a device whose indirection unit this is would write for each byte sent, if it
      **merged nothing**: every request on its own, each unit that it touches written whole, so that a unit which
      two requests share is written twice. With o the offset and n the length of a request, and U the unit,

          amplification = U · Σ (⌊(o+n−1)/U⌋ − ⌊o/U⌋ + 1) / Σ n

      It is 1 where all is aligned. A device with a write cache joins neighbours before it writes, so this is an
      upper bound of what the layout alone costs. Null where the units touched are unknown, or for another unit than
      ``UNITS``.
    """
    data = with_alignment(data_requests(requests))
    parts = [_shares_at(data, unit, by) for unit in units]
    return pl.concat(parts).sort([*by, "unit"])


def _shares_at(data: pl.DataFrame, unit: int, by: Sequence[str]) -> pl.DataFrame:
    count, size = pl.col("count"), pl.col("count") * pl.col("length")
    aligned = pl.col("alignment") >= unit
    offset_aligned = (pl.col("offset_alignment") == 0) | (pl.col("offset_alignment") >= unit)
    touched = UNIT_COLUMNS[UNITS.index(unit)] if unit in UNITS else None
    return (
        data.group_by(by)
        .agg(
            pl.lit(unit, pl.Int64).alias("unit"),
            count.sum().alias("requests"),
            size.sum().alias("bytes"),
            count.filter(aligned).sum().alias("aligned"),
            size.filter(aligned).sum().alias("aligned_bytes"),
            count.filter(offset_aligned).sum().alias("offset_aligned"),
            count.filter(pl.col("length") < unit).sum().alias("below"),
            sum_or_null(touched).alias("touched") if touched else pl.lit(None, pl.Int64).alias("touched"),
        )
        .with_columns(
            (pl.col("aligned") / pl.col("requests")).alias("share"),
            (pl.col("aligned_bytes") / pl.col("bytes")).alias("byte_share"),
            (pl.col("offset_aligned") / pl.col("requests")).alias("offset_share"),
            (pl.col("touched") * unit / pl.col("bytes")).alias("amplification"),
        )
        .drop("touched")
    )


def by_length(requests: pl.DataFrame, by: Sequence[str] = ("operation",)) -> pl.DataFrame:
    return added_up(data_requests(requests), [*by, "length"]).select(*by, "length", "count")


def by_alignment(requests: pl.DataFrame, by: Sequence[str] = ("operation",), column: str = "alignment") -> pl.DataFrame:
    """Number of data requests of each ``column`` of ``with_alignment``: ``by``, ``column``, ``count``, ordered."""
    data = with_alignment(data_requests(requests))
    return data.group_by([*by, column]).agg(pl.col("count").sum()).sort([*by, column])


@dataclass(frozen=True)
class DiskHistograms:
    """Bytes → number of requests, by length and by alignment, both ascending. ``without_data``: flushes and the like.

    ``exact``: lengths are what they were; otherwise each stands for all up to twice as much.
    """

    granularity: Mapping[int, int] = field(default_factory=dict)
    alignment: Mapping[int, int] = field(default_factory=dict)
    without_data: int = 0
    exact: bool = True

    @property
    def total(self) -> int:
        return sum(self.granularity.values())


def by_disk(requests: pl.DataFrame) -> dict[str, DiskHistograms]:
    """Histograms of each disk in a frame of ``REQUEST_COLUMNS``, all operations together, disks in order."""
    lengths, alignments = by_length(requests, ["disk"]), by_alignment(requests, ["disk"])
    empty = requests.filter(~_HAS_DATA).group_by("disk").agg(pl.col("count").sum())
    without = dict(empty.iter_rows())
    return {
        disk: DiskHistograms(_pairs(lengths, disk), _pairs(alignments, disk), without.get(disk, 0))
        for disk in requests["disk"].unique().sort().to_list()
    }


def _pairs(counts: pl.DataFrame, disk: str) -> dict[int, int]:
    return {value: count for _, value, count in counts.filter(pl.col("disk") == disk).iter_rows()}


WAYS = ("read", "write")
_RATIOS: tuple[tuple[str, str, Better, Domain], ...] = (
    ("{way}.aligned.{unit}", "share", "higher", "share"),
    ("{way}.aligned.{unit}.bytes", "byte_share", "higher", "share"),
    ("{way}.offset-aligned.{unit}", "offset_share", "higher", "share"),
    ("{way}.unit.amplification.{unit}", "amplification", "lower", ""),
)
_SIZE = {way: MetricSpec(f"{way}.size", "B", across="merge", noun=f"a {way} request") for way in WAYS}
_OF_UNIT = {
    (way, unit, column): MetricSpec(
        name.format(way=way, unit=size_text(unit)), "1", better, "merge", granule=unit, domain=domain
    )
    for way in WAYS
    for unit in UNITS
    for name, column, better, domain in _RATIOS
}
RATIOS = (*_SIZE.values(), *_OF_UNIT.values())
"""Of several nodes they are computed again from all their requests: one that wrote ten times counts as ten do."""


def ratios(requests: pl.DataFrame) -> Iterator[Value]:
    """Mean size (B), shares and amplification of reads and of writes in a frame of ``REQUEST_COLUMNS``.

    ``docs/reference/metrics.md`` says what each is.
    """
    return (value for _, value in ratios_by(requests, ()))


def ratios_by(requests: pl.DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[object, ...], Value]]:
    """The same for each group of ``by``, and the group before it: first sizes, then the others of all groups."""
    size = (pl.col("count") * pl.col("length")).sum() / pl.col("count").sum()
    sizes = requests.filter(pl.col("operation").is_in(WAYS)).group_by(*by, "operation").agg(size.alias("size"))
    for *group, way, mean in sizes.sort(*by, "operation").iter_rows():
        if mean:
            yield tuple(group), _SIZE[way].value(mean)
    for row in shares(requests, by=(*by, "operation")).iter_rows(named=True):
        for _, column, *_ in _RATIOS if row["operation"] in WAYS else ():
            if row[column] is not None:
                spec = _OF_UNIT[row["operation"], row["unit"], column]
                yield tuple(row[key] for key in by), spec.value(row[column])
