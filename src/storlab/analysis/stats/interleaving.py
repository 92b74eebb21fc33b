"""Whether the trials of two sides were interleaved, told by when they ran, and which of them are pairs.

Rounds of separate runs have the same numbers by chance alone. Pairs are trials that are neighbours in time: so that
what drifts hits both alike. That holds where

1. both sides ran on one machine, in one boot of it,
2. in the order of their starts, every two trials are one of each side, and none overlap, and
3. not mostly the same side went first: else whatever favours the second would look like a difference. Mostly is what a
   coin would hardly do: always, or a sign test of the order of the pairs at 5 % (Dixon and Mood 1946, "The statistical
   sign test").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from storlab.findings.rounds import NotPaired, RanFirst

_CHANCE = 0.05


@dataclass(frozen=True)
class Span:
    """When a trial ran, in seconds since any one instant; ``None`` where that was not recorded."""

    start: float | None
    end: float | None
    machine: str = ""  # names one boot of one machine; empty where unknown


def pairs_in_time(a: Sequence[Span], b: Sequence[Span]) -> list[tuple[int, int]] | NotPaired:
    """Positions in ``a`` and ``b`` of the trials that are pairs, in order; or why there are none.

    One trial that is left over at the end is in no pair.
    """
    every = (*a, *b)
    machines = {span.machine for span in every}
    if not every or any(span.start is None for span in every):
        return NotPaired("no starts")
    if len(machines - {""}) > 1:
        return NotPaired("boots")
    sides = [(span, 0, at) for at, span in enumerate(a)] + [(span, 1, at) for at, span in enumerate(b)]
    ordered = sorted(sides, key=lambda side: (side[0].start or 0.0, side[1]))
    for (before, *_), (after, *_) in pairwise(ordered):
        if before.end is not None and (after.start or 0.0) < before.end:
            return NotPaired("overlap")
    couples = list(zip(ordered[::2], ordered[1::2], strict=False))
    if not couples or any(first[1] == second[1] for first, second in couples):
        return NotPaired("no turns")
    if "" in machines:
        return NotPaired("no machines")
    if any(span.end is None for span in every):
        return NotPaired("no ends")
    if often := _one_first(sum(first[1] == 0 for first, _ in couples), len(couples)):
        return NotPaired("order", always=often == "always")
    found = [(first, second) if first[1] == 0 else (second, first) for first, second in couples]
    return [(of_a[2], of_b[2]) for of_a, of_b in found]


Order = Sequence[Sequence[int]]
"""Of each round the cells in the order in which they ran."""


def same_order(order: Order, cells: tuple[int, int], names: tuple[str, str]) -> RanFirst | None:
    """Why two cells, whose trials are pairs by round, can't be judged: one mostly ran first."""
    both = [[cell for cell in ran if cell in cells] for ran in order]
    firsts = [ran[0] == cells[0] for ran in both if len(set(ran)) == 2]
    if not firsts or not (often := _one_first(sum(firsts), len(firsts))):
        return None
    before, after = names if 2 * sum(firsts) > len(firsts) else reversed(names)
    count = max(sum(firsts), len(firsts) - sum(firsts))
    return RanFirst(before, after, count, len(firsts), often == "always")


def _one_first(count: int, of: int) -> str:
    """How often one of two went first, where that is too often: ``count`` times the one, and else the other."""
    from scipy.special import bdtr  # the binomial distribution, without what scipy.stats takes to load

    fewer = min(count, of - count)
    if fewer == 0:
        return "always"
    return "mostly" if 2 * float(bdtr(fewer, of, 0.5)) <= _CHANCE else ""
