"""Power cuts after the rounds of a study that asks for them: tried once, kept in the run's folder, shown beside tps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from storlab.cli.output import warn
from storlab.errors import MissingTool, StorlabError, UserError

if TYPE_CHECKING:
    from storlab.crash.results import SetUp
    from storlab.records.run_folder import RunFolder
    from storlab.report.model.power_cuts import PowerCuts
    from storlab.run.executor import Outcome
    from storlab.run.permissions import Permissions
    from storlab.study.study import Study

FOLDER = "crash"
"""In a run's folder."""


def refuse_unchecked(study: Study) -> None:
    """Before any round. Raises ``UserError`` where a study asks for power cuts that can't be tried."""
    if study.model.crash is None:
        return
    from storlab.crash.logged import logged_study

    try:
        logged_study(study)
    except UserError as error:
        raise UserError(f"{study.file}: [crash]: {error}") from None
    if os.geteuid() != 0:
        raise MissingTool("[crash]: what a power cut leaves is mounted here, and so this must run as root: use sudo")


def cut_power(outcome: Outcome, permissions: Permissions, *, quiet: bool) -> None:
    """Try what the study asks for, where the rounds ended and nobody has yet. What fails is a warning."""
    folder = outcome.folder.path / FOLDER
    study = outcome.folder.manifest.study()
    if study.model.crash is None or outcome.ending == "interrupted" or outcome.left_behind or folder.exists():
        return
    import asyncio

    from storlab.cli.progress import observer
    from storlab.crash.run import RECORDS, crash_check
    from storlab.crash.set_up import Asked

    found = next(cell.crash for cell in study.cells if cell.crash is not None)
    asked = Asked(found.moments, found.unit, outcome.folder.manifest.seed)
    with observer(quiet) as watching:
        try:
            result = asyncio.run(crash_check(study, folder, asked, watching, permissions))
        except asyncio.CancelledError:
            warn(f"storlab: the power cuts were interrupted; `storlab crash {study.file}` tries them by themselves")
            return
        except StorlabError as error:
            warn(f"storlab: the power cuts could not be tried: {error}")
            return
    for reason in result.left_behind:
        warn(f"storlab: could not be torn down: {reason}; `storlab clean {folder / RECORDS}` tries again")


def power_cuts_of(run: RunFolder) -> tuple[PowerCuts, ...]:
    """What is known of a run's; none where no power was cut. Raises ``RecordsError``."""
    path = run.path / FOLDER
    if not path.exists():
        return ()
    from storlab.crash.run import read_result

    result = read_result(path)
    return () if result is None else tuple(map(_shown, result.set_ups))


def _shown(each: SetUp) -> PowerCuts:
    from storlab.report.model.power_cuts import PowerCuts

    if not each.believed:
        failed = next((control for control in each.controls if not control.passed), None)
        control = "" if failed is None else f"a control failed: {failed.name}: {failed.detail}"
        return PowerCuts(each.cell, each.levels, why=each.failure or control)
    return PowerCuts(
        each.cell,
        each.levels,
        moments=len(each.cuts),
        at_risk=each.at_risk,
        broken=each.broken,
        kinds=each.kinds,
        interval=each.interval,
        notes=tuple(_notes(each)),
    )


def _notes(each: SetUp) -> Iterator[str]:
    if (first := each.first_broken) is not None and first.broken is not None:
        yield f"first at moment {first.number}: {first.broken.reason}"
    if each.early:
        yield "acknowledges early, as its settings allow: a cut that loses nothing breaks it, too"
