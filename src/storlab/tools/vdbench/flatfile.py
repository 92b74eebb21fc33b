"""``flatfile.html``: a line of column names after comments that begin with ``*``, then a line each interval.

Source: vdbench's documentation, "Selective flatfile parsing", and the comments in the file, which explain each column.
Times are in ms; a comment says what an MB is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from storlab.errors import ParseError
from storlab.text import printable
from storlab.tools.vdbench.runs import OPERATIONS, Run

_FIRST = ("tod", "timestamp", "run", "interval")
_MIB, _MS, _PERCENT = 2.0**20, 1e-3, 1e-2
_COMMON: Mapping[str, tuple[str, float]] = {
    "mb/sec": ("bandwidth", _MIB),
    "resp": ("latency.mean", _MS),
    "resp_max": ("latency.max", _MS),
    "resp_std": ("latency.stddev", _MS),
    "read_resp": ("read.latency.mean", _MS),
    "write_resp": ("write.latency.mean", _MS),
    "read_max": ("read.latency.max", _MS),
    "write_max": ("write.latency.max", _MS),
    "cpu_used": ("cpu", _PERCENT),
    "cpu_kernel": ("cpu.system", _PERCENT),
}
_RAW = {
    "rate": ("iops", 1.0),
    "bytes/io": ("request.size", 1.0),
    "read%": ("read.share", _PERCENT),
    "queue_depth": ("queue.depth", 1.0),
}
_FILES: Mapping[str, tuple[str, float]] = {
    "rate": ("rate", 1.0),
    "read_rate": ("read.iops", 1.0),
    "write_rate": ("write.iops", 1.0),
    "mb_read": ("read.bandwidth", _MIB),
    "mb_write": ("write.bandwidth", _MIB),
    "xfersize": ("request.size", 1.0),
    **{f"{name}_rate": (f"{name}.rate", 1.0) for name in OPERATIONS},
    **{f"{name}_resp": (f"{name}.latency.mean", _MS) for name in OPERATIONS},
}
_SETTINGS = ("reqrate", "xfersize", "threads", "rdpct", "rhpct", "whpct", "seekpct", "lunsize")
_NOTHING = frozenset({"n/a", "NaN", "nan"})
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?")
_CLOCK = re.compile(r"(\d{2}):(\d{2}):(\d{2}\.\d{3})")
_LONGEST = 63


def is_flatfile(text: bytes) -> bool:
    """Whether a file that begins like this is one."""
    return re.search(rb"^[ \t]*tod[ \t]+timestamp[ \t]+run[ \t]+interval\s", text, re.M | re.I) is not None


def read_flatfile(text: str, source: str) -> list[Run]:
    """All runs, in order. Raises ``ParseError`` with the line."""
    names: list[str] = []
    runs: list[Run] = []
    megabyte = 1e6 if "(MB=1000*1000)" in text.replace(" ", "") else _MIB
    lines = text.split("\n")
    for line, words in enumerate(lines, start=1):
        fields = words.split()
        if tuple(field.lower() for field in fields[:4]) == _FIRST:
            names = [field.lower() for field in fields]
        elif names and len(fields) >= len(_FIRST) and clock(fields[0]) is not None:
            if len(fields) != len(names):
                if line == len(lines):
                    break  # it was cut off
                raise ParseError(f"has {len(fields)} fields, and the line of names {len(names)}", source, line)
            _add(runs, dict(zip(names, fields, strict=True)), megabyte, source, line)
    if not names:
        raise ParseError("is no flatfile of vdbench: it has no line of names that begins with tod", source)
    return runs


def clock(text: str) -> float | None:
    """``16:24:32.018`` as s of the day."""
    match = _CLOCK.fullmatch(text)
    return None if match is None else int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3])


def _add(runs: list[Run], row: Mapping[str, str], megabyte: float, source: str, line: int) -> None:
    raw = "bytes/io" in row
    columns = {**_COMMON, **(_RAW if raw else _FILES)}
    settings = _settings(row, _SETTINGS if raw else ("reqrate",))
    name = printable(row["run"])[:_LONGEST]
    numbers = {}
    for column, (metric, scale) in columns.items():
        text = row.get(column, "n/a")
        if text in _NOTHING:
            continue
        if _NUMBER.fullmatch(text) is None:
            raise ParseError(f"column {column}: {printable(text)[:_LONGEST]} is not a number", source, line)
        numbers[metric] = float(text) * (megabyte if scale == _MIB else scale)
    last = runs[-1] if runs else None
    again = last is not None and last.intervals and row["interval"] == "1"  # as one that was cut short
    if last is None or last.name != name or last.settings != settings or last.average or again:
        runs.append(Run(name, line, settings))
    if said := runs[-1].add(row["interval"], clock(row["tod"]), numbers):
        raise ParseError(said, source, line)


def _settings(row: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {
        name: printable(f"{float(row[name]):.15g}" if _NUMBER.fullmatch(row[name]) else row[name])[:_LONGEST]
        for name in names
        if row.get(name, "n/a") not in _NOTHING
    }
