"""Numbers, times and names, as texts of tools have them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from operator import itemgetter
from statistics import fmean
from typing import Any

from storlab.base.errors import ParseError
from storlab.base.units import shown
from storlab.tools.readers.rules import WORD

PICKED: Mapping[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "mean": fmean,
    "min": min,
    "max": max,
    "only": itemgetter(0),
    "first": itemgetter(0),
    "last": itemgetter(-1),
}
GROUPED = re.compile(r"\s*[-+]?\d{1,3}(,\d{3})+(\.\d*)?([eE][-+]?\d+)?\s*")
MOST = 1 << 20  # numbers of one metric
_LONGEST = 100  # characters of a word in a name
_UNWORD = re.compile(r"[^a-z0-9._-]+")
_TIME = re.compile(
    r"(?:(?P<iso>\d{4}-\d\d-\d\d)|(?P<us>\d\d/\d\d/(?:\d{4}|\d\d)))?[T ]?"
    r"(?P<h>\d\d?):(?P<m>\d\d):(?P<s>\d\d(?:\.\d{1,9})?) ?(?P<half>[AaPp][Mm])?.{0,16}"
)
DAY = 86400.0


@dataclass(frozen=True)
class Number:
    """One that was found; ``t`` where it is known when, since the start where ``since`` says so."""

    name: str
    words: Mapping[str, str]
    value: float
    weight: float = 1.0
    t: float | None = None
    since: bool = False


@dataclass(frozen=True)
class Row:
    """One of a table's: its fields by their columns, and when it was, in seconds since some midnight."""

    fields: Mapping[str, Any]
    t: float | None
    line: int | None = field(default=None, compare=False)


def filled(name: str, words: Mapping[str, str]) -> str | None:
    """A metric's name with its words put in; nothing where one of them is empty, or no word."""
    said = {word: _UNWORD.sub("-", words.get(word, "").strip().lower()).strip("-") for word in WORD.findall(name)}
    sound = all(0 < len(each) <= _LONGEST for each in said.values())
    return with_words(name, said) if sound else None


def with_words(text: str, words: Mapping[str, str]) -> str:
    return WORD.sub(lambda match: words[match[1]], text)


def number_in(written: str, name: str, source: str, line: int | None = None) -> float:
    if "," in written and not GROUPED.fullmatch(written):
        said = f"{shown(written)} has a comma that is not between thousands"
        raise ParseError(f"metric {name}: {said}: let the program print in English (LC_ALL=C)", source, line)
    try:
        number = float(written.replace(",", ""))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ParseError(f"metric {name}: {shown(written)} is not a number", source, line)
    return number


def seconds(written: Any) -> float | None:
    """A time as seconds since some midnight; ``None`` where it is none."""
    text = " ".join(map(str, written)) if isinstance(written, list) else str(written)
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    hour = int(match["h"]) % 12 + (12 if match["half"].lower() == "pm" else 0) if match["half"] else int(match["h"])
    clock = hour * 3600 + int(match["m"]) * 60 + float(match["s"])
    try:
        if match["iso"]:
            return date.fromisoformat(match["iso"]).toordinal() * DAY + clock
        if match["us"]:
            month, day, year = map(int, match["us"].split("/"))
            return date(year if year > 99 else 2000 + year, month, day).toordinal() * DAY + clock
    except ValueError:
        return None
    return clock


def plain_text(value: Any) -> str:
    return "" if value is None or isinstance(value, dict | list | bool) else str(value)
