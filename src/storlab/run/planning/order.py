"""In which order trials run: each round has an order of its own, drawn from the run's seed.

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

from storlab.grouping import connected, grouped

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
