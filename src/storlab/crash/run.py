"""A crash check of a study: each set-up once, with a log underneath its disk, cut at many moments."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import orjson

from storlab.crash.logged import logged_study
from storlab.crash.results import CrashResult
from storlab.crash.set_up import Asked, SetUpCheck
from storlab.errors import MissingTool, RecordsError, UserError
from storlab.limits import RECORD
from storlab.reading import read_file
from storlab.records.held import make_private, new_run_folder
from storlab.run.beginning import begin_manifest, new_run_id
from storlab.run.observer import Interrupts, Observer
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.run.planning.plan import make_plan
from storlab.run.planning.wants import refuse_unpermitted
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.reclaim import tear_down
from storlab.run.recovery.temporary import forget_run, remember_run
from storlab.run.session import Session, open_session
from storlab.study.study import Study
from storlab.waiting import to_its_end

NAME, RECORDS = "crash.json", "run"
"""In the check's folder: what is found, written once all is done; and the run that it was, for ``storlab clean``."""


async def crash_check(
    study: Study, folder: Path, asked: Asked, observer: Observer, permissions: Permissions = NO_PERMISSIONS
) -> CrashResult:
    """Check every set-up of a study that this machine supports, into a new folder.

    Raises ``UserError``, with nothing done, where it cannot be checked here.
    """
    refuse_unpermitted(study, permissions)
    study = logged_study(study)
    if os.geteuid() != 0:
        raise MissingTool("a crash check mounts what a cut leaves, and so must run as root: use sudo")
    run = new_run_id()
    interrupts = Interrupts(observer.notify)
    with interrupts.listening():
        async with open_session(run, observer.notify, permissions) as session:
            plan = await make_plan(study, session, asked.seed, (1, 1))
            plan.refuse_empty()
            _refuse_full(folder)
            with new_run_folder(folder / RECORDS) as holding:
                records = holding.named
                await begin_manifest(holding, run, session, plan)
                remember_run(run, records.path)
                with Journal(records.journal) as journal:
                    session.begin(journal, study.model.scratch)
                    result = CrashResult(run, asked.seed, asked.moments, asked.unit)
                    checks = SetUpCheck(session, journal, folder, records.path, asked, observer.notify)
                    try:
                        set_ups = [
                            await checks.check(cell, plan.unsupported.get(cell.number, ())) for cell in plan.study.cells
                        ]
                    finally:
                        interrupts.stage = "teardown"
                        left = await to_its_end(_rest(journal, session))
                        if not left:
                            forget_run(run)
                result = replace(result, set_ups=set_ups, left_behind=left)
                (folder / NAME).write_bytes(orjson.dumps(result.as_dict(), option=orjson.OPT_INDENT_2))
                return result


def read_result(folder: Path) -> CrashResult | None:
    """What a check found; ``None`` where it did not end. Raises ``RecordsError``."""
    path = folder / NAME
    try:
        data = read_file(path, RECORD)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordsError(f"cannot read {path}: {error.strerror}") from None
    try:
        return msgspec.json.decode(data, type=CrashResult)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise RecordsError(f"{path} is not what a crash check writes: {error}") from None


def _refuse_full(folder: Path) -> None:
    """Raises ``UserError`` where the folder cannot be a new one."""
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        make_private(folder)
    except OSError as error:
        raise UserError(f"{folder} can't be used for the check: {error.strerror}") from None


async def _rest(journal: Journal, session: Session) -> list[str]:
    return (await tear_down(journal, session)).failed
