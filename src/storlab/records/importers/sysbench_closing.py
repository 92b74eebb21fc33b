"""The closing block that sysbench prints after a run, of versions 0.4 to 1.1, as numbers in sysbench's units.

Source: what ``sysbench_text`` names, and ``sysbench/tests/fileio/sb_fileio.c`` and ``sysbench/sysbench.c`` of 0.4.12.
"""

from __future__ import annotations

import math
import re

NUMBER = rb"(\d+(?:\.\d+)?)"
_SIZE = rb"([\d.]+[KMGT]?)b"
"""A size with its unit's letter; the units are powers of 1024."""

_CLOSED: dict[str, re.Pattern[bytes]] = {
    name: re.compile(rb"^ +" + pattern, re.MULTILINE)
    for name, pattern in {
        "queries.read": rb"read: +(\d+)$",
        "queries.write": rb"write: +(\d+)$",
        "queries.other": rb"other: +(\d+)$",
        "transactions": rb"transactions: +(\d+) +\(",
        "tps": rb"transactions: +\d+ +\(" + NUMBER + rb" per sec",
        "queries": rb"(?:queries|total): +(\d+)(?: +\(|$)",
        "qps": rb"queries: +\d+ +\(" + NUMBER + rb" per sec",
        "errors": rb"(?:ignored errors|deadlocks): +(\d+) +\(",
        "reconnects": rb"reconnects: +(\d+) +\(",
        "read.iops": rb"(?:reads/s: +|read:  IOPS=)" + NUMBER + rb"(?: |$)",
        "write.iops": rb"(?:writes/s: +|write: IOPS=)" + NUMBER + rb"(?: |$)",
        "fsync.rate": rb"(?:fsyncs/s: +|fsync: IOPS=)" + NUMBER + rb"$",
        "read.mib": rb"(?:read, MiB/s: +|read:  IOPS=[\d.]+ )" + NUMBER + rb"(?: MiB/s |$)",
        "write.mib": rb"(?:written, MiB/s: +|write: IOPS=[\d.]+ )" + NUMBER + rb"(?: MiB/s |$)",
        "time": rb"(?:total time|time elapsed): +" + NUMBER + rb"s$",
        "events": rb"total number of events: +(\d+)$",
        "latency.min": rb"min: +" + NUMBER + rb"(?:ms)?$",
        "latency.mean": rb"avg: +" + NUMBER + rb"(?:ms)?$",
        "latency.max": rb"max: +" + NUMBER + rb"(?:ms)?$",
        "latency.sum": rb"sum: +" + NUMBER + rb"$",
        "threads.time.sum": rb"total time taken by event execution: +" + NUMBER + rb"s?$",
        "threads.events.mean": rb"events \(avg/stddev\): +" + NUMBER + rb"/",
        "threads.events.stddev": rb"events \(avg/stddev\): +[\d.]+/" + NUMBER + rb"$",
        "threads.time.mean": rb"execution time \(avg/stddev\): +" + NUMBER + rb"/",
        "threads.time.stddev": rb"execution time \(avg/stddev\): +[\d.]+/" + NUMBER + rb"$",
    }.items()
}
_LAST, _LAST_OF_FILEIO = "threads.time.stddev", "latency.sum"
_FILEIO = b" IOPS="  # of 1.1

_COUNTS = re.compile(rb"^Operations performed: +(\d+) [Rr]eads?, (\d+) [Ww]rites?, (\d+) Other = ", re.MULTILINE)
_SIZES = re.compile(
    rb"^Read " + _SIZE + rb" +Written " + _SIZE + rb" +Total transferred [\d.]+[KMGT]?b +\(" + _SIZE + rb"/sec\)$",
    re.MULTILINE,
)
_REQUESTS = re.compile(rb"^ *" + NUMBER + rb" Requests/sec executed$", re.MULTILINE)


def read_closing(block: bytes) -> dict[str, float]:
    """The numbers of a closing block, as far as it is whole: times in s, latencies in ms, rates of bytes in MiB/s."""
    found = ((name, pattern.search(block)) for name, pattern in _CLOSED.items())
    numbers = {name: float(match[1]) for name, match in found if match}
    event_time = numbers.pop("threads.time.sum", None)
    if event_time is not None:  # up to 0.5; 1.0 prints it of single threads, with --debug
        numbers.setdefault("latency.sum", event_time * 1e3)
    numbers |= _fileio_before_1_0(block, numbers.get("time", 0.0))
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def is_whole(numbers: dict[str, float], block: bytes) -> bool:
    """Whether ``block``, of which ``numbers`` are, has its last line."""
    return (_LAST_OF_FILEIO if _FILEIO in block else _LAST) in numbers


def _fileio_before_1_0(block: bytes, time: float) -> dict[str, float]:
    """Rates of fileio up to 0.5. It prints those of reads and writes together, and counts of each, of ``time`` s."""
    counts, sizes, requests = (pattern.search(block) for pattern in (_COUNTS, _SIZES, _REQUESTS))
    numbers = {"iops": float(requests[1])} if requests else {}
    if sizes:
        numbers["bandwidth"] = _mib(sizes[3])
    if counts and time:
        names = ("read.iops", "write.iops", "fsync.rate")
        numbers |= {name: int(count) / time for name, count in zip(names, counts.groups(), strict=True)}
    if sizes and time:
        numbers |= {"read.mib": _mib(sizes[1]) / time, "write.mib": _mib(sizes[2]) / time}
    return numbers


def _mib(size: bytes) -> float:
    """``1.5K`` → MiB; not a number where it has two points."""
    try:
        number = float(size.rstrip(b"KMGT"))
    except ValueError:
        return math.nan
    return number * 1024.0 ** (b"KMGT".find(size[-1:]) - 1 if size[-1:].isalpha() else -2)
