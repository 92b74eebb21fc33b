"""What ZFS counts, as ``/proc/spl/kstat`` prints it: named counters, and the history of a pool's transaction groups.

See ``kstat_seq_show_headers`` and ``kstat_seq_show_named`` in module/os/linux/spl/spl-kstat.c, and
``spa_txg_show`` in module/zfs/spa_stats.c of OpenZFS. A file of counters begins with its number, type, flags, number of
entries, their size, and two times in ns of one clock: when the counters began, and when they were read. A history has
times of the same clock; until ZFS 0.7 it began with such a line, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

from storlab.base.errors import ParseError
from storlab.base.text import is_whole

_NAMED = "1"  # KSTAT_TYPE_NAMED in include/os/linux/spl/sys/kstat.h
_NUMBERS = range(1, 7)  # KSTAT_DATA_INT32 to KSTAT_DATA_ULONG; 0 and 7 are text
_DIGITS = 20
_COMMITTED = "C"
_COLUMNS = ("txg", "birth", "state", "ndirty", "nwritten", "otime", "qtime", "wtime", "stime")
_BEFORE_0_7 = {"nreserved": "ndirty"}


@dataclass(frozen=True)
class Counters:
    """``began`` and ``read``, in ns: when they were made, which changes if ZFS is loaded again, and when read."""

    began: int
    read: int
    numbers: Mapping[str, int]


@dataclass(frozen=True)
class TransactionGroup:
    """One that is on the disk, since ``ended``. Bytes; s, on ZFS's clock.

    ``dirty``: what was dirty when it was synced. ``open``, ``quiesce`` and ``wait`` are what came before ``sync``.
    """

    number: int
    ended: float
    dirty: int
    written: int
    open: float
    quiesce: float
    wait: float
    sync: float


@dataclass(frozen=True)
class TransactionGroups:
    """``kept``: how many are in the history, those that are not on the disk yet among them."""

    kept: int
    committed: tuple[TransactionGroup, ...]


def parse_counters(text: str, source: str) -> Counters:
    """A file of named counters; those that are text are left out. Raises ``ParseError`` where it is none, or cut."""
    lines = text.splitlines()
    began, read, entries = _head(lines, source)
    if lines[1:2] and lines[1].split() != ["name", "type", "data"]:
        raise ParseError("does not begin with the columns name, type, data", source, 2)
    numbers: dict[str, int] = {}
    for at, line in enumerate(lines[2:], start=3):
        words = line.split(None, 2)
        if len(words) < 2 or not is_whole(words[1], 2) or words[0] in numbers:
            raise ParseError("is not a counter with its name, type and value", source, at)
        if int(words[1]) in _NUMBERS:
            value = words[2].strip() if len(words) == 3 else ""
            if not is_whole(value.removeprefix("-"), _DIGITS):
                raise ParseError("has a value that is not a whole number", source, at)
            numbers[words[0]] = int(value)
    if len(lines) - 2 != entries or not text.endswith("\n"):
        raise ParseError(f"has {max(len(lines) - 2, 0)} of {entries} counters: it was cut off", source, len(lines))
    return Counters(began, read, numbers)


def parse_transaction_groups(text: str, source: str) -> TransactionGroups:
    """``txgs`` of a pool. Raises ``ParseError`` where it is none, or cut off."""
    lines = text.splitlines()
    at = 0 if not lines or lines[0].startswith("txg") else 1
    columns = [_BEFORE_0_7.get(name, name) for name in (lines[at] if len(lines) > at else "").split()]
    if missing := [name for name in _COLUMNS if columns.count(name) != 1]:
        raise ParseError(f"has no column {missing[0]}", source, at + 1)
    if not text.endswith("\n"):
        raise ParseError("was cut off", source, len(lines))
    rows = list(_rows(lines, at + 1, columns, source))
    return TransactionGroups(len(rows), tuple(group for state, group in rows if state == _COMMITTED))


def _head(lines: list[str], source: str) -> tuple[int, int, int]:
    """When the counters began and were read, in ns, and how many entries there are."""
    words = lines[0].split() if lines else []
    numbers = [each for each in words if is_whole(each, _DIGITS)]
    if len(words) != 7 or len(numbers) != 6 or not words[2].startswith("0x"):
        raise ParseError("does not begin as a file of /proc/spl/kstat", source, 1)
    if words[1] != _NAMED:
        raise ParseError(f"has entries of type {words[1]}, not counters with names", source, 1)
    return int(words[5]), int(words[6]), int(words[3])


def _rows(lines: list[str], begin: int, columns: list[str], source: str) -> Iterator[tuple[str, TransactionGroup]]:
    places = [columns.index(name) for name in _COLUMNS]
    last = -1
    for at, line in enumerate(lines[begin:], start=begin + 1):
        words = line.split()
        if len(words) != len(columns):
            raise ParseError(f"has {len(words)} columns, not {len(columns)}", source, at)
        txg, birth, state, dirty, written, *times = (words[place] for place in places)
        if not all(is_whole(each, _DIGITS) for each in (txg, birth, dirty, written, *times)):
            raise ParseError("has a value that is not a whole number", source, at)
        if int(txg) <= last:
            raise ParseError("is not in the order of transaction groups", source, at)
        last, spans = int(txg), [int(each) for each in times]
        ended = (int(birth) + sum(spans)) / 1e9
        yield state, TransactionGroup(last, ended, int(dirty), int(written), *(each / 1e9 for each in spans))


# What ``zpool iostat -Hplq`` prints: a line for each pool, with times and the lengths of its disks' queues.
#
# See ``iostat_top_labels`` and ``print_vdev_stats`` in cmd/zpool/zpool_main.c of OpenZFS, and zpool-iostat(8). With
# ``-H`` there is no heading, and with ``-p`` numbers are whole, times in ns. Which columns there are depends on the
# version, and their number says which: TRIM came with 0.8, rebuilding with 2.0.

DIRECTIONS = ("read", "write")
STAGES = ("total", "disk", "sync-queue", "async-queue")
"""Where a request waits: all in all, at the disk, and before it in the queue of its kind."""
MAINTENANCE = ("scrub", "trim", "rebuild")
"""What a pool does by itself, in the order in which versions of ZFS began to print it."""
QUEUES = ("sync-read", "sync-write", "async-read", "async-write", *MAINTENANCE)
_USAGE = 7  # pool, alloc, free; operations and bytes, read and written
_MAINTAINED = {26: 1, 29: 2, 32: 3}
"""By the number of columns, how much of ``MAINTENANCE`` a version has: each adds one of times, two of its queue."""
_NONE = "-"


@dataclass(frozen=True)
class PoolLook:
    """One line. Operations per second since the line before; s of each wait, where something waited; requests.

    ``waits`` by direction and stage, or by what was maintained; ``waiting`` and ``active`` by queue, at that instant.
    """

    pool: str
    operations: Mapping[str, int]
    waits: Mapping[str, float]
    waiting: Mapping[str, int]
    active: Mapping[str, int]


def wait_name(direction: str, stage: str) -> str:
    """``write.disk``."""
    return f"{direction}.{stage}"


_WAITS = (*(wait_name(way, stage) for stage in STAGES for way in DIRECTIONS), *MAINTENANCE)
"""In the order of their columns."""


def parse_pool_look(line: str, source: str, at: int = 1) -> PoolLook:
    """A line without its end. Raises ``ParseError``."""
    pool, *words = line.split("\t")
    maintained = _MAINTAINED.get(len(words) + 1)
    if not pool or maintained is None:
        some = " or ".join(map(str, _MAINTAINED))
        raise ParseError(f"has {len(words) + 1} columns, and zpool iostat -Hplq prints {some}", source, at)
    numbers = [_number(word, source, at) for word in words]
    lacking = len(MAINTENANCE) - maintained
    waits, queues = _WAITS[: len(_WAITS) - lacking], QUEUES[: len(QUEUES) - lacking]
    times = dict(zip(waits, numbers[_USAGE - 1 :], strict=False))
    rest = numbers[_USAGE - 1 + len(waits) :]
    return PoolLook(
        pool,
        dict(zip(DIRECTIONS, (number or 0 for number in numbers[2:4]), strict=True)),
        {name: time / 1e9 for name, time in times.items() if time is not None},
        {queue: number for queue, number in zip(queues, rest[::2], strict=True) if number is not None},
        {queue: number for queue, number in zip(queues, rest[1::2], strict=True) if number is not None},
    )


def _number(word: str, source: str, at: int) -> int | None:
    """``None`` where there was nothing to measure."""
    if word == _NONE:
        return None
    if not is_whole(word, _DIGITS):
        raise ParseError("has a value that is not a whole number", source, at)
    return int(word)


# What ``zpool iostat -Hp -w`` and ``-r`` print of a pool: how long requests waited, and how large they were.
#
# A blank line, the pool's name, then a line for each power of two with its counts since the pool was imported. The
# first column of ``-w`` is the longest time of a bin in ns, that of ``-r`` the smallest size in bytes. See
# ``print_iostat_histos`` in cmd/zpool/zpool_main.c of OpenZFS. How many columns there are depends on the version:
# TRIM came with 0.8, rebuilding with 2.2.

What = Literal["waits", "sizes"]
Bins = dict[tuple[str, int], int]
"""Column and lower bound of a bin (ns or bytes, a power of two or 0) → requests, of all pools."""

KINDS = ("individual", "aggregated")
_SIZES = tuple(f"{queue}.{kind}" for queue, kind in product(QUEUES, KINDS))
_HISTOGRAM_COLUMNS: Mapping[What, tuple[tuple[str, ...], ...]] = {
    "waits": tuple(_WAITS[: len(_WAITS) - less] for less in range(len(MAINTENANCE))),
    "sizes": tuple(_SIZES[: len(_SIZES) - 2 * less] for less in range(len(MAINTENANCE))),
}


def parse_histograms(text: str, what: What, source: str) -> Bins:
    """All pools together. Raises ``ParseError`` with the line that is none."""
    found: Bins = {}
    pools = 0
    by_number = {len(columns): columns for columns in _HISTOGRAM_COLUMNS[what]}
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
