"""Tables as other tools publish them: virtiofs-tests' to the byte, and Bonnie++'s of version 1.03.

virtiofs-tests (``parse-fio-results.sh``, https://github.com/rhvgoyal/virtiofs-tests): means of the loops, cut to whole
KiB/s and 1/s; above 10240 they are divided by 1024, IOPS too, and cut to one decimal. What a set-up does not support is
"0kb" and "0" there. Workloads are in the order of those tables, set-ups in the order of the files. Virtiofs is `vtfs`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from storlab.base.errors import UserError
from storlab.base.levels import numbers_of
from storlab.base.text import grouped
from storlab.report.model.input import ReportInput, for_people
from storlab.tools.bonnie.run import CREATE, IN_BYTES, LEFT_OUT, OUTPUT, TESTS, of_test
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


# The table of Bonnie++ 1.03, as bon_csv2txt(1) of that version prints it of several machines.
#
# Source: ``bon_time.cpp`` of 1.03 for the widths and for how figures are cut, a published table for its two halves.
# There is a row for each cell, with means over the rounds. Tests that were not run are blank, those that were too
# short pluses.

_KIND = "bonnie"
_HEAD = 19  # characters: a machine's name, a blank, and sizes, for which a long name is cut
_OUTPUT = (
    "------Sequential Output------ --Sequential Input- --Random-",
    "                    -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--",
    "{:<19} K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP",
    "",
)
_CREATE = (
    "------Sequential Create------ --------Random Create--------",
    "                    -Create-- --Read--- -Delete-- -Create-- --Read--- -Delete--",
    "files:max:min        /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP",
)
_USUAL_CHUNK = ("8192", "8k")


@dataclass(frozen=True)
class _Machine:
    """A row of each half. ``facts``: of the load; ``values``: of its metrics, means over the rounds."""

    name: str
    facts: Mapping[str, object]
    values: Mapping[str, float]

    def fact(self, name: str) -> str:
        return str(self.facts.get(name) or "")

    @property
    def size(self) -> str:
        chunk = self.fact("io_chunk_size")
        chunk = f"{int(chunk) // 1024}k" if chunk.isdecimal() and int(chunk) % 1024 == 0 else chunk
        return self.fact("file_size") + (f":{chunk}" if chunk and chunk not in _USUAL_CHUNK else "")

    @property
    def files(self) -> str:
        most, least, folders = (self.fact(name) for name in ("max_size", "min_size", "num_dirs"))
        sizes = f":{most}" + (f":{least}" if least else "") if most.strip("0") else ""
        return f"{self.fact('num_files')}{sizes}{f'/{folders}' if folders not in ('', '1') else ''}"


def render_bonnie(given: ReportInput) -> str:
    """The table. Raises ``UserError`` for a run without results of Bonnie++."""
    machines = list(_machines(given))
    if not machines:
        raise UserError(
            "this format is the table of Bonnie++: it takes a run of the workload bonnie, or one that was imported "
            "from its results"
        )
    return "".join(f"{line}\n" for line in _lines(machines))


def _lines(machines: Sequence[_Machine]) -> Iterator[str]:
    versions = {machine.fact("bonnie_version") for machine in machines}
    version = versions.pop() if len(versions) == 1 else ""
    first = f"Version {version:>5}       " if version else "Version        "
    sized = [machine for machine in machines if machine.size]
    if sized:
        chunked = any(":" in machine.size for machine in sized)
        yield first + _OUTPUT[0]
        yield from (line.format("Machine   Size:chnk" if chunked else "Machine        Size") for line in _OUTPUT[1:])
        yield from (_row(machine, machine.size, OUTPUT) for machine in sized)
        first = " " * (_HEAD + 1)
    filed = [machine for machine in machines if machine.files]
    if filed:
        yield first + _CREATE[0]
        yield from _CREATE[1:]
        yield from (_row(machine, machine.files, CREATE) for machine in filed)


def _row(machine: _Machine, sizes: str, tests: Mapping[str, str]) -> str:
    room = max(_HEAD - 1 - len(sizes), 0)
    return f"{machine.name[:room]:<{room}} {sizes}{''.join(_cell(machine, test) for test in tests)}".rstrip()


def _cell(machine: _Machine, test: str) -> str:
    rate, cpu, _ = (machine.values.get(spec.name) for spec in of_test(test))
    if rate is None:
        return " " * 10 if TESTS[test] in machine.fact(LEFT_OUT).split(", ") else " +++++ +++"
    rate = rate / _KIB if test in IN_BYTES else rate
    shown = f"{rate:.1f}" if test == "seeks" and rate < 1000 else str(int(rate + 0.5))
    return f" {shown:>5} {'+++' if cpu is None else int(cpu * 100 + 0.5):>3}"


def _machines(given: ReportInput) -> Iterator[_Machine]:
    imported = given.manifest.imported if given.manifest else None
    loads: list[Mapping[str, object]] = list(given.summary.facts.get("loads") or ())  # type: ignore[call-overload]
    found: dict[tuple[int, str], Mapping[str, object]] = {}
    for facts in loads:
        if "bonnie_version" in facts or (imported is not None and imported.kind == _KIND):
            found |= {(cell, str(facts["load"])): facts for cell in facts["cells"]}  # type: ignore[attr-defined]
    values = _bonnie_values(given)
    several = len({load for _, load in found}) > 1
    names = {cell.cell: "-".join(cell.levels.values()) for cell in for_people(given).summary.cells}
    for cell in given.summary.cells:
        name = cell.levels.get("machine", names[cell.cell])
        for number, load in found:
            if number == cell.cell:
                shown = "-".join(filter(None, (name, load if several or not name else "")))
                yield _Machine(shown, found[number, load], values.get((number, load), {}))


def _bonnie_values(given: ReportInput) -> dict[tuple[int, str], dict[str, float]]:
    """Cell and load → metric → mean over the rounds, all nodes together."""
    rows = given.metrics.filter(pl.col("node").is_null(), pl.col("job").is_null())
    values = rows.select("cell", "source", "metric", "value").iter_rows()
    means: dict[tuple[int, str], dict[str, float]] = {}
    for (cell, source, metric), each in grouped(((c, s, m), value) for c, s, m, value in values).items():
        means.setdefault((cell, source), {})[metric] = statistics.fmean(each)
    return means
