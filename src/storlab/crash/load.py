"""The loads of a set-up, and what was acknowledged while they ran, by where the log was then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storlab.errors import TrialError
from storlab.layers.resources import Resource
from storlab.nodes.answers import understood
from storlab.nodes.node import Node, Process
from storlab.run.build import Built
from storlab.run.session import Session
from storlab.run.trial.measure import end_all
from storlab.study.cells import Load
from storlab.tools.log_writes import WriteLog
from storlab.waiting import to_its_end
from storlab.workloads.base import RunContext
from storlab.workloads.witness import Witness

_LONGEST = 4096  # bytes of a line


@dataclass
class Acknowledged:
    """Numbers of commits that were acknowledged, each with the size of the log when word of it came, in bytes.

    Whatever makes a commit durable was logged before the guest heard that it was written; so it lies within that size,
    however long the word took.
    """

    witness: Witness
    log: Path
    commits: list[tuple[int, int]] = field(default_factory=list)
    _rest: bytes = b""

    def hear(self, data: bytes, at: float = 0.0) -> None:
        """A piece of what the load prints. Of several commits in it the last stands for all."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            raise TrialError(f"the load printed a line of more than {_LONGEST} bytes")
        numbers = [number for line in lines if (number := self.witness.acknowledged(line)) is not None]
        if numbers:
            self.commits.append((numbers[-1], self.log.stat().st_size))

    def positions(self, log: WriteLog) -> list[tuple[int, int]]:
        """After how many entries which commit was acknowledged, both ascending."""
        found: list[tuple[int, int]] = []
        for number, size in self.commits:
            found.append((log.before(size), max(number, found[-1][1] if found else 0)))
        return found


def context_of(load: Load, node: Node, target: Resource, folder: str, seed: int) -> RunContext:
    words: Mapping[str, str] = {**target.words(), "node": node.name, "round": "1", "trial": "1", "seed": str(seed)}
    return RunContext(node, target, folder, load.name, 0.0, seed, words)


Place = tuple[Load, RunContext]


async def prepare_loads(built: Built, session: Session, seed: int) -> list[Place]:
    """All that must be there before the loads begin, written back as far as the guests can see to it."""
    places = []
    for load in built.cell.loads:
        for target in load.on:
            for node in built.group(target.group):
                resource = built.stacks[node.name, target.chain].resource
                assert isinstance(resource, Resource)
                folder = f"{await session.scratch_on(node)}/crash-{load.name}"
                places.append((load, context_of(load, node, resource, folder, seed)))
    for load, place in places:
        await place.node.run(["mkdir", "--parents", "--", place.folder])
        with understood(place.node.name, f"preparing {load.name}"):
            await load.workload.prepare(place)
    for node in built.nodes.values():
        await node.run(["sync"])
    return places


async def run_loads(places: Sequence[Place], acknowledged: Acknowledged) -> None:
    """Run the load that commits to its end, and all others for as long. Raises ``TrialError`` where one fails."""
    started: list[tuple[Load, Node, Process]] = []
    try:
        for load, place in places:
            launch = await load.workload.launch(place)
            hear = acknowledged.hear if load.workload is acknowledged.witness else None
            process = await place.node.start(
                launch.argv, env=launch.env, cwd=launch.cwd, stdout_file=launch.stdout, on_output=hear
            )
            started.append((load, place.node, process))
        await _until_committed(started, acknowledged.witness)
    finally:
        await to_its_end(end_all([process for _, _, process in started]))


async def _until_committed(started: Sequence[tuple[Load, Node, Process]], witness: Witness) -> None:
    waiting = {asyncio.create_task(process.wait()): (load, node) for load, node, process in started}
    try:
        while True:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                load, node = waiting.pop(task)
                try:
                    task.result().check(node.name)
                except TrialError as error:
                    raise type(error)(f"load {load.name}: {error}", error.detail) from None
                if load.workload is witness:
                    return
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
