"""What ``w`` and ``uptime`` print: load averages, for how long a machine is up, and who works on it with what.

See procps' w(1), and those of illumos, the BSDs and macOS: ``load average: 7.12, 3.37, 2.19``, ``load averages: 7.12
3.37 2.19``, or ``7,12, 3,37, 2,19`` where a comma is decimal. Their tables have differing columns, and empty ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from storlab.base.errors import ParseError
from storlab.metrics import MetricSpec

LOADS = tuple(MetricSpec(f"load.{span}", "1", across="max", evidence="none") for span in ("1m", "5m", "15m"))
_SAID = re.compile(r"\bload averages?:(.*)")
_ONE = r"(\d{1,7}[.,]\d{1,2})"
_THREE = re.compile(rf"\s*{_ONE}(?:, *| +){_ONE}(?:, *| +){_ONE}\s*")
_UP = re.compile(r"\bup\s+(\S.{0,60}?),\s+(\d{1,6}) users?\b")
_TABLE = re.compile(r"\s*USER\s+TTY\b", re.IGNORECASE)
_ROW = re.compile(r"\s*[\w(]")  # not a prompt; of some sessions it names no user: (unknown)
_MOST_SESSIONS = 100


@dataclass(frozen=True)
class HostLoad:
    """``averages``: over 1, 5 and 15 minutes. ``facts``: ``up``, ``users`` and ``sessions``, as far as it names them.

    ``sessions`` is its table of users with what they run, as it was printed.
    """

    averages: tuple[float, float, float]
    facts: dict[str, object]


def parse_host_loads(text: str, source: str) -> list[HostLoad]:
    """One for each time that the program ran. Raises ``ParseError`` where a line has other averages."""
    found, lines = [], text.splitlines()
    for at, line in enumerate(lines, start=1):
        if (said := _SAID.search(line)) is not None:
            if (three := _THREE.fullmatch(said[1])) is None:
                raise ParseError("does not end in three load averages: write them as w(1) does", source, at)
            one, five, fifteen = (float(each.replace(",", ".")) for each in three.groups())
            found.append(HostLoad((one, five, fifteen), _facts(line, lines[at : at + _MOST_SESSIONS + 1])))
    return found


def _facts(line: str, below: Sequence[str]) -> dict[str, object]:
    up = _UP.search(line)
    facts: dict[str, object] = {"up": " ".join(up[1].split()), "users": int(up[2])} if up is not None else {}
    if below and _TABLE.match(below[0]):
        rows = takewhile(lambda row: _ROW.match(row) and not _SAID.search(row), below)
        facts["sessions"] = "\n".join(row.rstrip() for row in rows)
    return facts
