"""Whether the trials of two sides were interleaved, told by when they ran, and which of them are pairs.

Rounds of separate runs have the same numbers by chance alone. Pairs are trials that are neighbours in time: so that
what drifts hits both alike. That holds where

1. both sides ran on one machine, in one boot of it,
2. in the order of their starts, every two trials are one of each side, and none overlap, and
3. not always the same side went first: else whatever favours the second would look like a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Span:
    """When a trial ran, in seconds since any one instant; ``None`` where that was not recorded."""

    start: float | None
    end: float | None
    machine: str = ""  # names one boot of one machine; empty where unknown


def pairs_in_time(a: Sequence[Span], b: Sequence[Span]) -> list[tuple[int, int]] | str:
    """Positions in ``a`` and ``b`` of the trials that are pairs, in order; or why there are none, as a clause.

    One trial that is left over at the end is in no pair.
    """
    known = [span for span in (*a, *b) if span.start is not None and span.end is not None]
    if not known or len(known) < len(a) + len(b):
        return "when their trials ran is not recorded"
    machines = {span.machine for span in known}
    if len(machines) > 1 or "" in machines:
        return "they did not run in one boot of one machine"
    sides = [(span, 0, at) for at, span in enumerate(a)] + [(span, 1, at) for at, span in enumerate(b)]
    ordered = sorted(sides, key=lambda side: (side[0].start or 0.0, side[1]))
    for (before, *_), (after, *_) in pairwise(ordered):
        if (after.start or 0.0) < (before.end or 0.0):
            return "their trials overlap in time"
    couples = list(zip(ordered[::2], ordered[1::2], strict=False))
    if not couples or any(first[1] == second[1] for first, second in couples):
        return "their trials do not alternate in time"
    firsts = {first[1] for first, _ in couples}
    if len(firsts) == 1:
        return "their trials alternate in time, but always in the same order"
    found = [(first, second) if first[1] == 0 else (second, first) for first, second in couples]
    return [(of_a[2], of_b[2]) for of_a, of_b in found]
