"""All tables of a run, from its raw records."""

from __future__ import annotations

from storlab.records.run_folder import RunFolder
from storlab.records.tables import Tables


def derive(run: RunFolder) -> Tables:
    """All tables of a run from its raw records. A trial whose raw files can't be read any more is named, not lost."""
    from storlab.records.imported import derive_imported, imported_of

    imported = imported_of(run.manifest)
    return _derive_own(run) if imported is None else derive_imported(run, imported)


def _derive_own(run: RunFolder) -> Tables:
    """Of a run that Storlab made itself."""
    from storlab.records.derive_trial import Done, derive_trials  # with all layers, workloads and probes

    study = run.manifest.study()
    tables = Tables({cell.number: cell for cell in study.cells}, tuple(factor.name for factor in study.factors))
    tables.records += run.records()
    done = [
        Done(run.trial_folder(record.trial), record, tables.cells[record.cell])
        for record in tables.records
        if record.status == "done"
    ]
    if done:
        tables.parts.append(derive_trials(done))
    return tables
