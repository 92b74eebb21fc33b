"""Histograms and single requests as text, in the form that the BPF tools print them in (libbpf-tools of bcc); and what
a reader must know of some disks.

The kernel makes requests only where there are queues (blk-mq), and knows them by their offset on the whole disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from storlab.base.text import printable
from storlab.base.units import size_text
from storlab.blockio.requests import UNITS, DiskHistograms, by_disk, shares
from storlab.blockio.trace_output import SECTOR, Event, event_alignment

_STARS = 40


def tables(requests: pl.DataFrame) -> str:
    """All that is known of each disk in a frame of ``REQUEST_COLUMNS``: both histograms, and shares at each unit."""
    parts = []
    for disk, histograms in by_disk(requests).items():
        own = requests.filter(pl.col("disk") == disk)
        parts.append("\n".join(filter(None, (disk_tables(disk, histograms), share_table(own), command_table(own)))))
    return "\n".join(parts)


def totals(requests: pl.DataFrame) -> str:
    """How many of each operation, and how many bytes: ``12 writes of 49152 bytes, 1 flush``."""
    size = (pl.col("count") * pl.col("length")).sum().alias("bytes")
    sums = requests.group_by("operation").agg(pl.col("count").sum(), size).sort(["count", "operation"])
    said = [f"{operation} {count}" + (f" ({moved} B)" if moved else "") for operation, count, moved in sums.iter_rows()]
    return ", ".join(reversed(said)) or "none"


def disk_tables(disk: str, histograms: DiskHistograms) -> str:
    name = printable(disk)
    lines = [f"I/O Granularity Histogram for Device {name}", f"Total I/Os: {histograms.total}"]
    lines += linear_histogram(histograms.granularity)
    lines += ["", f"I/O Alignment Histogram for Device {name}"]
    lines += log2_histogram(histograms.alignment)
    if histograms.without_data:
        lines += ["", f"Without data (flushes and the like): {histograms.without_data}"]
    return "\n".join(lines) + "\n"


def linear_histogram(counts: Mapping[int, int]) -> list[str]:
    """A row for each value that occurred; none where nothing did."""
    if not counts:
        return []
    most = max(counts.values())
    rows = [f"        {value:<10} : {counts[value]:<8} |{_bar(counts[value], most)}|" for value in sorted(counts)]
    return [f"     {'Bytes':<13} : count    distribution", *rows]


def log2_histogram(counts: Mapping[int, int]) -> list[str]:
    """A row for each power of two from 1 to the largest that occurred. ``counts``: of powers of two."""
    if not counts:
        return []
    most, last = max(counts.values()), max(counts).bit_length() - 1
    wide = last > 32  # numbers of more than ten digits: wider columns, shorter bars
    digits, stars = (20, _STARS // 2) if wide else (10, _STARS)
    rows = [f"{'':{15 if wide else 5}}{'Bytes':<{29 if wide else 19}} : count    distribution"]
    for power in range(last + 1):
        low, high = (1 << power if power else 0), (2 << power) - 1
        count = counts.get(1 << power, 0)
        rows.append(f"{low:>{digits}} -> {high:<{digits}} : {count:<8} |{_bar(count, most, stars)}|")
    return rows


def share_table(requests: pl.DataFrame) -> str:
    """For each operation, how much of it is at least so aligned; empty where nothing has data."""
    found = shares(requests)
    if found.is_empty():
        return ""
    rows = []
    for operation in found["operation"].unique().sort().to_list():
        own = found.filter(pl.col("operation") == operation)
        rows.append((f"{operation}: requests", [percent(share) for share in own["share"]]))
        rows.append(("bytes", [percent(share) for share in own["byte_share"]]))
        if operation == "write" and own["amplification"].null_count() == 0:
            rows.append(("amplification", [f"{factor:.2f}" for factor in own["amplification"]]))
    head = "Aligned to at least  "
    width = max(len(head), *(len(name) for name, _ in rows))
    lines = [f"{head:<{width}}" + "".join(f"{size_text(unit):>9}" for unit in UNITS)]
    lines += [f"{name:>{width}}" + "".join(f"{cell:>9}" for cell in cells) for name, cells in rows]
    return "\n".join(lines) + "\n"


def command_table(requests: pl.DataFrame) -> str:
    """Requests and bytes of each command and operation, most first; empty where commands were not asked for."""
    known = requests.filter(pl.col("comm").is_not_null())
    if known.is_empty():
        return ""
    size = (pl.col("count") * pl.col("length")).sum().alias("bytes")
    rows = known.group_by("comm", "operation").agg(pl.col("count").sum(), size)
    form = "{:<16} {:<13} {:>10} {:>16}"
    lines = [form.format("COMM", "OPS", "I/Os", "BYTES")]
    for comm, operation, count, moved in rows.sort(["count", "comm"], descending=[True, False]).iter_rows():
        lines.append(form.format(printable(comm), operation, count, moved))
    return "\n".join(lines) + "\n"


def percent(share: float) -> str:
    """``100 %`` of all and ``0 %`` of none, and neither of what is only nearly so."""
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    if share < 0.001 or share > 0.999:
        return "<0.1 %" if share < 0.5 else ">99.9 %"
    return f"{math.floor(share * 1000) / 10:.1f} %"


def _bar(count: int, most: int, width: int = _STARS) -> str:
    return ("*" * (count * width // most)).ljust(width)


_WIDE = 120
_HEADINGS = ("DISK", "OPS", "FLAGS", "LEN", "LBA", "PID", "COMM", "ALGN")
_FLAGS = ("preflush", "fua", "sync", "meta", "prio", "readahead", "background", "atomic", "swap")
_LETTERS = dict(zip(_FLAGS, "pfsmirbaw", strict=True))
_SHORT = {
    "secure_erase": "erase",
    "write_zeroes": "zeroes",
    "zone_reset_all": "zrstall",
    **{f"zone_{verb}": f"z{verb}" for verb in ("append", "open", "close", "finish", "reset")},
}


@dataclass(frozen=True)
class EventForm:
    """How rows are laid out. ``short``: flags are letters. An operation's name is cut where it has no room."""

    widths: tuple[int, ...]  # of all columns but the last, which ends the line
    short: bool

    @property
    def heading(self) -> str:
        return self._line(_HEADINGS)

    @property
    def legend(self) -> str | None:
        letters = ", ".join(f"{letter} {flag}" for flag, letter in _LETTERS.items())
        return f"flags: {letters}" if self.short else None

    def row(self, event: Event) -> str:
        disk, operation, flags, length, sector, pid, comm, _ = event
        alignment = event_alignment(operation, length, sector)
        name = operation if len(operation) <= self.widths[1] else _SHORT.get(operation, operation)
        shown = "-" if alignment is None else str(alignment)
        cells = (disk, name, self._flags(flags), length, sector * SECTOR, pid, printable(comm), shown)
        return self._line(map(str, cells))

    def rows(self, events: Iterable[Event]) -> str:
        return "".join(f"{self.row(event)}\n" for event in events)

    def _flags(self, flags: str) -> str:
        if not flags:
            return "-"
        if not self.short and len(flags) <= self.widths[2]:
            return flags
        return "".join(_LETTERS.get(flag, "?") for flag in flags.split("+"))  # of all nine, names fill a line

    def _line(self, cells: Iterable[str]) -> str:
        *others, last = cells
        return " ".join([*(cell.ljust(width) for cell, width in zip(others, self.widths, strict=True)), last]).rstrip()


_NAMES = EventForm((10, 12, 31, 10, 16, 8, 15), short=False)
_SYMBOLS = EventForm((9, 7, 5, 8, 14, 7, 15), short=True)


def event_form(width: int | None) -> EventForm:
    """The form for a terminal so wide; ``None``: for no terminal."""
    return _NAMES if width is None or width >= _WIDE else _SYMBOLS


_SECTOR = 512
_DISK_WIDE = "its requests are listed as {whole}'s, with their offsets on the whole disk"


def without_requests(disk: str, underlying: Sequence[str] = ()) -> str:
    goes = f", before it goes to {', '.join(underlying)}" if underlying else ""
    return f"{disk} makes no requests of its own (it is bio-based): what it gets is counted bio by bio{goes}"


def of_partition(disk: str, whole: str, start: int) -> str:
    said = f"{disk} is a partition of {whole}: {_DISK_WIDE.format(whole=whole)}"
    return f"{said}; {off_boundary(disk, start)}" if is_off_boundary(start) else said


def is_off_boundary(start: int) -> bool:
    """Whether a partition that begins there moves what it holds off the boundary of any unit of ``UNITS``."""
    return start * _SECTOR % UNITS[-1] != 0


def off_boundary(disk: str, start: int) -> str:
    offset = start * _SECTOR
    unit = next(unit for unit in UNITS if offset % unit)
    return (
        f"{disk} begins at a multiple of {size_text(offset & -offset)}, which is on no boundary of {size_text(unit)}: "
        "what is aligned within it is not aligned on the disk"
    )


def counted_twice(disk: str, underlying: Sequence[str]) -> str:
    return (
        f"{disk} lies on {', '.join(underlying)}, and both are watched: what goes through both is counted twice, "
        "and shares are of all of it"
    )
