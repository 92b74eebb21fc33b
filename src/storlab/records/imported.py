"""Runs that were imported: no study, one or more trials a file, and the file itself as the raw record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from storlab.errors import ParseError, RecordsError
from storlab.records.files import copy_durably, write_durably
from storlab.records.import_rounds import Order
from storlab.records.importers.base import Importer, Part
from storlab.records.importers.registry import importer_of
from storlab.records.importers.virtiofs_order import WORKLOADS
from storlab.records.manifest import Manifest, write_manifest
from storlab.records.run_folder import RunFolder
from storlab.records.stacked import stacked
from storlab.records.tables import Tables
from storlab.records.trial_record import TrialRecord, write_trial
from storlab.records.within_trials import add_within_trials
from storlab.version import __version__

NODE = "imported"
"""The node of what was imported: which machine it was is not known."""

STOPPED = "It was imported: there is what the files hold, and there will be no more."

PUBLISHED_ORDERS: Mapping[str, Mapping[str, Sequence[str]]] = {"virtiofs-tests": {"workload": WORKLOADS}}
"""Kind → factor → levels, where a tool publishes its tables in an order that is not that of its files."""

_NUMBERED = " Rounds are those that the files number."
_TIMED = " Rounds are the repeats of a cell in the order of the times that the files name."
_IN_ORDER = " Rounds are the repeats of a cell in the order of the files and of what is in them."
_ORDERS: Mapping[str, str] = {
    "times": "Their order is that of the times that the files name.",
    "given": "Their order is that in which they were given, for not all files name their times.",
}


@dataclass(frozen=True)
class ImportedFile:
    """One file: its name as it was given, the levels that its user gave it, and what else was said of it."""

    name: str
    levels: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    beside: list[str] = field(default_factory=list)  # names of files of the same folder, kept with it


@dataclass(frozen=True)
class ImportedTrial:
    """Which part of which file a trial is, both from 0, and its place in the run. ``levels`` are all of its cell."""

    file: int
    part: int
    cell: int
    round: int
    levels: dict[str, str]
    turn: int = 0  # its place in the order of measurement, from 1, where cells took turns


@dataclass(frozen=True)
class Imported:
    """What a run was imported from. Trial n is ``trials[n - 1]``; the trials of a file follow each other.

    ``turns``: how their order is known, where cells took turns, which is the word of who imported them; else empty.
    """

    kind: str
    files: tuple[ImportedFile, ...]
    trials: tuple[ImportedTrial, ...]
    primary: str
    turns: Order | Literal[""] = ""
    notes: tuple[str, ...] = ()  # sentences: in what else set-ups differ, what are no repeats

    @property
    def cells(self) -> tuple[tuple[int, dict[str, str]], ...]:
        """Number and levels of each cell, in the order of the files, and of their levels."""
        found = {trial.cell: trial.levels for trial in self.trials}
        if self.kind not in PUBLISHED_ORDERS:
            return tuple(found.items())
        ranks = {name: {level: at for at, level in enumerate(levels)} for name, levels in self.factors.items()}
        ordered = sorted(found.items(), key=lambda cell: [ranks[name][level] for name, level in cell[1].items()])
        return tuple(ordered)

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """Factor → its levels, in the order of the files; or as the tool publishes them, and others after these."""
        published = PUBLISHED_ORDERS.get(self.kind, {})
        names = self.trials[0].levels
        found = {name: dict.fromkeys(trial.levels[name] for trial in self.trials) for name in names}
        return {
            name: tuple(dict.fromkeys([*(level for level in published.get(name, ()) if level in levels), *levels]))
            for name, levels in found.items()
        }

    @property
    def compared(self) -> str:
        """The factor whose levels are compared where cells took turns: the first one that has several."""
        return next((name for name, levels in self.factors.items() if len(levels) > 1), next(iter(self.factors), ""))

    @property
    def word(self) -> str:
        """What verdicts rest on, as the end of a sentence and others; empty where there are none."""
        if not self.turns:
            return ""
        return (
            ". That they were measured in turns on one machine, and that none is left out, is the word of who imported "
            f"them, and verdicts rest on it. {' '.join((_ORDERS[self.turns], *self.notes))}"
        )

    def order(self, done: Collection[int]) -> tuple[tuple[int, ...], ...]:
        """Of each round the cells in the order in which they were measured, of trials (by number) that are ``done``.

        Empty where they took no turns.
        """
        if not self.turns:
            return ()
        rounds: dict[int, list[int]] = {}
        numbered = [(trial.turn, trial) for number, trial in enumerate(self.trials, start=1) if number in done]
        for _, trial in sorted(numbered, key=lambda each: each[0]):
            rounds.setdefault(trial.round, []).append(trial.cell)
        return tuple(map(tuple, rounds.values()))

    def first_trial(self, file: int) -> int:
        """The number of the trial that keeps this file among its raw records."""
        return next(number for number, trial in enumerate(self.trials, start=1) if trial.file == file)


def imported_of(manifest: Manifest) -> Imported | None:
    """What the run was imported from; ``None`` for one that Storlab ran. Raises ``RecordsError``."""
    if not manifest.imported:
        return None
    try:
        kind = str(manifest.imported["kind"])
        files = tuple(ImportedFile(**file) for file in manifest.imported["files"])
        trials = tuple(ImportedTrial(**trial) for trial in manifest.imported.get("trials", ())) or tuple(
            ImportedTrial(at, 0, at + 1, 1, file.levels)
            for at, file in enumerate(files)  # until version 0.2
        )
        primary = str(manifest.imported.get("primary") or importer_of(kind).primary)
        turns = manifest.imported.get("turns", "")  # since version 0.3
        if not trials or any(trial.levels.keys() != trials[0].levels.keys() for trial in trials):
            raise ValueError("its trials have different factors")
        if turns and turns not in _ORDERS:
            raise ValueError(f"{turns!r} is no order of trials")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordsError(f"the run's manifest does not say how it was imported: {error}") from None
    return Imported(kind, files, trials, primary, turns, tuple(manifest.imported.get("notes", ())))


def write_imported(
    run: RunFolder,
    identity: str,
    argv: Sequence[str],
    imported: Imported,
    texts: Sequence[bytes],
    read: Sequence[Sequence[Part]],
    beside: Sequence[Mapping[str, Path]] = (),
) -> Tables:
    """Make ``run`` of these files, whose contents are ``texts``, ``read`` before without a fault. Gives its tables.

    ``beside``: for each file those that belong to it, by their names; they may be large.
    """
    importer = importer_of(imported.kind)
    measured: list[tuple[TrialRecord, Part | None]] = []
    for number, trial in enumerate(imported.trials, start=1):
        folder = run.trial_folder(number)
        folder.mkdir(parents=True)
        if trial.part == 0:
            raw = _raw(folder, importer)
            raw.parent.mkdir(parents=True)
            write_durably(raw, texts[trial.file])
            for name, path in beside[trial.file].items() if beside else ():
                copy_durably(path, raw.with_name(name))
        file, part = imported.files[trial.file], read[trial.file][trial.part]
        record = TrialRecord(
            trial=number,
            round=trial.round,
            cell=trial.cell,
            levels=trial.levels,
            status=part.status,
            reason=part.reason,
            started=None if part.started is None else part.started.isoformat(),
            facts={NODE: [{"layer": imported.kind, "file": file.name, **part.measured.facts}]},
            loads={imported.kind: [NODE]},
        )
        write_trial(folder, record, durable=False)  # hundreds may come from one file, which can be imported again
        measured.append((record, part))
    write_manifest(run.path, _manifest(identity, argv, imported, importer, read))
    return _tables(imported, measured, ())


def _manifest(
    identity: str, argv: Sequence[str], imported: Imported, importer: Importer, read: Sequence[Sequence[Part]]
) -> Manifest:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    known = imported.word or _not_interleaved(imported, [part for parts in read for part in parts])
    unknown = f"The files don't say {importer.unknown}."
    caution = f"Imported from files of {imported.kind}, not run by Storlab{known} {unknown}"
    return Manifest(
        run=identity,
        title=f"Imported from {imported.kind}",
        description="",
        study_file="",
        study_text="",
        overrides=(),
        only=(),
        inputs={},
        seed=0,
        storlab=__version__,
        argv=tuple(argv),
        started=now,
        finished=now,
        stopped=STOPPED,
        cautions=(caution,),
        imported=asdict(imported),
    )


def _not_interleaved(imported: Imported, parts: Sequence[Part]) -> str:
    """What can't be told then, and what rounds are, as the end of a sentence and another."""
    single = len(imported.trials) == len(imported.cells)
    timed = _TIMED if all(part.started is not None for part in parts) else _IN_ORDER
    rounds = _NUMBERED if all(part.round is not None for part in parts) else timed
    notes = "".join(f" {note}" for note in imported.notes)
    return (
        f": {'one run of each, ' if single else ''}not interleaved as far as is known, so chance and drift can't be "
        f"told from effects, and there are no verdicts.{'' if single else rounds}{notes}"
    )


def derive_imported(run: RunFolder, imported: Imported) -> Tables:
    """All tables of an imported run, from the files that it keeps. One that can't be read any more is named."""
    measured: list[tuple[TrialRecord, Part | None]] = []
    warnings: list[str] = []
    read: dict[int, Sequence[Part] | ParseError] = {}
    for record in run.records():
        try:
            if not 0 < record.trial <= len(imported.trials):
                raise ParseError("the manifest doesn't name it")
            trial = imported.trials[record.trial - 1]
            if trial.file not in read:
                read[trial.file] = _read_again(run, imported, trial.file)
            parts = read[trial.file]
            if isinstance(parts, ParseError):
                raise parts
            if trial.part >= len(parts):
                raise ParseError(f"the file holds {len(parts)} of its trials")
        except ParseError as error:
            warnings.append(f"trial {record.trial}: its raw records can't be read: {error}")
            measured.append((record, None))
        else:
            measured.append((record, parts[trial.part]))
    found = {record.trial for record, _ in measured}
    lost = [str(number) for number in range(1, len(imported.trials) + 1) if number not in found]
    if lost:
        which = f"trial {lost[0]} is" if len(lost) == 1 else f"trials {', '.join(lost)} are"
        warnings.append(f"{which} missing from the run's folder: import the files again")
    return _tables(imported, measured, warnings)


def raw_files(run: RunFolder, imported: Imported) -> list[tuple[ImportedFile, Path]]:
    """The files of an imported run that are still there, with where their contents lie."""
    importer = importer_of(imported.kind)
    kept = ((t.file, _raw(run.trial_folder(at), importer)) for at, t in enumerate(imported.trials, 1) if t.part == 0)
    return [(imported.files[file], path) for file, path in kept if path.is_file()]


def _read_again(run: RunFolder, imported: Imported, file: int) -> Sequence[Part] | ParseError:
    importer = importer_of(imported.kind)
    raw = _raw(run.trial_folder(imported.first_trial(file)), importer)
    try:
        parts = importer.read(raw.read_bytes(), str(raw), imported.files[file].options)
        return importer.read_beside(parts, raw.parent, str(raw))
    except OSError as error:
        return ParseError(error.strerror or str(error), str(raw))
    except ParseError as error:
        return error


def _tables(imported: Imported, measured: Sequence[tuple[TrialRecord, Part | None]], warnings: Sequence[str]) -> Tables:
    tables = Tables({}, tuple(imported.factors), [record for record, _ in measured])
    read = [(record, part.measured) for record, part in measured if part is not None]
    rows = stacked(read, imported.kind, NODE)
    for record, each in read:
        name = imported.files[imported.trials[record.trial - 1].file].name
        rows.warnings += [f"{name}: {warning}" for warning in each.warnings]
    rows.warnings += warnings
    add_within_trials(rows)
    tables.parts.append(rows)
    return tables


def _raw(trial: Path, importer: Importer) -> Path:
    return trial / NODE / importer.kind / importer.raw_name
