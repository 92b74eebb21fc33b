"""Where in a text each run of sysbench is: from its first line, or from what it was told, or else from its results on.

Several runs follow each other in one file, whole or as they were pasted, without their first lines or their intervals.
A run ends where the next one's first line is, or where something comes again that each has once: what it was told, a
part of the closing block, intervals after that. Reports at checkpoints look like closing blocks, and are none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
BEGIN = b"|".join([rb"sysbench \d", rb"\[ *\d+s ?\] ", *map(re.escape, (_TOLD, *_RANKS))])
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
