"""What ``zpool iostat -Hplq`` prints: a line for each pool, with times and the lengths of its disks' queues.

See ``iostat_top_labels`` and ``print_vdev_stats`` in cmd/zpool/zpool_main.c of OpenZFS, and zpool-iostat(8). With
``-H`` there is no heading, and with ``-p`` numbers are whole, times in ns. Which columns there are depends on the
version, and their number says which: TRIM came with 0.8, rebuilding with 2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from storlab.errors import ParseError
from storlab.text import is_whole

DIRECTIONS = ("read", "write")
STAGES = ("total", "disk", "sync-queue", "async-queue")
"""Where a request waits: all in all, at the disk, and before it in the queue of its kind."""
MAINTENANCE = ("scrub", "trim", "rebuild")
"""What a pool does by itself, in the order in which versions of ZFS began to print it."""
QUEUES = ("sync-read", "sync-write", "async-read", "async-write", *MAINTENANCE)
_USAGE = 7  # pool, alloc, free; operations and bytes, read and written
_MAINTAINED = {26: 1, 29: 2, 32: 3}
"""By the number of columns, how much of ``MAINTENANCE`` a version has: each adds one of times, two of its queue."""
_DIGITS = 20
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


def parse_pool_look(line: str, source: str, at: int = 1) -> PoolLook:
    """A line without its end. Raises ``ParseError``."""
    pool, *words = line.split("\t")
    maintained = _MAINTAINED.get(len(words) + 1)
    if not pool or maintained is None:
        some = " or ".join(map(str, _MAINTAINED))
        raise ParseError(f"has {len(words) + 1} columns, and zpool iostat -Hplq prints {some}", source, at)
    numbers = [_number(word, source, at) for word in words]
    waits, queues = list(_waits(maintained)), QUEUES[: len(QUEUES) - len(MAINTENANCE) + maintained]
    times = dict(zip(waits, numbers[_USAGE - 1 :], strict=False))
    rest = numbers[_USAGE - 1 + len(waits) :]
    return PoolLook(
        pool,
        dict(zip(DIRECTIONS, (number or 0 for number in numbers[2:4]), strict=True)),
        {name: time / 1e9 for name, time in times.items() if time is not None},
        {queue: number for queue, number in zip(queues, rest[::2], strict=True) if number is not None},
        {queue: number for queue, number in zip(queues, rest[1::2], strict=True) if number is not None},
    )


def _waits(maintained: int) -> Iterator[str]:
    """In the order of their columns."""
    yield from (wait_name(direction, stage) for stage in STAGES for direction in DIRECTIONS)
    yield from MAINTENANCE[:maintained]


def _number(word: str, source: str, at: int) -> int | None:
    """``None`` where there was nothing to measure."""
    if word == _NONE:
        return None
    if not is_whole(word, _DIGITS):
        raise ParseError("has a value that is not a whole number", source, at)
    return int(word)
