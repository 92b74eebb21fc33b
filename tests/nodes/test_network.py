"""The network of a run: made once, and made again where that was cut short."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from storlab.nodes.network import RunNetwork


def test_a_network_that_was_cut_short_in_the_making_is_made_again_from_the_start() -> None:
    commands: list[list[str]] = []

    async def run(words: list[str], *, check: bool = True) -> None:
        commands.append(words)
        if "address" in words and len(commands) < 5:
            raise asyncio.CancelledError

    network = RunNetwork("run", lambda: mock.Mock(run=run), lambda *names, **arguments: None)

    async def enter_twice() -> None:
        with pytest.raises(asyncio.CancelledError):
            await network.enter()
        await network.enter()
        await network.enter()

    asyncio.run(enter_twice())
    namespaces = [words[2] for words in commands if words[1] == "netns"]
    assert namespaces == ["add", "delete", "add"]
    assert sum("bridge" in words for words in commands) == 2
