"""Evidence from signs alone: on which side of a value the typical round, the median, lies.

Whether two levels differ at all is asked by signs and ranks (``signed_rank``), and the order drawn within rounds is all
that this needs. Where the *size* of a difference is asked, by a limit or a margin, no order helps: around any value but
0 the ranks suppose symmetric noise, and if one side alone is skewed or stalls, enough rounds make them certain of what
is false of most rounds. The number of rounds on one side of a value supposes nothing of the kind: if half of all rounds
lie beyond it, each is a fair coin.

So the capital of those who bet on "the median lies on this side" is a martingale. Half of it is staked on every round
lying there, and half is spread evenly over all shares p above ½ (Robbins 1970, "Statistical methods related to the law
of the iterated logarithm"): of s rounds on this side and f beyond,

    E = ½ · 2ⁿ · 1{f = 0}  +  ½ · 2ⁿ⁺¹ · B(s + 1, f + 1) · (1 − I_½(s + 1, f + 1)),   n = s + f.

A round on the value itself says nothing, and one that was lost counts as beyond.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from storlab.analysis.stats.anytime import FORESEEABLE, ROUNDING, Floats


def log_evidence(inside: int, beyond: int) -> float:
    """log E of so many rounds on the side that is bet on, and so many on the other."""
    from scipy.special import betaincc, betaln

    n = inside + beyond
    spread = (n + 1) * math.log(2) + float(betaln(inside + 1, beyond + 1))
    tail = float(betaincc(inside + 1, beyond + 1, 0.5))
    mixed = spread + math.log(tail) if tail > 0 else -math.inf
    return float(np.logaddexp(n * math.log(2) if beyond == 0 else -math.inf, mixed)) - math.log(2)


def evidence_of(values: Floats, centre: float, side: int, lost: int = 0) -> float:
    """log E that the median of ``values`` (shape ``(n,)``) lies above ``centre``, or below it for a ``side`` of −1.

    ``lost``: rounds without a value that count as beyond.
    """
    off = side * (values - centre)
    return log_evidence(int((off > ROUNDING).sum()), int((off < -ROUNDING).sum()) + lost)


def interval(values: Floats, log_needed: float) -> tuple[float, float]:
    """The medians that neither side's evidence rules out; ends are among ``values`` (shape ``(n,)``), or infinite."""
    low, high = _end(values, log_needed), -_end(-values, log_needed)
    return (low, high) if low <= high else (high, low)


def _end(values: Floats, log_needed: float) -> float:
    most = _most_beyond(len(values), log_needed)
    return -math.inf if most is None else float(np.sort(values)[most])


@lru_cache(maxsize=1024)
def _most_beyond(rounds: int, log_needed: float) -> int | None:
    """How many of so many rounds may lie beyond a value that is ruled out all the same; ``None``: not even 0."""
    enough = [beyond for beyond in range(rounds) if log_evidence(rounds - beyond, beyond) >= log_needed]
    return max(enough, default=None)


def fewest_rounds(log_needed: float) -> int:
    """The least number of rounds that can be so much evidence."""
    n = 1
    while log_evidence(n, 0) < log_needed:
        n += 1
    return n


def rounds_for_evidence(values: Floats, log_needed: float, centre: float, side: int, lost: int = 0) -> float:
    """The number of ``values`` with which the evidence is expected to reach it, if rounds go on as they did."""
    off = side * (values - centre)
    inside, beyond = int((off > ROUNDING).sum()), int((off < -ROUNDING).sum()) + lost
    if inside <= beyond:
        return math.inf
    known, share = len(values), inside / (inside + beyond)

    def enough(more: int) -> bool:
        further = round(share * more)
        return log_evidence(inside + further, beyond + more - further) >= log_needed

    more = 0
    while not enough(more):
        more = 2 * more or 1
        if known + more > FORESEEABLE:
            return math.inf
    low = more // 2
    while more - low > 1:
        middle = (low + more) // 2
        low, more = (low, middle) if enough(middle) else (middle, more)
    return known + more
