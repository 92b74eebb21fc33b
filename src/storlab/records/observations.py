"""What probes saw in trials: the raw records of one probe all at once, and each only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from storlab.errors import StorlabError
from storlab.measurements import PROBE, Measurements
from storlab.probes.base import Left, Probe, Window
from storlab.records.trial_record import TrialRecord
from storlab.study.cells import Cell


@dataclass(frozen=True)
class Done:
    """A trial that is done, and where its raw records lie."""

    folder: Path
    record: TrialRecord
    cell: Cell


class _Key(NamedTuple):
    trial: int
    probe: str
    watcher: str
    node: str


class Observations:
    """What the probes of these trials saw on the nodes that they watched, each with the disk under test of its own."""

    def __init__(self, trials: Sequence[Done]) -> None:
        self._found: dict[_Key, Measurements | StorlabError] = {}
        for probe, left in _by_probe(trials):
            self._found.update(zip(left, probe.parse_many(list(left.values())), strict=True))

    def of(self, trial: Done, probe: str, watcher: str, node: str) -> Measurements:
        """What the probe on ``watcher`` saw, with the disk under test of ``node`` on the same machine.

        Raises ``ParseError``.
        """
        key = _Key(trial.record.trial, probe, watcher, node)
        if key not in self._found:
            (self._found[key],) = trial.cell.probes[probe].parse_many([_left(trial, key)])
        found = self._found[key]
        if isinstance(found, StorlabError):
            raise found
        return found


def _by_probe(trials: Sequence[Done]) -> list[tuple[Probe, dict[_Key, Left]]]:
    """Probes with the same options are one, whichever cells they are of."""
    found: list[tuple[Probe, dict[_Key, Left]]] = []
    of_cell: dict[tuple[int, str], dict[_Key, Left]] = {}
    for trial in trials:
        for name, probe in trial.cell.probes.items():
            place = trial.cell.number, name
            if place not in of_cell:
                same = [left for other, left in found if other == probe]
                of_cell[place] = same[0] if same else {}
                found += [] if same else [(probe, of_cell[place])]
            keys = [_Key(trial.record.trial, name, node, node) for node in trial.record.probes.get(name, [])]
            of_cell[place].update({key: _left(trial, key) for key in keys})
    return found


def _left(trial: Done, key: _Key) -> Left:
    at = trial.record.nodes[key.watcher]
    raw = raw_folder(trial.folder, key.watcher, PROBE + key.probe)
    return Left(raw, Window(at.start, at.end), trial.record.nodes[key.node].disk)


def raw_folder(trial: Path, node: str, source: str) -> Path:
    """Where one workload's or probe's raw files of one node lie."""
    return trial / node / source.replace(":", "-")
