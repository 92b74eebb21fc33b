"""From raw records to tables: parsing what each trial left, and combining jobs and nodes. Runs anew at any time."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from storlab.errors import ParseError, StorlabError, TrialError
from storlab.measurements import (
    HISTOGRAM_COLUMNS,
    METRIC_COLUMNS,
    SERIES_COLUMNS,
    Measurements,
    Value,
    metric_frame,
)
from storlab.probes.base import Window
from storlab.probes.host_load import HostLoadProbe
from storlab.records.across_nodes import across_nodes
from storlab.records.amplification import SOURCE, amplification, moved_bytes
from storlab.records.backings import asked_bytes, backing_metrics, counted, guest_disk_bytes, read_counters
from storlab.records.files import write_whole
from storlab.records.run_folder import TABLES, RunFolder
from storlab.records.trial_record import BackingRecord, TrialRecord
from storlab.study.cells import Cell, Load

PROBE = "probe:"
"""How the ``source`` of a probe's numbers begins, so that it can't be taken for a workload."""

BACKING = "backing:"
"""How the names of folders begin that hold the counters of a disk beneath other nodes' disks."""

NODES = "nodes"
"""The ``source`` of what is true of a trial's nodes as a whole, whatever they ran."""

_PLACES: dict[str, pl.DataType] = {
    "trial": pl.Int64(),
    "round": pl.Int64(),
    "cell": pl.Int64(),
    "node": pl.String(),
    "source": pl.String(),
}
COLUMNS: dict[str, dict[str, pl.DataType]] = {
    "metrics": _PLACES | METRIC_COLUMNS,
    "series": _PLACES | SERIES_COLUMNS,
    "histograms": _PLACES | HISTOGRAM_COLUMNS,
}


@dataclass
class TrialTables:
    """The rows that one trial adds to the tables, and its warnings."""

    metrics: list[pl.DataFrame] = field(default_factory=list)
    series: list[pl.DataFrame] = field(default_factory=list)
    histograms: list[pl.DataFrame] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def raw_folder(trial: Path, node: str, source: str) -> Path:
    """Where one workload's or probe's raw files of one node lie."""
    return trial / node / source.replace(":", "-")


def parsed(load: Load, folder: Path, node: str) -> Measurements:
    """What one workload measured on one node. Raises ``TrialError``, with the node's name, and ``ParseError``."""
    try:
        return load.workload.parse(raw_folder(folder, node, load.name))
    except TrialError as error:
        raise type(error)(f"node {node}: {error}", error.detail) from None


def derive_trial(folder: Path, record: TrialRecord, cell: Cell) -> TrialTables:
    """Parse one trial that is done. Raises ``TrialError`` where a workload reports a failure, or ``ParseError``."""
    tables = TrialTables()
    measured: dict[str, list[Measurements]] = {}
    for load in cell.loads:
        by_node = {node: parsed(load, folder, node) for node in record.loads.get(load.name, [])}
        _add(tables, record, load.name, by_node)
        for node, each in by_node.items():
            measured.setdefault(node, []).append(each)
    for name in cell.probes:
        seen = {}
        for node in record.probes.get(name, []):
            try:
                seen[node] = _observed(folder, record, cell, name, node, node)
            except ParseError as error:  # what was measured stands, though it was not observed
                tables.warnings.append(f"probe {name} on {node}: {error}")
        _add(tables, record, PROBE + name, seen)
    _add_amplification(tables, folder, record, cell, measured)
    _add_backings(tables, folder, record, cell, measured)
    if len(measured) > 1 and record.start_skew is not None:
        skew = metric_frame([Value("start.skew", record.start_skew, "s", "lower", "none")])
        tables.metrics.append(_placed(skew, "metrics", _place(record, NODES, None)))
    return tables


def _observed(folder: Path, record: TrialRecord, cell: Cell, probe: str, watcher: str, node: str) -> Measurements:
    """What the probe on ``watcher`` saw, with the disk under test of ``node`` on the same machine."""
    at = record.nodes[watcher]
    raw = raw_folder(folder, watcher, PROBE + probe)
    return cell.probes[probe].parse(raw, Window(at.start, at.end), record.nodes[node].disk)


def _add_amplification(
    tables: TrialTables, folder: Path, record: TrialRecord, cell: Cell, measured: Mapping[str, list[Measurements]]
) -> None:
    """Bytes at the disk for each byte of the load, per node and of all nodes together."""
    watchers = {record.nodes[node].machine: node for node in record.probes.get(HostLoadProbe.kind, [])}
    total: Counter[str] = Counter()
    for node, loads in measured.items():
        watcher = watchers.get(record.nodes[node].machine)
        if watcher is None or record.nodes[node].disk is None:
            return  # a sum over only some of the nodes would say nothing
        try:
            moved = moved_bytes(loads, _observed(folder, record, cell, HostLoadProbe.kind, watcher, node))
        except ParseError:
            return  # named above, with the probe's own numbers
        tables.metrics.append(_placed(amplification(moved), "metrics", _place(record, SOURCE, node)))
        total += moved
    tables.metrics.append(_placed(amplification(total), "metrics", _place(record, SOURCE, None)))


def _add_backings(
    tables: TrialTables, folder: Path, record: TrialRecord, cell: Cell, measured: Mapping[str, list[Measurements]]
) -> None:
    """What was written beneath the nodes' disks: of each disk there, and of all together."""
    done: list[tuple[BackingRecord, Counter[str]]] = []
    for backing in record.backings:
        counters = read_counters(raw_folder(folder, backing.node, BACKING + backing.disk))
        if counters is None:
            tables.warnings.append(f"{backing.disk} on {backing.node}: its counters could not be read")
            continue
        done.append((backing, counted(*counters)))
    for node, group in _by_node(done).items():
        metrics = _backing_metrics(group, folder, record, cell, measured)
        tables.metrics.append(_placed(metrics, "metrics", _place(record, SOURCE, node)))
    above = [node for backing in record.backings for node in backing.beneath]
    if len(set(above)) < len(above):
        tables.warnings.append("a node lies on two of the disks beneath: there are no numbers of all these together")
    elif done and len(done) == len(record.backings):  # a sum over only some of them would say nothing
        metrics = _backing_metrics(done, folder, record, cell, measured)
        tables.metrics.append(_placed(metrics, "metrics", _place(record, SOURCE, None)))


def _by_node(done: Iterable[tuple[BackingRecord, Counter[str]]]) -> dict[str, list[tuple[BackingRecord, Counter[str]]]]:
    groups: dict[str, list[tuple[BackingRecord, Counter[str]]]] = {}
    for backing, counts in done:
        groups.setdefault(backing.node, []).append((backing, counts))
    return groups


def _backing_metrics(
    done: Iterable[tuple[BackingRecord, Counter[str]]],
    folder: Path,
    record: TrialRecord,
    cell: Cell,
    measured: Mapping[str, list[Measurements]],
) -> pl.DataFrame:
    counts: Counter[str] = Counter()
    working: list[str] = []
    drain = 0.0
    for backing, each in done:
        counts.update(each)
        working += [node for node in dict.fromkeys(backing.beneath) if node in measured]
        drain = max(drain, backing.drain)
    asked = asked_bytes(load for node in working for load in measured[node])
    return backing_metrics(counts, asked, _guest_disks(working, folder, record, cell), drain)


def _guest_disks(working: Iterable[str], folder: Path, record: TrialRecord, cell: Cell) -> Counter[str] | None:
    """Bytes moved at the disks under test of these nodes; ``None`` where one of them is not known."""
    watchers = {record.nodes[node].machine: node for node in record.probes.get(HostLoadProbe.kind, [])}
    total: Counter[str] = Counter()
    for node in working:
        watcher = watchers.get(record.nodes[node].machine)
        if watcher is None or record.nodes[node].disk is None:
            return None
        try:
            moved = guest_disk_bytes(_observed(folder, record, cell, HostLoadProbe.kind, watcher, node))
        except ParseError:
            return None  # named above, with the probe's own numbers
        if moved is None:
            return None
        total.update(moved)
    return total


def _add(tables: TrialTables, record: TrialRecord, source: str, by_node: Mapping[str, Measurements]) -> None:
    for node, measured in by_node.items():
        place = _place(record, source, node)
        tables.metrics.append(_placed(measured.metrics, "metrics", place))
        tables.series.append(_placed(measured.series, "series", place))
        tables.histograms.append(_placed(measured.histograms, "histograms", place))
        tables.warnings += [f"{source} on {node}: {warning}" for warning in measured.warnings]
    if by_node:
        together = across_nodes(list(by_node.values()))
        tables.metrics.append(_placed(together, "metrics", _place(record, source, None)))


def _place(record: TrialRecord, source: str, node: str | None) -> dict[str, object]:
    return {"trial": record.trial, "round": record.round, "cell": record.cell, "source": source, "node": node}


def _placed(frame: pl.DataFrame, table: str, place: Mapping[str, object]) -> pl.DataFrame:
    columns = COLUMNS[table]
    literals = [pl.lit(place[name], dtype=columns[name]).alias(name) for name in _PLACES]
    return frame.with_columns(literals).select(list(columns))


def trials_frame(records: Iterable[TrialRecord], factors: Iterable[str]) -> pl.DataFrame:
    """``trials.parquet``."""
    names = list(factors)
    schema: dict[str, pl.DataType] = {
        "trial": pl.Int64(),
        "round": pl.Int64(),
        "cell": pl.Int64(),
        "status": pl.String(),
        "reason": pl.String(),
        "started": pl.Datetime("us", "UTC"),
        "duration": pl.Float64(),
        "measured": pl.Float64(),
        "start_skew": pl.Float64(),
        **{f"factor.{name}": pl.String() for name in names},
    }
    rows = [
        (
            *(r.trial, r.round, r.cell, r.status, r.reason),
            *(r.started_at, r.duration, r.measured, r.start_skew),
            *(r.levels.get(name) for name in names),
        )
        for r in records
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


@dataclass
class Tables:
    """The tables of a run, trial by trial. Holds what was parsed, so that each raw file is read once."""

    cells: Mapping[int, Cell]
    factors: tuple[str, ...]
    records: list[TrialRecord] = field(default_factory=list)
    parts: list[TrialTables] = field(default_factory=list)

    def add(self, record: TrialRecord, part: TrialTables | None) -> None:
        """Take in one trial that ended; ``part`` is ``None`` for one that has no measurements."""
        self.records.append(record)
        if part is not None:
            self.parts.append(part)

    def frame(self, name: str) -> pl.DataFrame:
        """``trials``, ``metrics``, ``series`` or ``histograms``."""
        if name == "trials":
            return trials_frame(sorted(self.records, key=lambda record: record.trial), self.factors)
        frames = [frame for part in self.parts for frame in getattr(part, name) if frame.height]
        return pl.concat(frames) if frames else pl.DataFrame(schema=COLUMNS[name])

    def warnings(self) -> tuple[str, ...]:
        """What parsing had to say, each sentence once, in order."""
        said = (warning for part in self.parts for warning in part.warnings)
        recorded = (warning for record in self.records for warning in record.warnings)
        return tuple(dict.fromkeys([*said, *recorded]))

    def write(self, run: RunFolder) -> None:
        """Write all tables into the run's folder, each in one step."""
        for name in TABLES:
            path = run.table_path(name)
            path.parent.mkdir(exist_ok=True)
            table = io.BytesIO()  # Polars, writing to a full disk, does not say so in a way that can be told apart
            self.frame(name).write_parquet(table)
            write_whole(path, table.getvalue())


def derive(run: RunFolder) -> Tables:
    """All tables of a run from its raw records. A trial whose raw files can't be read any more is named, not lost."""
    study = run.manifest.study()
    tables = Tables({cell.number: cell for cell in study.cells}, tuple(factor.name for factor in study.factors))
    for record in run.records():
        part = None
        if record.status == "done":
            try:
                part = derive_trial(run.trial_folder(record.trial), record, tables.cells[record.cell])
            except StorlabError as error:
                part = TrialTables(warnings=[f"trial {record.trial}: its raw records can't be read: {error}"])
        tables.add(record, part)
    return tables
