"""The table that virtiofs-tests publishes (``parse-fio-results.sh``), equal to it to the byte.

Source: https://github.com/rhvgoyal/virtiofs-tests. Means of the loops, cut to whole KiB/s and 1/s; above 10240 they are
divided by 1024, IOPS too, and cut to one decimal. What a set-up does not support is "0kb" and "0" there. Workloads are
in the order of those tables, set-ups in the order of the files. Virtiofs is `vtfs` there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import polars as pl

from storlab.errors import UserError
from storlab.grouping import grouped
from storlab.levels import numbers_of
from storlab.report.model.input import ReportInput
from storlab.tools.virtiofs_tests import WORKLOADS

_LINE = "{:<24}{:<24}{:<16}{:<16}\n"
_WAYS = {f"{order}{way}": (way,) for order in ("seq", "rand") for way in ("read", "write")}  # others do both
_OPTIONS = ("rw", "ioengine", "numjobs")
_PLAIN = "default"
"""A level that is not said: set-ups that are bound to nothing have no word for it there, and others end in `-node`."""
_PATTERNS = {"read": "seqread", "write": "seqwrite"}
_DIVIDED_ABOVE = 10240
_KIB = 1024.0


def render_virtiofs_tests(given: ReportInput) -> str:
    """The table. Raises ``UserError`` for a run whose cells are not jobs on set-ups."""
    cells: dict[str, dict[int, str]] = {}
    for cell, test, workload in _jobs(given):
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


def _jobs(given: ReportInput) -> Iterator[tuple[int, str, str]]:
    """Cell, name of the set-up, name of the job: as they were imported, or by the factors that are options of fio."""
    imported = given.manifest.imported if given.manifest else None
    if imported is not None and imported.kind == "virtiofs-tests":
        yield from given.trials.select("cell", "factor.test", "factor.workload").unique(maintain_order=True).iter_rows()
        return
    factors = [name.removeprefix("factor.") for name in given.trials.columns if name.startswith("factor.")]
    if not set(_OPTIONS) <= set(factors):
        wants = f"{', '.join(_OPTIONS[:-1])} and {_OPTIONS[-1]}"
        raise UserError(
            "this format is the table of virtiofs-tests: it takes a run that was imported from there, or one with the "
            f"factors {wants}, as the study shared-folders has them"
        )
    cells = given.summary.cells
    levels = {name: {str(cell.levels[name]) for cell in cells} for name in factors if name not in _OPTIONS}
    # One level alone that is a number, such as the size of all files, is no part of what a set-up is.
    naming = [name for name, of in levels.items() if len(of) > 1 or numbers_of(of) is None]
    for cell in cells:
        rw, engine, jobs = (str(cell.levels[name]) for name in _OPTIONS)
        test = "-".join(str(cell.levels[name]) for name in naming if cell.levels[name] != _PLAIN)
        test = re.sub(r"^virtiofs\b", "vtfs", test)
        yield cell.cell, test or "run", f"{_PATTERNS.get(rw, rw)}-{engine}{'' if jobs == '1' else '-multi'}"


def _values(given: ReportInput) -> dict[tuple[int, str], list[float]]:
    """KiB/s or 1/s of each round of a cell; 0 for a round in which that operation was not supported."""
    names = [f"{way}.{what}" for way in ("read", "write") for what in ("bandwidth", "iops")]
    rows = given.metrics.filter(pl.col("metric").is_in(names), pl.col("node").is_null(), pl.col("job").is_null())
    values = rows.select("cell", "metric", "value", "unit").iter_rows()
    found = grouped(((cell, metric), value / _KIB if unit == "B/s" else value) for cell, metric, value, unit in values)
    done = given.trials.filter(pl.col("status") != "failed")
    rounds = dict(done.group_by("cell").len().iter_rows())
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
