"""Runs that were imported: no study, one trial a file, and the file itself as the raw record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storlab.errors import ParseError, RecordsError
from storlab.measurements import Measurements
from storlab.records.across_nodes import across_nodes
from storlab.records.files import write_durably
from storlab.records.importers.base import Importer
from storlab.records.importers.registry import importer_of
from storlab.records.manifest import Manifest, write_manifest
from storlab.records.run_folder import RunFolder
from storlab.records.tables import Tables, TrialTables
from storlab.records.trial_record import TrialRecord, write_trial
from storlab.version import __version__

NODE = "imported"
"""The node of what was imported: which machine it was is not known."""

STOPPED = "It was imported: there is one trial of each file, and there will be no more."


@dataclass(frozen=True)
class ImportedFile:
    """One file: its name as it was given, the levels of its cell, and what its user said of it."""

    name: str
    levels: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Imported:
    """What a run was imported from. Cell and trial n are ``files[n - 1]``."""

    kind: str
    files: tuple[ImportedFile, ...]

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """Factor → its levels, in the order of the files."""
        names = self.files[0].levels
        return {name: tuple(dict.fromkeys(file.levels[name] for file in self.files)) for name in names}

    @property
    def primary(self) -> str:
        """The metric that a report begins with."""
        return importer_of(self.kind).primary


def imported_of(manifest: Manifest) -> Imported | None:
    """What the run was imported from; ``None`` for one that Storlab ran. Raises ``RecordsError``."""
    if not manifest.imported:
        return None
    try:
        files = tuple(ImportedFile(**file) for file in manifest.imported["files"])
        found = Imported(str(manifest.imported["kind"]), files)
        if not files or any(file.levels.keys() != files[0].levels.keys() for file in files):
            raise ValueError("its files have different factors")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordsError(f"the run's manifest does not say how it was imported: {error}") from None
    return found


def write_imported(
    run: RunFolder, identity: str, argv: Sequence[str], imported: Imported, texts: Sequence[bytes]
) -> None:
    """Make ``run`` of these files, whose contents are ``texts``. All of them were read before, without a fault."""
    importer = importer_of(imported.kind)
    for number, (file, text) in enumerate(zip(imported.files, texts, strict=True), start=1):
        folder = run.trial_folder(number)
        raw = _raw(folder, importer)
        raw.parent.mkdir(parents=True)
        write_durably(raw, text)
        facts = importer.read(text, file.name, file.options).facts
        record = TrialRecord(
            trial=number,
            round=1,
            cell=number,
            levels=file.levels,
            status="done",
            facts={NODE: [{"layer": imported.kind, "file": file.name, **facts}]},
            loads={imported.kind: [NODE]},
        )
        write_trial(folder, record)
    write_manifest(run.path, _manifest(identity, argv, imported, importer))


def _manifest(identity: str, argv: Sequence[str], imported: Imported, importer: Importer) -> Manifest:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    caution = (
        f"Imported from files of {imported.kind}, not run by Storlab: one run of each, not interleaved, so chance and "
        f"drift can't be told from effects, and there are no verdicts. The files don't say {importer.unknown}."
    )
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


def derive_imported(run: RunFolder, imported: Imported) -> Tables:
    """All tables of an imported run, from the files that it keeps. One that can't be read any more is named."""
    importer = importer_of(imported.kind)
    tables = Tables({}, tuple(imported.factors))
    for record in run.records():
        part = TrialTables()
        try:
            measured = _measured(_raw(run.trial_folder(record.trial), importer), importer, imported, record)
        except ParseError as error:
            part.warnings.append(f"trial {record.trial}: its raw records can't be read: {error}")
        else:
            name = imported.files[record.trial - 1].name
            part.warnings += [f"{name}: {warning}" for warning in measured.warnings]
            part.add(record, imported.kind, NODE, replace(measured, warnings=()))
            part.add_metrics(record, imported.kind, None, across_nodes([measured]))
        tables.add(record, part)
    return tables


def _measured(raw: Path, importer: Importer, imported: Imported, record: TrialRecord) -> Measurements:
    try:
        options: Mapping[str, Any] = imported.files[record.trial - 1].options
        return importer.read(raw.read_bytes(), str(raw), options)
    except (OSError, IndexError) as error:
        raise ParseError(str(error), str(raw)) from None


def _raw(trial: Path, importer: Importer) -> Path:
    return trial / NODE / importer.kind / importer.raw_name
