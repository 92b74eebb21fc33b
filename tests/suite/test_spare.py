"""The guest in reserve: whoever loses a guest first gets it, and nothing is left of it where nobody does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from storlab.errors import NodeError
from storlab.run.suite.places.place import Booted
from storlab.run.suite.places.spare import Spare

GIB = 1024**3


@dataclass
class Guests:
    """Opens guests that are only names, and closes them."""

    available: int = 8 * GIB
    here: Any = None
    fails: bool = False
    slow: float = 0.0
    begun: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    @property
    def session(self) -> Any:
        return SimpleNamespace(host=self)

    async def read_text(self, path: str) -> str:
        assert path == "/proc/meminfo"
        return f"MemAvailable: {self.available // 1024} kB\n"

    async def booted(self) -> Booted:
        return Booted(2 * GIB)

    async def opened(self, name: str) -> Any:
        self.begun.append(name)
        await asyncio.sleep(self.slow)
        if self.fails:
            raise NodeError("it did not boot")
        return SimpleNamespace(name=name, node=SimpleNamespace(lost=None))

    async def close(self, guest: Any) -> None:
        self.closed.append(guest.name)

    def spare(self) -> Spare:
        place: Any = self
        return Spare(place, self.opened)


def test_it_is_had_once_and_the_next_is_another() -> None:
    guests = Guests()

    async def run() -> list[str | None]:
        async with guests.spare() as spare:
            taken = [await spare.take()]
            for _ in range(2):
                await spare.prepare()
                await spare.prepare()
                taken += [await spare.take(), await spare.take()]
            return [guest.name if guest else None for guest in taken]

    assert asyncio.run(run()) == [None, "spare-1", None, "spare-2", None]
    assert guests.begun == ["spare-1", "spare-2"] and guests.closed == []


def test_of_two_who_want_it_while_it_is_prepared_one_gets_it() -> None:
    async def run() -> set[str | None]:
        async with Guests(slow=0.05).spare() as spare:
            await spare.prepare()
            return {guest.name if guest else None for guest in await asyncio.gather(spare.take(), spare.take())}

    assert asyncio.run(run()) == {None, "spare-1"}


def test_one_that_was_lost_meanwhile_is_ended_and_not_had() -> None:
    guests = Guests()

    async def run() -> Any:
        async with guests.spare() as spare:
            await spare.prepare()
            assert spare._coming is not None
            waiting: Any = await spare._coming
            waiting.node.lost = "its QEMU was killed"
            return await spare.take()

    assert asyncio.run(run()) is None and guests.closed == ["spare-1"]


def test_one_that_does_not_boot_is_none() -> None:
    async def run() -> Any:
        async with Guests(fails=True).spare() as spare:
            await spare.prepare()
            return await spare.take()

    assert asyncio.run(run()) is None


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_nobody_took_is_ended(fails: bool) -> None:
    guests = Guests(fails=fails)

    async def run() -> None:
        async with guests.spare() as spare:
            await spare.prepare()
            await asyncio.sleep(0.01)

    asyncio.run(run())
    assert guests.closed == ([] if fails else ["spare-1"])


def test_one_that_is_still_being_prepared_ends_with_the_run_and_with_who_waits_for_it() -> None:
    async def run(waits: bool) -> asyncio.Task[Any]:
        async with Guests(slow=1000).spare() as spare:
            await spare.prepare()
            coming = spare._coming
            assert coming is not None
            if waits:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await spare.take()
            return coming

    for waits in (False, True):
        assert asyncio.run(run(waits)).cancelled()


@pytest.mark.parametrize("guests", [Guests(available=3 * GIB), Guests(here="this machine")])
def test_none_is_prepared_where_there_is_no_memory_for_it_or_no_guest_at_all(guests: Guests) -> None:
    async def run() -> Any:
        async with guests.spare() as spare:
            await spare.prepare()
            return await spare.take()

    assert asyncio.run(run()) is None and guests.begun == []
