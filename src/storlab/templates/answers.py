"""What `storlab new` asks, which answers there are, and which of them go together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from storlab.amounts import parse_duration, parse_share, parse_size, shown
from storlab.errors import UserError

MOST_GUESTS = 16
LEAST_SIZE = 512 * 1024**2
"""Bytes: less than this mkfs.xfs and mkfs.btrfs refuse, or make something that nobody uses."""

Target = Literal["file", "device", "directory"]


@dataclass(frozen=True)
class Subject:
    """Something to compare. ``loads``: the first is the default. ``guests``: whether it takes virtual machines."""

    says: str
    loads: tuple[str, ...]
    guests: bool = False
    most_guests: int = MOST_GUESTS


_WRITES = ("random-write", "stream-write")
_FIO = ("random-write", "random-read", "mixed", "stream-write", "stream-read", "log")
_ALL = ("small-files", *_FIO)

SUBJECTS: Mapping[str, Subject] = {
    "file-systems": Subject("ext4, XFS or Btrfs", _ALL),
    "safety": Subject("buffered, direct or synchronous writes", _WRITES),
    "queue-depths": Subject(
        "queue depths from 1 to 64: where more requests gain nothing", ("random-read", *_FIO[:1], "mixed")
    ),
    "block-sizes": Subject(
        "block sizes from 4k to 1M", ("random-read", "random-write", "mixed", "stream-write", "stream-read")
    ),
    "databases": Subject("MariaDB or PostgreSQL", ("transactions", "transactions-read", "transactions-write")),
    "vm-disks": Subject(
        "what is behind virtual machines' disks: a raw file, a sparse one, or qcow2", _FIO, guests=True
    ),
    "shared-folders": Subject("a folder of this machine in virtual machines: virtiofs or 9p", _ALL, guests=True),
    "network-disks": Subject("a disk over the network: NBD, iSCSI or NVMe/TCP", _FIO, guests=True, most_guests=1),
    "nothing": Subject("nothing: one set-up, how fast is it?", _ALL),
}
"""What may be compared, in the order in which it is offered."""

LOADS: Mapping[str, str] = {
    "small-files": "many small files, each safe on the disk before the next (fsync)",
    "log": "a log: small writes, each safe before the next (fdatasync)",
    "random-write": "random writes of 4k",
    "random-read": "random reads of 4k",
    "mixed": "random reads and writes, 70 to 30",
    "stream-write": "one long write in blocks of 1M",
    "stream-read": "one long read in blocks of 1M",
    "transactions": "sysbench's transactions: reads and writes",
    "transactions-read": "sysbench's transactions: reads alone",
    "transactions-write": "sysbench's transactions: writes alone",
}

TARGETS: Mapping[str, str] = {
    "file": "a file of Storlab's own, in /var/tmp; it is removed again",
    "device": "a disk or partition, by its name; everything on it will be lost",
    "directory": "a directory that exists; files of its own there are removed again",
}

EXTENTS: Mapping[str, str] = {
    "look": "a look: two rounds, which decide nothing",
    "decided": "until each comparison has a verdict, or each point of a sweep is known to ±10 %",
    "10%": "until each ratio is known to ±10 %",
    "5%": "until each ratio is known to ±5 %",
    "TIME": "for at most this long: 10m, 1h",
}
"""How precise, or how long. ``TIME`` stands for any duration."""

_SHARE = re.compile(r"(?:±|\+/-|\+-)?\s*\d{1,2}(?:\.\d{1,3})?\s*%")


@dataclass(frozen=True)
class Answers:
    """All that a study is made of. ``path``: of the device or directory. ``wipe``: the device's name once more.

    ``extent``: a word of ``EXTENTS``, a share, or a duration. ``size``: of the file that is the disk; one for each
    node. ``guests``: how many virtual machines carry the load; 0: this machine does; ``None``: as few as there can be.
    Raises ``UserError`` where they do not go together.
    """

    compare: str
    target: Target = "file"
    path: str = ""
    wipe: str = ""
    size: str = ""
    load: str = ""
    extent: str = "decided"
    guests: int | None = None

    def __post_init__(self) -> None:
        subject = SUBJECTS.get(self.compare)
        if subject is None:
            raise UserError(_unknown("--compare", self.compare, tuple(SUBJECTS)))
        if self.target not in TARGETS:
            raise UserError(_unknown("--on", self.target, tuple(TARGETS)))
        object.__setattr__(self, "load", self.load or subject.loads[0])
        object.__setattr__(self, "guests", int(subject.guests) if self.guests is None else self.guests)
        object.__setattr__(self, "size", self.size or _default_size(self))
        if self.load not in subject.loads:
            raise UserError(_unknown(f"--load for {self.compare}", self.load, subject.loads))
        least, most = int(subject.guests), subject.most_guests
        if not least <= (self.guests or 0) <= most:
            takes = f"takes from {least} to {most}" if least < most else f"takes {most}"
            raise UserError(f"--guests {self.guests}: {self.compare} {takes}")
        self._check_place()
        check_size(self.size)
        check_extent(self.extent)

    def _check_place(self) -> None:
        if self.target == "file":
            if self.path or self.wipe:
                raise UserError("a path is for a device or a directory, not for a file of Storlab's own")
            return
        check_path(self.path)
        if self.wipe and (self.target, self.wipe) != ("device", self.path):
            raise UserError(f"--wipe {self.wipe}: write the device's name once more, as in --on, or leave it out")

    @property
    def share(self) -> str:
        """How well each ratio is to be known, as ``5%``; only where that was the answer."""
        return self.extent.lstrip("±+/- ").replace(" ", "")

    @property
    def minutes(self) -> float | None:
        """At most so long, where a time was the answer."""
        return None if self.extent in EXTENTS or _SHARE.fullmatch(self.extent) else parse_duration(self.extent) / 60


def _default_size(answers: Answers) -> str:
    return "2G" if answers.compare == "databases" else "1G"


def check_path(path: str) -> None:
    """Raise ``UserError`` for what no study can have as the path of a device or directory."""
    if not path.startswith("/"):
        raise UserError(f"{shown(path)}: write an absolute path, beginning with /")
    if not path.isprintable() or len(path) > 1024:
        raise UserError(f"{shown(path)}: a path that is not printable text, or is too long, cannot be used in a study")


def check_size(text: str) -> None:
    """Raise ``UserError`` unless it is a size that a disk may have."""
    try:
        size = parse_size(text)
    except ValueError as error:
        raise UserError(f"--size: {error}") from None
    if size < LEAST_SIZE:
        raise UserError(f"--size {text}: file systems need at least 512M")


def check_extent(text: str) -> None:
    """Raise ``UserError`` unless it is a word, a share or a duration that says when to stop."""
    if text in EXTENTS and text != "TIME":
        return
    try:
        wrong = not 0 < parse_share(text) < 1 if _SHARE.fullmatch(text) else parse_duration(text) < 60
    except ValueError:
        wrong = True
    if wrong:
        offered = ", ".join(word for word in EXTENTS if word != "TIME")
        raise UserError(f"--until {shown(text)}: write one of {offered}, or a time of a minute or more, such as 10m")


def _unknown(what: str, given: str, known: Sequence[str]) -> str:
    return f"{what}: unknown answer {shown(given)}; there are: {', '.join(known)}"
