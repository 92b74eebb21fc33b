"""A run of a suite, from the first guest to the last result; and the rest of one that was interrupted."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace as with_fields
from pydantic import ValidationError

from storlab.errors import MissingTool, StorlabError, UserError
from storlab.nodes.kinds.vm.kind import VmKind
from storlab.records.held import HeldFolder, new_run_folder
from storlab.records.manifest import Manifest, write_manifest
from storlab.records.run_folder import RunFolder
from storlab.run.beginning import begin_run, new_run_id
from storlab.run.interrupts import Interrupts
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.run.recovery.hosts import refuse_unpermitted_hosts
from storlab.run.recovery.journal import Journal, read_pending
from storlab.run.recovery.teardown import taken, tear_down, tear_down_rest
from storlab.run.recovery.temporary import forget_run, remember_run
from storlab.run.session import Session, open_session
from storlab.suites.adapters.base import Adapter
from storlab.suites.adapters.check import Check
from storlab.suites.model import Suite
from storlab.suites.places.guest import GuestMaker
from storlab.suites.places.here import HereMaker
from storlab.suites.places.place import Place
from storlab.suites.records import CONSOLES, SUITE, Results, SuiteRecord, SuiteRun, read_suite_run
from storlab.suites.records.here import FILES, Here
from storlab.suites.records.own_kernel import OwnKernel
from storlab.suites.records.under_way import taken_down
from storlab.suites.run.asked import Asked
from storlab.suites.run.execution import Ending, Execution, Watch
from storlab.suites.run.hold import Hold
from storlab.suites.run.look import Found, find_suite, lacking_programs
from storlab.suites.run.own_files import adapter_of, own_adapter, run_by
from storlab.suites.run.plan import plan
from storlab.suites.run.queue import remaining
from storlab.suites.run.until_failure import UntilFailure
from storlab.suites.run.wants import refuse_other_machine, refuse_unpermitted_run, wants_of_run
from storlab.suites.selection import select
from storlab.version import __version__
from storlab.waiting import to_its_end

# A guest that a debugger has stopped is silent; without KASLR, symbols are where the kernel's file has them.
_DEBUGGED = {"gdb": True, "kernel_args": "nokaslr", "silence": "30d"}


@dataclass(frozen=True)
class Ended:
    """How a run ended. ``given_up``: why no guest could be had; ``left_behind``: what could not be torn down."""

    folder: Path
    interrupted: bool
    given_up: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()


async def run_suite(asked: Asked, folder: Path, watch: Watch) -> Ended:
    """Run a suite into a new folder. Raises ``UserError``, with nothing left, where it can't be run here."""
    _refuse_others_than_root()
    run = new_run_id()
    interrupts = _interrupts(watch)
    with interrupts.listening():
        async with open_session(run, watch.notify) as session:
            place = _place(session, folder, asked)
            await place.refuse_lacking()
            with new_run_folder(folder) as holding:
                place = _place(session, holding.run.path, asked)
                try:
                    _begin(holding, run, asked.name)
                    async with _journalled(session, holding.run, interrupts, asked.here) as ended:
                        record, guest = await plan(asked, place)
                        run_ = Execution(
                            record, place, interrupts, watch, ended, limit=asked.limit, times=asked.times or {}
                        )
                        run_.hold = _hold(asked, folder, watch)
                        await run_.execute(record.groups, guest)
                finally:
                    if not (folder / SUITE).exists() and not read_pending(holding.run.journal):
                        shutil.rmtree(folder, ignore_errors=True)  # a run that was refused leaves no folder
            return _outcome(ended, folder, interrupts)


async def resume_suite(
    folder: Path,
    watch: Watch,
    limit: float | None = None,
    permissions: Permissions = NO_PERMISSIONS,
    here: str = "",
) -> Ended:
    """Run what has no result yet, in a run that was killed, interrupted or limited; a group that was under way begins
    again. ``here``: this machine, where its tests run on that. Raises ``UserError`` where a run until a failure has
    found one, and for what the run's folder wants of this machine and may not have.
    """
    _refuse_others_than_root()
    interrupts = _interrupts(watch)
    with interrupts.listening(), taken(folder) as holding:
        records = holding.run
        known = read_suite_run(records.path)
        manifest = records.manifest
        asked = known.asked
        tests = Path(asked.tests) if asked.tests is not None else None
        refuse_other_machine(here, asked.here)
        wants = wants_of_run(tests=tests, kernel=asked.kernel, here=asked.here)
        refuse_unpermitted_run(folder, wants, permissions)
        refuse_unpermitted_hosts(manifest.run, folder, read_pending(records.journal), permissions)
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
            place: Place
            if asked.here is not None:
                place = HereMaker(session, run_by(adapter, asked.here.user), asked.here, holding.run.path)
            else:
                place = GuestMaker(session, adapter, _guests(asked), holding.run.path, tests, asked.guests)
            await place.refuse_lacking()
            if lost := taken_down(records.path, session.host.machine, known.attempts):
                with Results(records.path) as results:
                    results.add(lost)
                watch.ended(lost)
                known = read_suite_run(records.path)
            write_manifest(records.path, with_fields(manifest, finished=None, stopped=""))
            async with _journalled(session, records, interrupts, asked.here) as ended:
                run = Execution(asked, place, interrupts, watch, ended, known.attempts, limit)
                await run.execute(tuple(remaining(asked.groups, known.attempts)))
        return _outcome(ended, folder, interrupts)


async def look_at_suite(asked: Asked, notify: Callable[[str], None]) -> tuple[Suite, Found, dict[str, list[str]]]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="storlab-suite-") as temporary:
        folder = Path(temporary) / "run"
        run = new_run_id()
        interrupts = Interrupts(notify)
        with interrupts.listening():
            async with open_session(run, notify) as session:
                place = _place(session, folder, asked)
                await place.refuse_lacking()
                with new_run_folder(folder) as holding:
                    place = _place(session, holding.run.path, asked)
                    _begin(holding, run, asked.name)
                    async with _journalled(session, holding.run, interrupts, asked.here):
                        guest = await place.open(place.name(1), place.folder / "guest")
                        try:
                            found = await find_suite(guest, place.adapter, asked.name, asked.names)
                            suite = select(found.suite, asked.selection, asked.times)
                            return suite, found, await lacking_programs(guest, suite, place.adapter)
                        finally:
                            await place.close(guest)


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


def _outcome(ending: Ending, folder: Path, interrupts: Interrupts) -> Ended:
    return Ended(folder, interrupts.finish, ending.given_up, ending.left_behind)


def _interrupts(watch: Watch) -> Interrupts:
    return Interrupts(watch.notify, unit="the tests that run are finished first, with what their groups clean up")


def _place(session: Session, folder: Path, asked: Asked) -> Place:
    adapter = asked.adapter or own_adapter(asked.names, asked.tests, asked.here, asked.permissions)
    if asked.here is not None:
        return HereMaker(session, adapter, asked.here, folder)
    return GuestMaker(session, adapter, _guests(asked), folder, asked.tests, asked.guests, asked.hold)


def _hold(asked: Asked, folder: Path, watch: Watch) -> Hold | None:
    own = asked.kernel or OwnKernel(None)
    return Hold(watch.notify, folder / CONSOLES, asked.debug, own.image, own.tree) if asked.hold else None


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


def _begin(folder: HeldFolder, run: str, name: str) -> None:
    started = datetime.now(UTC).replace(microsecond=0)
    title = f"Suite {name}"
    manifest = Manifest(run=run, title=title, storlab=__version__, argv=tuple(sys.argv), started=started, suite=name)
    begin_run(folder, manifest)
    remember_run(run, folder.named.path)


@asynccontextmanager
async def _journalled(
    session: Session, records: RunFolder, interrupts: Interrupts, here: Here | None
) -> AsyncIterator[Ending]:
    """Within it things are set up; at its end, however it comes, all of that is torn down."""
    ending = Ending()
    with Journal(records.journal) as journal:
        journal.note("begin", storlab=__version__, pid=os.getpid())
        session.begin(journal, FILES if here is None else here.files)
        interrupts.stage = "trials"
        try:
            yield ending
        except asyncio.CancelledError:
            if not interrupts.at_once:
                raise
        finally:
            interrupts.stage = "teardown"
            ending.left_behind = tuple(await to_its_end(_tear_down(journal, session)))
            journal.note("end", left_behind=list(ending.left_behind))
            if not ending.left_behind:
                forget_run(session.run)


async def _tear_down(journal: Journal, session: Session) -> list[str]:
    for node in [node for node in session.nodes.values() if node.identity.volatile]:
        await session.end(node)
    return (await tear_down(journal, session)).failed
