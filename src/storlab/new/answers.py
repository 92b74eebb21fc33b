"""What `storlab new` asks, which answers there are, which of them go together, and the study that comes of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from storlab.base.amounts import parse_duration, parse_share, parse_size, shown
from storlab.base.errors import UserError

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = Path(__file__).with_name("study.toml.j2")
_LEAST_SIZE = 512 * 1024**2
"""Bytes: less than this mkfs.xfs and mkfs.btrfs refuse, or make something that nobody uses."""

Target = Literal["file", "device", "directory"]


class Subject(NamedTuple):
    """Something to compare. ``loads``: the first is the default. ``guests``: at least and at most so many."""

    says: str
    title: str
    loads: tuple[str, ...]
    guests: tuple[int, int] = (0, 16)


class Load(NamedTuple):
    """``primary``: the metric that verdicts are about. ``sysbench``: its test, for a database."""

    says: str
    title: str
    primary: str
    sysbench: str = ""


LOADS: Mapping[str, Load] = {
    "small-files": Load(
        "many small files, each safe on the disk before the next (fsync)",
        *("small files that must be safe", "create.rate"),
    ),
    "log": Load("a log: small writes, each safe before the next (fdatasync)", "a log that must be safe", "write.iops"),
    "random-write": Load("random writes of 4k", "random writes", "write.iops"),
    "random-read": Load("random reads of 4k", "random reads", "read.iops"),
    "mixed": Load("random reads and writes, 70 to 30", "random reads and writes", "iops"),
    "stream-write": Load("one long write in blocks of 1M", "one long write", "write.bandwidth"),
    "stream-read": Load("one long read in blocks of 1M", "one long read", "read.bandwidth"),
    "transactions": Load("sysbench's transactions: reads and writes", "transactions", "tps", "oltp_read_write"),
    "transactions-read": Load(
        "sysbench's transactions: reads alone", "transactions that read", "tps", "oltp_read_only"
    ),
    "transactions-write": Load(
        "sysbench's transactions: writes alone", "transactions that write", "tps", "oltp_write_only"
    ),
}

_FIO = ("random-write", "random-read", "mixed", "stream-write", "stream-read", "log")
_ALL = ("small-files", *_FIO)

SUBJECTS: Mapping[str, Subject] = {
    "file-systems": Subject("ext4, XFS or Btrfs", "ext4, XFS or Btrfs", _ALL),
    "safety": Subject(
        "buffered, direct or synchronous writes",
        "Buffered, direct or synchronous",
        ("random-write", "stream-write"),
    ),
    "queue-depths": Subject(
        "queue depths from 1 to 64: where more requests gain nothing",
        "Queue depths",
        ("random-read", "random-write", "mixed"),
    ),
    "block-sizes": Subject(
        "block sizes from 4k to 1M",
        "Block sizes",
        ("random-read", "random-write", "mixed", "stream-write", "stream-read"),
    ),
    "databases": Subject(
        "MariaDB or PostgreSQL",
        "MariaDB or PostgreSQL",
        ("transactions", "transactions-read", "transactions-write"),
    ),
    "vm-disks": Subject(
        "what is behind virtual machines' disks: a raw file, a sparse one, or qcow2",
        "Virtual machines' disks (raw, sparse or qcow2)",
        _FIO,
        guests=(1, 16),
    ),
    "shared-folders": Subject(
        "a folder of this machine in virtual machines: virtiofs or 9p",
        "Shared folders (virtiofs or 9p)",
        _ALL,
        guests=(1, 16),
    ),
    "network-disks": Subject(
        "a disk over the network: NBD, iSCSI or NVMe/TCP",
        "Disks over the network (NBD, iSCSI or NVMe/TCP)",
        _FIO,
        guests=(1, 1),
    ),
    "nothing": Subject("nothing: one set-up, how fast is it?", "One set-up", _ALL),
}
"""What may be compared, in the order in which it is offered."""

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

    ``until``: a word of ``EXTENTS``, a share, or a duration. ``size``: of the file that is the disk; one for each
    node. ``guests``: how many virtual machines carry the load; 0: this machine does; ``None``: as few as there can be.
    Raises ``UserError`` if they do not go together.
    """

    compare: str
    target: Target = "file"
    path: str = ""
    wipe: str = ""
    size: str = ""
    load: str = ""
    until: str = "decided"
    guests: int | None = None

    def __post_init__(self) -> None:
        _refuse_unknown("--compare", self.compare, SUBJECTS)
        _refuse_unknown("--on", self.target, TARGETS)
        subject = SUBJECTS[self.compare]
        least, most = subject.guests
        object.__setattr__(self, "load", self.load or subject.loads[0])
        object.__setattr__(self, "guests", least if self.guests is None else self.guests)
        object.__setattr__(self, "size", self.size or ("2G" if self.compare == "databases" else "1G"))
        _refuse_unknown(f"--load for {self.compare}", self.load, subject.loads)
        if not least <= (self.guests or 0) <= most:
            takes = f"takes from {least} to {most}" if least < most else f"takes {most}"
            raise UserError(f"--guests {self.guests}: {self.compare} {takes}")
        self._check_place()
        try:
            size = parse_size(self.size)
        except ValueError as error:
            raise UserError(f"--size: {error}") from None
        if size < _LEAST_SIZE:
            raise UserError(f"--size {self.size}: file systems need at least 512M")
        _check_extent(self.until)

    def _check_place(self) -> None:
        if self.target == "file":
            if self.path or self.wipe:
                raise UserError("a path is for a device or a directory, not for a file of Storlab's own")
            return
        if not self.path.startswith("/"):
            raise UserError(f"{shown(self.path)}: write an absolute path, beginning with /")
        if not self.path.isprintable() or len(self.path) > 1024:
            said = "a path that is not printable text, or is too long, cannot be used in a study"
            raise UserError(f"{shown(self.path)}: {said}")
        if self.wipe and (self.target, self.wipe) != ("device", self.path):
            raise UserError(f"--wipe {self.wipe}: write the device's name once more, as in --on, or leave it out")

    @property
    def title(self) -> str:
        """What it finds out, in one line."""
        return f"{SUBJECTS[self.compare].title} under {LOADS[self.load].title}"

    @property
    def minutes(self) -> float | None:
        """At most so long, if a time was the answer."""
        return None if self.until in EXTENTS or _SHARE.fullmatch(self.until) else parse_duration(self.until) / 60

    @property
    def has_file(self) -> bool:
        """Whether a file is the disk, and has the size that was answered."""
        return '"{disk}"' in study_text(self)

    def run_command(self, file: str) -> str:
        """What runs the study, for as long as was answered."""
        return f"storlab run {file}" + ("" if self.minutes is None else f" --budget {self.minutes:g}")


def place_of(on: str) -> tuple[Target, str]:
    """What ``--on`` says: a word, or the path of a device or directory, whichever it is. Raises ``UserError``."""
    if on == "file":
        return "file", ""
    path = on if on.startswith("/") else str(Path(on).absolute())
    if on in TARGETS:
        raise UserError(f"--on {on}: give its path instead")
    if Path(path).is_block_device() or (not os.path.lexists(path) and path.startswith("/dev/")):
        return "device", path
    if os.path.lexists(path) and not os.path.isdir(path):  # noqa: PTH112 - never raises
        raise UserError(f"--on {on}: it is neither a block device nor a directory")
    return "directory", path


def _refuse_unknown(what: str, given: str, known: Sequence[str] | Mapping[str, object]) -> None:
    if given not in known:
        raise UserError(f"{what}: unknown answer {shown(given)}; there are: {', '.join(known)}")


def _check_extent(text: str) -> None:
    if text in EXTENTS and text != "TIME":
        return
    try:
        wrong = not 0 < parse_share(text) < 1 if _SHARE.fullmatch(text) else parse_duration(text) < 60
    except ValueError:
        wrong = True
    if wrong:
        offered = ", ".join(word for word in EXTENTS if word != "TIME")
        raise UserError(f"--until {shown(text)}: write one of {offered}, or a time of a minute or more, such as 10m")


def study_text(answers: Answers, file: str = "study.toml") -> str:
    """The whole study; ``file`` is how its comments call it."""
    share = answers.until.lstrip("±+/- ").replace(" ", "")
    load = LOADS[answers.load]
    given = {
        **vars(answers),
        "name": file,
        "run_command": answers.run_command(file),
        "title": answers.title,
        "primary": load.primary,
        "sysbench": load.sysbench,
        "share": share if share.endswith("%") else "",
        "stack": _stack,
        "quoted": _quoted,
    }
    parts = _template().render(given).strip().split("\n\n")
    return "\n\n".join("\n".join(_aligned(part.splitlines())) for part in parts) + "\n"


@cache
def _template() -> Template:
    from jinja2 import Environment

    return Environment(trim_blocks=True, lstrip_blocks=True).from_string(_TEMPLATE.read_text("utf-8"))


def _quoted(path: str) -> str:
    """A TOML string that means this very path in a study, where braces are words to be filled in."""
    return json.dumps(path.replace("{", "{{").replace("}", "}}"), ensure_ascii=False)


def _stack(layers: Sequence[str]) -> str:
    """The value of ``stack``, on one line if it fits."""
    flat = f"[{', '.join(layers)}]"
    return flat if len(flat) <= 100 else "\n".join(["[", *(f"  {layer}," for layer in layers), "]"])


_ROW = re.compile(r"(?P<key>\w+) = (?P<value>.*)")
_COLUMN = 24  # of comments, unless what is before one is longer


def _aligned(lines: Sequence[str]) -> Iterator[str]:
    """One table with its equals signs and comments in columns, as people write them."""
    rows = [_ROW.fullmatch(line) for line in lines]
    wide = max((len(row["key"]) for row in rows if row), default=0)
    parts = []
    for line, row in zip(lines, rows, strict=True):
        text = f"{row['key']:<{wide}} = {row['value']}" if row else line
        # A stack has no comment, and may have a path with a # in it.
        parts.append((text, "", "") if row and row["key"] == "stack" else text.partition("  # "))
    longest = max(
        (len(text) for (text, _, said), row in zip(parts, rows, strict=True) if row and said and len(text) < 60),
        default=0,
    )
    for (text, _, said), row in zip(parts, rows, strict=True):
        column = max(_COLUMN, longest + 2) if row else _COLUMN
        yield text if not said else f"{text:<{column}}# {said}" if len(text) < column else f"{text}  # {said}"
