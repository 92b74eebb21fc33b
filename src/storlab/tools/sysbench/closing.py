"""The block with which sysbench closes: of 1.0 and 1.1, and of 0.4 and 0.5, whose latencies have units beside them.

Source: what text.py names; ``sb_timer.c``, ``tests/oltp/sb_oltp.c`` and ``tests/fileio/sb_fileio.c`` of 0.4.12 and 0.5,
whose ``sb_print_value_size`` counts in 1024s: their ``Mb`` are MiB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

NUMBER = rb"(\d+(?:\.\d+)?)"

_CLOSED: dict[str, re.Pattern[bytes]] = {
    name: re.compile(rb"^ +" + pattern, re.MULTILINE)
    for name, pattern in {
        "queries.read": rb"read: +(\d+)$",
        "queries.write": rb"write: +(\d+)$",
        "queries.other": rb"other: +(\d+)$",
        "transactions": rb"transactions: +(\d+) +\(",
        "tps": rb"transactions: +\d+ +\(" + NUMBER + rb" per sec",
        "queries": rb"(?:queries: +(?=\d+ +\()|total: +(?=\d+$))(\d+)",
        "qps": rb"queries: +\d+ +\(" + NUMBER + rb" per sec",
        "eps": rb"events(?: per second|/s \(eps\)): +" + NUMBER + rb"$",
        "errors": rb"(?:ignored errors|deadlocks): +(\d+) +\(",
        "reconnects": rb"reconnects: +(\d+) +\(",
        "read.iops": rb"(?:reads/s: +|read:  IOPS=)" + NUMBER + rb"(?: |$)",
        "write.iops": rb"(?:writes/s: +|write: IOPS=)" + NUMBER + rb"(?: |$)",
        "fsync.rate": rb"(?:fsyncs/s: +|fsync: IOPS=)" + NUMBER + rb"$",
        "read.mib": rb"(?:read, MiB/s: +|read:  IOPS=[\d.]+ )" + NUMBER + rb"(?: MiB/s |$)",
        "write.mib": rb"(?:written, MiB/s: +|write: IOPS=[\d.]+ )" + NUMBER + rb"(?: MiB/s |$)",
        "time": rb"(?:total time|time elapsed): +" + NUMBER + rb"s$",
        "events": rb"total number of events: +(\d+)$",
        "latency.sum": rb"sum: +" + NUMBER + rb"$",
        "threads.events.mean": rb"events \(avg/stddev\): +" + NUMBER + rb"/",
        "threads.events.stddev": rb"events \(avg/stddev\): +[\d.]+/" + NUMBER + rb"$",
        "threads.time.mean": rb"execution time \(avg/stddev\): +" + NUMBER + rb"/",
        "threads.time.stddev": rb"execution time \(avg/stddev\): +[\d.]+/" + NUMBER + rb"$",
    }.items()
}
_ALWAYS = ("latency.min", "latency.mean", "latency.max", "latency.sum")
_BUT_OF_FILEIO = ("time", "events", "threads.events.mean", "threads.time.mean", "threads.time.stddev")
_ALIKE, _ROUNDED = 0.05, 0.005
_OF: dict[str, tuple[str, ...]] = {
    "oltp": ("transactions", "tps", "queries"),
    "fileio": ("read.iops", "write.iops", "fsync.rate", "read.mib", "write.mib"),
}
_FILEIO = b" IOPS="  # of 1.1
_OLD_OLTP = b" read/write requests: "  # of 0.4 and 0.5, which print no rate of queries

_LATENCIES = b"\nLatency (ms):"
_LATENCY = re.compile(
    rb"^ +(?P<which>min|avg|max|(?:approx\. +)?(?P<percentile>\d{1,2}) ?(?:th)? percentile): +"
    + NUMBER
    + rb"(?P<unit>ms|s)?$",
    re.MULTILINE,
)
_OLD_SUM = re.compile(rb"^ +total time taken by event execution: +" + NUMBER + rb"s?$", re.MULTILINE)  # in s
_OLD_COUNTS = re.compile(rb"^Operations performed:  (\d+) Read, (\d+) Write, (\d+) Other = \d+ Total$", re.MULTILINE)
_OLD_BYTES = re.compile(rb"^Read " + NUMBER + rb"([KMGT]?)b  Written " + NUMBER + rb"([KMGT]?)b  Total ", re.MULTILINE)
_MIBS = {b"": 2.0**-20, b"K": 2.0**-10, b"M": 1.0, b"G": 2.0**10, b"T": 2.0**20}


def read_closing(block: bytes) -> tuple[dict[str, float], int]:
    """Its numbers, as far as it is whole, and of which percentile ``latency.percentile`` is; 0 where it has none.

    Times are in s, latencies in ms, rates of bytes in MiB/s.
    """
    found = ((name, pattern.search(block)) for name, pattern in _CLOSED.items())
    numbers = {name: float(match[1]) for name, match in found if match}
    old = _OLD_SUM.search(block)
    latencies = max(block.find(_LATENCIES), 0)  # 0.4 and 0.5 have other headings
    if old:
        numbers["latency.sum"] = float(old[1]) * 1e3
    percentile = 0
    for match in _LATENCY.finditer(block, latencies):
        if old and not match["unit"]:
            continue  # no version prints it so: which unit it has isn't known
        name = {b"min": "min", b"avg": "mean", b"max": "max"}.get(match["which"], "percentile")
        numbers.setdefault(f"latency.{name}", float(match[3]) * (1e3 if match["unit"] == b"s" else 1))
        percentile = percentile or int(match["percentile"] or 0)
    if numbers.get("time"):
        numbers |= _old_fileio(block, numbers["time"])
    return {name: number for name, number in numbers.items() if math.isfinite(number)}, percentile


def lacking(block: bytes, closed: Mapping[str, float], test: str) -> list[str]:
    """What each has of this test, and this one has not."""
    wanted = [*_OF.get(test, ()), *(() if _FILEIO in block else _BUT_OF_FILEIO), *_ALWAYS]
    if test == "oltp" and _OLD_OLTP not in block:
        wanted.append("qps")
    return [name for name in wanted if name not in closed]


def contradicts(closed: Mapping[str, float]) -> bool:
    """Whether its rates are not its counts by its time: at checkpoints sysbench counts again, and its time goes on."""
    read, write, fsync, time = (closed.get(name, 0.0) for name in ("read.iops", "write.iops", "fsync.rate", "time"))
    rates = [(closed.get("tps"), 0.0, "transactions"), (closed.get("eps"), 0.0, "events")]
    rates.append((read + write or None, fsync, "events"))  # fsyncs are events since 1.0
    return any(
        rate is not None
        and closed.get(count)
        and not rate * time * (1 - _ALIKE) - 1 <= closed[count] <= (rate + more + _ROUNDED) * time * (1 + _ALIKE) + 1
        for rate, more, count in rates
        if time
    )


def is_consistent(closed: Mapping[str, float]) -> bool:
    """Whether its parts are of one run: all latencies by their number are the mean, transactions are events but for
    errors, and so are those of all threads.
    """
    events, errors = closed.get("events", 0.0), closed.get("errors", 0.0)
    mean, each = closed.get("latency.mean"), closed.get("threads.events.mean")
    total, threads = closed.get("latency.sum"), round(events / each) if each else 0
    few = threads + events * 1e-3  # that ended while it counted
    return not events or (
        (mean is None or total is None or abs(total / events - mean) <= _ROUNDED * 1.01 + mean * 1e-3)
        and (each is None or abs(threads * each - events) <= few)
        and abs(closed.get("transactions", events) - events) <= errors + few
    )


def repeats(block: bytes) -> bool:
    """Whether a figure stands in it twice, and not the same each time: a line of it is of another block."""
    latencies = dict[bytes, set[bytes]]()
    for match in _LATENCY.finditer(block, max(block.find(_LATENCIES), 0)):
        latencies.setdefault(match["which"] + (match["unit"] or b""), set()).add(match[3])
    figures = (set(pattern.findall(block)) for pattern in _CLOSED.values())
    return any(len(each) > 1 for each in (*latencies.values(), *figures))


def stray(above: bytes) -> list[str]:
    """What ``above`` a closing block has that is part of one."""
    return [name for name, pattern in _CLOSED.items() if pattern.search(above)]


def _old_fileio(block: bytes, time: float) -> dict[str, float]:
    """Rates, of which 0.4 and 0.5 print the counts."""
    counts, done = _OLD_COUNTS.search(block), _OLD_BYTES.search(block)
    rates: dict[str, float] = {}
    if counts:
        names = ("read.iops", "write.iops", "fsync.rate")
        rates |= {name: float(count) / time for name, count in zip(names, counts.groups(), strict=True)}
    if done:
        rates |= {"read.mib": float(done[1]) * _MIBS[done[2]] / time}
        rates |= {"write.mib": float(done[3]) * _MIBS[done[4]] / time}
    return rates
