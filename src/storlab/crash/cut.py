"""What is on the medium after a power cut. A pure model of a disk with a volatile write cache.

Entries of a log come in the order in which requests were completed. Of those that were completed before the cut,

- what came before the last completed flush is durable, and so is each write with FUA by itself; of a disk that has no
  such cache, everything is;
- of any other, any part may be on the medium: it was in the cache, and written back in any order. A disk that is
  atomic for ``unit`` bytes writes each unit (aligned on the disk) of a request whole or not at all.

Order needs no model of its own. A unit has at last what one of the writes to it brought, and choosing freely for each
unit which of the writes are left out, the others being applied in order, gives every such outcome: leaving out the
later one of two is the same as writing it first. So a cut is a subset of units. What is *not* in it are writes that
had been submitted and not completed; see docs/explanation/crash-checks.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from storlab.tools.log_writes import Entry, Flag


@dataclass(frozen=True)
class Piece:
    """A part of an entry's data that is on the medium: bytes on the disk."""

    entry: Entry
    offset: int
    length: int


@dataclass(frozen=True)
class Loss:
    """How much of what was in flight is lost. Probabilities: that a request is ``dropped`` whole, or else ``torn``.

    Of one that is torn, each ``unit`` is there with probability ½. Bytes.
    """

    dropped: float
    torn: float
    unit: int


def drawn(random: Random, unit: int) -> Loss:
    """One cut's: from nearly nothing to nearly everything, as caches differ."""
    return Loss(random.random(), random.random(), unit)


def nothing(unit: int) -> Loss:
    """A cut that loses nothing of what was completed."""
    return Loss(0.0, 0.0, unit)


def durable(entries: Sequence[Entry], moment: int, begin: int = 0, write_through: bool = False) -> int:
    """How many of the first ``moment`` entries a completed flush covers, or ``begin``, if that is more.

    A flush that comes with data is carried out before them. ``write_through``: the disk has no write cache. QEMU then
    flushes after each write, but one flush for several that end together, which the log need not show after each.
    """
    if write_through:
        return moment
    for number in range(moment - 1, begin - 1, -1):
        if entries[number].flags & Flag.FLUSH:
            return number if entries[number].length else number + 1
    return begin


def survivors(entries: Sequence[Entry], first: int, moment: int, loss: Loss, random: Random) -> Iterator[Piece]:
    """What of the entries from ``first``, the number of durable ones, to ``moment`` is on the medium, in order."""
    for entry in entries[first:moment]:
        if not entry.length:
            continue
        if entry.flags & Flag.FUA or not _lost(random, loss.dropped):
            whole = entry.flags & Flag.FUA or not _lost(random, loss.torn)
            pieces = [Piece(entry, entry.offset, entry.length)] if whole else _torn(entry, loss.unit, random)
            yield from pieces


def _lost(random: Random, probability: float) -> bool:
    return probability > 0 and random.random() < probability


def _torn(entry: Entry, unit: int, random: Random) -> Iterator[Piece]:
    at, end = entry.offset, entry.offset + entry.length
    while at < end:
        until = min((at // unit + 1) * unit, end)
        if random.random() < 0.5:
            yield Piece(entry, at, until - at)
        at = until


def in_flight(entries: Sequence[Entry], first: int, moment: int) -> int:
    return sum(1 for entry in entries[first:moment] if entry.length and not entry.flags & Flag.FUA)
