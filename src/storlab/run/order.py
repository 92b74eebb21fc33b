"""In which order trials run: each round runs every cell once, in an order of its own drawn from the run's seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedTrial:
    """A trial before it runs. ``number`` is from 1 over the whole run, ``seed`` the same for its whole round."""

    number: int
    round: int
    cell: int
    seed: int


def round_order(cells: Sequence[int], round_number: int, seed: int) -> list[PlannedTrial]:
    """One round, in its order. The same arguments give the same order, on any machine and in any version."""
    generator = random.Random(f"{seed}/{round_number}")
    shuffled = list(cells)
    generator.shuffle(shuffled)
    workload_seed = generator.randrange(1, 2**31)
    first = (round_number - 1) * len(cells) + 1
    return [PlannedTrial(first + at, round_number, cell, workload_seed) for at, cell in enumerate(shuffled)]
