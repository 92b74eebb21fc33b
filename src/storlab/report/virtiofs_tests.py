"""The table that virtiofs-tests publishes (``parse-fio-results.sh``), equal to it to the byte.

Source: https://github.com/rhvgoyal/virtiofs-tests. Means of the loops, cut to whole KiB/s and 1/s; above 10240 they are
divided by 1024, IOPS too, and cut to one decimal. What a set-up does not support is "0kb" and "0" there. Workloads are
in the order of those tables, set-ups in the order of the files.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from storlab.errors import UserError
from storlab.formats.virtiofs_tests import WORKLOADS
from storlab.grouping import grouped
from storlab.report.input import ReportInput

_LINE = "{:<24}{:<24}{:<16}{:<16}\n"
_WAYS = {f"{order}{way}": (way,) for order in ("seq", "rand") for way in ("read", "write")}  # others do both
_DIVIDED_ABOVE = 10240
_KIB = 1024.0


def render_virtiofs_tests(given: ReportInput) -> str:
    """The table. Raises ``UserError`` for a run that wasn't imported from virtiofs-tests."""
    imported = given.manifest.imported if given.manifest else None
    if imported is None or imported.kind != "virtiofs-tests":
        raise UserError("this format is the table of virtiofs-tests, and the run was not imported from there")
    cells: dict[str, dict[int, str]] = {}
    trials = given.trials.select("cell", "factor.test", "factor.workload").unique(maintain_order=True)
    for cell, test, workload in trials.iter_rows():
        cells.setdefault(workload, {})[cell] = test
    known = [name for name in WORKLOADS if name in cells]
    text = _LINE.format("NAME", "WORKLOAD", "Bandwidth", "IOPS")
    values = _values(given)
    for workload in [*known, *(name for name in cells if name not in known)]:
        ways = _WAYS.get(workload.partition("-")[0], ("read", "write"))
        for cell, test in cells[workload].items():
            bandwidth = "/".join(_shown(values.get((cell, f"{way}.bandwidth"), [0.0]), "mb", "kb") for way in ways)
            iops = "/".join(_shown(values.get((cell, f"{way}.iops"), [0.0]), "k", "") for way in ways)
            text += _LINE.format(test, workload, bandwidth, iops)
        text += "\n"
    return text


def _values(given: ReportInput) -> dict[tuple[int, str], list[float]]:
    """KiB/s or 1/s of each round of a cell; 0 for a round in which that operation was not supported."""
    names = [f"{way}.{what}" for way in ("read", "write") for what in ("bandwidth", "iops")]
    rows = given.metrics.filter(pl.col("metric").is_in(names), pl.col("node").is_null(), pl.col("job").is_null())
    values = rows.select("cell", "metric", "value", "unit").iter_rows()
    found = grouped(((cell, metric), value / _KIB if unit == "B/s" else value) for cell, metric, value, unit in values)
    rounds = dict(given.trials.group_by("cell").len().iter_rows())
    return {key: each + [0.0] * (rounds[key[0]] - len(each)) for key, each in found.items()}


def _shown(values: Sequence[float], large: str, small: str) -> str:
    mean = whole_mean(values)
    if mean <= _DIVIDED_ABOVE:
        return f"{mean}{small}"
    tenths = mean * 10 // 1024
    return f"{tenths // 10}.{tenths % 10}{large}"


def whole_mean(values: Sequence[float]) -> int:
    """As these tables have it: each of ``values`` (at least one, none negative) rounded, half up; their mean, cut."""
    return sum(int(value + 0.5) for value in values) // len(values)
