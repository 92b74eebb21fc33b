"""One guest's part in a run: it takes group after group, and begins again in a fresh guest if its own is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from storlab.base.amounts import plural
from storlab.base.errors import StorlabError, UserError
from storlab.base.waiting import all_of
from storlab.suites.model import Group
from storlab.suites.places.place import GuestLost, Spare, SuiteGuest
from storlab.suites.run.attempt import Terms
from storlab.suites.run.part import Part

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
