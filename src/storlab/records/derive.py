"""All tables of a run, from its raw records, whoever made it."""

from __future__ import annotations

from storlab.errors import RecordsError
from storlab.records.imported import derive_imported
from storlab.records.run_folder import RECORD, RunFolder, TrialRecord
from storlab.records.tables import Tables
from storlab.units import shown


def derive(run: RunFolder) -> Tables:
    """The tables of a run, whether Storlab ran it or it was imported. Raises ``RecordsError``.

    A trial whose raw files can't be read is named, not lost.
    """
    manifest = run.manifest
    if manifest.imported is not None:
        return derive_imported(run, manifest.imported)
    from storlab.records.derive_trial import Done, derive_trials  # with all that a run has and imported ones spare

    study = manifest.study()
    tables = Tables({cell.number: cell for cell in study.cells}, tuple(factor.name for factor in study.factors))
    for record in run.records():
        if record.cell not in tables.cells:
            path = run.trial_folder(record.trial) / RECORD
            raise RecordsError(f"{path} is damaged: cell: the study has no cell {record.cell}")
        if record.status == "done" and (lost := _strangers(record)):
            path = run.trial_folder(record.trial) / RECORD
            raise RecordsError(f"{path} is damaged: nodes: {shown(lost[0])} is not among them")
        tables.records.append(record)
    done = [
        Done(run.trial_folder(record.trial), record, tables.cells[record.cell])
        for record in tables.records
        if record.status == "done"
    ]
    if done:
        tables.parts.append(derive_trials(done))
    return tables


def _strangers(record: TrialRecord) -> list[str]:
    """Nodes where something ran or was watched, and of which nothing else is said."""
    places = (*record.loads.values(), *record.probes.values())
    return sorted({node for nodes in places for node in nodes} - record.nodes.keys())
