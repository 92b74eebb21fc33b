"""Leases: an agent whose controller falls silent ends, with all that it started, though its stream stands."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from laboratory import wait_until
from storlab.nodes.agent.binary import agent_path
from storlab.nodes.agents import running_agent

LEASE = 1.0
ARGV = [str(agent_path()), "serve"]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except FileNotFoundError:
        return True


async def _abandoned(stopped: bool) -> tuple[int, int]:
    """An agent that is not spoken to any more, and which stands still if ``stopped``; its own pid and a command's."""
    async with running_agent("node", ARGV, lease=LEASE) as node:
        process = await node.start(["sleep", "60"])
        node.connection._renewing.cancel()  # as if the link were cut: the stream stands
        assert node.pid is not None and process.pid is not None
        if stopped:
            os.kill(node.pid, signal.SIGSTOP)
        assert await asyncio.to_thread(wait_until, lambda: gone(node.pid or 0) and gone(process.pid or 0), 30)
        return node.pid, process.pid


def test_an_agent_that_hears_nothing_for_its_lease_ends_with_all_that_it_started() -> None:
    asyncio.run(_abandoned(stopped=False))


@pytest.mark.needs("root")
def test_one_that_stands_still_is_ended_by_its_guard() -> None:
    asyncio.run(_abandoned(stopped=True))


def test_a_lease_that_is_renewed_outlasts_its_length() -> None:
    async def lives() -> None:
        async with running_agent("node", ARGV, lease=LEASE) as node:
            assert (await node.run(["sleep", str(3 * LEASE)])).ok
            assert node.lost is None

    asyncio.run(lives())


def test_an_agent_that_stands_still_is_given_up_by_its_controller() -> None:
    async def lost() -> str | None:
        async with running_agent("node", ARGV, lease=LEASE) as node:
            assert node.pid is not None
            os.kill(node.pid, signal.SIGSTOP)
            await asyncio.wait_for(node.connection.gone.wait(), 30)
            return node.lost

    assert "silent for 1 s" in str(asyncio.run(lost()))
