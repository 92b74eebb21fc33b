"""What differs underneath the comparisons that were decided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storlab.analysis.stats.anytime import Floats, half_width, spread
from storlab.analysis.summary import Comparison, Difference, FactDifference, Moves, Underneath
from storlab.analysis.verdict import safe_exp
from storlab.analysis.why.watched import (
    Named,
    Paired,
    Watch,
    Watched,
    is_amount,
    moves_together,
    named,
    paired,
    pooled,
    rounds_needed,
    says_the_same,
    sizes,
)
from storlab.findings.answers import NotExamined
from storlab.metrics import Key

__all__ = ["Facts", "explained", "underneath"]

Facts = Mapping[int, Mapping[str, str]]
"""Cell → settings of its stack, by name."""

_MOST = 200
"""Comparisons that are looked underneath, at some milliseconds each: nobody reads more of them."""

_MOVING, _IN_STEP = 1.5, 0.5
"""What moves with the judged metric from round to round comes before what is as large and as sure; what is only as much
a second on both sides, of all that the machine does, after it.
"""
_MOSTLY = 0.5
"""Of the time by which operations take longer, what a wait must come to so that it accounts for it, and comes first. At
a queue depth of n each operation waits n times as long as one takes, so that depth can only hide what does not account
for it.
"""
_SAME_RATE = 0.25  # of the difference for each operation
_MATTERS = 0.05
"""Of the largest amount of the same unit at the same place, the least that an amount must be on either side: a read
for every hundred writes explains nothing, however sure it is that the other side has none.
"""


@dataclass(frozen=True)
class Asked:
    """One comparison that was decided: its cells (a, b) in each combination, the rounds and log ratios that it has."""

    cells: tuple[tuple[int, int], ...]
    key: Key
    rounds: Sequence[int]
    log_ratios: Floats


@dataclass(frozen=True, eq=False)
class _Both:
    """What both sides have in every combination: a row each of ``pair``, and of the same per second.

    ``longer``: the seconds that an operation takes longer on side a, the median over rounds.
    """

    watched: Sequence[Watched]
    pair: Paired
    rates: Paired
    longer: float


def explained(
    comparisons: Sequence[Comparison], asked: Sequence[Asked | None], watch: Watch, facts: Facts, confidence: float
) -> list[Comparison]:
    """``comparisons`` with what differs underneath them: of ``_MOST``, those that are better or worse first."""
    able = [at for at, mine in enumerate(asked) if mine is not None]
    able.sort(key=lambda at: comparisons[at].verdict not in ("better", "worse"))
    found = list(comparisons)
    for at in able[:_MOST]:
        mine = asked[at]
        if mine is not None:
            found[at] = replace(found[at], why=underneath(mine, watch, facts, 1 - confidence))
    return found


def underneath(asked: Asked, watch: Watch, facts: Facts, alpha: float) -> Underneath | None:
    """What differs; ``None`` where nothing was watched, and no setting differs."""
    both = _both(asked, watch)
    settings = tuple(_differing(asked.cells, facts))
    if not both.watched and not settings:
        return None
    count = int(both.pair.varies.sum())
    sure = named(both.pair, [each.spec.margin for each in both.watched], alpha)
    size, share = sizes(both.pair), _shares(both)
    # Only now, and not out of the family: it is the same numbers that say which matter and which differ.
    sure = [each for each in sure if share[each.row] >= _MATTERS]
    moves = {each.row: moves_together(both.pair.x[each.row], asked.log_ratios) for each in sure}

    def weight(each: Named) -> tuple[bool, float]:
        moving = _MOVING if moves[each.row] else 1.0
        in_step = _IN_STEP if _same_rate(both, each.row) else 1.0
        large = each.evidence * float(size[each.row]) * moving * in_step * math.sqrt(share[each.row])
        return _accounts(both, each.row), large

    ranked = sorted(sure, key=weight, reverse=True)
    return Underneath(
        rounds=len(asked.rounds),
        watched=count,
        needed=rounds_needed(count, alpha),
        confidence=1 - alpha,
        differences=tuple(
            _difference(both, each, moves[each.row], alike) for each, alike in _once(both, ranked, asked.log_ratios)
        ),
        facts=settings,
        left_out=_left_out(both),
    )


def _both(asked: Asked, watch: Watch) -> _Both:
    each = [(watch.of(a), watch.of(b)) for a, b in asked.cells]
    columns = watch.columns(asked.rounds)
    places = [{(w.key, w.per): at for at, w in enumerate(seen.watched)} for both in each for seen in both]
    first = each[0][0].watched
    kept = [w for w in first if w.key != asked.key and all((w.key, w.per) in place for place in places)]
    rows = [[place[w.key, w.per] for w in kept] for place in places]
    values, rates = list[Paired](), list[Paired]()
    longer = np.mean([(a.took - b.took)[columns] for a, b in each], axis=0)
    for at, (a, b) in enumerate(each):
        (of_a, a_second), (of_b, b_second) = a.of(rows[2 * at], columns), b.of(rows[2 * at + 1], columns)
        values.append(paired(of_a, of_b))
        rates.append(paired(a_second, b_second))
    return _Both(kept, pooled(values), pooled(rates), float(np.median(longer)))


def _left_out(both: _Both) -> NotExamined | None:
    lacking = [each.key for each, usable in zip(both.watched, both.pair.usable, strict=True) if not usable]
    return NotExamined(tuple(lacking[:3]), max(0, len(lacking) - 3)) if lacking else None


def _shares(both: _Both) -> list[float]:
    """How much each amount is of the largest of its kind, on the side that has more; 1 for what is no amount, and for
    flushes: one for a hundred writes may be what all of them wait for.

    Of ``disk.target.reads``, the other counts of that disk are of its kind.
    """
    most = np.maximum(np.median(both.pair.a, axis=1), np.median(both.pair.b, axis=1)).tolist()
    kinds = [(each.key[0], each.key[1].rpartition(".")[0], each.unit) for each in both.watched]
    amounts = [
        is_amount(each.spec) and each.spec.evidence != "rare" and math.isfinite(there)
        for each, there in zip(both.watched, most, strict=True)
    ]
    largest: dict[tuple[str, str, str], float] = {}
    for kind, amount, there in zip(kinds, amounts, most, strict=True):
        if amount:
            largest[kind] = max(there, largest.get(kind, 0.0))
    return [
        there / largest[kind] if amount and largest[kind] > 0 else 1.0
        for kind, amount, there in zip(kinds, amounts, most, strict=True)
    ]


def _accounts(both: _Both, row: int) -> bool:
    """Whether it is a wait on the side whose operations take longer, and most of that."""
    if both.watched[row].spec.evidence != "waited" or not both.longer:
        return False
    waits = float(np.median(both.pair.a[row] - both.pair.b[row]))
    return waits / both.longer >= _MOSTLY  # neither where its sign is the other one's, nor where a round has no time


def _same_rate(both: _Both, row: int) -> bool:
    """Whether it is as much a second on both sides, so that it may follow from how many operations there were."""
    if not both.rates.usable[row]:
        return False
    return abs(float(np.median(both.rates.x[row]))) < _SAME_RATE * abs(float(np.median(both.pair.x[row])))


def _once(both: _Both, ranked: Sequence[Named], judged: Floats) -> Iterator[tuple[Named, list[str]]]:
    """Each difference once, with the names of those that are the same in other words; none that is just the verdict's
    own ratio. Where one side has nothing, ratios say nothing, so there are no others.
    """
    x, logs = both.pair.x, both.pair.logs
    of_verdict = says_the_same(judged, x)
    firsts: dict[int, tuple[Named, list[str]]] = {}
    for one in ranked:
        row = one.row
        if not logs[row]:
            firsts[row] = (one, [])
        elif not of_verdict[row]:
            known = [first for first in firsts if logs[first]]
            same = np.flatnonzero(says_the_same(x[row], x[known]))
            if len(same):
                firsts[known[int(same[0])]][1].append(":".join(both.watched[row].key))
            else:
                firsts[row] = (one, [])
    yield from firsts.values()


def _difference(both: _Both, found: Named, moves: int, alike: Sequence[str]) -> Difference:
    of, x = both.watched[found.row], both.pair.x[found.row]
    ratio = low = high = None
    if both.pair.logs[found.row]:
        mean, sd = spread(x)
        half = half_width(sd, len(x), 1 / found.needed)
        ratio, low, high = (safe_exp(mean + sign * half) for sign in (0, -1, 1))
    side = 1 if float(x.mean()) > 0 else -1
    ways: dict[int, Moves] = {1: "with", -1: "against", 0: "unclear"}
    return Difference(
        source=of.key[0],
        metric=of.key[1],
        unit=of.unit,
        per=of.per,
        noun=of.spec.noun,
        a=float(np.median(both.pair.a[found.row])),
        b=float(np.median(both.pair.b[found.row])),
        ratio=ratio,
        low=low,
        high=high,
        evidence=round(found.evidence / math.log(10), 6),
        agreeing=int((side * x > 0).sum()),
        moves=ways[moves],
        same_rate=_same_rate(both, found.row),
        longer=abs(both.longer) if _accounts(both, found.row) else None,
        alike=tuple(alike),
    )


def _differing(cells: Sequence[tuple[int, int]], facts: Facts) -> Iterator[FactDifference]:
    each = [(facts.get(a, {}), facts.get(b, {})) for a, b in cells]
    names = [name for name in each[0][0] if all(name in side for both in each for side in both)] if each else []
    for name in names:
        values = {(a[name], b[name]) for a, b in each}
        if len(values) == 1:
            ((one, other),) = values
            if one != other:
                yield FactDifference(name, one, other)
