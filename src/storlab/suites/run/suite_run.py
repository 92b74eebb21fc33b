"""A run of a suite, from the first guest to the last result; and the rest of one that was interrupted."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace as with_fields
from pydantic import ValidationError

from storlab.base.errors import MissingTool, StorlabError, UserError
from storlab.base.waiting import to_its_end
from storlab.nodes.kinds.vm.kind import VmKind
from storlab.records.held import new_run_folder
from storlab.records.manifest import Manifest, write_manifest
from storlab.records.run_folder import RunFolder
from storlab.run.beginning import begin_run, new_run_id
from storlab.run.observer import Interrupts
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.run.recovery.journal import Journal, read_pending
from storlab.run.recovery.reclaim import taken, tear_down, tear_down_rest
from storlab.run.recovery.temporary import forget_run, remember_run
from storlab.run.session import Session, open_session
from storlab.suites.adapters.base import Adapter
from storlab.suites.adapters.check import Check
from storlab.suites.model import Suite
from storlab.suites.places.kinds import GuestMaker, HereMaker
from storlab.suites.places.place import Place
from storlab.suites.records.folder import (
    CONSOLES,
    FILES,
    SUITE,
    OwnKernel,
    Results,
    SuiteRecord,
    SuiteRun,
    read_suite_run,
    taken_down,
)
from storlab.suites.run.execution import Ended, Execution, UntilFailure, Watch
from storlab.suites.run.hold import Hold
from storlab.suites.run.own_files import adapter_of, own_adapter, run_by
from storlab.suites.run.plan import Asked, Found, find_suite, lacking_programs, plan
from storlab.suites.run.wants import refuse_other_machine, refuse_unpermitted, wants_of_run
from storlab.suites.selection import remaining, select
from storlab.version import __version__

# A guest that a debugger has stopped is silent; without KASLR, symbols are where the kernel's file has them.
_DEBUGGED = {"gdb": True, "kernel_args": "nokaslr", "silence": "30d"}


async def run_suite(asked: Asked, folder: Path, watch: Watch) -> Ended:
    """Run a suite into a new folder. Raises ``UserError``, with nothing left, if it can't be run here."""
    _refuse_others_than_root()
    interrupts = _interrupts(watch)
    async with _begun(asked, folder, interrupts, watch.notify) as (place, ended):
        record, guest = await plan(asked, place)
        run = Execution(record, place, interrupts, watch, ended, limit=asked.limit, times=asked.times or {})
        if asked.hold:
            own = asked.kernel or OwnKernel(None)
            run.hold = Hold(watch.notify, folder / CONSOLES, asked.debug, own.image, own.tree)
        await run.execute(record.groups, guest)
    ended.interrupted = interrupts.finish
    return ended


async def resume_suite(
    folder: Path,
    watch: Watch,
    limit: float | None = None,
    permissions: Permissions = NO_PERMISSIONS,
    here: str = "",
) -> Ended:
    """Run what has no result yet, in a run that was killed, interrupted or limited; a group that was under way begins
    again. ``here``: this machine, if its tests run on that. Raises ``UserError`` if a run until a failure has
    found one, and for what the run's folder wants of this machine and may not have.
    """
    _refuse_others_than_root()
    interrupts = _interrupts(watch)
    with interrupts.listening(), taken(folder, permissions) as holding:
        records = holding.run
        known = read_suite_run(records.path)
        manifest = records.manifest
        asked = known.asked
        tests = Path(asked.tests) if asked.tests is not None else None
        refuse_other_machine(here, asked.here)
        wants = wants_of_run(tests=tests, kernel=asked.kernel, here=asked.here)
        refuse_unpermitted(folder / SUITE, wants, permissions)
        _refuse_found(known)
        async with open_session(manifest.run, watch.notify) as session:
            with Journal(records.journal) as journal:
                result = await tear_down_rest(journal, session)
            if result.failed:
                raise StorlabError(f"cannot tear down what an earlier run set up: {'; '.join(result.failed)}")
            adapter: Adapter = (
                Check(asked.testdir, asked.check)
                if asked.check is not None
                else adapter_of(asked.runfiles, tests, asked.testdir, asked.zts, permissions)
            )
            if asked.here is not None:
                adapter = run_by(adapter, asked.here.user)
            place = _place(session, records.path, asked, adapter, tests)
            await place.refuse_lacking()
            if lost := taken_down(records.path, session.host.machine, known.attempts):
                with Results(records.path) as results:
                    results.add(lost)
                watch.ended(lost)
                known = read_suite_run(records.path)
            write_manifest(records.path, with_fields(manifest, finished=None, stopped=None))
            async with _journalled(session, records, interrupts, place) as ended:
                run = Execution(asked, place, interrupts, watch, ended, known.attempts, limit)
                await run.execute(tuple(remaining(asked.groups, known.attempts)))
        ended.folder, ended.interrupted = folder, interrupts.finish
        return ended


async def look_at_suite(asked: Asked, notify: Callable[[str], None]) -> tuple[Suite, Found, dict[str, list[str]]]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="storlab-suite-") as temporary:
        async with _begun(asked, Path(temporary) / "run", Interrupts(notify), notify) as (place, _):
            guest = await place.open(place.name(1), place.folder / "guest")
            try:
                found = await find_suite(guest, place.adapter, asked.name, asked.names)
                suite = select(found.suite, asked.selection, asked.times)
                return suite, found, await lacking_programs(guest, suite, place.adapter)
            finally:
                await place.close(guest)


@asynccontextmanager
async def _begun(
    asked: Asked, folder: Path, interrupts: Interrupts, notify: Callable[[str], None]
) -> AsyncIterator[tuple[Place, Ended]]:
    """Within it a new run is under way, in a new folder; one that is refused leaves none."""
    run = new_run_id()
    with interrupts.listening():
        async with open_session(run, notify) as session:
            adapter = asked.adapter or own_adapter(asked.names, asked.tests, asked.here, asked.permissions)
            place = _place(session, folder, asked, adapter, asked.tests)
            await place.refuse_lacking()
            with new_run_folder(folder) as holding:
                place.folder = holding.run.path
                try:
                    started = datetime.now(UTC).replace(microsecond=0)
                    words, title = tuple(sys.argv), f"Suite {asked.name}"
                    begin_run(holding, Manifest(run, title, __version__, words, started, suite=asked.name))
                    remember_run(run, holding.named.path)
                    async with _journalled(session, holding.run, interrupts, place) as ended:
                        ended.folder = folder
                        yield place, ended
                finally:
                    if not (folder / SUITE).exists() and not read_pending(holding.run.journal):
                        shutil.rmtree(folder, ignore_errors=True)


def _refuse_others_than_root() -> None:
    if os.geteuid() != 0:
        raise MissingTool("a suite has disks, in guests or here, that only root may hand over: use sudo")


def _refuse_found(known: SuiteRun) -> None:
    if not known.asked.until_failure or known.finished is None:
        return
    if said := UntilFailure(known.folder, known.asked).failed_before(known.attempts):
        raise UserError(
            f"{known.folder}: the run was to end with the first failure, and {said} Nothing is left to resume; "
            f"`storlab suite run --replay {known.folder}` repeats its order"
        )


def _interrupts(watch: Watch) -> Interrupts:
    return Interrupts(watch.notify, unit="the tests that run are finished first, with what their groups clean up")


def _place(session: Session, folder: Path, asked: Asked | SuiteRecord, adapter: Adapter, tests: Path | None) -> Place:
    if asked.here is not None:
        return HereMaker(session=session, adapter=adapter, folder=folder, here=asked.here)
    hold = isinstance(asked, Asked) and asked.hold
    return GuestMaker(
        session=session,
        adapter=adapter,
        folder=folder,
        spec=_guests(asked),
        tests=tests,
        number=asked.guests,
        hold=hold,
    )


def _guests(asked: Asked | SuiteRecord) -> VmKind:
    own = {} if asked.kernel is None else asked.kernel.keys
    if isinstance(asked, Asked) and asked.debug:
        own |= _DEBUGGED
    try:
        return VmKind.model_validate({"kind": "vm", "cpus": asked.cpus, "memory": asked.memory, **own})
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Value error, ")
        raise UserError(f"--{'.'.join(map(str, first['loc']))}: {reason}") from None


@asynccontextmanager
async def _journalled(
    session: Session, records: RunFolder, interrupts: Interrupts, place: Place
) -> AsyncIterator[Ended]:
    """Within it things are set up; at its end, however it comes, all of that is torn down."""
    ended = Ended(records.path)
    with Journal(records.journal) as journal:
        journal.note("begin", storlab=__version__, pid=os.getpid())
        session.begin(journal, FILES if place.here is None else place.here.files)
        interrupts.stage = "trials"
        try:
            yield ended
        except asyncio.CancelledError:
            if not interrupts.at_once:
                raise
        finally:
            interrupts.stage = "teardown"
            ended.left_behind = tuple(await to_its_end(_tear_down(journal, session)))
            journal.note("end", left_behind=list(ended.left_behind))
            if not ended.left_behind:
                forget_run(session.run)


async def _tear_down(journal: Journal, session: Session) -> list[str]:
    for node in [node for node in session.nodes.values() if node.identity.volatile]:
        await session.end(node)
    return (await tear_down(journal, session)).failed
