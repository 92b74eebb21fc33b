"""Fields of a table as text: what separates them, which have no figure, and the number in one with its own unit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from storlab.tools.table.mapping import UNITS, named_unit

DELIMITERS = ",;\t"
_QUOTED = re.compile(r'"[^"]*"')
_NO_FIGURE = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "-", "–", "—"})
"""What programs and people write into a field that has no figure, in any case."""
_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?)?\s?(Z|UTC|[-+]\d\d:?\d\d)?|\d\d:\d\d:\d\d([.,]\d+)?"
)
_NUMBERS = {
    decimal: re.compile(
        rf"([-+]?(?:\d+(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?|[-+]?\d{{1,3}}(?:{group}\d{{3}})+{point}\d+)"
        r"(?![\d.,])\s?(\D.{0,15})?",
        re.ASCII,
    )
    for decimal, point, group in ((".", r"\.", ","), (",", ",", r"\."))
}
"""Decimal sign → a number and what follows. Thousands are grouped only where a fraction shows which sign is which."""


@dataclass(frozen=True)
class Figure:
    """A number as its field has it: in ``unit`` where that says one, a key of ``UNITS``; multiplied by a prefix."""

    number: float
    unit: str = ""
    prefixed: bool = False

    @property
    def base(self) -> str:
        """The base unit; empty where the field has none."""
        return UNITS[self.unit][1] if self.unit else ""


def delimiter_of(header: str, decimal: str = ".") -> str:
    """Whichever of the usual ones the line of headings has most of, outside of quotes."""
    bare = _QUOTED.sub("", header)
    return max(DELIMITERS.replace(decimal, ""), key=bare.count)


def plain(text: str, decimal: str) -> float | None:
    """The number that a field is, without anything else in it: of most fields, and quickly."""
    if decimal == ",":
        text = "" if "." in text else text.replace(",", ".")
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text and text.isascii() else None


def has_no_figure(text: str) -> bool:
    """Whether a field says that there is no figure: it is empty, ``NA``, ``-`` and so on."""
    return text.strip().casefold() in _NO_FIGURE


def is_time(text: str) -> bool:
    """Whether it is a date or a time of day, which differs from row to row without being a setting."""
    return _TIME.fullmatch(text.strip()) is not None


def figure_of(text: str, decimal: str) -> Figure | None:
    """``98400``, ``1.2 GiB/s``, ``98.4k``, ``45%``; ``None`` where it is not a finite number, or of an unknown unit."""
    match = _NUMBERS[decimal].fullmatch(text.strip())
    if match is None:
        return None
    named = (match[2] or "").strip()
    unit = named_unit(named)
    number = float(match[1].replace("." if decimal == "," else ",", "").replace(decimal, "."))
    if not math.isfinite(number) or not (unit or not named or named in _PREFIXES):
        return None
    prefixed = bool(named and not unit)
    return Figure(number * _PREFIXES[named] if prefixed else number, unit, prefixed)
