"""Histograms of events as tracefs prints them; Documentation/trace/histogram.rst in the kernel's sources.

{ connection:         35, opcode:         15 } hitcount:        101  len:       8080
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from storlab.text import is_whole

_ENTRY = re.compile(r"\{ (?P<keys>[^{}]*) \} (?P<sums>hitcount:.*)")
_NUMBER = re.compile(r"\b(\w++): *+(\d+)\b")  # possessive: a name of 70 KB is looked at once
_DROPPED = re.compile(r" {4}Dropped: (\d+)")


@dataclass(frozen=True)
class Entry:
    """Events that have these values of the fields that are keys: how many, and sums of other fields."""

    keys: dict[str, int]
    hits: int
    sums: dict[str, int]


@dataclass(frozen=True)
class Histogram:
    """``dropped``: events for whose keys there was no room."""

    entries: tuple[Entry, ...]
    dropped: int


def parse_histogram(text: str) -> Histogram | None:
    """A trigger's histogram; ``None`` where this is none, or not all of one."""
    entries, dropped = list[Entry](), None
    for line in text.splitlines():
        if (found := _ENTRY.fullmatch(line)) is not None:
            keys, sums = _numbers(found["keys"]), _numbers(found["sums"])
            if keys is None or sums is None or "hitcount" not in sums:
                return None
            entries.append(Entry(keys, sums.pop("hitcount"), sums))
        elif (end := _DROPPED.fullmatch(line)) is not None and is_whole(end[1]):
            dropped = int(end[1])
    return None if dropped is None else Histogram(tuple(entries), dropped)


def _numbers(text: str) -> dict[str, int] | None:
    found = _NUMBER.findall(text)
    return {name: int(number) for name, number in found} if all(is_whole(number) for _, number in found) else None
