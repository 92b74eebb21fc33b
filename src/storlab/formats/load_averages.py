"""Load averages, as ``w`` and ``uptime`` print them: see procps' w(1), and those of illumos, the BSDs and macOS.

``load average: 7.12, 3.37, 2.19``, ``load averages: 7.12 3.37 2.19``, or ``7,12, 3,37, 2,19`` where a comma is decimal.
"""

from __future__ import annotations

import re

from storlab.errors import ParseError
from storlab.metrics import MetricSpec

LOADS = tuple(MetricSpec(f"load.{span}", "1", across="max", evidence="none") for span in ("1m", "5m", "15m"))
_SAID = re.compile(r"\bload averages?:(.*)")
_ONE = r"(\d{1,7}[.,]\d{1,2})"
_THREE = re.compile(rf"\s*{_ONE}(?:, *| +){_ONE}(?:, *| +){_ONE}\s*")


def parse_load_averages(text: str, source: str) -> list[tuple[float, float, float]]:
    """Over 1, 5 and 15 minutes, of each time that the program ran. Raises ``ParseError`` where a line has others."""
    found = []
    for at, line in enumerate(text.splitlines(), start=1):
        if (said := _SAID.search(line)) is not None:
            if (three := _THREE.fullmatch(said[1])) is None:
                raise ParseError("does not end in three load averages: write them as w(1) does", source, at)
            one, five, fifteen = (float(each.replace(",", ".")) for each in three.groups())
            found.append((one, five, fifteen))
    return found
