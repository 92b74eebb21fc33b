"""What is made once for all that stand on the same foundation."""

from __future__ import annotations

import asyncio

import pytest

from storlab.layers.base import Shared


def test_it_is_made_once_and_everybody_gets_it() -> None:
    made = []

    async def make() -> object:
        made.append(1)
        await asyncio.sleep(0.01)
        return object()

    async def check() -> None:
        shared = Shared()
        first = await asyncio.gather(*(shared.once("a", make) for _ in range(4)))
        assert len({id(each) for each in first}) == 1
        assert await shared.once("a", make) is first[0]
        assert await shared.once("b", make) is not first[0]
        assert len(made) == 2

    asyncio.run(check())


def test_what_failed_fails_for_all_that_wait_and_is_tried_again_by_the_next() -> None:
    attempts = []

    async def make() -> str:
        attempts.append(1)
        await asyncio.sleep(0.01)
        if len(attempts) == 1:
            raise ValueError("no")
        return "made"

    async def check() -> None:
        shared = Shared()
        results = await asyncio.gather(shared.once("a", make), shared.once("a", make), return_exceptions=True)
        assert [str(result) for result in results] == ["no", "no"]
        assert await shared.once("a", make) == "made"

    asyncio.run(check())


def test_one_that_waits_may_go_and_the_last_one_takes_the_work_with_it() -> None:
    ended = []

    async def make() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)  # it needs a moment to come to rest
            ended.append("stopped")
            raise
        return "made"

    async def check() -> None:
        shared = Shared()
        waiting = [asyncio.create_task(shared.once("a", make)) for _ in range(2)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert ended == []
        waiting[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[1]
        assert ended == ["stopped"]

    asyncio.run(check())
