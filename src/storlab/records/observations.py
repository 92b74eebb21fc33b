"""What probes saw in trials: the raw records of one probe all at once, and each only once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from storlab.base.errors import ParseError, StorlabError
from storlab.measurements import Measurements
from storlab.metrics import PROBE
from storlab.probes.base import Probe, ProbeRecord, Window
from storlab.probes.disks import BACKING
from storlab.probes.subject import read_subject
from storlab.records.run_folder import TrialRecord, raw_folder
from storlab.study.cells import Cell


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
