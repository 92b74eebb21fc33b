"""One execution of a suite's groups in guests, until the last result, a limit, an interrupt or the failure sought."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random

from msgspec.structs import replace as with_fields

from storlab.base.amounts import plural
from storlab.base.errors import StorlabError, UserError
from storlab.base.waiting import all_of
from storlab.findings import Reported
from storlab.records.manifest import read_manifest, write_manifest
from storlab.run.observer import Interrupts
from storlab.suites.expectations import expected
from storlab.suites.model import LOST, Attempt, Group, Outcome, report_name
from storlab.suites.places.place import GuestLost, Place, Spare, SuiteGuest
from storlab.suites.records.folder import CONSOLES, Results, SuiteRecord, read_suite_run, write_suite_record
from storlab.suites.run.attempt import Terms
from storlab.suites.run.hold import Hold
from storlab.suites.run.part import Part
from storlab.suites.run.record import Record
from storlab.suites.selection import iteration, longest_first, shuffled, without_rest

_BOOTS = 3  # tries to get a guest, one after another, before a part of the run is given up

_BOOT_AGAIN = (
    "A test hangs in the kernel of this machine, so nothing more was run: boot it again, "
    "and `storlab suite resume` runs the rest."
)


class NoGuest(StorlabError):
    """No guest can be had any more."""


class Queue:
    """Groups that are still to run, in order; each is handed out whole, to whichever guest is free next, and only a
    loss splits one. ``more`` is asked for others once they are all handed out.
    """

    def __init__(self, groups: Iterable[Group], more: Callable[[], Sequence[Group]] | None = None) -> None:
        self._waiting, self._more = deque(groups), more

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Group | None:
        if not self._waiting and self._more is not None:
            self._waiting.extend(self._more())
        return self._waiting.popleft() if self._waiting else None


@dataclass
class Shard:
    """The life of one guest, and of those that take its place."""

    name: str
    terms: Terms
    queue: Queue
    notify: Callable[[str], None]
    spare: Spare
    guest: SuiteGuest | None = None
    _lost: bool = False  # one of its guests

    async def run(self) -> None:
        try:
            while not self.terms.stops and (group := self.queue.take()) is not None:
                await self._whole(group)
        finally:
            await self._close()

    async def _whole(self, group: Group) -> None:
        """All of a group. If its guest is lost, the rest of it, after its set-up, in a fresh one."""
        losses: dict[str, int] = {}
        while group.tests and not self.terms.stops:
            guest = await self._living()
            part = Part(self.terms, guest, group, losses)
            try:
                await part.run()
                return
            except GuestLost as loss:
                if self.terms.place.here is not None and loss.hung:
                    raise NoGuest(_BOOT_AGAIN) from None
                follows = ""
                if self.terms.place.here is None:
                    rest = f"What is left of the group, {plural(len(part.left), 'test')}, is run in a fresh guest."
                    follows = f" {rest if part.left else 'A fresh guest takes its place.'}"
                self.notify(f"{self.name}: {loss.reason}.{follows}")
                self._lost = True
                await self._close()
                group = replace(group, tests=part.left)

    async def _living(self) -> SuiteGuest:
        tries = 0
        while self.guest is None:
            tries += 1
            try:
                self.guest = await self.spare.take()
                if self.guest is None:
                    self.guest = await self.terms.record.opened(self.terms.place, self.name, self.notify)
            except UserError:
                raise
            except StorlabError as error:  # also a command that fails while the guest is prepared
                if tries >= _BOOTS:
                    raise NoGuest(f"{self.name}: no guest could be had in {_BOOTS} tries: {error}") from None
                self.notify(f"{self.name}: {error}. Another guest is started.")
            else:
                self.guest.name = self.name  # of a spare one, from here on
                if self._lost:
                    await self.spare.prepare()
        return self.guest

    async def _close(self) -> None:
        if self.guest is not None:
            guest, self.guest = self.guest, None
            await self.terms.place.close(guest)


async def run_all(shards: list[Shard]) -> list[str]:
    given_up: list[str] = []

    async def one(shard: Shard) -> None:
        try:
            await shard.run()
        except NoGuest as error:
            given_up.append(str(error))

    await all_of(*(one(shard) for shard in shards))
    return given_up


class UntilFailure:
    """The iterations of one run. ``ends``: whether none is to be begun any more, for another reason than a failure.

    ``failed``: whether one was found.
    """

    def __init__(self, folder: Path, record: SuiteRecord, ends: Callable[[], bool] = lambda: False) -> None:
        self._folder, self._record, self._ends = folder, record, ends
        self.failed = False

    def failure(self, attempt: Attempt) -> str:
        """What to say of a script that is the first to fail unexpectedly; empty for any other."""
        if self.failed or not is_failure(attempt, self._record):
            return ""
        self.failed = True
        number = next(group.iteration for group in self._record.groups if group.name == attempt.group)
        return f"{report_name(attempt.path)} did not pass in iteration {number}."

    def failed_before(self, attempts: Iterable[Attempt]) -> str:
        """The same of a run that is resumed, by what it has."""
        return next((said for attempt in attempts if (said := self.failure(attempt))), "")

    def more(self) -> Sequence[Group]:
        """The next iteration, which is recorded first; none if the run is to end."""
        if self.failed or self._ends():
            return ()
        number = max((group.iteration for group in self._record.groups), default=0) + 1
        if 0 < self._record.iterations < number:
            return ()
        again = iteration(self._record.groups, number)
        if self._record.seed is not None:
            again = shuffled(again, Random(self._record.seed + number))
        self._write((*self._record.groups, *again))
        return again

    def forget_rest(self) -> None:
        """Tests of an iteration that was cut short were not asked for; nor those after the failure that was sought."""
        done = {attempt.key for attempt in read_suite_run(self._folder).attempts if attempt.role == "test"}
        self._write(tuple(without_rest(self._record.groups, done, whole_first=not self.failed)))

    def _write(self, groups: tuple[Group, ...]) -> None:
        self._record = with_fields(self._record, groups=groups)
        write_suite_record(self._folder, self._record)


def is_failure(attempt: Attempt, record: SuiteRecord) -> bool:
    """Whether a script did not pass, at its last try, or lost its guest, and nobody expected that."""
    if attempt.outcome in (Outcome.PASS, Outcome.SKIP):
        return False
    if attempt.role == "test" and attempt.number <= record.retries and attempt.outcome not in LOST:
        return False
    expectations = record.expected_on(datetime.now(UTC).date())
    return expected(attempt, report_name(attempt.path), expectations) is None


@dataclass(frozen=True)
class Watch:
    """What is called as a run goes on: ``begins`` with what is run, ``ended`` with results, ``notify`` with words."""

    begins: Callable[[SuiteRecord, int], None]
    ended: Callable[[Attempt], None]
    notify: Callable[[str], None]
    printed: Callable[[bytes], None] | None = None  # what scripts print, as it comes


@dataclass
class Ended:
    """How a run ended. ``given_up``: why no guest could be had; ``left_behind``: what could not be torn down."""

    folder: Path
    interrupted: bool = False
    given_up: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()


@dataclass
class Execution:
    """``before``: results of an earlier one; ``limit``: seconds after which no test is begun; ``times``: of tests in
    other runs.
    """

    record: SuiteRecord
    place: Place
    interrupts: Interrupts
    watch: Watch
    ended: Ended
    before: tuple[Attempt, ...] = ()
    limit: float | None = None
    times: Mapping[tuple[str, str], float] = field(default_factory=dict)
    hold: Hold | None = None

    async def execute(self, groups: tuple[Group, ...], guest: SuiteGuest | None = None) -> None:
        """Run these groups; the first part has a ``guest`` already.

        With several guests, the longest groups come first, so that none is left with one of them at the end.
        """
        folder, record = self.place.folder, self.record
        self.watch.begins(record, len({each.key for each in self.before if each.role == "test"}))
        times = {**self.times, **{attempt.key: attempt.elapsed for attempt in self.before}}
        as_written = record.guests == 1 or record.seed is not None or record.replayed
        ordered: Sequence[Group] = groups if as_written else longest_first(groups, times)
        finished, stopped = None, "The run was interrupted; `storlab suite resume` runs the rest."
        until: UntilFailure | None = None
        try:
            with Results(folder) as results:
                guests = sum(1 for _ in (folder / CONSOLES).glob("*"))
                kept = Record(folder, results, self.watch.ended, guests, self.watch.printed)
                kept.environment = record.environment
                if record.until_failure:
                    until = self._until_failure(kept)
                    ordered = () if until.failed_before(self.before) else ordered or until.more()
                queue = Queue(ordered, until.more if until is not None else None)
                with self._limited(kept):
                    self.ended.given_up = await self._run(queue, kept, guest)
            if not self.interrupts.finish:
                lacks = read_suite_run(folder).without_result if until is None else not until.failed
                stopped = "; ".join(self.ended.given_up) or (kept.stop if lacks else "")
                finished = None if stopped else datetime.now(UTC)
        finally:
            if until is not None:
                until.forget_rest()
            write_manifest(
                folder,
                with_fields(read_manifest(folder), finished=finished, stopped=Reported(stopped) if stopped else None),
            )

    def _until_failure(self, kept: Record) -> UntilFailure:
        until = UntilFailure(self.place.folder, self.record, lambda: self.interrupts.finish or bool(kept.stop))

        def ended(attempt: Attempt) -> None:
            self.watch.ended(attempt)
            if said := until.failure(attempt):
                kept.stop = said
                self.watch.notify(said)

        kept.watch = ended
        return until

    @contextmanager
    def _limited(self, kept: Record) -> Iterator[None]:
        if self.limit is None:
            yield
            return
        why = f"The limit of {self.limit:g} s was reached; `storlab suite resume` runs the rest."
        timer = asyncio.get_running_loop().call_later(self.limit, lambda: setattr(kept, "stop", kept.stop or why))
        try:
            yield
        finally:
            timer.cancel()

    async def _run(self, queue: Queue, kept: Record, guest: SuiteGuest | None) -> tuple[str, ...]:
        async with Spare(self.place, partial(kept.opened, self.place, notify=self.watch.notify)) as spare:
            terms = Terms(self.place, kept, self.interrupts, self.record.scale, self.record.retries, self.hold)
            shards = [
                Shard(self.place.name(number), terms, queue, self.watch.notify, spare)
                for number in range(1, min(self.record.guests, len(queue)) + 1)
            ]
            if shards:
                shards[0].guest = guest
            return tuple(await run_all(shards))
