"""The text that sysbench 1.0 and 1.1 print: what it was told, its interval lines, and its closing block.

Source of the formats: ``src/sysbench.c``, ``src/lua/internal/sysbench.sql.lua`` and
``src/tests/fileio/sb_fileio.c`` of sysbench 1.0.20 and of its master branch, 1.1.0, and what these print.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from storlab.errors import ParseError
from storlab.formats.sysbench.histogram import BEGIN, LONGEST, read_histogram
from storlab.formats.sysbench.intervals import SHOWS, Test, read_intervals

NUMBER = rb"(\d+(?:\.\d+)?)"

_CLOSED: dict[str, re.Pattern[bytes]] = {
    name: re.compile(rb"^ +" + pattern, re.MULTILINE)
    for name, pattern in {
        "queries.read": rb"read: +(\d+)$",
        "queries.write": rb"write: +(\d+)$",
        "queries.other": rb"other: +(\d+)$",
        "transactions": rb"transactions: +(\d+) +\(",
        "tps": rb"transactions: +\d+ +\(" + NUMBER + rb" per sec",
        "queries": rb"queries: +(\d+) +\(",
        "qps": rb"queries: +\d+ +\(" + NUMBER + rb" per sec",
        "errors": rb"ignored errors: +(\d+) +\(",
        "reconnects": rb"reconnects: +(\d+) +\(",
        "read.iops": rb"(?:reads/s: +|read:  IOPS=)" + NUMBER + rb"(?: |$)",
        "write.iops": rb"(?:writes/s: +|write: IOPS=)" + NUMBER + rb"(?: |$)",
        "fsync.rate": rb"(?:fsyncs/s: +|fsync: IOPS=)" + NUMBER + rb"$",
        "read.mib": rb"(?:read, MiB/s: +|read:  IOPS=[\d.]+ )" + NUMBER + rb"(?: MiB/s |$)",
        "write.mib": rb"(?:written, MiB/s: +|write: IOPS=[\d.]+ )" + NUMBER + rb"(?: MiB/s |$)",
        "time": rb"(?:total time|time elapsed): +" + NUMBER + rb"s$",
        "events": rb"total number of events: +(\d+)$",
        "latency.min": rb"min: +" + NUMBER + rb"$",
        "latency.mean": rb"avg: +" + NUMBER + rb"$",
        "latency.max": rb"max: +" + NUMBER + rb"$",
        "latency.sum": rb"sum: +" + NUMBER + rb"$",
        "threads.events.mean": rb"events \(avg/stddev\): +" + NUMBER + rb"/",
        "threads.events.stddev": rb"events \(avg/stddev\): +[\d.]+/" + NUMBER + rb"$",
        "threads.time.mean": rb"execution time \(avg/stddev\): +" + NUMBER + rb"/",
        "threads.time.stddev": rb"execution time \(avg/stddev\): +[\d.]+/" + NUMBER + rb"$",
    }.items()
}
_LAST, _LAST_OF_FILEIO = "threads.time.stddev", "latency.sum"
_FILEIO = b" IOPS="  # of 1.1


def read_closing(block: bytes) -> dict[str, float]:
    """The numbers of a closing block, as far as it is whole: times in s, latencies in ms, rates of bytes in MiB/s."""
    found = ((name, pattern.search(block)) for name, pattern in _CLOSED.items())
    numbers = {name: float(match[1]) for name, match in found if match}
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


# Each begins with a line feed, which the text is given at its start, too: such patterns are searched for as fast as
# plain text, and those that begin with ^ are not.
_BANNER = re.compile(rb"\nsysbench (\d+\.\d+\S*) ")
_FIRST = re.compile(rb"\n\[ \d+s \] ")
_FATAL = re.compile(rb"\nFATAL: (.*)")
_CHECKPOINTS = (
    "it was asked to report at checkpoints, at each of which it starts to count again: its rates are those after the "
    "last one, and an interval that ends with a checkpoint is zero"
)
_GENERAL = b"\nGeneral statistics:\n"
_CHECKPOINT = b"] Checkpoint report:\n"
_BEGINNINGS = (b"\nSQL statistics:\n", b"\nFile operations:\n", b"\nCPU speed:\n", b"\nThroughput:\n")
"""Of the closing block, the first that is there; 1.1 has no general statistics."""
_LONGEST_CLOSING = 4096  # bytes; it has some 1,000 up to the general statistics

_PERCENTILE = re.compile(rb"^ +(\d+)th percentile: +" + NUMBER + rb"$", re.MULTILINE)

_FACTS: dict[str, re.Pattern[bytes]] = {
    name: re.compile(pattern, re.MULTILINE)
    for name, pattern in {
        "threads": rb"^Number of threads: (\d+)$",
        "rate": rb"^Target transaction rate: (.*)$",
        "report interval": rb"^Report intermediate results every (\d+ second)",
        "seed": rb"^Initializing random number generator from seed \((\d+)\)",
        "random numbers from": rb"^Initializing random number generator from ((?!seed).*)$",
        "files": rb"^(\d+ files, .* each)$",
        "total size": rb"^(.*) total file size$",
        "block size": rb"^Block size (.*)$",
        "open flags": rb"^Extra file open flags: (.*)$",
        "read/write ratio": rb"^Read/Write ratio for combined random IO test: (.*)$",
        "fsync": rb"^Periodic FSYNC enabled, (.*)$",
        "fsync at the end": rb"^Calling fsync\(\) at the end of test, (.*)$",
        "I/O mode": rb"^Using (.*) I/O mode$",
        "mode": rb"^Doing (.*) test$",
        "primes up to": rb"^Prime numbers limit: (\d+)$",
        "memory operation": rb"^  operation: (\w+)$",
        "memory block": rb"^  block size: (\w+)$",
    }.items()
}


@dataclass(frozen=True)
class SysbenchRun:
    """One run of sysbench, as it printed it: numbers in its own units (ms, MiB/s).

    ``intervals``: the columns that ``test`` has, ``t`` in seconds since the start; may have no rows. ``percentile``
    is that of the latencies; ``None`` where sysbench was told to compute none. ``closed``: the closing block, as far
    as there is one. ``histogram``: of latencies, in s, with the columns of histograms; may have no rows.
    """

    test: Test
    intervals: pl.DataFrame
    percentile: int | None
    closed: dict[str, float]
    facts: dict[str, object]
    warnings: tuple[str, ...]
    histogram: pl.DataFrame


def read_sysbench(text: bytes, source: str) -> list[SysbenchRun]:
    """All runs that one file holds, in order. Lines of other programs are skipped. Raises ``ParseError``.

    A run begins with sysbench's first line, or with the file, should that line be missing.
    """
    text = b"\n" + (text.replace(b"\r\n", b"\n") if b"\r" in text else text)
    banners = list(_banners(text))
    for banner in banners:
        if banner[1].startswith(b"0."):
            line = text.count(b"\n", 0, banner.start() + 1)
            version = _shown(banner[1]).rstrip(":")
            raise ParseError(f"is of sysbench {version}; only versions 1.0 and 1.1 are read", source, line)
    starts = [0, *(banner.start() for banner in banners)]
    ends = [*starts[1:], len(text)]
    runs = [_run(text, start, end, source) for start, end in zip(starts, ends, strict=True) if end > start]
    found = [run for run in runs if run is not None]
    if not found and banners:
        fatal = _FATAL.search(text)
        said = f"which ended with: FATAL: {_shown(fatal[1])}" if fatal else "only what it prints before it measures"
        raise ParseError(f"holds no result of sysbench, {said}", source)
    if not found:
        raise ParseError("is no output of sysbench: it has neither lines of intervals nor a closing block", source)
    return found


def _banners(text: bytes) -> Iterator[re.Match[bytes]]:
    place = text.find(b"\nsysbench ")
    while place >= 0:
        found = _BANNER.match(text, place)
        if found:
            yield found
        place = text.find(b"\nsysbench ", place + 1)


def _run(text: bytes, start: int, end: int, source: str) -> SysbenchRun | None:
    """The run in ``text[start:end]``; ``None`` where none was measured there, as with ``sysbench prepare``."""
    first = _FIRST.search(text, start, end)
    closing = _closing(text, first.start() if first else start, end)
    body_end = text.rfind(BEGIN, max(first.start() if first else start, closing - LONGEST), closing)
    body_end = closing if body_end < 0 else body_end  # where there is no histogram
    head = text[start : first.start() if first else body_end]
    closed = read_closing(text[closing:end])
    begin = first.start() + 1 if first else body_end
    test, lines, intervals = read_intervals(text, begin, min(body_end + 1, end))  # with its last line feed
    checkpoints = text.count(_CHECKPOINT, start, end)
    if test is None:
        test = _test_of(closed)
    if test is None or (intervals.is_empty() and not closed):
        return None
    _refuse_steps_back(intervals, text, start, source)
    named = _PERCENTILE.search(text, closing, end)
    percentile = int(intervals["percentile"][0]) if intervals.height else int(named[1]) if named else 0
    if named and percentile:
        closed["latency.percentile"] = float(named[2])
    histogram, damaged = read_histogram(text[body_end : min(closing + 1, end)], "latency")
    whole = (_LAST_OF_FILEIO if _FILEIO in text[closing:end] else _LAST) in closed
    warnings = [*_damage(lines - checkpoints, intervals, closing < end, whole)]
    warnings += [*([_CHECKPOINTS] if checkpoints else []), *_fatal(head, text[max(begin, body_end - SHOWS) : end])]
    if damaged:
        warnings.append(f"{damaged} lines of its histogram are unreadable; the others count")
    facts = _facts(head, test)
    return SysbenchRun(test, intervals, percentile or None, closed, facts, tuple(warnings), histogram)


def _closing(text: bytes, start: int, end: int) -> int:
    """Where the closing block of a run begins, ``end`` where it has none. Searched for from behind, where it is.

    The report of a checkpoint looks alike, but there are intervals after it.
    """
    general = text.rfind(_GENERAL, start, end)
    if general >= 0 and _FIRST.search(text, general, end):
        return end
    last = end if general < 0 else general
    places = [text.rfind(name, max(start, last - _LONGEST_CLOSING), last) for name in _BEGINNINGS]
    found = min((place for place in places if place >= 0), default=-1)
    if general < 0 and found >= 0 and _FIRST.search(text, found, end):
        return end
    return found if found >= 0 else last


def _test_of(closed: dict[str, float]) -> Test | None:
    if "transactions" in closed:
        return "oltp"
    if closed.keys() & {"read.iops", "read.mib"}:
        return "fileio"
    return "events" if "events" in closed else None


def _refuse_steps_back(intervals: pl.DataFrame, text: bytes, start: int, source: str) -> None:
    if intervals.is_empty() or intervals["t"].is_sorted():
        return
    times = intervals["t"]
    at = (times.diff() < 0).arg_true()[0]
    later = re.compile(rb"\n\[ %ds \]" % int(times[at - 1])).search(text, start)
    found = later and re.compile(rb"\n\[ %ds \]" % int(times[at])).search(text, later.end())
    line = text.count(b"\n", 0, found.start() + 1) if found else None
    raise ParseError("goes back in time: two runs in one file, and nothing between them says so", source, line)


def _damage(lines: int, intervals: pl.DataFrame, closing: bool, whole: bool) -> Iterator[str]:
    if lines > 0 and intervals.is_empty():
        yield f"none of its {lines} lines of intervals is like those of sysbench: there are no series"
    elif lines > intervals.height:
        yield f"{lines - intervals.height} of {lines} lines of intervals are cut short or damaged; the others count"
    if not closing:
        last = f" after {intervals['t'][-1]:g} s" if intervals.height else ""
        yield f"it has no closing block: it was cut short, or sysbench ended{last}; rates are means of its intervals"
    elif not whole:
        yield "its closing block is cut short; what it lacks is absent"


def _fatal(head: bytes, tail: bytes) -> Iterator[str]:
    """What sysbench itself called fatal. It ends by it, so between intervals it is looked for only at their end."""
    messages = _FATAL.findall(head + tail)
    if messages:
        first = _shown(messages[0])
        yield f"FATAL: {first}" if len(messages) == 1 else f"FATAL, {len(messages)} times; first: {first}"


def _shown(message: bytes) -> str:
    return message.decode(errors="replace")[:200]


def _facts(head: bytes, test: Test) -> dict[str, object]:
    banner = _BANNER.match(head)
    version = {"version": banner[1].decode(errors="replace")} if banner else {}
    return {**version, "test": test, **dict(_options(head))}


def _options(head: bytes) -> Iterator[tuple[str, object]]:
    for name, pattern in _FACTS.items():
        found = pattern.search(head)
        if found:
            said = found[1].decode(errors="replace").strip().rstrip(".")
            yield name, int(said) if name == "threads" and len(said) < 10 else said
