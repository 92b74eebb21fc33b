"""The closing block that sysbench 1.0 and 1.1 print after a run, as numbers in sysbench's units.

Source: what ``sysbench_text`` names.
"""

from __future__ import annotations

import math
import re

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


def is_whole(numbers: dict[str, float], block: bytes) -> bool:
    """Whether ``block``, of which ``numbers`` are, has its last line."""
    return (_LAST_OF_FILEIO if _FILEIO in block else _LAST) in numbers
