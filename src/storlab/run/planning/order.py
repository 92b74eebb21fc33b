"""In which order trials run, which of them are due, and how long they take.

Each round has an order of its own, drawn from the run's seed.

Cells that are compared with each other, directly or through others, are a *group*: they follow each other, as trials
that are close in time share more of the machine's noise. The order of groups is drawn by lot, and so is that within
each, every one as likely as any other. So exchanging two cells that are compared changes nothing about how likely an
order is, whatever runs before or after them; on that the evidence rests (``analysis/stats/signed_rank.py``).

Where a study compares levels of several factors, the groups of one overlap with those of another and become one group.
To draw by lot each round whose groups are kept together would gain more, and lose that: of two levels that are compared
by the other factor, each would always run next to cells of its own kind, and get what those leave behind.

What is kept for a round makes *blocks*: cells that share it follow each other, so that it is set up once a round. Where
blocks divide groups, blocks go first: their order is drawn by lot, then that of the groups within each.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from storlab.base.text import connected, grouped
from storlab.layers.base import Keep
from storlab.records.manifest import Rest
from storlab.records.run_folder import TrialRecord
from storlab.study.cells import Cell

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class PlannedTrial:
    """A trial before it runs. ``number`` is from 1 over the whole run, ``seed`` the same for its whole round.

    ``block``: which of the round's blocks it is in, from 1; ``None`` where it shares nothing that is kept for a round.
    """

    number: int
    round: int
    cell: int
    seed: int
    block: int | None = None


def round_order(
    cells: Sequence[int],
    round_number: int,
    seed: int,
    blocks: Mapping[int, int] | None = None,
    groups: Mapping[int, int] | None = None,
) -> list[PlannedTrial]:
    """One round, in its order. The same arguments give the same order, on any machine and in any version.

    ``blocks``: cell → block, of those that share what is kept for a round. ``groups``: cell → group, of all; ``None``
    for the order of older runs, which had none.
    """
    blocks = blocks or {}
    generator = random.Random(f"{seed}/{round_number}")
    if groups is None:
        ordered = _shuffled(cells, blocks, generator)
    else:
        ordered = _together(cells, blocks, groups, generator)
    workload_seed = generator.randrange(1, 2**31)
    begin = (round_number - 1) * len(cells) + 1
    return [
        PlannedTrial(begin + at, round_number, cell, workload_seed, blocks.get(cell)) for at, cell in enumerate(ordered)
    ]


def _shuffled(cells: Sequence[int], blocks: Mapping[int, int], generator: random.Random) -> list[int]:
    """Blocks together, at the place of their first cell; so of blocks of unequal size the larger mostly goes first."""
    shuffled = list(cells)
    generator.shuffle(shuffled)
    places = {cell: at for at, cell in reversed([*enumerate(shuffled)])}
    first = {blocks[cell]: places[cell] for cell in reversed(shuffled) if cell in blocks}
    return sorted(shuffled, key=lambda cell: (first[blocks[cell]] if cell in blocks else places[cell], places[cell]))


def _together(
    cells: Sequence[int], blocks: Mapping[int, int], groups: Mapping[int, int], generator: random.Random
) -> list[int]:
    """Blocks together, and groups as far as blocks don't divide them."""
    blocked = {cell: ("block", blocks[cell]) if cell in blocks else ("cell", cell) for cell in cells}
    parts = [*grouped((blocked[cell], cell) for cell in cells).values()]
    parts += grouped((groups[cell], cell) for cell in cells).values()
    clusters = connected(cells, ((part[0], other) for part in parts for other in part[1:]))

    def drawn(things: Iterable[T]) -> dict[T, int]:
        names = list(dict.fromkeys(things))
        generator.shuffle(names)
        return {name: place for place, name in enumerate(names)}

    cluster, block = drawn(clusters[cell] for cell in cells), drawn(blocked[cell] for cell in cells)
    group, own = drawn((blocked[cell], groups[cell]) for cell in cells), drawn(cells)
    return sorted(
        cells,
        key=lambda c: (cluster[clusters[c]], block[blocked[c]], group[blocked[c], groups[c]], own[c]),
    )


def due(order: Sequence[PlannedTrial], rests: Iterable[Rest]) -> list[PlannedTrial]:
    """What of a round is run: all, but for cells that rest because no open comparison needs them any more.

    A cell that rests is never run again, in this execution or in one that resumes the run: what rests is in the
    manifest, durably, before the next round begins. The order of a round is drawn of all its cells and those that rest
    are passed over, so a trial's number depends on seed, round and place alone.
    """
    after = {rest.cell: rest.after for rest in rests}
    return [planned for planned in order if planned.round <= after.get(planned.cell, planned.round)]


OVERHEAD = 0.5  # s a trial, beyond its load: stacks, settling, fetching; replaced by what is measured once it runs


def trial_time(cell: Cell, overhead: float = OVERHEAD) -> float | None:
    """Seconds that a trial of this cell is expected to take; ``None`` if that is unknown."""
    return time_with(cell, [load.workload.duration(cell.trial.warm_up) for load in cell.loads], overhead)


def time_with(cell: Cell, times: Sequence[float | None], overhead: float) -> float | None:
    """As ``trial_time``, with loads that take so long."""
    beyond = cell.trial.settle.wait + overhead + start_time(cell, "trial")
    return None if None in times else max(time or 0.0 for time in times) + beyond


def start_time(cell: Cell, kept: Keep) -> float:
    """Seconds that nodes and layers of a cell that are kept for so long take to be set up, as far as they say so."""
    nodes = sum(group.start_time() * group.count for group in cell.nodes.values() if group.lasts == kept)
    return nodes + sum(layer.start_time() for unit in cell.units if unit.keep == kept for layer in unit.layers)


def trial_times(
    cells: Sequence[Cell], records: Iterable[TrialRecord], *, side_by_side: bool = False
) -> dict[int, float | None]:
    """Seconds that a trial of each of these cells takes: the mean of those that ended, else what is expected."""
    spent: dict[int, list[float]] = {}
    share = len(cells) if side_by_side else 1  # trials that go on at the same time
    for record in records:
        if record.duration is not None:
            spent.setdefault(record.cell, []).append(record.duration)
    return {
        cell.number: sum(spent[cell.number]) / len(spent[cell.number]) / share
        if cell.number in spent
        else trial_time(cell)
        for cell in cells
    }


def time_left(
    times: Mapping[int, float | None], rest_of_round: Sequence[int], rounds_after: tuple[int, int]
) -> tuple[float, float] | None:
    """Seconds, at least and at most: the cells left in this round, then from so many to so many more rounds.

    ``None`` while the time of some cell is not known.
    """
    if None in times.values():
        return None
    rest = sum(times.get(cell) or 0.0 for cell in rest_of_round)
    whole = sum(time or 0.0 for time in times.values())
    return rest + rounds_after[0] * whole, rest + rounds_after[1] * whole
