"""What fio says of each job before it starts: ``x: (g=0): rw=read, bs=(R) 4096B-4096B, …``.

Source: ``init.c`` of fio 2.0 to 3.33.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from storlab.units import size_text

_TOLD = re.compile(
    r"(?P<name>.+): \(g=(?P<group>\d{1,9})\): rw=(?P<rw>\w+), bs=(?P<bs>.*?), ioengine=(?P<ioengine>[\w:./-]+), "
    r"iodepth=(?P<iodepth>\d+)"
)
_RANGE = re.compile(r"(\d+(?:\.\d+)?)((?:[KMG]i?)?)B?-(\d+(?:\.\d+)?)((?:[KMG]i?)?)B?")
_LONGEST = 18  # digits of a size; one with more is damaged, and so may the others be
_PREFIXES = "KMG"
_DIRECTIONS = ("read", "write", "trim")


@dataclass(frozen=True)
class Told:
    """What fio says of a job before it starts. ``sizes``: of its blocks, in bytes, by direction where all are alike."""

    name: str
    group: int
    options: dict[str, str]
    sizes: dict[str, int]


def told_of(line: str) -> Told | None:
    """``x: (g=0): rw=read, bs=…``, in the spelling of any fio from 2.0 on; ``None`` where it is another line."""
    match = _TOLD.match(line)
    if match is None:
        return None
    found = list(_RANGE.finditer(match["bs"]))[:3]
    damaged = any(len(each[at]) > _LONGEST for each in found for at in (1, 3))
    ranges = [] if damaged else [_range(each) for each in found]
    sizes = {way: least for way, (least, most) in zip(_DIRECTIONS, ranges, strict=False) if least == most and least}
    options = {name: match[name] for name in ("rw", "ioengine", "iodepth")}
    if ranges:
        spelled = ["-".join(map(size_text, sorted({least, most}))) for least, most in ranges]
        options["bs"] = spelled[0] if len(set(spelled)) == 1 else ",".join(spelled)
    return Told(match["name"], int(match["group"]), options, sizes)


def _range(match: re.Match[str]) -> tuple[int, int]:
    least, most = (round(float(match[at]) * 1024 ** (_PREFIXES.find(match[at + 1][:1] or "-") + 1)) for at in (1, 3))
    return least, most
