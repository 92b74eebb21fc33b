"""Trials of one round that work in slices: their set-ups stand side by side, and one at a time works for a short turn.

What disturbs a machine lasts for seconds: two trials of seconds one after the other share little of it, slices that
alternate share most. All loads are started once and held; each is then let go in its turns, in an order drawn by lot
for every cycle. The nodes' agents hold them and let them go at instants that were agreed beforehand, so that no round
trip lies between two turns. The round stays the unit of evidence.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from storlab.base.amounts import percent
from storlab.base.errors import CommandFailed, StorlabError
from storlab.base.text import is_whole
from storlab.base.waiting import all_of, to_its_end
from storlab.nodes.node import Clock, Exit, Node, Process
from storlab.nodes.process import Turn
from storlab.run.trial.measure import end_all
from storlab.study.cells import Cell, Load
from storlab.workloads.base import Launch, RunContext, Turns, write_turns

_LEAD = 0.1  # s, from the timetable's making to its first turn, in addition to what the requests take
_PATIENCE = 3.0  # s, for a load to begin its work
_LOOK_AGAIN = 0.02  # s
_MOST_JOBS = 64
_GRACE = 30.0  # s, for a load that is stopped to write down what it did
_LATE = 0.05  # as a share of its time: more of it in the turns of others is worth a warning
_GAP = 0.004  # s, between two turns: for what is held to come to rest, beyond the clocks' errors


@dataclass(frozen=True)
class Slot:
    """One turn in the timetable: whose it is, from when to when on the controller's clock, and who was before."""

    cell: int
    begin: float
    end: float
    after: int


def timetable(
    wanted: Mapping[int, tuple[int, int]], length: float, gap: float, begin: float, lot: random.Random
) -> list[Slot]:
    """All turns: ``wanted`` is cell → slices of its warm-up and of its measurement, each ``length`` s long.

    In each cycle, every cell that is not through has one turn. First come the warm-ups, of all cells together.
    """
    slots: list[Slot] = []
    at, before = begin, 0
    warming, measuring = ({cell: both[part] for cell, both in wanted.items()} for part in (0, 1))
    for left in (warming, measuring):
        for cycle in range(max(left.values(), default=0)):
            cells = [cell for cell, count in left.items() if count > cycle]
            lot.shuffle(cells)
            for cell in cells:
                slots.append(Slot(cell, at, at + length, before))
                at, before = at + length + gap, cell
    return slots


def at_once(wanted: Mapping[int, tuple[float, float]], gap: float, begin: float) -> list[Slot]:
    """The same for cells that work at the same time: ``wanted`` is cell → seconds of warm-up and of measurement."""
    warm_up, seconds = (max(both[part] for both in wanted.values()) for part in (0, 1))
    slots = [Slot(cell, begin, begin + warm_up, 0) for cell in wanted] if warm_up else []
    begin += warm_up + gap if warm_up else 0.0
    return slots + [Slot(cell, begin, begin + seconds, 0) for cell in wanted]


@dataclass
class Slices:
    """Those who share the slices of one round: all are waited for, then each has its turns.

    ``cells``: who is to come. Whoever can't, leaves. ``length``: of a slice, in s; ``None`` if all work at once.
    """

    cells: set[int]
    length: float | None
    seed: int
    gap: float = _GAP
    late: dict[int, float] = field(default_factory=dict)  # cell → s for which it worked in the turns of others
    _wanted: dict[int, tuple[float, float]] = field(default_factory=dict)
    _errors: list[float] = field(default_factory=list)
    _slots: list[Slot] | None = None
    _complete: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def number(self) -> int:
        return len(self.cells)

    def leave(self, cell: int) -> None:
        """A trial has ended, however that is: nobody waits for it."""
        self.cells.discard(cell)
        self._draw_up()

    async def take_turns(
        self, cell: Cell, seconds: float, loads: Sequence[tuple[Node, Process]], clocks: Mapping[str, Clock]
    ) -> dict[str, Turns]:
        """Hold these loads until all others are held, too; then let them work in their turns. By node's name.

        Raises ``CommandFailed`` where one of them ended.
        """
        await all_of(*(process.take_turns() for _, process in loads))
        self._wanted[cell.number] = cell.trial.warm_up, seconds
        self._errors += [clock.error for clock in clocks.values()]
        self._draw_up()
        await self._complete.wait()
        assert self._slots is not None
        mine = [slot for slot in self._slots if slot.cell == cell.number]
        offsets = [clocks[node.name].offset for node, _ in loads]
        taken = await all_of(
            *(
                process.take_turns([(slot.begin + offset, slot.end + offset) for slot in mine])
                for (_, process), offset in zip(loads, offsets, strict=True)
            )
        )
        if self.length is not None:
            self.late[cell.number] = max(
                _late(turns, mine, offset + self.gap) for turns, offset in zip(taken, offsets, strict=True)
            )
        after = [slot.after for slot in mine]
        warm_up = self._warm_up(cell.number)
        return {node.name: Turns(turns, warm_up, after) for (node, _), turns in zip(loads, taken, strict=True)}

    def _draw_up(self) -> None:
        if self._slots is None and self.cells and self.cells <= self._wanted.keys():
            error = max(self._errors)
            begin = time.monotonic() + _LEAD + 20 * error * len(self.cells)
            self.gap = _GAP + 2 * error
            self._slots = self._timetable(begin)
            self._complete.set()

    def _timetable(self, begin: float) -> list[Slot]:
        cells = sorted(self.cells)
        if self.length is None:
            return at_once({cell: self._wanted[cell] for cell in cells}, self.gap, begin)
        there = {cell: (self._warm_up(cell), max(self._slices_in(self._wanted[cell][1]), 1)) for cell in cells}
        return timetable(there, self.length, self.gap, begin, random.Random(f"slices/{self.seed}"))

    def _warm_up(self, cell: int) -> int:
        """How many of its turns are not measured."""
        seconds = max(warm_up for warm_up, _ in self._wanted.values()) if self.length is None else self._wanted[cell][0]
        return self._slices_in(seconds)

    def _slices_in(self, seconds: float) -> int:
        return int(seconds > 0) if self.length is None else math.ceil(seconds / self.length)


class SlicedWork:
    """The loads of one trial, which work in slices."""

    def __init__(self, slices: Slices, cell: Cell) -> None:
        self._slices, self._cell = slices, cell
        self._longest = cell.timeout * slices.number
        self._turns: dict[str, Turns] = {}

    async def launch(self, load: Load, place: RunContext) -> Launch:
        """The command, which goes on until it is stopped."""
        return await load.workload.launch_sliced(replace(place, warm_up=0.0), self._longest)

    async def done(
        self, places: Sequence[tuple[Load, RunContext]], commands: Sequence[Process], clocks: Mapping[str, Clock]
    ) -> list[Exit]:
        """Let them work in their turns, and stop them. A load that ends before is not stopped, nor are the others."""
        loads = [(place.node, command) for (_, place), command in zip(places, commands, strict=True)]
        try:
            try:
                await all_of(*(begun(node, command) for node, command in loads))
                seconds = max(load.workload.duration(0.0) or 0.0 for load, _ in places)
                self._turns = await self._slices.take_turns(self._cell, seconds, loads, clocks)
            except CommandFailed:
                self._slices.leave(self._cell.number)
            await all_of(*(command.stop(_GRACE, "SIGINT") for command in commands if command.ended is None))
            return await all_of(*(command.wait() for command in commands))
        finally:  # whatever comes, none may stay held: it would keep what it works on busy
            await to_its_end(end_all(commands))

    def keep(self, place: RunContext, raw: Path) -> None:
        """Its turns, by which its log is cut."""
        write_turns(raw, self._turns.get(place.node.name, Turns([])))

    @property
    def number(self) -> int:
        return max((len(turns.measured) for turns in self._turns.values()), default=0) or 1

    @property
    def active(self) -> float:
        return max((turns.active for turns in self._turns.values()), default=0.0)

    def warnings(self) -> list[str]:
        """What the reader must know of how they went."""
        if self._slices.late.get(self._cell.number, 0.0) <= _LATE * self.active:
            return []
        levels = ", ".join(self._cell.levels.values()) or "slices"
        return [
            f"{levels}: its loads could not be held at once, and went on for {percent(_LATE)} of their time and more "
            "in the turns of others: take longer slices, or none"
        ]


async def begun(node: Node, command: Process) -> None:
    """Wait until a child of its program has read or written: fio's jobs are such.

    Where that can't be seen, ``_PATIENCE`` seconds.
    """
    looks = round(_PATIENCE / _LOOK_AGAIN)
    for _ in range(looks):
        if command.ended is not None or await _has_worked(node, command):
            return
        await asyncio.sleep(_LOOK_AGAIN)


async def _has_worked(node: Node, command: Process) -> bool:
    try:
        listed = (await node.read_text(f"/proc/{command.pid}/task/{command.pid}/children")).split()
        jobs = [pid for pid in listed if is_whole(pid)][:_MOST_JOBS]
        counters = [await node.read_text(f"/proc/{pid}/io") for pid in jobs]
    except (StorlabError, FileNotFoundError):
        return False
    return any(is_whole(word) and int(word) > 0 for text in counters for word in text.split())


def _late(turns: Sequence[Turn], slots: Sequence[Slot], offset: float) -> float:
    """Seconds for which it worked after its turns' ends. A turn that took no time was not worked in at all."""
    return sum(
        max(end - offset - slot.end, 0.0) for (begin, end), slot in zip(turns, slots, strict=True) if end > begin
    )
