"""Tables of a trial's nodes side by side: a row a node, a column a level of the factor that is compared.

What all nodes have together follows: their sum, how fairly they share it, how far apart they started, and how
loaded the host was right after. Every number is the mean over the rounds, so that the rows of nodes add up to their
sum, with the half-width of its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from storlab.analysis.summary import HOST, Estimate, Summary
from storlab.base.text import grouped
from storlab.findings.rounds import Outliers
from storlab.metrics import Declarations, MetricSpec, Specs, without_end
from storlab.probes.locks.metrics import (
    CALLER,
    GROUP,
    GROUP_TIME,
    GROUP_WAITS,
    LOCKS,
    PER_OPERATION,
    SHARES,
    TIME,
    WAITS,
)
from storlab.report.document import Block, Group, Table, said
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.say import say
from storlab.report.model.input import ReportInput, compared_factor, split, split_primary
from storlab.report.model.tables import MANY, PROBE, heading, noted

LOADS = {"load.1m": "1 min", "load.5m": "5 min", "load.15m": "15 min"}
"""Load averages and over how long they go."""

STALLS, HOST_LOAD, GUESTS = f"{PROBE}stalls", f"{PROBE}host-load", f"{PROBE}processes"
NODES = "nodes"
"""The source of what is true of all nodes of a trial as a whole."""

_LOAD = {f"host load, {span}": (HOST_LOAD, metric, HOST) for metric, span in LOADS.items()}

_AMONG_JOBS = "The same index, of the shares of all jobs of all nodes."

Key = tuple[str, str, str | None]
"""Source, metric and node; ``None``: all nodes together."""


@dataclass(frozen=True)
class Grid:
    """All cells that differ in the compared factor only: what they share, and level → cell."""

    factor: str
    within: Mapping[str, str]
    cells: Mapping[str, int]


@dataclass(frozen=True)
class Row:
    """One row to be: what it is called, what it shows in each column, and what has to be said of it."""

    label: str
    key: Key
    note: str = ""
    like: str = ""  # rows that are alike share one display unit


class Numbers:
    """Every estimate of a run by cell, source, metric and node."""

    def __init__(self, summary: Summary) -> None:
        everything = (*summary.by_node, *summary.estimates)
        self._found = {(e.cell, (e.source, e.metric, e.node)): e for e in everything}
        for e in everything:  # what the load's end of a chain has not is found by its plain source, too
            self._found.setdefault((e.cell, (without_end(e.source), e.metric, e.node)), e)

    def get(self, cell: int, key: Key) -> Estimate | None:
        return self._found.get((cell, key))

    def anywhere(self, grid: Grid, key: Key) -> list[Estimate]:
        return [e for cell in grid.cells.values() if (e := self.get(cell, key)) is not None]


def node_tables(summary: Summary, declared: Declarations) -> list[Table]:
    """What is compared, per node, and the longest stalls; empty for a study of single nodes."""
    numbers, tables = Numbers(summary), list[Table]()
    for grid in grids(summary):
        first = True
        for source, metric in _shared_metrics(summary, grid):
            title = heading(metric, source, grid.within)
            rows = [*_nodes(summary, grid, source, metric), *_together(declared[source], source, metric)]
            tables += grid_table(title, grid, [*rows, *(_circumstances() if first else ())], numbers)
            first = False
        for title, metric, note in (
            ("Longest stall", "stall", ""),
            ("Stood still", "machine.stall", words.STOOD_STILL),
        ):
            tables += grid_table(f"{title}{_where(grid)}", grid, _stalls(summary, grid, metric, note), numbers)
    return tables


def guest_tables(summary: Summary, declared: Declarations) -> list[Table]:
    """CPUs and memory of the QEMU of each guest."""
    numbers, tables = Numbers(summary), list[Table]()
    for grid in grids(summary):
        cpus, memory = (_of_guests(summary, declared, grid, what) for what in ("cpu", "memory"))
        together = Row("all together", (GUESTS, "guests.cpu", None), like="cpu")
        tables += grid_table(f"CPUs used by each guest's QEMU{_where(grid)}", grid, [*cpus, together], numbers)
        tables += grid_table(f"Memory of each guest's QEMU{_where(grid)}", grid, memory, numbers)
    return tables


def grids(summary: Summary) -> list[Grid]:
    """Every combination of the other factors, in the study's order, with all cells that have it."""
    factor = compared_factor(summary)
    groups: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
    for cell in summary.cells:
        within = tuple((name, level) for name, level in cell.levels.items() if name != factor)
        groups.setdefault(within, {})[cell.levels.get(factor, "all")] = cell.cell
    return [Grid(factor, dict(within), cells) for within, cells in groups.items()]


def _where(grid: Grid) -> str:
    return f": {words.levels(grid.within)}" if grid.within else ""


def _shared_metrics(summary: Summary, grid: Grid) -> list[tuple[str, str]]:
    cells = set(grid.cells.values())
    own = [e for e in summary.by_node if e.cell in cells and without_end(e.source) not in (STALLS, HOST_LOAD)]
    first, others = split(summary.primary, own)
    return list(dict.fromkeys((e.source, e.metric) for e in (*first, *others)))


def _nodes(summary: Summary, grid: Grid, source: str, metric: str) -> list[Row]:
    cells = set(grid.cells.values())
    names = (e.node for e in summary.by_node if e.cell in cells and (e.source, e.metric) == (source, metric))
    return [Row(str(name), (source, metric, name), like="node") for name in dict.fromkeys(names)]


def _together(specs: Specs, source: str, metric: str) -> Iterator[Row]:
    def key(statistic: str) -> Key:
        return source, specs.statistic(metric, statistic), None

    yield Row("all together", (source, metric, None), like="all")
    yield Row("fairness", key("fairness"), words.FAIRNESS, "fairness")
    yield Row("largest ÷ smallest", key("imbalance"), like="imbalance")
    yield Row("fairness among jobs", key("jobs.fairness"), _AMONG_JOBS, "fairness")


def _circumstances() -> Iterator[Row]:
    yield Row("start skew", (NODES, "start.skew", None), words.START_SKEW, "skew")
    for label, key in _LOAD.items():
        yield Row(label, key, like="load")
    yield Row("CPUs used by QEMU", (GUESTS, "guests.cpu", None), like="cpu")


def _stalls(summary: Summary, grid: Grid, metric: str, note: str) -> list[Row]:
    longest, total = f"{metric}.longest", f"{metric}.total"
    nodes = _nodes(summary, grid, STALLS, longest)
    worst = Row("worst of all", (STALLS, longest, None), note, "node")
    return [*nodes, worst, Row("all together above 1 s", (STALLS, total, None), like="node")] if nodes else []


def _of_guests(summary: Summary, declared: Declarations, grid: Grid, what: str) -> list[Row]:
    cells = set(grid.cells.values())
    keys = ((e.source, e.metric) for e in summary.estimates if e.cell in cells and without_end(e.source) == GUESTS)
    specs = [declared[source].find(metric) for source, metric in dict.fromkeys(keys)]
    found = dict.fromkeys((s.subject, s.name) for s in specs if (s.of, s.statistic) == ("guest", what))
    return [Row(guest, (GUESTS, name, None), like=what) for guest, name in found]


def grid_table(title: str, grid: Grid, rows: Sequence[Row], numbers: Numbers, of: str = "node") -> list[Table]:
    """The table, or none where no row has a number. Levels that were not measured have no column."""
    having = [row for row in rows if numbers.anywhere(grid, row.key)]
    levels = [level for level, cell in grid.cells.items() if any(numbers.get(cell, row.key) for row in having)]
    if not levels:
        return []
    drawn = list[tuple[str, ...]]()
    alike = grouped((row.like, e) for row in having for e in numbers.anywhere(grid, row.key))
    scales = {like: fmt.common_scale([e.mean for e in found], found[0].unit) for like, found in alike.items()}
    for row in having:
        found = [numbers.get(grid.cells[level], row.key) for level in levels]
        cells = ("not measured" if e is None else _cell(e, scales[row.like]) for e in found)
        drawn.append((noted(row.label, [row.note] if row.note else []), *cells))
    first = numbers.anywhere(grid, having[0].key)[0]
    interval = f"mean over rounds ± half of its {fmt.confidence(first.confidence)} interval"
    caption = ", ".join(part for part in (words.direction(first.better), interval) if part)
    columns = (of, *(words.named(grid.factor, level) if grid.factor else "all" for level in levels))
    return [Table(title, columns, tuple(drawn), 1, caption, divisible=True)]


def _cell(e: Estimate, scale: fmt.Scale | None) -> str:
    warnings = [Outliers(()) if isinstance(warning, Outliers) else warning for warning in e.warnings]
    if e.low is None or e.high is None:
        return noted(fmt.quantity(e.mean, e.unit, within=scale), [words.NO_INTERVAL, *warnings])
    if e.low == e.high:
        return noted(f"{fmt.quantity(e.mean, e.unit, within=scale)} (always)", warnings)
    return noted(fmt.plus_minus(e.mean, e.unit, e.low, e.high, within=scale), warnings)


# Who waited for locks: a row a function, a column a level of the factor that is compared.

_LOCKS = f"{PROBE}locks"
_MOST = 12
"""Callers in a table: those with the longest time, in the level where it is longest."""
_GROUPS = {
    "Time waited for locks by group": GROUP_TIME,
    "Waits for locks by group": GROUP_WAITS,
    "Share of all groups' time waited": SHARES[GROUP_TIME.name],
    "Share of all groups' waits": SHARES[GROUP_WAITS.name],
}
_CALLERS = {"Time waited for locks": TIME, "Waits for locks": WAITS, "Different locks waited for": LOCKS}


def is_in_lock_tables(estimate: Estimate, declared: Declarations) -> bool:
    """Whether it is in these tables, and part of too long a list for any other."""
    return _word(estimate, declared) in (GROUP, CALLER)


def _word(estimate: Estimate, declared: Declarations) -> str:
    return declared[estimate.source].find(estimate.metric).family if without_end(estimate.source) == _LOCKS else ""


def lock_tables(summary: Summary, declared: Declarations) -> list[Table]:
    """Waits and time by group and by caller, for each operation where loads count them; of groups their shares, of
    callers how many different locks there were.
    """
    numbers, tables = Numbers(summary), list[Table]()
    listed = [e for e in summary.estimates if is_in_lock_tables(e, declared)]
    for source in dict.fromkeys(e.source for e in listed):
        end = source.removeprefix(_LOCKS)
        for grid in grids(summary):
            mine = [e for e in listed if e.source == source and e.cell in grid.cells.values()]
            for word, kinds, time in ((GROUP, _GROUPS, GROUP_TIME), (CALLER, _CALLERS, TIME)):
                names = _longest([e for e in mine if _word(e, declared) == word], declared, time)
                for what, spec in kinds.items():
                    shown, each = _divided(spec, mine)
                    rows = [
                        Row(_label(name), (source, shown.name.format(**{word: name}), None), like=what)
                        for name in names
                    ]
                    tables += grid_table(f"{what}{each}{_locks_where(grid, end)}", grid, rows, numbers, of="who waited")
    return tables


def _divided(spec: MetricSpec, estimates: Sequence[Estimate]) -> tuple[MetricSpec, str]:
    """What is shown of it, and what that is divided by."""
    per = PER_OPERATION.get(spec.name)
    if per is None or not any(e.metric.startswith(per.name.partition("{")[0]) for e in estimates):
        return spec, ""
    return per, " per operation"


def _longest(estimates: Sequence[Estimate], declared: Declarations, time: MetricSpec) -> list[str]:
    times: dict[str, float] = {}
    for e in estimates:
        spec = declared[e.source].find(e.metric)
        if e.metric == time.name.format(**{spec.family: spec.subject}):
            times[spec.subject] = max(e.mean, times.get(spec.subject, 0.0))
    return sorted(times, key=lambda name: -times[name])[:_MOST]


def _label(name: str) -> str:
    """ "zio_dva_throttle (mutex)", or the name of a group."""
    lock, _, function = name.partition(".")
    return f"{function} ({lock})" if function else name


def _locks_where(grid: Grid, end: str) -> str:
    said = ", ".join(part for part in (end, words.levels(grid.within)) if part)
    return f": {said}" if said else ""


# Lab notes: per combination one small table of nodes, then the host's load. Numbers are means over the rounds, with the
# half-width of their interval: those of the nodes add up to all together.


def lab_notes(given: ReportInput) -> tuple[Block, ...]:
    """A group a combination of levels, those of the first factor under one title; nothing if cells are very many."""
    summary = given.summary
    cells = grouped((e.cell, e) for e in split_primary(summary)[0]) if len(summary.cells) <= MANY else {}
    numbers = Numbers(summary)
    groups = grouped((tuple(e[0].levels.items())[:1], _notes(given, e, numbers)) for e in cells.values())
    titled = ((words.levels(dict(first)), tuple(b for each in those for b in each)) for first, those in groups.items())
    return tuple(block for title, blocks in titled for block in ([Group(title, blocks)] if title else blocks))


def _notes(given: ReportInput, estimates: Sequence[Estimate], numbers: Numbers) -> tuple[Block, ...]:
    """Of one cell."""
    blocks = tuple(block for e in estimates for block in _note(e, given, numbers))
    rest = words.levels(dict(list(estimates[0].levels.items())[1:]))
    around = (*blocks, *said(*_around(estimates[0].cell, numbers)))
    return (Group(rest, around),) if rest else around


def _note(e: Estimate, given: ReportInput, numbers: Numbers) -> Iterator[Block]:
    names = dict.fromkeys(e.node or "" for e in given.summary.by_node)
    nodes = {name: found for name in names if (found := numbers.get(e.cell, (e.source, e.metric, name)))}
    stalls = {name: numbers.get(e.cell, (STALLS, "stall.longest", name)) for name in nodes}
    known = any(stalls.values())
    if nodes:
        columns = ("Node", e.metric.rsplit(".", 1)[-1].capitalize(), *(["Longest stall"] * known))
        told = {name: [_half(stall) if stall else "not measured"] * known for name, stall in stalls.items()}
        rows = tuple((name, _half(found), *told[name]) for name, found in nodes.items())
        yield Table(heading(e.metric, e.source, {}), columns, rows)
    mean, span = fmt.quantity(e.mean, e.unit, e.low, e.high), fmt.interval(e.low, e.high, e.unit, e.mean)
    bounds = f"{fmt.confidence(e.confidence)} interval {span}" if span else "no interval"
    who = "all nodes together" if nodes else heading(e.metric, e.source, {})
    warnings = " ".join(words.stop(say(warning)) for warning in e.warnings)
    fairness = numbers.get(e.cell, (e.source, given.declared[e.source].statistic(e.metric, "fairness"), None))
    yield from said(
        f"{who}: {mean}, {bounds}, {fmt.plural(e.rounds, 'round')}. {warnings}".rstrip(),
        f"fairness: {_short(fairness)}. {words.FAIRNESS}" if fairness else "",
    )


def _around(cell: int, numbers: Numbers) -> Iterator[str]:
    """How far apart the nodes started, and how loaded the host was right after."""
    for name, key in (("start skew", (NODES, "start.skew", None)), ("CPUs used by QEMU", (GUESTS, "guests.cpu", None))):
        if found := numbers.get(cell, key):
            yield f"{name}: {_short(found)}"
    loads = [numbers.get(cell, (HOST_LOAD, metric, HOST)) for metric in LOADS]
    loads = loads if all(loads) else [numbers.get(cell, (HOST_LOAD, metric, None)) for metric in LOADS]
    if all(loads):
        yield f"host load average: {', '.join(fmt.number(load.mean, 2) for load in loads if load)}"


def _half(e: Estimate) -> str:
    return fmt.plus_minus(e.mean, e.unit, e.low, e.high)


def _short(e: Estimate) -> str:
    return _half(e) if e.low is not None else f"{_half(e)} (no interval)"
