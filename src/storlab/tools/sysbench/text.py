"""The text that sysbench prints: what it was told, its interval lines, and its closing block.

Source of the formats: ``src/sysbench.c``, ``src/lua/internal/sysbench.sql.lua`` and
``src/tests/fileio/sb_fileio.c`` of sysbench 1.0.20 and of its master branch, 1.1.0, and what these print; for 0.4 and
0.5 also what closing.py names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from storlab.base.errors import ParseError
from storlab.base.text import first
from storlab.tools.sysbench.blocks import (
    BEGIN,
    LONGEST,
    SHOWS,
    Test,
    contradicts,
    is_consistent,
    lacking,
    read_closing,
    read_histogram,
    read_intervals,
    repeats,
    stray,
)

# Where in a text each run of sysbench is: from its first line, or from what it was told, or else from its results on.
#
# Several runs follow each other in one file, whole or as they were pasted, without their first lines or their
# intervals. A run ends where the next one's first line is, or where something comes again that each has once: what it
# was told, a part of the closing block, intervals after that. Reports at checkpoints look like closing blocks, and
# are none.

# Each begins with a line feed, which the text is given at its start, too, unless a banner stands there: such patterns
# are searched for as fast as plain text, and those that begin with ^ are not.
BANNER = re.compile(rb"(?:\A|\n)sysbench (\d+\.\d+\S*) ")
FIRST = re.compile(rb"\n\[ *(\d{1,15})s ?\] ")
CHECKPOINT = b"] Checkpoint report:\n"
_TOLD = b"Running the test with following options:"
_BANNER = b"sysbench "
_PARTS = (
    (b"SQL statistics:", b"OLTP test statistics:", b"File operations:", b"Operations performed:", b"CPU speed:"),
    (b"Throughput:",),
    (b"General statistics:", b"Test execution summary:"),
    (b"Latency (ms):",),
    (b"Threads fairness:",),
)
"""Of a closing block, in the order in which they come; no version has all."""
_RANKS = {mark: rank for rank, marks in enumerate(_PARTS) for mark in marks}
_OPEN = (_BANNER, _TOLD, b"Operations performed:")  # after which the line goes on
_MARKS = re.compile(
    rb"\n(" + b"|".join(map(re.escape, _OPEN)) + rb"|(?:" + b"|".join(map(re.escape, _RANKS)) + rb")(?=[ \t]*\n))"
)
LINES_BEGIN = b"|".join([rb"sysbench \d", rb"\[ *\d+s ?\] ", *map(re.escape, (_TOLD, *_RANKS))])
"""What lines begin with that sysbench doesn't indent, of those by which runs are told apart."""


@dataclass
class Place:
    """Of one run: where it begins, its first interval, its closing block and its end. ``head``: since when what stands
    there can be what it was told. ``None`` where it has no such thing.
    """

    start: int
    head: int
    told: bool = False
    first: int | None = None
    closing: int | None = None
    checkpoints: int = 0
    end: int = 0


def places(text: bytes) -> list[Place]:
    """Of all runs of ``text``, which begins with a line feed or ``BANNER``; the first begins with it."""
    runs = [Place(0, 0)]
    rank, last, checkpoint, reported = -1, 0, False, False
    for at, mark in [*_marks(text), (len(text), b"")]:
        run = runs[-1]
        interval = FIRST.search(text, last, at)
        if interval and run.closing is not None:
            if reported and _time(interval) >= _time(FIRST.match(text, text.rfind(b"\n[", 0, run.closing))):
                run.closing = None  # a part of the report that is there twice
            else:
                run, reported = _next(runs, interval.start(), last), False
        if interval:
            checkpoint = False
            run.first = interval.start() if run.first is None else run.first
        if mark == _BANNER or (mark == _TOLD and (run.told or run.first is not None or run.closing is not None)):
            run, reported = _next(runs, at, at), False
        if mark == _TOLD:
            run.told = True
        elif mark == CHECKPOINT:
            checkpoint, reported, rank = True, True, -1
            run.checkpoints += 1
        elif mark in _RANKS:
            if checkpoint and _RANKS[mark] > rank:
                rank = _RANKS[mark]
                last = at
                continue
            checkpoint = False
            if run.closing is not None and _RANKS[mark] <= rank:
                run, reported = _next(runs, at, last), False
            run.closing = at if run.closing is None else run.closing
            rank = _RANKS[mark]
        last = at
    runs[-1].end = len(text)
    return runs


def _time(interval: re.Match[bytes] | None) -> int:
    return int(interval[1]) if interval else 0


def _next(runs: list[Place], start: int, head: int) -> Place:
    runs[-1].end = start
    runs.append(Place(start, head))
    return runs[-1]


def _marks(text: bytes) -> list[tuple[int, bytes]]:
    """Where each is; all but checkpoints are found in one go, for there may be millions of intervals between them."""
    found = [(match.start(), match[1]) for match in _MARKS.finditer(text)]
    at = text.find(CHECKPOINT)
    while at >= 0:
        found.append((at, CHECKPOINT))
        at = text.find(CHECKPOINT, at + 1)
    return sorted(mark for mark in found if mark[1] != _BANNER or BANNER.match(text, mark[0]))


_FATAL = re.compile(rb"\nFATAL: (.*)")
_CHECKPOINTS = (
    "it was asked to report at checkpoints, at each of which it starts to count again: its rates are those after the "
    "last one, and an interval that ends with a checkpoint is zero"
)
_ASKED = re.compile(rb"\nReport checkpoint\(s\) at ([\d, ]+) seconds")
_OF_EVENTS = re.compile(rb"\n(?:CPU speed:|Total operations: |  operation: |Maximum prime number checked in CPU test)")
_LATE = 1.5  # intervals
_CLOSE = 2000  # bytes above a closing block in which what is left of its beginning may stand
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
        "transactions": rb"^(Skipping BEGIN/COMMIT|Using .* for starting transactions)$",
        "OLTP mode": rb"^Running (\w+) OLTP test$",
        "distribution": rb"^Using (\w+) distribution",
        "tables": rb"^Using (\d+) test tables$",
        "requests": rb"^(?:Maximum number of requests for OLTP test is limited to|"
        rb"Number of (?:random requests for random IO|IO requests):) (\d+)$",
        "memory operation": rb"^  operation: (\w+)$",
        "memory block": rb"^  block size: (\w+)$",
    }.items()
}


@dataclass(frozen=True)
class SysbenchRun:
    """One run of sysbench, whose results begin on ``line``, as it printed it: numbers in its own units (ms, MiB/s).

    ``intervals``: the columns that ``test`` has, ``t`` in seconds since the start; may have no rows. ``percentile``
    is that of the latencies; ``None`` where sysbench was told to compute none. ``closed``: the closing block, as far
    as there is one. ``histogram``: of latencies, in s, with the columns of histograms; may have no rows.
    """

    line: int
    test: Test
    intervals: pl.DataFrame
    percentile: int | None
    closed: dict[str, float]
    facts: dict[str, object]
    warnings: tuple[str, ...]
    histogram: pl.DataFrame

    @property
    def measured(self) -> bool:
        return bool(self.closed or self.intervals.height)


def read_sysbench(text: bytes, source: str) -> list[SysbenchRun]:
    """All runs that one file holds, in order. Lines of other programs are skipped. Raises ``ParseError``.

    One that began, as others did that ended, and of which nothing was measured has neither intervals nor a closing
    block. ``sysbench prepare`` is none.
    """
    text = text.replace(b"\r\n", b"\n") if b"\r" in text else text
    begins = text.startswith(b"sysbench ") and BANNER.match(text) is not None
    text = text if begins else b"\n" + text  # which takes as long as to search all of it
    if text[-1:].isdigit() or text.endswith(b"."):  # a number that may be cut short
        text = text[: text.rfind(b"\n") + 1]
    runs: list[SysbenchRun] = []
    line, counted = _first_line(text), 0
    for place in places(text):
        begin = next((at for at in (place.first, place.closing) if at is not None), place.start) + 1
        line, counted = line + text.count(b"\n", counted, begin), begin
        run = _run(text, place, line, source)
        runs += [] if run is None else [run]
    if any(run.measured for run in runs):
        return runs
    if BANNER.search(text) or runs:
        fatal = next(_fatal(text, b""), "")
        said = f"which ended with: {fatal}" if fatal else "only what it prints before it measures"
        raise ParseError(f"holds no result of sysbench, {said}", source)
    raise ParseError("is no output of sysbench: it has neither lines of intervals nor a closing block", source)


def _first_line(text: bytes) -> int:
    return int(not text.startswith(b"\n"))


def _run(text: bytes, place: Place, line: int, source: str) -> SysbenchRun | None:
    begun, end = place.first, place.end
    closing = end if place.closing is None else place.closing
    begin = place.start if begun is None else begun
    body_end = text.rfind(BEGIN, max(begin, closing - LONGEST), closing)
    body_end = closing if body_end < 0 else body_end  # where there is no histogram
    head = text[place.head : body_end if begun is None else begun]
    closed, named = read_closing(text[closing:end])
    body = body_end if begun is None else begun + 1
    test, lines, intervals = read_intervals(text, body, min(body_end + 1, end))  # with its last line feed
    checkpoints = place.checkpoints
    if test is None:
        test = _test_of(closed)
    if test is None or (intervals.is_empty() and not closed):
        facts = {name: fact for name, fact in _facts(head, "events").items() if name != "test"}
        lost = SysbenchRun(line, "events", pl.DataFrame(), None, {}, facts, tuple(_fatal(head, b"")), pl.DataFrame())
        return lost if place.told else None
    _refuse_steps_back(intervals, text, place.start, source)
    percentile = int(intervals["percentile"][0]) if intervals.height else named
    if not percentile:
        closed.pop("latency.percentile", None)
    histogram, damaged = read_histogram(text[body_end : min(closing + 1, end)], "latency")
    partial = checkpoints > 0 or contradicts(closed)
    lacks = lacking(text[closing:end], closed, test)
    if partial and test == "events" and closed and "eps" not in closed:
        lacks.append("eps")
    warnings = [*_damage(lines - checkpoints, intervals, closing < end, lacks)]
    warnings += [*_strays(text, place, closing), *_reports(head, checkpoints)]
    warnings += _fatal(head, text[max(body, body_end - SHOWS) : end])
    if partial and not checkpoints:
        warnings.append("its counts by its time are not its rates, as after a checkpoint: the time is left out")
    if test == "events" and intervals.is_empty() and not _OF_EVENTS.search(text, place.start, end):
        warnings.append("it has no figures of its test: its rate is that of events of any kind")
    if repeats(text[closing:end]) or not is_consistent(closed):
        warnings.append("figures of its closing block contradict each other: lines are of another run")
    if intervals.height > 1 and intervals["t"][0] > _LATE * (intervals["t"][1] - intervals["t"][0]):
        warnings.append(f"its intervals begin at {intervals['t'][0]:g} s: lines above them are missing")
    if damaged:
        warnings.append(f"{damaged} lines of its histogram are unreadable; the others count")
    elif histogram.height and not checkpoints and (counted := histogram["count"].sum()) != closed.get("events"):
        warnings.append(f"its histogram has {counted} latencies, which is not the number of events")
    # Events count from the last checkpoint on; their count by time is exact.
    closed.pop("time" if partial else "eps", None)
    facts = _facts(head, test)
    return SysbenchRun(line, test, intervals, percentile or None, closed, facts, tuple(warnings), histogram)


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
    later = re.compile(rb"\n\[ *%ds ?\] " % int(times[at - 1])).search(text, start)
    found = later and re.compile(rb"\n\[ *%ds ?\] " % int(times[at])).search(text, later.end())
    line = _first_line(text) + text.count(b"\n", 0, found.start() + 1) if found else None
    raise ParseError("goes back in time: two runs in one file, and nothing between them says so", source, line)


def _strays(text: bytes, place: Place, closing: int) -> Iterator[str]:
    above = max(text.rfind(b"\n[", place.start, closing), place.start, closing - _CLOSE)
    reported = re.match(rb"\n\[ *\d+s ?\] Checkpoint", text[above : above + 40])
    if not reported and (found := stray(text[above:closing])):
        yield f"{first(found)} above its closing block, or what is left of that, are left out"


def _reports(head: bytes, found: int) -> Iterator[str]:
    asked = _ASKED.search(head)
    if asked and (number := asked[1].count(b",") + 1) != found:
        yield f"it was asked for {number} reports at checkpoints and has {found}: it ended before, or lines are missing"
    if found:
        yield _CHECKPOINTS


def _damage(lines: int, intervals: pl.DataFrame, closing: bool, lacks: Sequence[str]) -> Iterator[str]:
    if lines > 0 and intervals.is_empty():
        yield f"none of its {lines} lines of intervals is like those of sysbench: there are no series"
    elif lines > intervals.height:
        yield f"{lines - intervals.height} of {lines} lines of intervals are cut short or damaged; the others count"
    if not closing:
        last = f" after {intervals['t'][-1]:g} s" if intervals.height else ""
        yield f"it has no closing block: it was cut short, or sysbench ended{last}; rates are means of its intervals"
    elif lacks:
        yield f"its closing block is cut short or damaged: it lacks {first(lacks)}"


def _fatal(head: bytes, tail: bytes) -> Iterator[str]:
    """What sysbench itself called fatal. It ends by it, so between intervals it is looked for only at their end."""
    messages = _FATAL.findall(head + tail)
    if messages:
        first = messages[0].decode(errors="replace")[:200]
        yield f"FATAL: {first}" if len(messages) == 1 else f"FATAL, {len(messages)} times; first: {first}"


def _facts(head: bytes, test: Test) -> dict[str, object]:
    banner = BANNER.match(head)
    version = {"version": banner[1].decode(errors="replace").rstrip(":")} if banner else {}
    return {**version, "test": test, **dict(_options(head))}


def _options(head: bytes) -> Iterator[tuple[str, object]]:
    for name, pattern in _FACTS.items():
        found = pattern.search(head)
        if found:
            said = found[1].decode(errors="replace").strip().rstrip(".")
            yield name, int(said) if name == "threads" and len(said) < 10 else said
