"""A group, or what is left of it, in one guest: its scripts in turn, what each left, and what a loss leaves to run."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from msgspec.structs import replace as with_fields

from storlab.base.errors import NodeError, StorlabError
from storlab.suites.groups import inside
from storlab.suites.model import LOST, Attempt, Group, Leak, Outcome, Role, Script
from storlab.suites.places.invariants import Watchman, look
from storlab.suites.places.place import GuestLost, SuiteGuest, blank_disks, end_survivors, loss_of, restore_service
from storlab.suites.records.folder import OUTPUT, write_under_way
from storlab.suites.run.attempt import Running, Terms, run_script

_LOOK = 30.0  # s, for what takes a hundredth
_LOSSES = 2  # of guests by one test, before it is not tried again


def place_of(path: str, tests: Sequence[Script]) -> str:
    """A test's own folder below its group's: its name, with the folders that it is in if others have the same."""
    name = posixpath.basename(path)
    others = {test.path for test in tests if posixpath.basename(test.path) == name}
    if len(others) < 2:
        return name
    return posixpath.relpath(path, posixpath.commonpath(posixpath.dirname(other) for other in others))


class Part:
    """A group, or what is left of it, in one guest. ``left``: tests for another guest, should this one be lost."""

    def __init__(self, terms: Terms, guest: SuiteGuest, group: Group, losses: dict[str, int]) -> None:
        self._terms, self._guest, self._group, self._losses = terms, guest, group, losses
        self.left: tuple[Script, ...] = group.tests
        self._held: Attempt | None = None
        self._watchman = Watchman(guest.state)
        self._services: list[Leak] = []
        self._running = Running(terms, guest)

    async def run(self) -> None:
        """Set-up, tests, clean-up. Raises ``GuestLost`` once the loss is recorded."""
        group = self._group
        ready = group.pre is None or await self._pre(group.pre)
        for test in group.tests:
            if self._terms.stops:
                break
            if ready:
                await self._test(test)
            else:
                self._add(self._skipped(test))
                self.left = self.left[1:]
        if group.post is not None:
            await self._run(group.post, "post")
        if self._held is not None:
            held, self._held = self._held, None
            try:
                left = await end_survivors(self._guest)
                await self._look(held.path)
            except StorlabError as error:
                self._write(with_fields(held, reason=held.reason or str(error)))
                raise GuestLost(str(error)) from None
            self._guest.state = self._watchman.last
            self._write(with_fields(held, leaks=[*left, *self._watchman.leaks, *self._services]))
            async with self._answering("after its group had been cleaned up, "):
                await blank_disks(self._guest)

    async def _pre(self, script: Script) -> bool:
        """Whether the set-up passed. A guest that is lost meanwhile is tried once more, then the tests are skipped."""
        try:
            return (await self._run(script, "pre")).outcome is Outcome.PASS
        except GuestLost:
            if self._count(script) >= _LOSSES:
                for test in self._group.tests:
                    self._write(self._skipped(test))
                self.left = ()
            raise

    async def _test(self, test: Script) -> None:
        for number in range(1 + self._losses.get(test.path, 0), self._terms.retries + 2):
            try:
                attempt = await self._run(test, "test", number)
            except GuestLost:
                again = number <= self._terms.retries and self._count(test) < _LOSSES
                self.left = self.left if again else self.left[1:]
                raise
            if attempt.outcome is Outcome.KILLED and self._group.failsafe is not None:
                try:
                    await self._run(self._group.failsafe, "failsafe", 1, attempt.folder)
                except GuestLost:  # what puts the machine right may take the guest with it
                    self.left = self.left[1:]
                    raise
            if attempt.outcome in (Outcome.PASS, Outcome.SKIP):
                break
        self.left = self.left[1:]

    async def _run(self, script: Script, role: Role, number: int = 1, below: str = "") -> Attempt:
        place = self._place(script, role, number, below)
        started = datetime.now(UTC)
        if self._guest.here:
            lost = self._lost(script, role, number, place, started, GuestLost("this machine went down while it ran"))
            write_under_way(self._terms.record.folder, self._guest.node.machine, with_fields(lost, elapsed=0.0))
        try:
            attempt = await run_script(self._running, self._group, script, role, place, number)
            killed = await self._look(script.path, f"it ended ({attempt.outcome}), and then ")
            if killed:
                why = f"memory ran out, and the kernel killed {killed} process{'es' if killed > 1 else ''}"
                attempt = with_fields(attempt, reason="; ".join(filter(None, [attempt.reason, why])))
        except GuestLost as loss:
            self._add(self._lost(script, role, number, place, started, loss))
            self._flush()
            if self._terms.hold is not None and loss.hung:
                await self._terms.hold.ended(self._guest, script.path, loss.reason)
            raise
        self._add(attempt)
        if self._terms.hold is not None and attempt.outcome not in (Outcome.PASS, Outcome.SKIP):
            await self._terms.hold.ended(self._guest, script.path, attempt.outcome)
        return attempt

    async def _look(self, path: str, after: str = "") -> int:
        """See what a script that has ended left; how many processes were killed meanwhile, for memory ran out.

        Raises ``GuestLost`` if its guest does not answer any more.
        """
        guest = self._guest
        async with self._answering(after):
            guest.seen = await look(guest.node, guest.seen)
            killed = self._watchman.saw(guest.seen, path)
            if (service := await restore_service(guest)) is not None:
                self._services.append(Leak("service", f"{service} was ended", path))
        return killed

    @asynccontextmanager
    async def _answering(self, after: str = "") -> AsyncIterator[None]:
        """Within it the guest is asked something. Raises ``GuestLost`` if it does not answer any more."""
        guest = self._guest
        try:
            async with asyncio.timeout(_LOOK):
                yield
        except TimeoutError:
            complaint = guest.node.complaint()
            why = f" ({complaint})" if complaint else ""
            raise GuestLost(f"{after}{guest.called} did not answer within {_LOOK:g} s{why}", hung=True) from None
        except NodeError as error:
            lost = loss_of(guest.node, self._terms.place.session, str(error))
            raise GuestLost(f"{after}{lost.reason}", hung=lost.hung) from None

    def _place(self, script: Script, role: Role, number: int, below: str) -> str:
        name = script.path.rpartition("/")[2] if role != "test" else place_of(script.path, self._group.tests)
        own = below or f"{OUTPUT}/{self._group.folder}"
        place = inside(f"{own}/{name}") + (f".{number}" if number > 1 else "")
        if role != "test" and (self._terms.record.folder / place).exists():
            tries = 2
            while (self._terms.record.folder / f"{place}.{tries}").exists():
                tries += 1
            place = f"{place}.{tries}"
        return place

    def _count(self, script: Script) -> int:
        self._losses[script.path] = self._losses.get(script.path, 0) + 1
        return self._losses[script.path]

    def _skipped(self, test: Script) -> Attempt:
        user = test.user or self._terms.adapter.runner
        reason = "the set-up of its group did not pass"
        return Attempt(
            self._group.name, test.path, "test", Outcome.SKIP, datetime.now(UTC), 0.0, user=user,
            identifier=self._group.identifier, reason=reason,
        )  # fmt: skip

    def _lost(self, script: Script, role: Role, number: int, place: str, started: datetime, loss: GuestLost) -> Attempt:
        outcome = Outcome.HUNG if loss.hung else Outcome.CRASHED
        elapsed = (datetime.now(UTC) - started).total_seconds()
        more = {"number": number, "reason": loss.reason, "folder": place}
        return self._running.attempt(self._group, script, role, outcome, started, elapsed, **more)

    def _add(self, attempt: Attempt) -> None:
        """The last result of a group waits for what its scripts left running."""
        self._flush()
        if self._is_last(attempt) and attempt.outcome not in LOST:
            self._held = attempt
        else:
            self._write(attempt)

    def _is_last(self, attempt: Attempt) -> bool:
        if self._group.post is not None or attempt.role == "pre" or len(self.left) > 1:
            return attempt.role == "post"
        killed = attempt.role == "test" and attempt.outcome is Outcome.KILLED
        return not killed or self._group.failsafe is None

    def _flush(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._write(held)

    def _write(self, attempt: Attempt) -> None:
        self._terms.record.add(attempt, self._terms.adapter.runner)
