"""One run of Bonnie++, from whichever form of its results, and its figures as metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from storlab.base.errors import ParseError
from storlab.base.units import shown
from storlab.metrics import MetricSpec, Value

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

_PER_CHARACTER = ("putc", "getc")


@cache
def of_test(test: str) -> tuple[MetricSpec, ...]:
    """``test`` as Bonnie++ calls it. A rate is one of bytes, or of operations."""
    name = TESTS[test]
    rate, unit = ("bandwidth", "B/s") if test in IN_BYTES else ("rate", "1/s")
    return (
        MetricSpec(f"{name}.{rate}", unit, "higher", quantity="throughput", by_job=False),
        MetricSpec(f"{name}.cpu", "1", "neither", "mean"),
        MetricSpec(f"{name}.latency.max", "s", "lower", "max"),
    )


def declared(*, data: bool = True, per_character: bool = True, files: bool = True) -> tuple[MetricSpec, ...]:
    output = [test for test in OUTPUT if data and (per_character or test not in _PER_CHARACTER)]
    return tuple(spec for test in (*output, *(CREATE if files else ())) for spec in of_test(test))


_KIB = 1024.0
_NUMBER = re.compile(r"\d+(\.\d+)?")
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
LEFT_OUT = "left_out"
"""The fact that names tests which were not run, or whose figures are wrong; any other without one was too short."""


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
        for test in TESTS:
            rate, cpu, latency = of_test(test)
            if test in self.rates:
                yield rate.value(self.rates[test] * (_KIB if test in IN_BYTES else 1))
            if test in self.cpu:
                yield cpu.value(self.cpu[test] / 100)
            if test in self.latencies:
                yield latency.value(self.latencies[test])

    def told(self) -> dict[str, object]:
        """What it says of itself, and which of its tests have no figure, though they were not too short for one."""
        tests = ", ".join(name for test, name in TESTS.items() if test not in {*self.rates, *self.too_short})
        facts = {name: fact for name, fact in self.facts.items() if name != "format_version"}
        return {**facts, **({LEFT_OUT: tests} if tests else {})}

    def untold(self) -> str:
        tests = ", ".join(TESTS[test] for test in self.too_short)
        return tests and f"no figure for {tests}, which ended in under 500 ms"

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
            self.latencies[test] = self._number(match[1], f"{test}_latency") * _SECONDS[match[2]]
        elif text.strip("+"):
            raise ParseError(f"{test}_latency: {shown(text)} is no time in us, ms or s", self.source, self.line)

    def _number(self, text: str, name: str) -> float:
        if not _NUMBER.fullmatch(text) or not math.isfinite(float(text) * _KIB):
            raise ParseError(f"{name}: {shown(text)} is not a number", self.source, self.line)
        return float(text)
