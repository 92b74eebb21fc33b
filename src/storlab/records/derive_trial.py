"""From a trial's raw records to its tables: parsing what it left, and combining jobs and nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from storlab.errors import ParseError, TrialError
from storlab.measurements import Measurements, Value, metric_frame
from storlab.probes.base import Window
from storlab.probes.host_load import HostLoadProbe
from storlab.records.across_nodes import across_nodes
from storlab.records.amplification import SOURCE, amplification, moved_bytes
from storlab.records.backings import asked_bytes, backing_metrics, counted, guest_disk_bytes, read_counters
from storlab.records.observed import Observed
from storlab.records.tables import TrialTables
from storlab.records.trial_record import BackingRecord, TrialRecord
from storlab.records.within_trials import add_within_trials
from storlab.study.cells import Cell, Load

PROBE = "probe:"
"""How the ``source`` of a probe's numbers begins, so that it can't be taken for a workload."""

BACKING = "backing:"
"""How the names of folders begin that hold the counters of a disk beneath other nodes' disks."""

NODES = "nodes"
"""The ``source`` of what is true of a trial's nodes as a whole, whatever they ran."""


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
    """All tables of one trial that is done. Raises as ``parse_trial`` does."""
    tables = parse_trial(folder, record, cell)
    add_within_trials(tables)
    return tables


def parse_trial(folder: Path, record: TrialRecord, cell: Cell) -> TrialTables:
    """Parse one trial that is done, without what ``add_within_trials`` finds in its series.

    Raises ``TrialError`` where a workload reports a failure, or ``ParseError``.
    """
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
        tables.observed += [Observed(record.cell, node, name, each.facts) for node, each in seen.items() if each.facts]
    _add_amplification(tables, folder, record, cell, measured)
    _add_backings(tables, folder, record, cell, measured)
    if len(measured) > 1 and record.start_skew is not None:
        skew = metric_frame([Value("start.skew", record.start_skew, "s", "lower", "none")])
        tables.add_metrics(record, NODES, None, skew)
    return tables


def _observed(folder: Path, record: TrialRecord, cell: Cell, probe: str, watcher: str, node: str) -> Measurements:
    """What the probe on ``watcher`` saw, with the disk under test of ``node`` on the same machine."""
    at = record.nodes[watcher]
    raw = raw_folder(folder, watcher, PROBE + probe)
    return cell.probes[probe].parse(raw, Window(at.start, at.end), record.nodes[node].disk)


def _add_amplification(
    tables: TrialTables, folder: Path, record: TrialRecord, cell: Cell, measured: Mapping[str, list[Measurements]]
) -> None:
    """Bytes at the disk for each byte of the load, per node and of all nodes together.

    None where a load has a warm-up within it: its bytes are at the disk, and not among those that it measured.
    """
    if not _measures_all(cell):
        return
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
        tables.add_metrics(record, SOURCE, node, amplification(moved))
        total += moved
    tables.add_metrics(record, SOURCE, None, amplification(total))


def _measures_all(cell: Cell) -> bool:
    return all(load.workload.measures_all(cell.trial.warm_up) for load in cell.loads)


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
        tables.add_metrics(record, SOURCE, node, metrics)
    above = [node for backing in record.backings for node in backing.beneath]
    if len(set(above)) < len(above):
        tables.warnings.append("a node lies on two of the disks beneath: there are no numbers of all these together")
    elif done and len(done) == len(record.backings):  # a sum over only some of them would say nothing
        metrics = _backing_metrics(done, folder, record, cell, measured)
        tables.add_metrics(record, SOURCE, None, metrics)


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
    asked = asked_bytes(load for node in working for load in measured[node]) if _measures_all(cell) else None
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
        tables.add(record, source, node, measured)
    if by_node:
        together = across_nodes(list(by_node.values()))
        tables.add_metrics(record, source, None, together)
