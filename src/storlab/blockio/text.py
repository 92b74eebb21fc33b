"""Histograms and single requests as text, in the form that the BPF tools print them in (libbpf-tools of bcc)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storlab.blockio.alignment import joint_alignment
from storlab.blockio.histograms import DiskHistograms
from storlab.blockio.trace_output import SECTOR, Event
from storlab.units import printable

_STARS = 40
_EVENT = "{:<10} {:<13} {:<12} {:<8} {:<21} {:<10} {:<16} {:<8}"

EVENT_HEADING = _EVENT.format("DISK", "OPS", "FLAGS", "LEN", "LBA", "PID", "COMM", "ALGN").rstrip()


def tables(disks: Mapping[str, DiskHistograms]) -> str:
    """Both histograms of each disk; empty where nothing was seen of any."""
    return "\n".join(disk_tables(name, histograms) for name, histograms in disks.items())


def disk_tables(disk: str, histograms: DiskHistograms) -> str:
    """Granularity and alignment of one disk's requests. Those without data have neither, and a line of their own."""
    name = printable(disk)
    lines = [f"I/O Granularity Histogram for Device {name}", f"Total I/Os: {histograms.total}"]
    lines += linear_histogram(histograms.granularity)
    lines += ["", f"I/O Alignment Histogram for Device {name}"]
    lines += log2_histogram(histograms.alignment)
    if histograms.without_data:
        lines += ["", f"Without data (flushes): {histograms.without_data}"]
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


def event_row(event: Event) -> str:
    """One request, in the columns of ``EVENT_HEADING``; ``LBA`` is the offset in bytes, as blkalgn prints it."""
    disk, operation, flags, length, sector, pid, comm, _ = event
    alignment = joint_alignment(length, sector * SECTOR)
    shown = "-" if alignment is None else str(alignment)
    row = (disk, operation, flags or "-", length, sector * SECTOR, pid, printable(comm), shown)
    return _EVENT.format(*row).rstrip()


def event_rows(events: Iterable[Event]) -> str:
    """Many requests, a line each."""
    return "".join(f"{event_row(event)}\n" for event in events)


def _bar(count: int, most: int, width: int = _STARS) -> str:
    return ("*" * (count * width // most)).ljust(width)
