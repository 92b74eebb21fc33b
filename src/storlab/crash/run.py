"""A crash check of a study: each set-up once, with a log beneath its disk, cut at many moments."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from storlab.crash.check import Checker, Cutter
from storlab.crash.load import Acknowledged, prepare_loads, run_loads
from storlab.crash.logged import Witnessed, logged_study, witnessed
from storlab.crash.recover import Recovery, refuse_other_versions
from storlab.crash.replay import copy_image
from storlab.crash.results import Control, CrashResult, SetUp
from storlab.errors import MissingTool, StorlabError, TimedOut, UserError
from storlab.formats.log_writes import Flag, WriteLog, read_log
from storlab.layers.attach.blockdev import has_write_cache
from storlab.layers.resources import LoggedFile
from storlab.nodes.waiting import to_its_end
from storlab.records.run_folder import new_run_folder, refuse_unless_empty
from storlab.run.executor import begin_manifest, new_run_id
from storlab.run.interrupts import Interrupts
from storlab.run.journal import Journal
from storlab.run.observer import Observer
from storlab.run.plan import make_plan
from storlab.run.session import Session, open_session
from storlab.run.setup.build import Built
from storlab.run.setup.setups import Setups
from storlab.run.teardown import tear_down
from storlab.run.temporary import forget_run, remember_run
from storlab.study.cells import Cell
from storlab.study.study import Study

NAME, RECORDS = "crash.json", "run"
"""In the check's folder: what is found, written once all is done; and the run that it was, for ``storlab clean``."""


@dataclass(frozen=True)
class Asked:
    """What a crash check is to do. ``unit``: bytes that the disk writes whole or not at all.

    ``keep``: the log, the start image, and the image of the first cut of each set-up that broke something.
    """

    moments: int
    unit: int
    seed: int
    keep: bool = False


async def crash_check(study: Study, folder: Path, asked: Asked, observer: Observer) -> CrashResult:
    """Check every set-up of a study that this machine supports, into a new folder.

    Raises ``UserError``, with nothing done, where it cannot be checked here.
    """
    study = logged_study(study)
    if os.geteuid() != 0:
        raise MissingTool("a crash check mounts what a cut leaves, and so must run as root: use sudo")
    run = new_run_id()
    interrupts = Interrupts(observer.notify)
    with interrupts.listening():
        async with open_session(run, observer.notify) as session:
            plan = await make_plan(study, session, asked.seed, (1, 1))
            plan.refuse_empty()
            _refuse_full(folder)
            with new_run_folder(folder / RECORDS) as records:
                begin_manifest(records.path, run, session, plan)
                remember_run(run, records.path)
                with Journal(records.journal) as journal:
                    session.begin(journal, study.model.scratch)
                    result = CrashResult(run, asked.seed, asked.moments, asked.unit)
                    checks = _Checks(session, journal, folder, asked, observer.notify)
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


def _refuse_full(folder: Path) -> None:
    """Raises ``UserError`` where the folder cannot be a new one."""
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        refuse_unless_empty(folder)
    except OSError as error:
        raise UserError(f"{folder} can't be used for the check: {error.strerror}") from None


async def _rest(journal: Journal, session: Session) -> list[str]:
    return (await tear_down(journal, session)).failed


@dataclass
class _Checks:
    session: Session
    journal: Journal
    folder: Path
    asked: Asked
    notify: Callable[[str], None]

    async def check(self, cell: Cell, lacks: tuple[str, ...]) -> SetUp:
        """One set-up, set up and torn down. What fails is its ``failure``."""
        result = SetUp(cell.number, dict(cell.levels), self.asked.unit)
        if lacks:
            return replace(result, failure="; ".join(lacks), unsupported=True)
        self.notify(f"Set-up {cell.number}: {result.name}.")
        setups = Setups(self.session, self.journal, self.folder / RECORDS)
        built = setups.begin(cell)
        kept = self.folder / "set-ups" / f"{cell.number:04}"
        kept.mkdir(parents=True)
        try:
            async with asyncio.timeout(cell.trial.setup_timeout):
                await setups.set_up(built, kept)
            found = witnessed(cell)
            (logged,) = (each for each in _resources(built, found) if isinstance(each, LoggedFile))
            for node in built.group(found.target.group):
                await refuse_other_versions(found, node, self.session.host)
            acknowledged = Acknowledged(found.witness, Path(logged.log))
            async with asyncio.timeout(cell.timeout):
                places = await prepare_loads(built, self.session, self.asked.seed)
                before = Path(logged.log).stat().st_size
                await run_loads(places, acknowledged)
            for node in built.nodes.values():  # QEMU ends, with all that it has not written yet logged
                await self.session.end(node)
            return await self._cut(result, found, logged, acknowledged, before, kept)
        except TimeoutError:
            return replace(result, failure=str(TimedOut("setting up or the load was stopped at its time-out")))
        except StorlabError as error:
            return replace(result, failure=str(error))
        except OSError as error:  # such as a disk that is full of images
            return replace(result, failure=f"{error.filename or 'an image'}: {error.strerror}")
        finally:
            await to_its_end(setups.tear_down_all())

    async def _cut(
        self, result: SetUp, found: Witnessed, logged: LoggedFile, acknowledged: Acknowledged, before: int, kept: Path
    ) -> SetUp:
        log = await asyncio.to_thread(read_log, Path(logged.log))
        begin = log.before(before)
        commits = acknowledged.positions(log)
        _write_acknowledged(kept / "acknowledged.csv", commits)
        cell, seed = str(result.cell), self.asked.seed
        folder = f"{await self.session.scratch_on(self.session.host)}/crash-{cell}"
        await self.session.host.run(["mkdir", "--parents", "--", folder])
        recovery = Recovery(self.session, self.journal, found, folder, seed)
        through = not has_write_cache(found.attachment.cache)
        cutter = Cutter(log, Path(logged.start), Path(logged.path), Path(folder), begin, through)
        checker = Checker(cutter, commits, recovery.broken, seed, cell, self._keeper(logged, kept))
        result = _counted(replace(result, acknowledged=commits[-1][1] if commits else 0), log, begin)
        result = await self._checked(result, checker, found)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return result

    async def _checked(self, result: SetUp, checker: Checker, found: Witnessed) -> SetUp:
        if not checker.commits:
            return replace(result, failure="the load ended, and no commit was acknowledged to it")
        controls: list[Control] = [await checker.whole()]
        if controls[0].passed:
            self.notify(f"Set-up {result.cell}: {result.entries} entries logged, {result.acknowledged} commits.")
            controls.append(await checker.ordered(self.asked.unit))
        if not all(control.passed for control in controls):
            return replace(result, controls=controls)
        cuts = await checker.counted(self.asked.moments, self.asked.unit)
        pages = found.pages
        if pages is not None and not any(cut.broken is not None and cut.broken.kind != "torn" for cut in cuts):
            controls += await checker.of_pages(pages)
        return replace(result, controls=controls, cuts=cuts)

    def _keeper(self, logged: LoggedFile, kept: Path) -> Callable[[Path], None]:
        def keep(image: Path) -> None:
            if self.asked.keep:
                for path, name in ((image, "broken.img"), (Path(logged.start), "start.img")):
                    copy_image(path, kept / name)
                shutil.copyfile(logged.log, kept / "write.log")

        return keep


def _resources(built: Built, found: Witnessed) -> list[object]:
    return [below.resource for (_, chain), below in built.underlying.items() if chain == found.target.chain]


def _counted(result: SetUp, log: WriteLog, begin: int) -> SetUp:
    entries = log.entries[begin:]
    flushes = sum(1 for entry in entries if entry.flags & Flag.FLUSH)
    return replace(result, entries=len(entries), flushes=flushes, bytes_logged=sum(each.length for each in entries))


def _write_acknowledged(path: Path, commits: Sequence[tuple[int, int]]) -> None:
    """Which commit was acknowledged after how many entries."""
    path.write_text("entries,commit\n" + "".join(f"{entries},{number}\n" for entries, number in commits))
