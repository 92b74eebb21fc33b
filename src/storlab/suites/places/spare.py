"""One guest in reserve: prepared while tests run, it takes the place of whichever guest is lost next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from storlab.errors import StorlabError
from storlab.run.setup.space import available_memory
from storlab.suites.places.place import Place, SuiteGuest
from storlab.waiting import cancelled, to_its_end


@dataclass
class Spare:
    """None is prepared before a guest has been lost: most runs lose none, and preparing one slows those at work.

    ``opened``: makes a guest of this name, ready for scripts; raises ``NodeError`` where it can't be had.
    """

    place: Place
    opened: Callable[[str], Awaitable[SuiteGuest]]
    _coming: asyncio.Task[SuiteGuest] | None = field(default=None, init=False)
    _made: int = field(default=0, init=False)

    async def prepare(self) -> None:
        """Begin to prepare the next, where none is there and this machine has the memory for one more."""
        if self._coming is not None or self.place.here is not None or not await self._fits():
            return
        self._made += 1
        self._coming = asyncio.ensure_future(self.opened(f"spare-{self._made}"))

    async def take(self) -> SuiteGuest | None:
        """The spare guest, waited for where it is being prepared; ``None`` where there is none, or it was lost."""
        if self._coming is None:
            return None
        coming, self._coming = self._coming, None  # another part of the run must not get it, too
        try:
            guest = await asyncio.shield(coming)
        except asyncio.CancelledError:
            await to_its_end(self._end(coming))
            raise
        except StorlabError:
            return None
        if guest.node.lost is None:
            return guest
        await self.place.close(guest)
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._coming is not None:
            coming, self._coming = self._coming, None
            await to_its_end(self._end(coming))

    async def _end(self, coming: asyncio.Task[SuiteGuest]) -> None:
        await cancelled(coming)
        if not coming.cancelled() and coming.exception() is None:
            with suppress(StorlabError):
                await self.place.close(coming.result())

    async def _fits(self) -> bool:
        available = available_memory(await self.place.session.host.read_text("/proc/meminfo"))
        # As much again as it has: those at work have not filled their own yet.
        return available is None or available > 2 * (await self.place.booted()).memory
