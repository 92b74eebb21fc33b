"""A run of a suite, from the first guest to the last result; and the rest of one that was interrupted."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from msgspec.structs import replace as with_fields

from storlab.errors import MissingTool, StorlabError, UserError
from storlab.nodes.kinds.vm.kind import VmKind
from storlab.nodes.waiting import to_its_end
from storlab.records.manifest import Manifest, read_manifest, write_manifest
from storlab.records.run_folder import RunFolder, new_run_folder
from storlab.records.suite import CONSOLES, SUITE, Results, SuiteRecord, read_suite_run, write_suite_record
from storlab.run.executor import new_run_id
from storlab.run.interrupts import Interrupts
from storlab.run.journal import Journal, read_pending, refuse_others
from storlab.run.orphans import refuse_living
from storlab.run.session import Session, open_session
from storlab.run.suite.environment import environment_of
from storlab.run.suite.guest import GuestMaker, SuiteGuest
from storlab.run.suite.look import Found, find_suite, lacking_programs
from storlab.run.suite.own_files import adapter_of, own_adapter
from storlab.run.suite.queue import Queue, remaining
from storlab.run.suite.shard import Record, Shard, run_all
from storlab.run.teardown import tear_down, tear_down_rest
from storlab.run.temporary import forget_run, remember_run
from storlab.suite.adapters.base import Adapter
from storlab.suite.adapters.check import Check
from storlab.suite.adapters.zts import Zts
from storlab.suite.expectations import expected
from storlab.suite.model import Attempt, Expectations, Group, Outcome, Suite
from storlab.suite.order import iteration, replayed, shuffled, without_rest
from storlab.suite.own_expectations import OwnEntry
from storlab.suite.selection import EVERYTHING, Selection, longest_first, select
from storlab.suite.zts_text import report_name
from storlab.version import __version__

_SCRATCH = "/var/tmp"


@dataclass(frozen=True)
class Asked:
    """What a run of a suite is to do. ``names``: runfiles, or suites; ``tests``: a folder with one's own tests.

    ``seed``: of a random order; ``order``: that of an earlier run; ``limit``: seconds after which no test is begun.
    """

    names: tuple[str, ...]
    selection: Selection = EVERYTHING
    tests: Path | None = None
    guests: int = 1
    cpus: int = 1
    memory: int = 1024**3
    scale: float | None = None
    retries: int = 0
    allow_missing: bool = False
    times: Mapping[tuple[str, str], float] | None = None
    adapter: Adapter | None = None  # by default what the names call for
    title: str = ""
    seed: int | None = None
    order: tuple[tuple[str, str], ...] = ()
    until_failure: bool = False
    limit: float | None = None
    own: tuple[OwnEntry, ...] = ()  # what the user expects
    iterations: int = 0  # no more than these, if not 0; all of them, unless until a failure

    @property
    def name(self) -> str:
        """What the suite is called."""
        return self.title or ",".join(self.names)


@dataclass(frozen=True)
class Watch:
    """Who is told what: ``begins`` gets what is run, ``ended`` each result, ``notify`` a sentence."""

    begins: Callable[[SuiteRecord, int], None]
    ended: Callable[[Attempt], None]
    notify: Callable[[str], None]
    printed: Callable[[bytes], None] | None = None  # what scripts print, as it comes


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
            maker = _maker(session, folder, asked)
            await maker.refuse_lacking()
            with new_run_folder(folder) as records:
                try:
                    _begin(folder, run, asked.name)
                    async with _journalled(session, records, interrupts) as ended:
                        record, guest = await _plan(asked, maker)
                        run_ = _Run(record, maker, interrupts, watch, ended, limit=asked.limit)
                        await run_.execute(record.groups, guest)
                finally:
                    if not (folder / SUITE).exists() and not read_pending(records.journal):
                        shutil.rmtree(folder, ignore_errors=True)  # a run that was refused leaves no folder
            return ended.outcome(folder, interrupts)


async def resume_suite(folder: Path, watch: Watch) -> Ended:
    """Run what has no result yet, in a run that was killed or interrupted; a group that was under way begins again."""
    _refuse_others_than_root()
    records = RunFolder.open(folder)
    refuse_others(folder)
    interrupts = _interrupts(watch)
    with interrupts.listening(), records.lock():
        known = read_suite_run(folder)
        manifest = records.manifest
        refuse_living(manifest.run, folder)
        asked = known.asked
        async with open_session(manifest.run, watch.notify) as session:
            with Journal(records.journal) as journal:
                result = await tear_down_rest(journal, session)
            if result.failed:
                raise StorlabError(f"cannot tear down what an earlier run set up: {'; '.join(result.failed)}")
            tests = Path(asked.tests) if asked.tests is not None else None
            adapter: Adapter = (
                Check(asked.testdir, asked.check)
                if asked.check is not None
                else adapter_of(asked.runfiles, tests, asked.testdir, asked.zts)
            )
            spec = VmKind(kind="vm", cpus=asked.cpus, memory=asked.memory)
            maker = GuestMaker(session, adapter, spec, folder, tests)
            await maker.refuse_lacking()
            write_manifest(folder, with_fields(manifest, finished=None, stopped=""))
            async with _journalled(session, records, interrupts) as ended:
                run = _Run(asked, maker, interrupts, watch, ended, known.attempts)
                await run.execute(tuple(remaining(asked.groups, known.attempts)))
        return ended.outcome(folder, interrupts)


async def look_at_suite(asked: Asked, notify: Callable[[str], None]) -> tuple[Suite, Found, dict[str, list[str]]]:
    """What a suite consists of, by a look into a guest; nothing of it is run."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="storlab-suite-") as temporary:
        folder = Path(temporary) / "run"
        run = new_run_id()
        interrupts = Interrupts(notify)
        with interrupts.listening():
            async with open_session(run, notify) as session:
                maker = _maker(session, folder, asked)
                await maker.refuse_lacking()
                with new_run_folder(folder) as records:
                    _begin(folder, run, asked.name)
                    async with _journalled(session, records, interrupts):
                        guest = await maker.open("guest-1", folder / "guest")
                        try:
                            found = await find_suite(guest, maker.adapter, asked.name, asked.names)
                            suite = select(found.suite, asked.selection, asked.times)
                            return suite, found, await lacking_programs(guest, suite)
                        finally:
                            await maker.close(guest)


def _refuse_others_than_root() -> None:
    if os.geteuid() != 0:
        raise MissingTool("a suite's guests have disks that only root may hand over: use sudo")


def _interrupts(watch: Watch) -> Interrupts:
    return Interrupts(watch.notify, unit="the tests that run are finished first, with what their groups clean up")


def _maker(session: Session, folder: Path, asked: Asked) -> GuestMaker:
    adapter = asked.adapter or own_adapter(asked.names, asked.tests)
    return GuestMaker(session, adapter, VmKind(kind="vm", cpus=asked.cpus, memory=asked.memory), folder, asked.tests)


def _begin(folder: Path, run: str, name: str) -> None:
    started = datetime.now(UTC).replace(microsecond=0)
    title = f"Suite {name}"
    manifest = Manifest(run=run, title=title, storlab=__version__, argv=tuple(sys.argv), started=started, suite=name)
    try:
        write_manifest(folder, manifest)
    except OSError as error:
        raise UserError(f"{folder} can't be used for the run: {error.strerror}") from None
    remember_run(run, folder)


@dataclass
class _Ending:
    given_up: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()
    stopped: bool = False

    def outcome(self, folder: Path, interrupts: Interrupts) -> Ended:
        return Ended(folder, interrupts.finish, self.given_up, self.left_behind)


@asynccontextmanager
async def _journalled(session: Session, records: RunFolder, interrupts: Interrupts) -> AsyncIterator[_Ending]:
    """Within it things are set up; at its end, however it comes, all of that is torn down."""
    ending = _Ending()
    with Journal(records.journal) as journal:
        journal.note("begin", storlab=__version__, pid=os.getpid())
        session.begin(journal, _SCRATCH)
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


async def _plan(asked: Asked, maker: GuestMaker) -> tuple[SuiteRecord, SuiteGuest]:
    """What is run, by a look into the first guest. Raises ``UserError`` where that can't be, or programs lack."""
    guest = await maker.open("guest-1", maker.folder / CONSOLES / "001-guest-1")
    try:
        return await _planned(asked, maker, guest), guest
    except BaseException:
        await maker.close(guest)
        raise


async def _planned(asked: Asked, maker: GuestMaker, guest: SuiteGuest) -> SuiteRecord:
    found = await find_suite(guest, maker.adapter, asked.name, asked.names)
    suite = in_order(select(found.suite, asked.selection, asked.times), asked)
    lacking = await lacking_programs(guest, suite)
    if lacking and not asked.allow_missing:
        raise UserError(refusal(lacking))
    record = SuiteRecord(
        name=asked.name,
        runner=maker.adapter.runner,
        groups=suite.groups,
        runfiles=found.runfiles,
        testdir=maker.adapter.testdir,
        tests=str(asked.tests.resolve()) if asked.tests is not None else None,
        absent=suite.absent,
        expectations=found.expectations,
        lacking=lacking,
        notes=suite.notes,
        quiet=suite.quiet,
        guests=asked.guests,
        cpus=asked.cpus,
        memory=asked.memory,
        scale=asked.scale,
        retries=asked.retries,
        environment=await environment_of(guest, maker),
        zts=maker.adapter.options if isinstance(maker.adapter, Zts) else None,
        variables=dict(guest.environment.variables),
        check=maker.adapter.options if isinstance(maker.adapter, Check) else None,
        adapter=maker.adapter.name,
        seed=asked.seed,
        replayed=bool(asked.order),
        until_failure=asked.until_failure,
        iterations=asked.iterations,
        own=asked.own,
    )
    write_suite_record(maker.folder, record)
    return record


def in_order(suite: Suite, asked: Asked) -> Suite:
    """The suite in the order that was asked for. Raises ``UserError`` where an earlier run's has nothing of it."""
    if asked.order:
        suite = replayed(suite, asked.order)
    if asked.seed is not None:
        suite = replace(suite, groups=tuple(shuffled(suite.groups, Random(asked.seed))))
    return suite


def refusal(lacking: Mapping[str, list[str]]) -> str:
    """What to say of tests whose programs the image lacks."""
    each = "; ".join(f"{program}: {_some(tests)}" for program, tests in sorted(lacking.items()))
    return (
        f"the guest image lacks programs that tests seem to call ({each}). Without them a test fails or, worse, "
        "passes: leave such tests out with --exclude, or run them all the same with --allow-missing"
    )


def _some(tests: list[str]) -> str:
    names = ["/".join(test.split("/")[-2:]) for test in tests[:3]]
    return ", ".join(names) + (f" and {len(tests) - 3} more" if len(tests) > 3 else "")


@dataclass
class _Run:
    """One execution. ``before``: what an earlier one left."""

    record: SuiteRecord
    maker: GuestMaker
    interrupts: Interrupts
    watch: Watch
    ending: _Ending
    before: tuple[Attempt, ...] = ()
    limit: float | None = None
    failed: str = ""

    async def execute(self, groups: tuple[Group, ...], guest: SuiteGuest | None = None) -> None:
        """Run these groups; the first part has a ``guest`` already.

        With several guests, the longest groups come first, so that none is left with one of them at the end.
        """
        folder, record = self.maker.folder, self.record
        self.watch.begins(record, len({each.key for each in self.before if each.role == "test"}))
        times = {attempt.key: attempt.elapsed for attempt in self.before}
        as_written = record.guests == 1 or record.seed is not None or record.replayed
        ordered = groups if as_written else longest_first(groups, times)
        finished, stopped = None, "The run was interrupted; `storlab suite resume` runs the rest."
        try:
            with Results(folder) as results:
                kept = Record(folder, results, self.watch.ended, _consoles(folder), self.watch.printed)
                kept.watch = lambda attempt: self._ended(attempt, kept)
                queue = Queue.of(ordered, (lambda: self._more(kept)) if record.until_failure else None)
                with self._limited(kept):
                    shards = self._shards(queue, kept)
                    if shards:
                        shards[0].guest = guest
                    self.ending.given_up = tuple(await run_all(shards))
            if not self.interrupts.finish:
                cut = kept.stop if read_suite_run(folder).without_result and not self.failed else ""
                stopped = "; ".join(self.ending.given_up) or cut
                finished = None if stopped else datetime.now(UTC)
        finally:
            if record.until_failure:
                self._forget_rest()
            write_manifest(folder, with_fields(read_manifest(folder), finished=finished, stopped=stopped))

    @contextmanager
    def _limited(self, kept: Record) -> Iterator[None]:
        """Within it, no test is begun any more once the limit is reached."""
        if self.limit is None:
            yield
            return
        why = f"The limit of {self.limit:g} s was reached; `storlab suite resume` runs the rest."
        timer = asyncio.get_running_loop().call_later(self.limit, lambda: setattr(kept, "stop", kept.stop or why))
        try:
            yield
        finally:
            timer.cancel()

    def _ended(self, attempt: Attempt, kept: Record) -> None:
        self.watch.ended(attempt)
        if not self.record.until_failure or attempt.outcome in (Outcome.PASS, Outcome.SKIP):
            return
        last = attempt.number > self.record.retries or attempt.role != "test"
        if last and not self.failed and expected(attempt, report_name(attempt.path), self._expectations) is None:
            number = next(group.iteration for group in self.record.groups if group.name == attempt.group)
            self.failed = attempt.path
            kept.stop = f"{report_name(attempt.path)} did not pass in iteration {number}."
            self.watch.notify(kept.stop)

    @property
    def _expectations(self) -> Expectations:
        return self.record.expected_on(datetime.now(UTC).date())

    def _more(self, kept: Record) -> list[Group]:
        """The next iteration, which is recorded first; none where the run is to end."""
        if self.interrupts.finish or kept.stop:
            return []
        number = max(group.iteration for group in self.record.groups) + 1
        if 0 < self.record.iterations < number:
            return []
        again = iteration(self.record.groups, number)
        if self.record.seed is not None:
            again = shuffled(again, Random(self.record.seed + number))
        self._write(with_fields(self.record, groups=(*self.record.groups, *again)))
        return again

    def _forget_rest(self) -> None:
        """Tests of an iteration that was cut short were not asked for; nor those after the failure that was sought."""
        done = {attempt.key for attempt in read_suite_run(self.maker.folder).attempts if attempt.role == "test"}
        first = not self.failed
        self._write(with_fields(self.record, groups=tuple(without_rest(self.record.groups, done, whole_first=first))))

    def _write(self, record: SuiteRecord) -> None:
        write_suite_record(self.maker.folder, record)
        self.record = record

    def _shards(self, queue: Queue, kept: Record) -> list[Shard]:
        count = min(self.record.guests, len(queue))
        settings = (self.watch.notify, self.record.scale, self.record.retries)
        return [
            Shard(f"guest-{number}", self.maker, queue, kept, self.interrupts, *settings)
            for number in range(1, count + 1)
        ]


def _consoles(folder: Path) -> int:
    """How many guests there were."""
    return sum(1 for _ in (folder / CONSOLES).glob("*"))
