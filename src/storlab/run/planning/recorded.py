"""The design of a run that was recorded or imported, and what its tables say about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from storlab.analysis.design import CompareSpec, Design
from storlab.analysis.summary import Summary
from storlab.base.levels import is_sweep, names_load
from storlab.findings.runs import Interrupted
from storlab.records.manifest import Manifest
from storlab.records.tables import Tables
from storlab.run.limits import Limits
from storlab.run.planning.design import design_of, summary_of

if TYPE_CHECKING:
    from storlab.study.study import Study


def summary_of_run(manifest: Manifest, tables: Tables) -> Summary:
    return summary_of(design_of_run(manifest, tables), tables, ended=True)


def design_of_run(manifest: Manifest, tables: Tables) -> Design:
    imported = manifest.imported
    if imported is None:
        stopped = manifest.stopped or Interrupted("goes on")
        warnings, emulated = tables.warnings(), manifest.emulated
        limits = Limits(manifest.gates, optional=manifest.optional)
        design = design_of(_asked_by(manifest), stopped, warnings, limits, manifest.rests, emulated, manifest.horizon)
        return replace(design, declared=tables.declared())
    swept = [name for name, labels in imported.factors.items() if is_sweep(labels)]
    loading = [name for name in swept if names_load(name)]
    return Design(
        title=manifest.title,
        primary=imported.primary,
        factors=imported.factors,
        cells=imported.cells,
        comparisons=(CompareSpec(imported.compared),) if imported.turns else (),
        compared=bool(imported.turns),
        sweeps=tuple(dict.fromkeys([*loading, *swept])),
        loading=len(loading),
        order=imported.order({record.trial for record in tables.records if record.status == "done"}),
        stopped=manifest.stopped,
        warnings=tables.warnings(),
        declared=tables.declared(),
    )


def _asked_by(manifest: Manifest) -> Study:
    study = manifest.study()
    if not study.only:
        return study
    from storlab.run.planning.metrics import narrowed  # loads all loads and probes

    return narrowed(study)
