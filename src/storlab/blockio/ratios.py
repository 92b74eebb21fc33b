"""Ratios of block requests as metrics: of all requests in a frame together, so never a mean of ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from storlab.blockio.requests import UNITS, shares, unit_name
from storlab.measurements import Better, Value
from storlab.metrics import MetricSpec

WAYS = ("read", "write")
_SHARES: tuple[tuple[str, str, Better], ...] = (
    ("{way}.aligned.{unit}", "share", "higher"),
    ("{way}.aligned.{unit}.bytes", "byte_share", "higher"),
    ("{way}.offset-aligned.{unit}", "offset_share", "higher"),
    ("{way}.unit.amplification.{unit}", "amplification", "lower"),
)
_SIZE = {way: MetricSpec(f"{way}.size", "B", across="merge") for way in WAYS}
_OF_UNIT = {
    (way, unit, column): MetricSpec(name.format(way=way, unit=unit_name(unit)), "1", better, "merge", granule=unit)
    for way in WAYS
    for unit in UNITS
    for name, column, better in _SHARES
}
RATIOS = (*_SIZE.values(), *_OF_UNIT.values())
"""Of several nodes they are to be had anew from all their requests: one that wrote ten times counts as ten do."""


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
        for _, column, _ in _SHARES if row["operation"] in WAYS else ():
            if row[column] is not None:
                spec = _OF_UNIT[row["operation"], row["unit"], column]
                yield tuple(row[key] for key in by), spec.value(row[column])
