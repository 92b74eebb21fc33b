"""From trials' raw records to their tables: parsing what each left, and what follows from several of its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import polars as pl
from msgspec import to_builtins

from storlab.base.errors import ParseError, StorlabError, TrialError
from storlab.base.text import grouped
from storlab.findings import AnyFinding, OnNode, Reported
from storlab.findings.runs import ProbeUnreadable
from storlab.measurements import SERIES_COLUMNS, Measurements, empty
from storlab.metrics import PROBE, WHISKERS, MetricSpec, Value
from storlab.probes.base import Probe, ProbeRecord, Seen, Window, operations
from storlab.probes.disks import BACKING
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.subject import read_subject
from storlab.records.derived import (
    METRICS,
    PER_TRANSACTION,
    SOURCE,
    Moved,
    amplification,
    asked_bytes,
    backing_amplification,
    bytes_of,
    disk_bytes,
    moved_bytes,
    per_transaction,
    watched_above,
)
from storlab.records.run_folder import TrialRecord, raw_folder, refuse_linked_raw, unreadable
from storlab.records.stacked import Group, Measured, Told, rows_of
from storlab.records.tables import Declared, Notes, Observed, TrialTables
from storlab.records.within_trials import add_within_trials
from storlab.study.cells import Cell, Load


@dataclass(frozen=True)
class Done:
    """A trial that is done, and where its raw records lie."""

    folder: Path
    record: TrialRecord
    cell: Cell

    @property
    def probes(self) -> Mapping[str, Probe]:
        return {**self.cell.probes, BACKING.kind: BACKING}


class _Key(NamedTuple):
    trial: int
    probe: str
    node: str
    disks: tuple[str, ...] | None = None  # in place of its subject's


class Observations:
    """What the probes of these trials saw on the nodes that they watched."""

    def __init__(self, trials: Sequence[Done]) -> None:
        self._records: dict[_Key, ProbeRecord] = {}
        self._found: dict[_Key, Measurements | StorlabError] = {}
        for probe, keys in _by_probe(trials):
            readable = {}
            for key, trial in keys.items():
                with suppress(ParseError):  # whoever asks for it will know
                    readable[key] = self.record(trial, key.probe, key.node)
            self._found.update(zip(readable, _parsed(probe, list(readable.values())), strict=True))

    def record(self, trial: Done, probe: str, node: str) -> ProbeRecord:
        """What the probe left of the trial on the node. Raises ``ParseError`` where its subject can't be read."""
        key = _Key(trial.record.trial, probe, node)
        if key not in self._records:
            raw, at = raw_folder(trial.folder, node, PROBE + probe), trial.record.nodes[node]
            self._records[key] = ProbeRecord(raw, Window(at.start, at.end), read_subject(raw))
        return self._records[key]

    def of(self, trial: Done, probe: str, node: str, disks: Sequence[str] | None = None) -> Measurements:
        """What the probe saw on the node; with ``disks``, as if these were its subject's. Raises ``ParseError``."""
        record = self.record(trial, probe, node)
        other = None if disks is None or set(disks) == set(record.subject.disks or ()) else tuple(disks)
        key = _Key(trial.record.trial, probe, node, other)
        if key not in self._found:
            if other is not None:
                record = replace(record, subject=record.subject.model_copy(update={"disks": other}))
            (self._found[key],) = _parsed(trial.probes[probe], [record])
        found = self._found[key]
        if isinstance(found, StorlabError):
            raise found
        return found


def _parsed(probe: Probe, records: Sequence[ProbeRecord]) -> list[Measurements | StorlabError]:
    declared = probe.declares()
    try:
        found = probe.parse_many(records)
    except ArithmeticError:  # numbers of hundreds of digits, in files of a kernel that has none
        if len(records) == 1:
            return [ParseError("holds a number that is too large", str(records[0].raw))]
        return [each for record in records for each in _parsed(probe, [record])]
    return [replace(each, declared=declared) if isinstance(each, Measurements) else each for each in found]


def _by_probe(trials: Sequence[Done]) -> list[tuple[Probe, dict[_Key, Done]]]:
    found: list[tuple[Probe, dict[_Key, Done]]] = []
    of_cell: dict[tuple[int, str], dict[_Key, Done]] = {}
    for trial in trials:
        for name, probe in trial.probes.items():
            place = trial.cell.number, name
            if place not in of_cell:
                same = [keys for other, keys in found if other == probe]
                of_cell[place] = same[0] if same else {}
                found += [] if same else [(probe, of_cell[place])]
            nodes = trial.record.probes.get(name, [])
            of_cell[place].update({_Key(trial.record.trial, name, node): trial for node in nodes})
    return found


__all__ = ["NODES", "Done", "derive_trials", "parse_load", "parse_loads"]

NODES = "nodes"
"""The ``source`` of what is true of a trial's nodes as a whole, whatever they ran."""

START_SKEW = MetricSpec("start.skew", "s", "lower", "none")

_AMPLIFICATION, _OF_NODES = tuple(METRICS.values()), (START_SKEW,)


def parse_load(load: Load, folder: Path, node: str) -> Measurements:
    """What one workload measured on one node. Raises ``TrialError``, with the node's name, and ``ParseError``."""
    try:
        found = load.workload.parse(raw_folder(folder, node, load.name))
    except TrialError as error:
        raise type(error)(f"node {node}: {error}", error.detail) from None
    declared = load.declares()
    if load.verifies:
        found = replace(found, metrics=found.metrics.filter(pl.col("metric").is_in([spec.name for spec in declared])))
    return replace(found, declared=declared)


def parse_loads(trial: Done) -> None:
    """Whether what its loads left can be read, and tells of no failure. Raises as ``parse_load`` does."""
    for load in trial.cell.yielding:
        for node in trial.record.loads.get(load.name, []):
            parse_load(load, trial.folder, node)


@dataclass
class Parsed:
    """What one trial left, before it is rows of tables."""

    trial: int
    groups: list[Group] = field(default_factory=list)
    warnings: list[AnyFinding] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)

    def tell(self, record: TrialRecord, source: str, node: str | None, values: Iterable[Value]) -> None:
        """Numbers that follow from others; ``node`` is ``None`` for those of all nodes together."""
        self.groups += [Told(record, source, node, value) for value in values]

    def add(self, record: TrialRecord, source: str, by_node: Mapping[str, Measurements]) -> None:
        self.groups.append(Measured(record, source, by_node))
        self.warnings += [
            OnNode(source, node, finding)
            for node, each in by_node.items()
            for finding in (*map(Reported, each.warnings), *each.found)
        ]


def derive_trials(trials: Sequence[Done], whiskers: float = WHISKERS) -> TrialTables:
    """All tables of these trials, in their order, as those of one. A trial that can't be read is named among the
    warnings. ``whiskers``: interquartile ranges from the quartiles beyond which a sample is an outlier.
    """
    observations = Observations(trials)
    parsed = []
    for trial in trials:
        try:
            refuse_linked_raw(trial.folder)
            parsed.append(parse_trial(trial, observations))
        except (StorlabError, OSError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
            number = trial.record.trial
            parsed.append(Parsed(number, warnings=[unreadable(number, why)]))
    return _tables(parsed, whiskers)


def _tables(parsed: Sequence[Parsed], whiskers: float) -> TrialTables:
    tables = rows_of([group for each in parsed for group in each.groups])
    own: list[Declared] = [(SOURCE, (*_AMPLIFICATION, *PER_TRANSACTION.values())), (NODES, _OF_NODES)]
    known = {each.trial: tables.notes.get(each.trial, Notes()) for each in parsed}
    tables.notes = {
        each.trial: Notes(each.warnings, each.observed, [*notes.declared, *own], notes.loads)
        for each, notes in zip(parsed, known.values(), strict=True)
    }
    add_within_trials(tables, whiskers)
    tables.metrics = [pl.concat(tables.metrics).sort("trial", maintain_order=True)]
    return tables


def parse_trial(trial: Done, observations: Observations) -> Parsed:
    """Parse one trial that is done. Raises ``TrialError`` where a workload reports a failure, or ``ParseError``."""
    folder, record, cell = trial.folder, trial.record, trial.cell
    parsed = Parsed(record.trial)
    measured: dict[str, list[Measurements]] = {}
    for load in cell.yielding:
        by_node = {node: parse_load(load, folder, node) for node in record.loads.get(load.name, [])}
        parsed.add(record, load.name, by_node)
        for node, each in by_node.items() if not load.verifies else ():
            measured.setdefault(node, []).append(each)
    loads = [load for each in measured.values() for load in each]
    done = operations(loads) if _measures_all(trial) else None
    for name in cell.probes:
        ends = _by_end(parsed, trial, observations, name, PROBE + name)
        if record.slices is not None:
            probe = cell.probes[name]
            ends = {of: {node: in_slices(probe, each) for node, each in seen.items()} for of, seen in ends.items()}
        for source, seen in ends.items():
            parsed.add(record, source, seen)
            facts = ((node, each.facts) for node, each in seen.items())
            parsed.observed += [Observed(record.cell, node, name, to_builtins(each)) for node, each in facts if each]
        for source, seen in ends.items():
            others = [each for other, nodes in ends.items() if other != source for each in nodes.values()]
            of_nodes = Seen([*seen.values()], others, source == PROBE + name, loads, done)
            parsed.tell(record, source, None, cell.probes[name].derive(of_nodes))
        if isinstance(cell.probes[name], HostLoadProbe) and _measures_all(trial):
            _add_per_transaction(parsed, trial, observations, measured, ends)
    _add_amplification(parsed, trial, observations, measured)
    _add_backings(parsed, trial, observations, measured)
    if len(measured) > 1 and record.start_skew is not None:
        parsed.tell(record, NODES, None, [START_SKEW.value(record.start_skew)])
    return parsed


def _add_per_transaction(
    parsed: Parsed,
    trial: Done,
    observations: Observations,
    measured: Mapping[str, Sequence[Measurements]],
    ends: Mapping[str, Mapping[str, Measurements]],
) -> None:
    record, kind = trial.record, HostLoadProbe.kind
    source = PROBE + kind
    below = {node: each for end, seen in ends.items() if end != source for node, each in seen.items()}
    standing = {node: observations.record(trial, kind, node).subject.above for node in below}
    above = watched_above(standing, {name: node.machine for name, node in record.nodes.items()})
    loads = [load for each in measured.values() for load in each]
    at_load = ends.get(source, {}).values()
    parsed.tell(record, SOURCE, None, per_transaction(loads, at_load, below, above))


def in_slices(probe: Probe, seen: Measurements) -> Measurements:
    """What a probe saw of a load that took turns with others: the rest is theirs as well, or of their time."""
    families = [spec for spec in probe.declares() if spec.name in probe.in_slices and spec.word]
    names = seen.metrics["metric"].unique().to_list()
    own = [name for name in names if name in probe.in_slices or any(family.member(name) for family in families)]
    metrics = seen.metrics.filter(pl.col("metric").is_in(own))
    return replace(seen, metrics=metrics, series=empty(SERIES_COLUMNS))


def _by_end(
    parsed: Parsed, trial: Done, observations: Observations, probe: str, name: str
) -> dict[str, dict[str, Measurements]]:
    """What a probe saw, by source and node: ``name`` where the load ran, ``name@GROUP`` on the nodes of a group below.

    Nodes that stand on each other are never of one source, so no work is counted twice in their sums.
    """
    found: dict[str, dict[str, Measurements]] = {}
    for node in trial.record.probes.get(probe, []):
        try:
            source = observations.record(trial, probe, node).subject.source(name)
            found.setdefault(source, {})[node] = observations.of(trial, probe, node)
        except ParseError as error:  # what was measured stands, though it was not observed
            parsed.warnings.append(ProbeUnreadable(probe, node, str(error)))
    return found


def _add_amplification(
    parsed: Parsed, trial: Done, observations: Observations, measured: Mapping[str, list[Measurements]]
) -> None:
    """Bytes at the disk for each byte of the load, per node and of all nodes together.

    None where a load has a warm-up within it: its bytes are at the disk, and not among those that it measured.
    """
    if not _measures_all(trial):
        return
    record = trial.record
    total = Moved()
    for nodes in _by_machine(record, measured):
        host_load = [_host_load(trial, observations, those) for those in (*([node] for node in nodes), nodes)]
        loads = [*(measured[node] for node in nodes), [load for node in nodes for load in measured[node]]]
        moved = [moved_bytes(mine, seen) for mine, seen in zip(loads, host_load, strict=True) if seen is not None]
        if len(moved) <= len(nodes):
            return  # a sum over only some of the nodes would say nothing
        for node, each in zip(nodes, moved, strict=False):
            parsed.tell(record, SOURCE, node, amplification(each))
        total += moved[-1]
    if asked_bytes(load for each in measured.values() for load in each) is not None:
        parsed.tell(record, SOURCE, None, amplification(total))


def _measures_all(trial: Done) -> bool:
    cell = trial.cell
    if trial.record.slices is not None:
        return True  # its amounts are those of the whole load, with the warm-up
    return all(load.workload.measures_all(cell.trial.warm_up) for load in cell.loads)


def _by_machine(record: TrialRecord, nodes: Iterable[str]) -> list[list[str]]:
    return list(grouped((record.nodes[node].machine, node) for node in nodes).values())


def _host_load(trial: Done, observations: Observations, nodes: Sequence[str]) -> Measurements | None:
    """What ``host-load`` saw of the disks under test of these nodes of one machine; ``None`` where that is unknown."""
    of, kind = trial.record.nodes, HostLoadProbe.kind
    watchers = [each for each in trial.record.probes.get(kind, []) if of[each].machine == of[nodes[0]].machine]
    if not watchers or not all(of[node].disks for node in nodes):
        return None
    disks = dict.fromkeys(disk for node in nodes for disk in of[node].disks)
    try:
        return observations.of(trial, kind, watchers[0], list(disks))
    except ParseError:
        return None  # named above, with the probe's own numbers


def _add_backings(
    parsed: Parsed, trial: Done, observations: Observations, measured: Mapping[str, list[Measurements]]
) -> None:
    record = trial.record
    for source, seen in _by_end(parsed, trial, observations, BACKING.kind, BACKING.kind).items():
        parsed.add(record, source, seen)
        above = {node: observations.record(trial, BACKING.kind, node).subject.above for node in seen}
        for node, nodes in (*((node, [node]) for node in seen), (None, [*seen])):
            backing: Counter[str] = Counter()
            for each in nodes:
                backing.update(bytes_of(seen[each]))
            users = [name for name in dict.fromkeys(one for each in nodes for one in above[each]) if name in measured]
            asked = asked_bytes(load for name in users for load in measured[name])
            at_guests = _disk_bytes(trial, observations, users)
            known = asked if _measures_all(trial) else None
            parsed.tell(record, source, node, backing_amplification(backing, known, at_guests))


def _disk_bytes(trial: Done, observations: Observations, nodes: Iterable[str]) -> Counter[str] | None:
    total: Counter[str] = Counter()
    for those in _by_machine(trial.record, nodes):
        host_load = _host_load(trial, observations, those)
        moved = None if host_load is None else disk_bytes(host_load)
        if moved is None:
            return None
        total.update(moved)
    return total
