"""All tables of a run, whoever made it: those that are kept and still true, and the others from its raw records."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from storlab.base.errors import RecordsError
from storlab.base.units import shown
from storlab.records import kept
from storlab.records.imported import derive_imported, fingerprints_of, origin_of
from storlab.records.kept import Found, keepable, read_kept, write_tables
from storlab.records.manifest import Manifest
from storlab.records.run_folder import RECORD, RunFolder, TrialRecord
from storlab.records.tables import Tables, TrialTables
from storlab.tools.importer import Imported

if TYPE_CHECKING:
    from storlab.study.study import Study


def tables_of(run: RunFolder) -> Tables:
    """The tables of a run, for whoever reports on it; what had to be derived is kept, where it can be."""
    tables, found = _derived(run)
    if dict(found.fingerprints) != keepable(tables):
        _keep(run, tables)
    return tables


def derive(run: RunFolder) -> Tables:
    """The tables of a run, whether Storlab ran it or it was imported. Raises ``RecordsError``.

    Those of trials whose raw files are what they were are read where they are kept. A trial whose raw files can't be
    read is named, not lost.
    """
    tables, _ = _derived(run)
    return tables


def tables_of_study(manifest: Manifest, study: Study) -> Tables:
    cells = {cell.number: cell for cell in study.cells}
    loads = (load.workload for cell in cells.values() for load in cell.yielding)
    parsers = [*loads, *(probe for cell in cells.values() for probe in cell.probes.values())]
    origin = kept.of_run(manifest, parsers)
    factors = tuple(factor.name for factor in study.factors)
    return Tables(cells, factors, origin, whiskers=study.model.whiskers)


def _keep(run: RunFolder, tables: Tables) -> None:
    with suppress(OSError, RecordsError):
        if run.path.stat().st_uid != os.geteuid():
            return
        with run.lock():
            if [record.trial for record in run.records()] == [record.trial for record in tables.records]:
                write_tables(run, tables)


def _derived(run: RunFolder) -> tuple[Tables, Found]:
    manifest = run.manifest
    return _of_study(run, manifest) if manifest.imported is None else _of_import(run, manifest, manifest.imported)


def _of_study(run: RunFolder, manifest: Manifest) -> tuple[Tables, Found]:
    tables = tables_of_study(manifest, manifest.study())
    for record in run.records():
        _refuse_damaged(run, record, tables)
        tables.records.append(record)
    done = [record for record in tables.records if record.status == "done"]
    each = {record.trial: kept.of_trial(run.trial_folder(record.trial), record) for record in done}
    tables.fingerprints = {trial: mark for trial, mark in each.items() if mark is not None}
    found = read_kept(run, tables.origin, tables.fingerprints, done)
    parts = [found.part] if found.part.notes else []
    left = [record for record in done if record.trial not in found.part.notes]
    if left:
        from storlab.records.derive_trial import Done, derive_trials  # with all that parses

        trials = (Done(run.trial_folder(record.trial), record, tables.cells[record.cell]) for record in left)
        parts.append(derive_trials(list(trials), tables.whiskers))
    tables.parts += [TrialTables.joined(parts)] if parts else []
    return tables, found


def _of_import(run: RunFolder, manifest: Manifest, imported: Imported) -> tuple[Tables, Found]:
    origin, records = origin_of(manifest, imported), list(run.records())
    tables = Tables({}, tuple(imported.factors), origin, records, whiskers=imported.whiskers)
    tables.fingerprints = fingerprints_of(run, imported, tables.records)
    found = read_kept(run, tables.origin, tables.fingerprints, tables.records)
    if found.part.notes and found.part.notes.keys() == tables.fingerprints.keys():
        tables.parts.append(found.part)
        return tables, found
    derived = derive_imported(run, imported)
    derived.origin, derived.fingerprints = tables.origin, tables.fingerprints
    return derived, found


def _refuse_damaged(run: RunFolder, record: TrialRecord, tables: Tables) -> None:
    path = run.trial_folder(record.trial) / RECORD
    if record.cell not in tables.cells:
        raise RecordsError(f"{path} is damaged: cell: the study has no cell {record.cell}")
    if record.status == "done" and (lost := _strangers(record)):
        raise RecordsError(f"{path} is damaged: nodes: {shown(lost[0])} is not among them")


def _strangers(record: TrialRecord) -> list[str]:
    places = (*record.loads.values(), *record.probes.values())
    return sorted({node for nodes in places for node in nodes} - record.nodes.keys())
