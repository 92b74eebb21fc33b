"""What a table's columns probably are, as options for its user to confirm: nobody else knows what is better."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storlab.base.errors import ParseError
from storlab.tools.kinds import HEAD
from storlab.tools.table.columns import (
    better_of,
    counts_per_second,
    delimiter_of,
    figure_of,
    has_no_figure,
    is_round,
    is_setting,
    is_time,
)
from storlab.tools.table.importer import TableImporter

_ROWS = 200
_SHOWN = 12
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_COMMA = re.compile(r"[-+]?\d+(?:\.\d{3})*,\d+\D*", re.ASCII)
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:[.,]\d{3})+\D*", re.ASCII)

Options = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class Suggestion:
    """Options; and why they don't do as they are, empty where they do."""

    options: Options
    fault: str = ""

    @property
    def words(self) -> list[str]:
        each = ((name, [said] if isinstance(said, str) else said) for name, said in self.options.items())
        return [word for name, all_said in each for said in all_said for word in (f"--{name.replace('_', '-')}", said)]


def suggestion_for(head: bytes, source: str) -> Suggestion | None:
    """Options for a table that begins like this, which are tried on it. ``None`` where it has no numbers."""
    text = head[: head.rfind(b"\n") + 1] if len(head) >= HEAD else head
    options = _options(text)
    if not options.get("value"):
        return None
    faults = []
    for each in (options, {name: said for name, said in options.items() if name != "round_column"}):
        try:
            TableImporter().read(text, source, each)
        except ParseError as error:
            faults.append(str(error))
        else:
            return Suggestion(each)
    return Suggestion(options, faults[0])


def _options(text: bytes) -> Options:
    names, rows, delimiter = _head(text)
    commas = [field for row in rows for each in row if _COMMA.fullmatch(field := each.strip())]
    # Commas are decimal, but not where each may as well stand between thousands.
    decimal = "," if delimiter != "," and not all(map(_GROUPED.fullmatch, commas)) else "."
    found: dict[str, list[str]] = {"factor_column": [], "round_column": [], "ignore_column": [], "value": []}
    for name, *column in zip(names, *rows, strict=True):
        fields = [field.strip() for field in column if not has_no_figure(field)]
        if not name or not fields or names.count(name) > 1 or all(map(is_time, fields)):
            continue
        if is_round(name):
            numbered = not found["round_column"] and all(map(_COUNT.fullmatch, fields))
            found["round_column" if numbered else "ignore_column"].append(name)
        elif is_setting(name) or not _are_figures(name, fields, decimal):
            found["factor_column"].append(name)
        elif len(found["value"]) < _SHOWN:
            found["value"].append(_value(name, fields, decimal))
    chosen: dict[str, str | list[str]] = {name: said for name, said in found.items() if said}
    chosen |= {"round_column": found["round_column"][0]} if found["round_column"] else {}
    return chosen | ({"decimal": decimal} if decimal == "," else {})


def _head(text: bytes) -> tuple[list[str], list[list[str]], str]:
    decoded = text.decode("utf-8-sig", errors="replace")
    delimiter = delimiter_of(decoded.partition("\n")[0])
    rows = []
    try:
        for row in csv.reader(io.StringIO(decoded, newline=""), delimiter=delimiter):
            rows.append(row)
            if len(rows) > _ROWS:
                break
    except csv.Error:
        rows = rows or [[]]
    names, *rest = rows or [[]]
    return [name.strip() for name in names], [row for row in rest if len(row) == len(names)], delimiter


def _are_figures(name: str, fields: Sequence[str], decimal: str) -> bool:
    read = [figure_of(field, decimal) for field in fields]
    if any(each and (each.prefixed or each.base == "B") for each in read) and better_of(name) == "neither":
        return False
    return all(each or _GROUPED.fullmatch(field) for each, field in zip(read, fields, strict=True))


def _value(name: str, fields: Sequence[str], decimal: str) -> str:
    first = figure_of(fields[0], decimal)
    base = first.base if first else ""
    unit = "1/s" if counts_per_second(name) and not base else ""
    return f"{name}:{unit}:{better_of(name, base)}"
