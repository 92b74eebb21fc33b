"""The check of one set-up: set up with a log underneath its disk, loaded, cut at many moments, torn down."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from storlab.crash.check import HINT, Checker, Cutter
from storlab.crash.load import Acknowledged, prepare_loads, run_loads
from storlab.crash.logged import Witnessed, witnessed
from storlab.crash.recover import Recovery, refuse_other_versions
from storlab.crash.replay import copy_image
from storlab.crash.results import SetUp
from storlab.crash.twin import Twin, durable_twin
from storlab.errors import StorlabError, TimedOut
from storlab.layers.attach.blockdev import has_write_cache
from storlab.layers.resources import LoggedFile
from storlab.run.build import Built, Setups
from storlab.run.recovery.journal import Journal
from storlab.run.session import Session
from storlab.study.cells import Cell
from storlab.tools.log_writes import Flag, WriteLog, read_log
from storlab.waiting import to_its_end


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
        (file,) = (each for each in _resources(built, found) if isinstance(each, LoggedFile))
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
        _write_acknowledged(logged.kept / "acknowledged.csv", commits)
        result = _counted(replace(result, acknowledged=commits[-1][1] if commits else 0), log, begin)
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


def _resources(built: Built, found: Witnessed) -> list[object]:
    return [below.resource for (_, chain), below in built.underlying.items() if chain == found.target.chain]


def _counted(result: SetUp, log: WriteLog, begin: int) -> SetUp:
    entries = log.entries[begin:]
    flushes = sum(1 for entry in entries if entry.flags & Flag.FLUSH)
    return replace(result, entries=len(entries), flushes=flushes, bytes_logged=sum(each.length for each in entries))


def _write_acknowledged(path: Path, commits: Sequence[tuple[int, int]]) -> None:
    path.write_text("entries,commit\n" + "".join(f"{entries},{number}\n" for entries, number in commits), "utf-8")
