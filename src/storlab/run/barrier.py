"""The start barrier: commands on all nodes begin at one instant, and how far apart they really began is recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storlab.nodes.node import Clock, Exit, Node, Process
from storlab.nodes.waiting import all_of, to_its_end
from storlab.workloads.base import Launch

_LEAD = 0.02  # s, at least, from the decision to the start
_LEAD_PER_COMMAND = 0.01
_LEAD_PER_ROUND_TRIP = 20


@dataclass(frozen=True)
class Start:
    """A command that is to begin with all the others."""

    node: Node
    launch: Launch


async def compare_clocks(nodes: Sequence[Node]) -> dict[str, Clock]:
    """How each node's clock relates to the controller's, by the node's name."""
    clocks = await all_of(*(node.clock() for node in nodes))
    return {node.name: clock for node, clock in zip(nodes, clocks, strict=True)}


async def start_together(starts: Sequence[Start], clocks: Mapping[str, Clock]) -> list[Process]:
    """Prepare every command on its node and agree on an instant at which all of them begin."""
    round_trip = 2 * max(clock.error for clock in clocks.values())
    lead = _LEAD + _LEAD_PER_COMMAND * len(starts) + _LEAD_PER_ROUND_TRIP * round_trip
    instant = time.monotonic() + lead

    async def start(each: Start) -> Process:
        launch = each.launch
        at = instant + clocks[each.node.name].offset
        process = await each.node.start(
            launch.argv, env=launch.env, cwd=launch.cwd, stdout_file=launch.stdout, start_at=at
        )
        started.append(process)
        return process

    started: list[Process] = []
    try:
        return await all_of(*(start(each) for each in starts))
    except BaseException:
        await to_its_end(end_all(started))  # those that did start must not run on alone
        raise


def start_skew(exits: Sequence[tuple[Node, Exit]], clocks: Mapping[str, Clock]) -> float:
    """Latest minus earliest real start, in seconds, on the controller's clock."""
    starts = [ended.start - clocks[node.name].offset for node, ended in exits]
    return max(starts) - min(starts) if starts else 0.0


async def wait_for_all(processes: Sequence[Process]) -> list[Exit]:
    """Wait for every command. One that fails stops the others: its trial is lost, and time is dear."""
    tasks = [asyncio.create_task(process.wait()) for process in processes]
    stopped = False
    try:
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            failed = any(task.exception() is not None or not task.result().ok for task in done)
            if failed and not stopped:
                stopped = True
                running = [process for process, task in zip(processes, tasks, strict=True) if task in pending]
                await asyncio.gather(*(process.stop() for process in running), return_exceptions=True)
        return [task.result() for task in tasks]
    finally:
        await to_its_end(end_all(processes))
        await asyncio.gather(*tasks, return_exceptions=True)


async def end_all(processes: Sequence[Process]) -> None:
    """Stop what still runs, and wait until all are at rest."""
    await asyncio.gather(*(process.end() for process in processes))
