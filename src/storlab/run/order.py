"""In which order trials run: each round runs every cell once, in an order of its own drawn from the run's seed.

What is kept for a round makes blocks: cells that share it follow each other, so that it is set up once a round. Which
block comes first is drawn by lot, and so is the order within each.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
    cells: Sequence[int], round_number: int, seed: int, blocks: Mapping[int, int] | None = None
) -> list[PlannedTrial]:
    """One round, in its order. The same arguments give the same order, on any machine and in any version.

    ``blocks``: cell → block, of those that share what is kept for a round.
    """
    blocks = blocks or {}
    generator = random.Random(f"{seed}/{round_number}")
    shuffled = list(cells)
    generator.shuffle(shuffled)
    places = {cell: at for at, cell in reversed([*enumerate(shuffled)])}
    first = {blocks[cell]: places[cell] for cell in reversed(shuffled) if cell in blocks}
    shuffled.sort(key=lambda cell: (first[blocks[cell]] if cell in blocks else places[cell], places[cell]))
    workload_seed = generator.randrange(1, 2**31)
    begin = (round_number - 1) * len(cells) + 1
    return [
        PlannedTrial(begin + at, round_number, cell, workload_seed, blocks.get(cell))
        for at, cell in enumerate(shuffled)
    ]
