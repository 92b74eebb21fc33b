"""Frames of ``REQUEST_COLUMNS``: made from rows, and added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from storlab.measurements import REQUEST_COLUMNS

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

    The result has the columns ``by``, ``count`` and those of units, ordered by ``by``.
    """
    units = [pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name) for name in UNIT_COLUMNS]
    return requests.group_by(by).agg(pl.col("count").sum(), *units).sort(by)
