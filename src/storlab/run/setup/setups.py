"""What a run sets up, cell by cell: kept for as long as the study says, torn down in order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from storlab.errors import NodeLost
from storlab.layers.base import Keep
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.teardown import Teardown
from storlab.run.session import Session
from storlab.run.setup.build import Builder, Built
from storlab.run.setup.parts import Parts
from storlab.study.cells import Cell
from storlab.waiting import cancelled

_LOOK = 0.2  # s


@dataclass
class Setups:
    """All that is set up in a run. ``folder``: the run's, for the consoles of nodes that outlive a trial.

    ``held``: what this process itself writes into below ``folder``, if its name may come to lead elsewhere.
    """

    session: Session
    journal: Journal
    folder: Path
    held: Callable[[Path], Path] = lambda path: path
    parts: Parts = field(init=False)
    _live: dict[int, Built] = field(default_factory=dict)  # the cells that are set up, by number
    _seen: list[Built] = field(default_factory=list)  # those that were, since losses are counted

    def __post_init__(self) -> None:
        self.parts = Parts(self.session, self.journal)

    def begin(self, cell: Cell) -> Built:
        """A cell of which nothing is set up yet."""
        number = next(number for number in itertools.count() if number not in self._live)
        built = self._live[number] = Built(cell, number)
        self._seen.append(built)
        return built

    async def set_up(self, built: Built, folder: Path) -> None:
        """Set up what the cell needs and is not there already. ``folder``: the trial's, for its nodes' consoles."""
        await Builder(self.session, self.parts, built, folder, self.folder / "guests", self.held).build()

    async def tear_down(self, built: Built, *, failed: bool) -> Teardown:
        """Tear down what is not kept after a trial; where it ``failed``, all that it used.

        What other cells use at the same time stays until the last of them has ended, unless it is lost for them, too.
        """
        self._live.pop(built.number, None)
        used = {key for other in self._live.values() for key in other.parts}
        doomed = []
        for part in built.parts.values():
            part.doubtful |= failed and part.is_set_up
            lost = not part.sound
            if lost or ((part.doubtful or part.keep == "trial") and part.key not in used):
                doomed.append(part)
        return await self.parts.tear_down(doomed, severed=failed)

    async def end_of(self, keep: Keep) -> Teardown:
        """Tear down what was kept for a round, or for the run."""
        return await self.parts.tear_down(part for part in self.parts.all() if part.keep == keep and part.is_set_up)

    async def tear_down_all(self) -> Teardown:
        """At the end of a run."""
        return await self.parts.tear_down(self.parts.all())

    async def cut_off(self, built: Built) -> None:
        """End the nodes that the cell started, and cut others off from what crosses to them: nothing waits any more.

        What other cells use at the same time is cut off, too: it may be what the cell waits for. They fail for that.
        What was set up stays in the journal.
        """
        parts = list(built.parts.values())
        await self.parts.end_nodes(parts)
        await self.parts.sever(reversed(parts))

    async def until_lost(self, built: Built) -> None:
        """Wait until a node or a program that a cell has is gone before its time. Raises ``NodeLost``."""
        await self._until_any_is_lost()
        while not (losses := self._losses(built)):  # noqa: ASYNC110 - what is lost is another cell's, which is rare
            await asyncio.sleep(_LOOK)
        raise NodeLost(min((at, reason) for _, at, reason, _ in losses)[1])

    async def _until_any_is_lost(self) -> None:
        waiting = [asyncio.create_task(each) for each in (self.parts.until_lost(), self.session.until_one_is_lost())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(*waiting)

    def forget_losses(self) -> None:
        """Begin a new trial."""
        self._seen = list(self._live.values())
        self.parts.forget_losses()
        self.session.forget_losses()

    def first_loss(self, built: Built) -> tuple[float, str, str] | None:
        """Of all that was lost, what is lowest: the rest may only follow from it. When, why, and its last lines."""
        found = self._losses(built)
        return min(found)[1:] if found else None

    def _losses(self, built: Built) -> list[tuple[int, float, str, str]]:
        """Depth in the graph, when, why and its last lines, of all that was lost but what only other cells have."""
        others = [part for other in self._seen if other is not built for part in other.parts.values()]
        foreign = {part.key for part in others} - built.parts.keys()
        theirs = {part.node.instance for part in others if part.started and part.node and part.key in foreign}
        started = [part for part in built.parts.values() if part.started]
        depth = {part.node.instance: part.depth for part in started if part.node is not None}
        found = [
            (depth.get(loss.node, 0), loss.at, loss.reason, loss.detail)
            for loss in self.session.losses
            if loss.node not in theirs
        ]
        lost_layers = [lost for lost in self.parts.lost if lost.part not in foreign]
        return found + [(lost.depth, lost.at, lost.reason, lost.log) for lost in lost_layers]
