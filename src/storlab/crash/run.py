"""A crash check of a study: each set-up once, with a log underneath its disk, cut at many moments."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import orjson

from storlab.base.errors import MissingTool, RecordsError, StorlabError, TimedOut, UserError
from storlab.base.limits import RECORD
from storlab.base.reading import read_file
from storlab.base.waiting import to_its_end
from storlab.crash.check import HINT, Checker, Cutter, copy_image
from storlab.crash.logged import Twin, Witnessed, durable_twin, logged_study, witnessed
from storlab.crash.recover import Acknowledged, Recovery, prepare_loads, refuse_other_versions, run_loads
from storlab.crash.results import CrashResult, SetUp
from storlab.layers.attach.blockdev import has_write_cache
from storlab.layers.resources import LoggedFile
from storlab.records.held import make_private, new_run_folder
from storlab.run.beginning import begin_run, new_manifest, new_run_id
from storlab.run.build import Built, Setups
from storlab.run.observer import Interrupts, Observer
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.run.planning.plan import make_plan
from storlab.run.planning.wants import refuse_unpermitted
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.reclaim import tear_down
from storlab.run.recovery.temporary import forget_run, remember_run
from storlab.run.session import Session, open_session
from storlab.study.cells import Cell
from storlab.study.study import Study
from storlab.tools.log_writes import Flag, WriteLog, read_log


@dataclass(frozen=True)
class Asked:
    """What a crash check is to do. ``unit``: bytes that the disk writes whole or not at all.

    ``keep``: the log, the start image, and the image of the first cut of each set-up that broke something.
    """

    moments: int
    unit: int
    seed: int
    keep: bool = False


@dataclass(frozen=True)
class Logged:
    """A set-up whose load has ended: its disk, the log underneath that, and what was acknowledged meanwhile."""

    found: Witnessed
    file: LoggedFile
    acknowledged: Acknowledged
    before: int  # bytes of the log that were there before the load
    kept: Path


@dataclass(frozen=True)
class SetUpCheck:
    """Checks the set-ups of one run, one after another. ``records``: the run's folder."""

    session: Session
    journal: Journal
    folder: Path
    records: Path
    asked: Asked
    notify: Callable[[str], None]

    async def check(self, cell: Cell, lacks: tuple[str, ...]) -> SetUp:
        """One set-up. What fails is its ``failure``. ``lacks``: what this machine lacks for it."""
        result = SetUp(cell.number, dict(cell.levels), self.asked.unit)
        if lacks:
            return replace(result, failure="; ".join(lacks), unsupported=True)
        self.notify(f"Set-up {cell.number}: {result.name}.")
        twin = durable_twin(cell)
        found = await self._loaded(result, cell, lambda logged: self._cut(result, logged, twin))
        return await self._vouched(found, twin) if twin is not None and found.early and found.believed else found

    async def _vouched(self, result: SetUp, twin: Twin) -> SetUp:
        """The same, with the controls of the durable twin: that what is lost is lost by settings."""
        self.notify(f"Set-up {result.cell}, {twin.name}.")
        empty = SetUp(result.cell, result.levels, result.unit)

        async def look(logged: Logged) -> SetUp:
            return (await self._controlled(empty, logged))[0]

        other = await self._loaded(empty, twin.cell, look)
        controls = [replace(each, name=f"{twin.name}, {each.name}") for each in other.controls]
        failure = f"{twin.name}: {other.failure}" if other.failure else ""
        return replace(result, controls=[*result.controls, *controls], failure=failure)

    async def _loaded(self, result: SetUp, cell: Cell, look: Callable[[Logged], Awaitable[SetUp]]) -> SetUp:
        """What is found of a set-up after its load, of which everything is torn down then."""
        setups = Setups(self.session, self.journal, self.records)
        built = setups.begin(cell)
        try:
            found = await look(await self._load(cell, setups, built))
            await asyncio.to_thread(shutil.rmtree, await self._images(cell.number), ignore_errors=True)
            return found
        except TimeoutError:
            return replace(result, failure=str(TimedOut("setting up or the load was stopped at its time-out")))
        except StorlabError as error:
            return replace(result, failure=str(error))
        except OSError as error:  # such as a disk that is full of images
            return replace(result, failure=f"{error.filename or 'an image'}: {error.strerror}")
        finally:
            await to_its_end(setups.tear_down_all())

    async def _load(self, cell: Cell, setups: Setups, built: Built) -> Logged:
        kept = self.folder / "set-ups" / f"{cell.number:04}"
        while kept.exists():
            kept = kept.with_name(f"{kept.name}-durable")  # its twin's
        kept.mkdir(parents=True)
        async with asyncio.timeout(cell.trial.setup_timeout):
            await setups.set_up(built, kept)
        found = witnessed(cell)
        below = [below.resource for (_, chain), below in built.underlying.items() if chain == found.target.chain]
        (file,) = (each for each in below if isinstance(each, LoggedFile))
        for node in built.group(found.target.group):
            await refuse_other_versions(found, node, self.session.host)
        acknowledged = Acknowledged(found.witness, Path(file.log))
        async with asyncio.timeout(cell.timeout):
            places = await prepare_loads(built, self.session, self.asked.seed)
            before = Path(file.log).stat().st_size
            await run_loads(places, acknowledged)
        for node in built.nodes.values():  # QEMU ends, with all that it has not written yet logged
            await self.session.end(node)
        return Logged(found, file, acknowledged, before, kept)

    async def _cut(self, result: SetUp, logged: Logged, twin: Twin | None) -> SetUp:
        result, checker = await self._controlled(result, logged)
        early = twin is not None and result.lacks_only_order
        if checker is None or not (early or all(control.passed for control in result.controls)):
            return result
        controls = [*result.controls]
        if early:  # by its settings it need not keep a commit at once, so that control is for its twin
            result = replace(result, early=controls.pop().detail.removesuffix(HINT))
        cuts = await checker.counted(self.asked.moments, self.asked.unit)
        pages = logged.found.pages
        honest = result.flushes > 0 or checker.cutter.write_through
        if pages is not None and honest and all(cut.broken is None or cut.broken.kind == "torn" for cut in cuts):
            controls += await checker.of_pages(pages)
        return replace(result, controls=controls, cuts=cuts)

    async def _controlled(self, result: SetUp, logged: Logged) -> tuple[SetUp, Checker | None]:
        """What was logged, and the controls that are made of all set-ups."""
        log = await asyncio.to_thread(read_log, Path(logged.file.log))
        begin, commits = log.before(logged.before), logged.acknowledged.positions(log)
        rows = "".join(f"{entries},{number}\n" for entries, number in commits)  # acknowledged after so many entries
        (logged.kept / "acknowledged.csv").write_text(f"entries,commit\n{rows}", "utf-8")
        entries = log.entries[begin:]
        result = replace(
            result,
            acknowledged=commits[-1][1] if commits else 0,
            entries=len(entries),
            flushes=sum(1 for entry in entries if entry.flags & Flag.FLUSH),
            bytes_logged=sum(each.length for each in entries),
        )
        if not commits:
            return replace(result, failure="the load ended, and no commit was acknowledged to it"), None
        checker = await self._checker(result.cell, logged, log, commits)
        controls = [await checker.whole()]
        if controls[0].passed:
            self.notify(f"Set-up {result.cell}: {result.entries} entries logged, {result.acknowledged} commits.")
            controls.append(await checker.ordered(self.asked.unit))
        return replace(result, controls=controls), checker

    async def _checker(self, number: int, logged: Logged, log: WriteLog, commits: Sequence[tuple[int, int]]) -> Checker:
        folder = await self._images(number)
        await self.session.host.run(["mkdir", "--parents", "--", folder])
        recovery = Recovery(self.session, self.journal, logged.found, folder, self.asked.seed)
        through = not has_write_cache(logged.found.attachment.cache)
        begin = log.before(logged.before)
        cutter = Cutter(log, Path(logged.file.start), Path(logged.file.path), Path(folder), begin, through)
        return Checker(cutter, commits, recovery.broken, self.asked.seed, str(number), self._keeper(logged))

    async def _images(self, number: int) -> str:
        return f"{await self.session.scratch_on(self.session.host)}/crash-{number}"

    def _keeper(self, logged: Logged) -> Callable[[Path], None]:
        def keep(image: Path) -> None:
            if self.asked.keep:
                for path, name in ((image, "broken.img"), (Path(logged.file.start), "start.img")):
                    copy_image(path, logged.kept / name)
                shutil.copyfile(logged.file.log, logged.kept / "write.log")

        return keep


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
            try:
                folder.mkdir(parents=True, mode=0o700, exist_ok=True)
                make_private(folder)
            except OSError as error:
                raise UserError(f"{folder} can't be used for the check: {error.strerror}") from None
            with new_run_folder(folder / RECORDS) as holding:
                records = holding.named
                begin_run(holding, await new_manifest(run, session, plan))
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
                        left = (await to_its_end(tear_down(journal, session))).failed
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
