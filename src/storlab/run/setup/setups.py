"""What a run sets up, cell by cell: kept for as long as the study says, torn down in order."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from pathlib import Path

from storlab.errors import NodeLost
from storlab.layers.base import Keep
from storlab.nodes.waiting import cancelled
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.teardown import Teardown
from storlab.run.session import Session
from storlab.run.setup.build import Builder, Built
from storlab.run.setup.parts import Parts
from storlab.study.cells import Cell


@dataclass
class Setups:
    """All that is set up in a run. ``folder``: the run's, for the consoles of nodes that outlive a trial."""

    session: Session
    journal: Journal
    folder: Path
    parts: Parts = field(init=False)
    _numbers: set[int] = field(default_factory=set)  # of the cells that are set up

    def __post_init__(self) -> None:
        self.parts = Parts(self.session, self.journal)

    def begin(self, cell: Cell) -> Built:
        """A cell of which nothing is set up yet."""
        number = next(number for number in itertools.count() if number not in self._numbers)
        self._numbers.add(number)
        return Built(cell, number)

    async def set_up(self, built: Built, folder: Path) -> None:
        """Set up what the cell needs and is not there already. ``folder``: the trial's, for its nodes' consoles."""
        await Builder(self.session, self.parts, built, folder, self.folder / "guests").build()

    async def tear_down(self, built: Built, *, failed: bool) -> Teardown:
        """Tear down what is not kept after a trial; where it ``failed``, all that it used."""
        self._numbers.discard(built.number)
        mine = list(built.parts.values())
        doomed = [part for part in mine if (failed and part.is_set_up) or part.keep == "trial" or not part.sound]
        return await self.parts.tear_down(doomed, severed=failed)

    async def end_of(self, keep: Keep) -> Teardown:
        """Tear down what was kept for a round, or for the run."""
        return await self.parts.tear_down(part for part in self.parts.all() if part.keep == keep and part.entries)

    async def tear_down_all(self) -> Teardown:
        """At the end of a run."""
        return await self.parts.tear_down(self.parts.all())

    async def cut_off(self, built: Built) -> None:
        """End the nodes that the cell started, and cut others off from what crosses to them: nothing waits any more.

        What was set up stays in the journal.
        """
        parts = list(built.parts.values())
        await self.parts.end_nodes(parts)
        await self.parts.sever(reversed(parts))

    async def until_lost(self) -> None:
        """Wait until a node or a program that is set up is gone before its time. Raises ``NodeLost``."""
        waiting = [asyncio.create_task(each) for each in (self.parts.until_lost(), self.session.until_one_is_lost())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(*waiting)
        losses = [(loss.at, loss.reason) for loss in self.parts.lost]
        raise NodeLost(min(losses + [(loss.at, loss.reason) for loss in self.session.losses])[1])

    def forget_losses(self) -> None:
        """Begin a new trial."""
        self.parts.forget_losses()
        self.session.forget_losses()

    def first_loss(self, built: Built) -> tuple[float, str, str] | None:
        """Of all that was lost, what is lowest: the rest may only follow from it. When, why, and its last lines."""
        started = [part for part in built.parts.values() if part.started]
        depth = {part.node.instance: part.depth for part in started if part.node is not None}
        found = [(depth.get(loss.node, 0), loss.at, loss.reason, loss.detail) for loss in self.session.losses]
        found += [(lost.depth, lost.at, lost.reason, lost.log) for lost in self.parts.lost]
        return min(found)[1:] if found else None
