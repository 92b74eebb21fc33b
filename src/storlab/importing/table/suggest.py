"""What a table's columns probably are, as options for its user to confirm: nobody else knows what is better."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

_DELIMITERS = ",;\t"
_ROWS = 200
_POINT = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?")
_COMMA = re.compile(r"[-+]?\d+(?:,\d+)?")
_SHOWN = 6
_ROUNDS = ("run", "runs", "round", "rep", "repeat", "repetition", "iteration", "iter", "loop", "trial")
_LOWER = re.compile(
    r"(?<![a-z/])(lat|latency|clat|slat|p\d+(\.\d+)?|time|elapsed|duration|seconds|usec|msec|sec|us|µs|ms|ns|s|errors?)(?![a-z/])"
)


def options_for(head: bytes) -> list[str]:
    """Words of the command line for a table that begins like this: columns of numbers as values, others as factors."""
    text = head.decode("utf-8-sig", errors="replace")
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    try:
        names, *rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))[: _ROWS + 1]
    except (csv.Error, ValueError):
        return []
    rows = [row for row in rows if len(row) == len(names)]
    commas = delimiter != "," and _are_with_comma(field for row in rows for field in row)
    number = _COMMA if commas else _POINT
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    numeric = [_is_numeric(column, number) for column in columns]
    words = [
        word for name, is_ in zip(names, numeric, strict=True) if not is_ for word in ("--factor-column", name.strip())
    ]
    values = [name.strip() for name, is_ in zip(names, numeric, strict=True) if is_]
    rounds = [name for name in values if name.lower() in _ROUNDS][:1]
    words += [word for name in rounds for word in ("--round-column", name)]
    measured = [name for name in values if name not in rounds][:_SHOWN]
    words += [word for name in measured for word in ("--value", f"{name}::{_better(name)}")]
    return words + (["--decimal", ","] if commas else [])


def _better(name: str) -> str:
    """Of times, percentiles and errors less is better, of most else more."""
    return "lower" if _LOWER.search(name.lower()) else "higher"


def _is_numeric(column: Sequence[str], number: re.Pattern[str]) -> bool:
    fields = [field.strip() for field in column if field.strip() and field.strip() != "NA"]
    return bool(fields) and all(number.fullmatch(field) for field in fields)


def _are_with_comma(fields: Iterable[str]) -> bool:
    found = [field.strip() for field in fields]
    return any("," in field and _COMMA.fullmatch(field) for field in found)
