"""The lines that sysbench 0.5 prints at every report interval, as a frame. 0.4 prints none.

Source: what builds of it print, and ``sysbench/scripting/script_lua.c`` of 0.5. Early ones name rates ``reads/s``, have
no errors, and may lack a comma; some have response times in microseconds.
"""

from __future__ import annotations

import re

import polars as pl

from storlab.records.importers.sysbench_intervals import Test

_LAYOUTS: dict[Test, bytes] = {
    "oltp": rb"^\[ *{t}s\] threads: \d+, tps: {tps}, reads(?:/s)?: {read}, writes(?:/s)?: {write},? response time: "
    rb"{latency}(?P<unit>[mu])s \({percentile}%\)(?:, errors: {errors}, reconnects: +{reconnects})?$",
    "fileio": rb"^\[ *{t}s\] reads: {read} MB/s writes: {write} MB/s fsyncs: {fsync}/s response time: "
    rb"{latency}(?P<unit>[mu])s \({percentile}%\)$",
}
_LINES = {
    test: re.compile(re.sub(rb"{(\w+)}", rb"(?P<\1>\\d{1,15}(?:\\.\\d{1,9})?)", layout), re.MULTILINE)
    for test, layout in _LAYOUTS.items()
}
_ANY = re.compile(rb"^\[ *\d+s\] (?!queue)", re.MULTILINE)  # see --tx-rate


def read_old_intervals(text: bytes, begin: int, end: int) -> tuple[Test | None, int, pl.DataFrame]:
    """What ``read_intervals`` gives, of lines of 0.5. A column that its lines don't have is absent; ``MB`` is MiB."""
    body = text[begin:end]
    lines = len(_ANY.findall(body))
    for test, line in _LINES.items():
        rows = [found.groupdict() for found in line.finditer(body)]
        if rows:
            columns = [name for name, number in rows[0].items() if number is not None and name != "unit"]
            numbers = {name: [float(row[name] or "nan") for row in rows] for name in columns}
            numbers["latency"] = [
                number * (1e-3 if row["unit"] == b"u" else 1)
                for number, row in zip(numbers["latency"], rows, strict=True)
            ]
            return test, lines, pl.DataFrame(numbers).filter(pl.all_horizontal(pl.all().is_finite()))
    return None, lines, pl.DataFrame()
