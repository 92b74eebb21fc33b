"""Ratios of block requests as metrics: of all requests in a frame together, so never a mean of ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from storlab.blockio.alignment import shares, unit_name
from storlab.measurements import Better, Value

_WAYS = ("read", "write")
_SHARES: tuple[tuple[str, str, Better], ...] = (
    ("{way}.aligned.{unit}", "share", "higher"),
    ("{way}.aligned.{unit}.bytes", "byte_share", "higher"),
    ("{way}.offset-aligned.{unit}", "offset_share", "higher"),
    ("{way}.unit.amplification.{unit}", "amplification", "lower"),
)


def ratios(requests: pl.DataFrame) -> Iterator[Value]:
    """Mean size (B), shares and amplification of reads and of writes in a frame of ``REQUEST_COLUMNS``.

    Over several nodes they are to be had anew from all their requests (``merge``): a node that wrote ten times is not
    worth as much as one that wrote a million times. ``docs/reference/metrics.md`` says what each is.
    """
    return (value for _, value in ratios_by(requests, ()))


def ratios_by(requests: pl.DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[object, ...], Value]]:
    """The same for each group of ``by``, and the group before it: first sizes, then the others of all groups."""
    size = (pl.col("count") * pl.col("length")).sum() / pl.col("count").sum()
    sizes = requests.filter(pl.col("operation").is_in(_WAYS)).group_by(*by, "operation").agg(size.alias("size"))
    for *group, way, mean in sizes.sort(*by, "operation").iter_rows():
        if mean:
            yield tuple(group), Value(f"{way}.size", mean, "B", "neither", "merge")
    for row in shares(requests, by=(*by, "operation")).iter_rows(named=True):
        way, unit = row["operation"], unit_name(row["unit"])
        for name, column, better in _SHARES if way in _WAYS else ():
            if row[column] is not None:
                value = Value(name.format(way=way, unit=unit), row[column], "1", better, "merge")
                yield tuple(row[key] for key in by), value
