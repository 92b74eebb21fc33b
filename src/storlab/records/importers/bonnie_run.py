"""One run of Bonnie++, from whichever form of its results."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from storlab.errors import ParseError
from storlab.units import shown

OUTPUT = ("putc", "put_block", "rewrite", "getc", "get_block", "seeks")
CREATE = ("seq_create", "seq_stat", "seq_del", "ran_create", "ran_stat", "ran_del")
TESTS = (*OUTPUT, *CREATE)
IN_BYTES = OUTPUT[:-1]
"""The tests whose rate is one of bytes."""

_NUMBER = re.compile(r"\d+(\.\d+)?")
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass
class BonnieRun:
    """One run, on ``line`` of its file. Test → its rate (KiB/s, or 1/s), share of CPU in %, longest time in s.

    ``too_short``: the tests that ended in under 500 ms, of which Bonnie++ gives no figure.
    """

    line: int
    name: str
    facts: dict[str, str] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    latencies: dict[str, float] = field(default_factory=dict)
    too_short: list[str] = field(default_factory=list)

    def take(self, test: str, rate: str, cpu: str, source: str) -> None:
        """One figure. Empty: the test was not run. Pluses: it was too short to tell. Raises ``ParseError``."""
        rate, cpu = rate.strip(), cpu.strip()
        if rate and not rate.strip("+"):
            self.too_short.append(test)
        elif rate:
            self.rates[test] = self._number(rate, test, source)
        if cpu.strip("+") and test in self.rates:
            self.cpu[test] = self._number(cpu, f"{test}_cpu", source)

    def take_latency(self, test: str, text: str, source: str) -> None:
        """The longest time of an operation, with its unit. Raises ``ParseError``."""
        text = text.strip()
        if match := _LATENCY.fullmatch(text):
            self.latencies[test] = float(match[1]) * _SECONDS[match[2]]
        elif text.strip("+"):
            raise ParseError(f"{test}_latency: {shown(text)} is no time in us, ms or s", source, self.line)

    def _number(self, text: str, name: str, source: str) -> float:
        if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            raise ParseError(f"{name}: {shown(text)} is no number", source, self.line)
        return float(text)
