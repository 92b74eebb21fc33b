"""What ``zpool iostat -Hp -w`` and ``-r`` print of a pool: how long requests waited, and how large they were.

A blank line, the pool's name, then a line for each power of two with its counts since the pool was imported. The first
column of ``-w`` is the longest time of a bin in ns, that of ``-r`` the smallest size in bytes. See
``print_iostat_histos`` in cmd/zpool/zpool_main.c of OpenZFS. How many columns there are depends on the version: TRIM
came with 0.8, rebuilding with 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Literal

from storlab.errors import ParseError
from storlab.formats.zpool_iostat import DIRECTIONS, MAINTENANCE, QUEUES, STAGES, wait_name
from storlab.text import is_whole

What = Literal["waits", "sizes"]
Bins = dict[tuple[str, int], int]
"""Column and lower bound of a bin (ns or bytes, a power of two or 0) → requests, of all pools."""

KINDS = ("individual", "aggregated")
_WAITS = (*(wait_name(way, stage) for stage in STAGES for way in DIRECTIONS), *MAINTENANCE)
_SIZES = tuple(f"{queue}.{kind}" for queue, kind in product(QUEUES, KINDS))
_COLUMNS: Mapping[What, tuple[tuple[str, ...], ...]] = {
    "waits": tuple(_WAITS[: len(_WAITS) - less] for less in range(len(MAINTENANCE))),
    "sizes": tuple(_SIZES[: len(_SIZES) - 2 * less] for less in range(len(MAINTENANCE))),
}
_DIGITS = 20


def parse_histograms(text: str, what: What, source: str) -> Bins:
    """All pools together. Raises ``ParseError`` with the line that is none."""
    found: Bins = {}
    pools = 0
    by_number = {len(columns): columns for columns in _COLUMNS[what]}
    for at, line in enumerate(text.split("\n"), start=1):
        words = line.split("\t")
        if words == [""]:
            continue
        if len(words) == 1:
            pools += 1
            continue
        columns = by_number.get(len(words) - 1)
        if columns is None or not pools or not all(is_whole(word, _DIGITS) for word in words):
            raise ParseError("is no line of a histogram of `zpool iostat -Hp`", source, at)
        bound, *counts = map(int, words)
        edge = bound + 1 if what == "waits" else bound
        if edge & (edge - 1):
            raise ParseError("has a bin that is no power of two", source, at)
        lower = edge // 2 if what == "waits" else edge
        for column, count in zip(columns, counts, strict=True):
            found[column, lower] = found.get((column, lower), 0) + count
    return found


def between(before: Bins, after: Bins, source: str) -> Bins:
    """What came in between, without bins that have none. Raises ``ParseError`` where one lost some."""
    grown = {key: count - before.get(key, 0) for key, count in after.items()}
    if any(count < 0 for count in grown.values()):
        raise ParseError("a count ran backwards: the pool was imported again", source)
    return {key: count for key, count in grown.items() if count}
