"""One run of Bonnie++, from whichever form of its results, and its figures as metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from storlab.errors import ParseError
from storlab.metrics import Value
from storlab.units import shown

OUTPUT = {
    "putc": "write.char",
    "put_block": "write.block",
    "rewrite": "rewrite",
    "getc": "read.char",
    "get_block": "read.block",
    "seeks": "seek",
}
CREATE = {
    "seq_create": "sequential.create",
    "seq_stat": "sequential.stat",
    "seq_del": "sequential.delete",
    "ran_create": "random.create",
    "ran_stat": "random.stat",
    "ran_del": "random.delete",
}
TESTS = OUTPUT | CREATE
"""Bonnie++'s name of a test → ours, by which its metrics begin."""
IN_BYTES = frozenset(OUTPUT) - {"seeks"}
"""The tests whose rate is one of bytes."""

_KIB = 1024.0
_NUMBER = re.compile(r"\d+(\.\d+)?")
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass
class BonnieRun:
    """One run, on ``line`` of its file, as far as it was read. ``source``: that file, for messages.

    Test → its rate (KiB/s, or 1/s), share of CPU in %, longest time in s. ``too_short``: the tests that ended in under
    500 ms, of which Bonnie++ gives no figure.
    """

    source: str
    line: int
    name: str
    facts: dict[str, str] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    latencies: dict[str, float] = field(default_factory=dict)
    too_short: list[str] = field(default_factory=list)

    def values(self) -> Iterator[Value]:
        """Its metrics, in base units."""
        for test, name in TESTS.items():
            if test in self.rates and test in IN_BYTES:
                yield Value(f"{name}.bandwidth", self.rates[test] * _KIB, "B/s", "higher")
            elif test in self.rates:
                yield Value(f"{name}.rate", self.rates[test], "1/s", "higher")
            if test in self.cpu:
                yield Value(f"{name}.cpu", self.cpu[test] / 100, "1", "neither", "mean")
            if test in self.latencies:
                yield Value(f"{name}.latency.max", self.latencies[test], "s", "lower", "max")

    def take(self, test: str, rate: str, cpu: str) -> None:
        """One figure. Empty: the test was not run. Pluses: it was too short to tell. Raises ``ParseError``."""
        rate, cpu = rate.strip(), cpu.strip()
        if rate and not rate.strip("+"):
            self.too_short.append(test)
        elif rate:
            self.rates[test] = self._number(rate, test)
        if cpu.strip("+") and test in self.rates:
            self.cpu[test] = self._number(cpu, f"{test}_cpu")

    def take_latency(self, test: str, text: str) -> None:
        """The longest time of an operation, with its unit. Raises ``ParseError``."""
        text = text.strip()
        if match := _LATENCY.fullmatch(text):
            self.latencies[test] = float(match[1]) * _SECONDS[match[2]]
        elif text.strip("+"):
            raise ParseError(f"{test}_latency: {shown(text)} is no time in us, ms or s", self.source, self.line)

    def _number(self, text: str, name: str) -> float:
        if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            raise ParseError(f"{name}: {shown(text)} is no number", self.source, self.line)
        return float(text)
