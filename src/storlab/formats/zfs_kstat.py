"""What ZFS counts, as ``/proc/spl/kstat`` prints it: named counters, and the history of a pool's transaction groups.

See ``kstat_seq_show_headers`` and ``kstat_seq_show_named`` in module/os/linux/spl/spl-kstat.c, and
``spa_txg_show`` in module/zfs/spa_stats.c of OpenZFS. A file of counters begins with its number, type, flags, number of
entries, their size, and two times in ns of one clock: when the counters began, and when they were read. A history has
times of the same clock; until ZFS 0.7 it began with such a line, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from storlab.errors import ParseError
from storlab.text import is_whole

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
    """The state of each, and what it is as far as it has come."""
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
