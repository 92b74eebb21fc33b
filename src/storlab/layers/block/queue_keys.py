"""The settings of a disk's queue that a study may ask for, ``queue`` of any layer that gives a disk: see
Documentation/ABI/stable/sysfs-block and Documentation/block/ of the kernel's sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from storlab.base.reach import OwnName
from storlab.base.units import Duration, Size, shown
from storlab.layers.block.queue_files import IOSCHED
from storlab.model import Model

_LARGEST = 2**31 - 1


class Queue(Model):
    """How the kernel queues the requests of a disk. What is left out stays as it is.

    ``discard_max_bytes`` isn't here: kernels refuse to take back the value that they began with, or anything after 0.
    """

    scheduler: Literal["none", "mq-deadline", "kyber", "bfq"] | None = Field(
        None, description="The I/O scheduler, which is set first, since it resets others."
    )
    iosched: dict[OwnName, int] = Field(
        {},
        description="The scheduler's own parameters, by their names in `queue/iosched`: "
        + "; ".join(f"{name}: {', '.join(own)}" for name, own in IOSCHED.items())
        + ".",
    )
    nr_requests: int | None = Field(None, ge=1, le=_LARGEST, strict=True, description="How many requests may wait.")
    max_sectors: Size | None = Field(
        None, ge=4096, multiple_of=1024, description="The size into which larger requests are cut."
    )
    read_ahead: Size | None = Field(
        None,
        multiple_of=4096,
        description="How far buffered reads look ahead. Btrfs has a read-ahead of its own, and takes no notice of it.",
    )
    rq_affinity: Literal[0, 1, 2] | None = Field(
        None, description="Where a request is completed: on any CPU, in the group of the CPU that asked, or on that."
    )
    nomerges: Literal[0, 1, 2] | None = Field(None, description="1: only the simplest merges are tried; 2: none.")
    wbt: Duration | None = Field(
        None, description="The latency of reads from which on writeback is throttled; 0: it never is."
    )
    rotational: bool | None = Field(None, description="What file systems and reclaim take the disk for.")
    add_random: bool | None = Field(None, description="Requests feed the kernel's random numbers, which takes time.")
    io_poll: bool | None = Field(None, description="Completions are polled for, where the driver has queues for that.")

    @model_validator(mode="after")
    def _of_this_scheduler(self) -> Self:
        own = IOSCHED.get(self.scheduler or "", ())
        for name, value in self.iosched.items():
            if name not in own:
                raise ValueError(f"iosched: {shown(name)} is {self._not_one_of(own)}")
            if not 0 <= value <= _LARGEST:
                raise ValueError(f"iosched.{name} = {value} is not a number from 0 to {_LARGEST}")
        return self

    def _not_one_of(self, own: tuple[str, ...]) -> str:
        if self.scheduler is None:
            return "a parameter of a scheduler: write which, as scheduler"
        has = f"its parameters are {', '.join(own)}" if own else "it has none"
        return f"no parameter of {self.scheduler}: {has}"

    def files(self) -> Iterator[tuple[str, str, str]]:
        """Key, file below the queue's folder and text of all that is asked, in the order in which they are set."""
        for key, (file, text) in _FILES.items():
            if (value := getattr(self, key)) is not None:
                yield key, file, text(value)
        for name, number in self.iosched.items():
            yield f"iosched.{name}", f"iosched/{name}", str(number)


def _kib(size: int) -> str:
    return str(size // 1024)


def _microseconds(seconds: float) -> str:
    return str(round(seconds * 1e6))


def _number(value: int) -> str:
    return str(int(value))


_FILES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "scheduler": ("scheduler", str),
    "nr_requests": ("nr_requests", str),
    "max_sectors": ("max_sectors_kb", _kib),
    "rotational": ("rotational", _number),
    "wbt": ("wbt_lat_usec", _microseconds),
    "rq_affinity": ("rq_affinity", str),
    "nomerges": ("nomerges", str),
    "add_random": ("add_random", _number),
    "io_poll": ("io_poll", _number),
    "read_ahead": ("read_ahead_kb", _kib),
}
