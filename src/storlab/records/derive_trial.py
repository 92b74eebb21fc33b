"""From trials' raw records to their tables: parsing what each left, and what follows from several of its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from storlab.errors import ParseError, StorlabError, TrialError
from storlab.measurements import PROBE, Measurements, Value
from storlab.probes.host_load import HostLoadProbe
from storlab.records.amplification import SOURCE, amplification, moved_bytes
from storlab.records.backings import asked_bytes, backing_metrics, counted, guest_disk_bytes, read_counters
from storlab.records.observations import Done, Observations, raw_folder
from storlab.records.observed import Observed
from storlab.records.stacked import Group, Measured, Told, rows_of
from storlab.records.tables import TrialTables
from storlab.records.trial_record import BackingRecord, TrialRecord
from storlab.records.within_trials import add_within_trials
from storlab.study.cells import Cell, Load

__all__ = ["BACKING", "NODES", "Done", "derive_trial", "derive_trials", "parse_load", "raw_folder"]

BACKING = "backing:"
"""How the names of folders begin that hold the counters of a disk beneath other nodes' disks."""

NODES = "nodes"
"""The ``source`` of what is true of a trial's nodes as a whole, whatever they ran."""


def parse_load(load: Load, folder: Path, node: str) -> Measurements:
    """What one workload measured on one node. Raises ``TrialError``, with the node's name, and ``ParseError``."""
    try:
        return load.workload.parse(raw_folder(folder, node, load.name))
    except TrialError as error:
        raise type(error)(f"node {node}: {error}", error.detail) from None


@dataclass
class Parsed:
    """What one trial left, before it is rows of tables."""

    groups: list[Group] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)

    def tell(self, record: TrialRecord, source: str, node: str | None, values: Iterable[Value]) -> None:
        """Numbers that follow from others; ``node`` is ``None`` for those of all nodes together."""
        self.groups += [Told(record, source, node, value) for value in values]

    def add(self, record: TrialRecord, source: str, by_node: Mapping[str, Measurements]) -> None:
        """All that one workload or probe measured."""
        self.groups.append(Measured(record, source, by_node))
        self.warnings += [
            f"{source} on {node}: {warning}" for node, each in by_node.items() for warning in each.warnings
        ]


def derive_trials(trials: Sequence[Done]) -> TrialTables:
    """All tables of these trials, in their order, as those of one. A trial that can't be read is named among the
    warnings.
    """
    observations = Observations(trials)
    parsed = []
    for trial in trials:
        try:
            parsed.append(parse_trial(trial, observations))
        except StorlabError as error:
            parsed.append(Parsed(warnings=[f"trial {trial.record.trial}: its raw records can't be read: {error}"]))
    return _tables(parsed)


def derive_trial(folder: Path, record: TrialRecord, cell: Cell) -> TrialTables:
    """All tables of one trial that is done. Raises as ``parse_trial`` does."""
    trial = Done(folder, record, cell)
    return _tables([parse_trial(trial, Observations([trial]))])


def _tables(parsed: Sequence[Parsed]) -> TrialTables:
    tables = rows_of([group for each in parsed for group in each.groups])
    tables.warnings = [warning for each in parsed for warning in each.warnings]
    tables.observed = [observed for each in parsed for observed in each.observed]
    add_within_trials(tables)
    tables.metrics = [pl.concat(tables.metrics).sort("trial", maintain_order=True)]
    return tables


def parse_trial(trial: Done, observations: Observations) -> Parsed:
    """Parse one trial that is done. Raises ``TrialError`` where a workload reports a failure, or ``ParseError``."""
    folder, record, cell = trial.folder, trial.record, trial.cell
    parsed = Parsed()
    measured: dict[str, list[Measurements]] = {}
    for load in cell.loads:
        by_node = {node: parse_load(load, folder, node) for node in record.loads.get(load.name, [])}
        parsed.add(record, load.name, by_node)
        for node, each in by_node.items():
            measured.setdefault(node, []).append(each)
    for name in cell.probes:
        seen = {}
        for node in record.probes.get(name, []):
            try:
                seen[node] = observations.of(trial, name, node, node)
            except ParseError as error:  # what was measured stands, though it was not observed
                parsed.warnings.append(f"probe {name} on {node}: {error}")
        parsed.add(record, PROBE + name, seen)
        parsed.observed += [Observed(record.cell, node, name, each.facts) for node, each in seen.items() if each.facts]
    _add_amplification(parsed, trial, observations, measured)
    _add_backings(parsed, trial, observations, measured)
    if len(measured) > 1 and record.start_skew is not None:
        skew = Value("start.skew", record.start_skew, "s", "lower", "none")
        parsed.tell(record, NODES, None, [skew])
    return parsed


def _add_amplification(
    parsed: Parsed, trial: Done, observations: Observations, measured: Mapping[str, list[Measurements]]
) -> None:
    """Bytes at the disk for each byte of the load, per node and of all nodes together.

    None where a load has a warm-up within it: its bytes are at the disk, and not among those that it measured.
    """
    record = trial.record
    if not _measures_all(trial.cell):
        return
    watchers = {record.nodes[node].machine: node for node in record.probes.get(HostLoadProbe.kind, [])}
    total: Counter[str] = Counter()
    for node, loads in measured.items():
        watcher = watchers.get(record.nodes[node].machine)
        if watcher is None or record.nodes[node].disk is None:
            return  # a sum over only some of the nodes would say nothing
        try:
            moved = moved_bytes(loads, observations.of(trial, HostLoadProbe.kind, watcher, node))
        except ParseError:
            return  # named above, with the probe's own numbers
        parsed.tell(record, SOURCE, node, amplification(moved))
        total += moved
    parsed.tell(record, SOURCE, None, amplification(total))


def _measures_all(cell: Cell) -> bool:
    return all(load.workload.measures_all(cell.trial.warm_up) for load in cell.loads)


def _add_backings(
    parsed: Parsed, trial: Done, observations: Observations, measured: Mapping[str, list[Measurements]]
) -> None:
    """What was written beneath the nodes' disks: of each disk there, and of all together."""
    record = trial.record
    done: list[tuple[BackingRecord, Counter[str]]] = []
    for backing in record.backings:
        counters = read_counters(raw_folder(trial.folder, backing.node, BACKING + backing.disk))
        if counters is None:
            parsed.warnings.append(f"{backing.disk} on {backing.node}: its counters could not be read")
            continue
        done.append((backing, counted(*counters)))
    for node, group in _by_node(done).items():
        parsed.tell(record, SOURCE, node, _backing_metrics(group, trial, observations, measured))
    above = [node for backing in record.backings for node in backing.beneath]
    if len(set(above)) < len(above):
        parsed.warnings.append("a node lies on two of the disks beneath: there are no numbers of all these together")
    elif done and len(done) == len(record.backings):  # a sum over only some of them would say nothing
        parsed.tell(record, SOURCE, None, _backing_metrics(done, trial, observations, measured))


def _by_node(done: Iterable[tuple[BackingRecord, Counter[str]]]) -> dict[str, list[tuple[BackingRecord, Counter[str]]]]:
    groups: dict[str, list[tuple[BackingRecord, Counter[str]]]] = {}
    for backing, counts in done:
        groups.setdefault(backing.node, []).append((backing, counts))
    return groups


def _backing_metrics(
    done: Iterable[tuple[BackingRecord, Counter[str]]],
    trial: Done,
    observations: Observations,
    measured: Mapping[str, list[Measurements]],
) -> Sequence[Value]:
    counts: Counter[str] = Counter()
    working: list[str] = []
    drain = 0.0
    for backing, each in done:
        counts.update(each)
        working += [node for node in dict.fromkeys(backing.beneath) if node in measured]
        drain = max(drain, backing.drain)
    asked = asked_bytes(load for node in working for load in measured[node]) if _measures_all(trial.cell) else None
    return backing_metrics(counts, asked, _guest_disks(working, trial, observations), drain)


def _guest_disks(working: Iterable[str], trial: Done, observations: Observations) -> Counter[str] | None:
    """Bytes moved at the disks under test of these nodes; ``None`` where one of them is not known."""
    record = trial.record
    watchers = {record.nodes[node].machine: node for node in record.probes.get(HostLoadProbe.kind, [])}
    total: Counter[str] = Counter()
    for node in working:
        watcher = watchers.get(record.nodes[node].machine)
        if watcher is None or record.nodes[node].disk is None:
            return None
        try:
            moved = guest_disk_bytes(observations.of(trial, HostLoadProbe.kind, watcher, node))
        except ParseError:
            return None  # named above, with the probe's own numbers
        if moved is None:
            return None
        total.update(moved)
    return total
