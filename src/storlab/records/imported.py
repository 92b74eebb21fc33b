"""Runs that were imported: no study, one or more trials a file, and the file itself as the raw record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from storlab.base.errors import ParseError, RecordsError, UserError
from storlab.base.reading import open_file, read_file
from storlab.base.text import grouped
from storlab.findings import AnyFinding, Reported
from storlab.findings.runs import TrialsMissing, WasImported
from storlab.records.files import Text, copy_durably
from storlab.records.manifest import Manifest, write_manifest
from storlab.records.run_folder import RunFolder, TrialRecord, refuse_linked_raw, unreadable, write_trial
from storlab.tools.clients import as_one
from storlab.tools.importer import (
    Deferred,
    Imported,
    ImportedFile,
    ImportedTrial,
    Importer,
    Part,
    importer_of,
    said_of_files,
)
from storlab.version import __version__

if TYPE_CHECKING:
    from storlab.records.tables import Tables

Parts = Mapping[str, Part]
"""What a trial's nodes measured."""

_LOST = 0  # no trial's number: what there is to say of those that are missing


_NUMBERED = " Rounds are those that the files number."
_TIMED = " Rounds are the repeats of a cell in the order of the times that the files name."
_IN_ORDER = " Rounds are the repeats of a cell in the order of the files and of what is in them."
_ORDERS: Mapping[str, str] = {
    "times": "Their order is that of the times that the files name.",
    "given": "Their order is that in which they were given, for not all files name their times.",
}


def write_imported(
    run: RunFolder,
    identity: str,
    argv: Sequence[str],
    imported: Imported,
    texts: Sequence[Text],
    read: Sequence[Sequence[Part]],
    beside: Sequence[Mapping[str, Path]] = (),
) -> None:
    """Make ``run`` of these files, whose contents are ``texts``, ``read`` before without a fault, with its tables.

    ``beside``: for each file those that belong to it, by their names; they may be large.
    """
    importer = importer_of(imported.kind)
    measured: list[tuple[TrialRecord, Parts]] = []
    for number, trial in enumerate(imported.trials, start=1):
        folder = run.trial_folder(number)
        folder.mkdir(parents=True)
        for node, (file, part) in imported.nodes(trial).items():
            if part == 0:
                raw = _raw(folder, importer, node)
                raw.parent.mkdir(parents=True)
                texts[file].keep(raw)
                for name, path in beside[file].items() if beside else ():
                    copy_durably(path, raw.with_name(name))
        parts = {node: read[file][part] for node, (file, part) in imported.nodes(trial).items()}
        record = _record(number, trial, imported, parts)
        write_trial(folder, record, durable=False)  # hundreds may come from one file, which can be imported again
        measured.append((record, parts))
    manifest = _manifest(identity, argv, imported, importer, read)
    write_manifest(run.path, manifest)
    if not all(isinstance(part.found, Deferred) for parts in read for part in parts):
        _keep_tables(run, manifest, imported, measured)


def _record(number: int, trial: ImportedTrial, imported: Imported, parts: Parts) -> TrialRecord:
    nodes = {node: imported.files[file].name for node, (file, _) in imported.nodes(trial).items()}
    ended = as_one({name: parts[node] for node, name in nodes.items() if not parts[node].source})
    return TrialRecord(
        trial=number,
        round=trial.round,
        cell=trial.cell,
        levels=trial.levels,
        status=ended.status,
        reason=ended.reason,
        started=ended.started,
        facts={
            node: [{"layer": imported.kind, "file": name, **parts[node].found.facts}] for node, name in nodes.items()
        },
        loads={imported.kind: [node for node, part in parts.items() if not part.source]},
    )


def _keep_tables(
    run: RunFolder, manifest: Manifest, imported: Imported, measured: Sequence[tuple[TrialRecord, Parts]]
) -> None:
    from storlab.records.kept import write_tables

    tables = _tables(imported, measured, {})
    tables.origin = origin_of(manifest, imported)
    tables.fingerprints = fingerprints_of(run, imported, tables.records)
    write_tables(run, tables)


def origin_of(manifest: Manifest, imported: Imported) -> str | None:
    """For ``Tables.origin``."""
    from storlab.records import kept as fingerprint

    return fingerprint.of_run(manifest, [importer_of(imported.kind)])


def fingerprints_of(run: RunFolder, imported: Imported, records: Sequence[TrialRecord]) -> dict[int, str]:
    """Of trials, for ``Tables.fingerprints``. Several may be in one file, so each is of all the files."""
    from storlab.records import kept as fingerprint

    found = {record.trial: fingerprint.of_trial(run.trial_folder(record.trial), record) for record in records}
    whole = len(found) == len(imported.trials)
    return fingerprint.together(found) if whole else {}


def _manifest(
    identity: str, argv: Sequence[str], imported: Imported, importer: Importer, read: Sequence[Sequence[Part]]
) -> Manifest:
    now = datetime.now(UTC).replace(microsecond=0)
    parts = [part for each in read for part in each]
    known = _in_turns(imported) if imported.turns else _not_interleaved(imported, parts)
    unknown = f"The files don't say {importer.unknown}."
    caution = f"Imported from files of {imported.kind}, not run by Storlab{known} {unknown}"
    return Manifest(
        run=identity,
        title=f"Imported from {imported.kind}",
        storlab=__version__,
        argv=tuple(argv),
        started=now,
        finished=now,
        stopped=WasImported(),
        cautions=(caution,),
        imported=imported,
    )


def _in_turns(imported: Imported) -> str:
    return (
        ". Verdicts rest on the word of whoever imported them that they were measured in turns on one machine, with "
        f"none left out. {' '.join((_ORDERS[imported.turns], *imported.notes))}"
    )


def _not_interleaved(imported: Imported, parts: Sequence[Part]) -> str:
    single = len(imported.trials) == len(imported.cells)
    timed = _TIMED if all(part.started is not None for part in parts) else _IN_ORDER
    rounds = _NUMBERED if all(part.round is not None for part in parts) else timed
    notes = "".join(f" {note}" for note in imported.notes)
    return (
        f": {'one run of each, ' if single else ''}not interleaved as far as is known, so chance and drift are "
        f"indistinguishable from effects, and there are no verdicts.{'' if single else rounds}{notes}"
    )


def derive_imported(run: RunFolder, imported: Imported) -> Tables:
    """All tables of an imported run, from the files that it keeps. One that can't be read any more is named."""
    measured: list[tuple[TrialRecord, Parts]] = []
    warnings: dict[int, AnyFinding] = {}
    read: dict[int, Sequence[Part] | ParseError] = {}
    kept = _kept(run, imported)
    for record in run.records():
        try:
            if not 0 < record.trial <= len(imported.trials):
                raise ParseError("the manifest doesn't name it")
            found = {}
            for node, (file, part) in imported.nodes(imported.trials[record.trial - 1]).items():
                if file not in read:
                    read[file] = _read_again(kept.get(file), imported, file)
                parts = read[file]
                if isinstance(parts, ParseError):
                    raise parts
                if part >= len(parts):
                    raise ParseError(f"the file holds {len(parts)} of its trials")
                found[node] = parts[part]
        except ParseError as error:
            warnings[record.trial] = unreadable(record.trial, error)
            measured.append((record, {}))
        else:
            measured.append((record, found))
    known = {record.trial for record, _ in measured}
    lost = tuple(number for number in range(1, len(imported.trials) + 1) if number not in known)
    if lost:
        warnings[_LOST] = TrialsMissing(lost)
    return _tables(imported, measured, warnings)


def refuse_copies(runs: Mapping[str, RunFolder], *, together: bool) -> None:
    """Raise ``UserError`` where two of ``runs``, by name, are one, as when a folder was copied: no repeat.

    ``together``: trials of several runs are rounds of one cell. Then no file may have been imported twice for the same
    levels; apart, two files of counts may well be the same.
    """
    import hashlib

    run_of: dict[str, str] = {}
    file_of: dict[tuple[str, str], str] = {}
    for name, run in runs.items():
        first = run_of.setdefault(run.manifest.run, name)
        if first != name:
            raise UserError(
                f"{first} and {name} are one run, {run.manifest.run}: a copy is not a repeat; leave one out"
            )
        imported = run.manifest.imported if together else None
        for file, raw in _raw_files(run, imported) if imported else ():
            with open_file(raw) as content:
                known = file_of.setdefault((str(file.levels), hashlib.file_digest(content, "sha256").hexdigest()), name)
            if known != name:
                raise UserError(
                    f"{known} and {name} hold the same file, {file.name}: a copy is not a repeat; leave one out"
                )


def _raw_files(run: RunFolder, imported: Imported) -> list[tuple[ImportedFile, Path]]:
    return [(imported.files[file], path) for file, path in _kept(run, imported).items() if path.is_file()]


def _read_again(raw: Path | None, imported: Imported, file: int) -> Sequence[Part] | ParseError:
    importer = importer_of(imported.kind)
    if raw is None:
        return ParseError("the manifest doesn't name a trial of it", imported.files[file].name)
    try:
        refuse_linked_raw(raw.parents[2])
        if importer.streams:
            with open_file(raw) as stream:
                return importer.read_stream(stream, str(raw), imported.files[file].options)
        parts = importer.read(read_file(raw), str(raw), imported.files[file].options)
        return importer.read_beside(parts, raw.parent, str(raw))
    except OSError as error:
        return ParseError(error.strerror or str(error), str(raw))
    except RecordsError as error:
        return ParseError(str(error))
    except ParseError as error:
        return error


def _tables(
    imported: Imported, measured: Sequence[tuple[TrialRecord, Parts]], warnings: Mapping[int, AnyFinding]
) -> Tables:
    from storlab.records.stacked import Measured, rows_of
    from storlab.records.tables import Notes, Tables
    from storlab.records.within_trials import add_within_trials

    records = [record for record, _ in measured]
    tables = Tables({}, tuple(imported.factors), records=records, whiskers=imported.whiskers)
    read = [(record, parts) for record, parts in measured if parts]
    rows = rows_of(
        [
            Measured(record, source, dict(own))
            for record, parts in read
            for source, own in grouped(
                (part.source or imported.kind, (node, part.measured)) for node, part in parts.items()
            ).items()
        ]
    )
    for record, parts in read[:1]:
        each = ((imported.nodes(imported.trials[record.trial - 1]), parts) for record, parts in read)
        named = ((imported.files[nodes[node][0]].name, part) for nodes, own in each for node, part in own.items())
        rows.notes[record.trial].warnings += map(Reported, said_of_files(named))
    for trial, warning in warnings.items():
        rows.notes.setdefault(trial, Notes()).warnings.append(warning)
    add_within_trials(rows, imported.whiskers)
    tables.parts.append(rows)
    return tables


def _kept(run: RunFolder, imported: Imported) -> dict[int, Path]:
    importer = importer_of(imported.kind)
    return {
        file: _raw(run.trial_folder(number), importer, node)
        for number, trial in enumerate(imported.trials, start=1)
        for node, (file, part) in imported.nodes(trial).items()
        if part == 0
    }


def _raw(trial: Path, importer: Importer, node: str) -> Path:
    return trial / node / importer.kind / importer.raw_name
