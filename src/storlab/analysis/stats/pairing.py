"""Two sides of a comparison, brought together round by round as log ratios.

Logs, because effects of storage multiply: a slow moment of the machine takes the same share of both sides,
and "twice as fast" must mean the same as "half as slow" the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from storlab.analysis.stats.anytime import ROUNDING, Floats
from storlab.base.text import grouped
from storlab.findings import About, AnyFinding
from storlab.findings.rounds import LeftOut, NoLogarithm, NotPaired, RanFirst, ZeroRounds

Rounds = NDArray[np.int64]


_NO_ROUNDS: Rounds = np.empty(0, dtype=np.int64)
_NO_VALUES: Floats = np.empty(0, dtype=np.float64)
_HALF = 0.5
_ENDLESS = 1e9
"""The logarithm of a ratio to 0: beyond that of any two floats, and finite, so that means of two have an order."""


@dataclass(frozen=True, eq=False)
class Side:
    """One level's values of one metric: in each round that was done, in order; NaN where the metric is
    missing. ``failed``: the rounds whose trial failed. ``counts``: whether values are counts of what may not happen.
    """

    name: str
    rounds: Rounds = field(default_factory=_NO_ROUNDS.copy)
    values: Floats = field(default_factory=_NO_VALUES.copy)
    failed: Rounds = field(default_factory=_NO_ROUNDS.copy)
    counts: bool = False

    @classmethod
    def of_logarithms(cls, name: str, rounds: Rounds, logs: Floats, counts: bool) -> Side:
        """The side whose ``logged`` values have these logarithms."""
        return cls(name, rounds, np.exp(logs) - (_HALF if counts else 0.0), counts=counts)

    @property
    def logged(self) -> Floats:
        """What logarithms are taken of: counts with ½ added to each, the others as they are.

        J. B. S. Haldane, *The estimation and significance of the logarithm of a ratio of frequencies*, Annals of Human
        Genetics 20, 1956. It leaves the order of any two counts as it is, and makes no ratio larger. It is added
        whether there is a 0 or not, so that no round changes what earlier ones say.
        """
        return self.values + _HALF if self.counts else self.values

    @property
    def shrunk(self) -> float:
        """By how much that moves a logarithm at most; infinite where a count is 0."""
        least = float(self.values.min(initial=math.inf)) if self.counts else math.inf
        return math.log1p(_HALF / least) if least > 0 else math.inf

    def until(self, last: int) -> Side:
        """Without the rounds after ``last``."""
        known = self.rounds <= last
        return replace(
            self, rounds=self.rounds[known], values=self.values[known], failed=self.failed[self.failed <= last]
        )


@dataclass(frozen=True, eq=False)
class Pairs:
    """Log ratios a ÷ b of the rounds done on both sides, in order of the rounds.

    ``problem``: why there is no ratio; ``log_ratios`` is then empty.
    ``failed_a``: rounds in which only ``a`` failed; ``failed_b`` likewise.
    ``parts``: where combinations were pooled, the log ratios of each by its name. ``counts``: as of ``Side``.
    ``shrunk``: by how much the ½ of counts makes a log ratio smaller at most; infinite where any value is 0.
    ``hosts``: which machine did each round, where rounds were done on several.
    """

    rounds: Rounds = field(default_factory=_NO_ROUNDS.copy)
    log_ratios: Floats = field(default_factory=_NO_VALUES.copy)
    problem: AnyFinding | None = None
    warnings: tuple[AnyFinding, ...] = ()
    failed_a: frozenset[int] = frozenset()
    failed_b: frozenset[int] = frozenset()
    parts: Mapping[str, Floats] = field(default_factory=dict)
    counts: bool = False
    shrunk: float = 0.0
    hosts: Mapping[int, str] = field(default_factory=dict)

    @property
    def machines(self) -> dict[str, Floats]:
        named = [self.hosts.get(number, "") for number in self.rounds.tolist()]
        names = dict.fromkeys(named)
        if len(names) < 2 or len(named) != len(self.log_ratios):
            return {}
        return {name: self.log_ratios[[other == name for other in named]] for name in names}

    @property
    def zeros(self) -> bool:
        """Whether any value is 0."""
        return math.isinf(self.shrunk)


def pair(a: Side, b: Side) -> Pairs:
    """``a`` ÷ ``b`` in each round that both have.

    A value that is missing or below 0 in any of them has no logarithm. Leaving just that round out would select rounds
    by their result, so the whole comparison has no ratio then. A value of 0 makes a ratio that is beyond all others,
    which signs and ranks need no logarithm for, and two of them are equal: exchanging the sides still only turns the
    sign. But nothing says how far from 1 such a ratio is, so it is no evidence of being near.
    """
    rounds, of_a, of_b = a.rounds, a.logged, b.logged
    lost_a, lost_b = _failed_alone(a, b), _failed_alone(b, a)
    unpaired: tuple[LeftOut, ...] = ()
    if not np.array_equal(a.rounds, b.rounds):
        rounds, in_a, in_b = np.intersect1d(a.rounds, b.rounds, assume_unique=True, return_indices=True)
        of_a, of_b = of_a[in_a], of_b[in_b]
        unpaired = (*_left_out(a, b, lost_b), *_left_out(b, a, lost_a))
    problem = _without_order(a.name, rounds, of_a) or _without_order(b.name, rounds, of_b)
    if problem is None and len(rounds):  # of what never is anything but 0, nobody knows whether it was measured
        never = [side.name for side, values in ((a, of_a), (b, of_b)) if not values.any()]
        problem = NoLogarithm(never[0], "always zero") if never else None
    if problem is not None:
        return Pairs(rounds, problem=problem, warnings=unpaired)
    # Difference of logs: the quotient of two extreme values could overflow.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = snap(np.nan_to_num(np.log(of_a) - np.log(of_b), nan=0.0, posinf=_ENDLESS, neginf=-_ENDLESS))
    zeros = (*_zeros(a.name, rounds, of_a), *_zeros(b.name, rounds, of_b))
    shrunk = _shrunk(of_a, of_b, ratios) if a.counts else math.inf if zeros else 0.0
    return Pairs(rounds, ratios, None, (*unpaired, *zeros), lost_a, lost_b, counts=a.counts, shrunk=shrunk)


def _without_order(name: str, rounds: Rounds, values: Floats) -> NoLogarithm | None:
    """As ``without_logarithm``, but for zeros."""
    return without_logarithm(name, rounds, np.where(values == 0, 1.0, values))


def _zeros(name: str, rounds: Rounds, values: Floats) -> Iterator[ZeroRounds]:
    if not values.all():
        yield ZeroRounds(name, tuple(rounds[values == 0].tolist()))


def _shrunk(of_a: Floats, of_b: Floats, ratios: Floats) -> float:
    """``Pairs.shrunk`` of counts with ½ added, and of their log ``ratios``."""
    if min(of_a.min(initial=math.inf), of_b.min(initial=math.inf)) <= _HALF:
        return math.inf
    whole = np.abs(np.log(of_a - _HALF) - np.log(of_b - _HALF))
    return float((whole - np.abs(ratios)).max(initial=0.0))


def _left_out(done: Side, lacking: Side, failed: frozenset[int]) -> Iterator[LeftOut]:
    """Rounds that only one side has. ``failed``: in which the other one failed."""
    alone = tuple(number for number in np.setdiff1d(done.rounds, lacking.rounds).tolist() if number not in failed)
    if alone:
        yield LeftOut("not done", alone, side=lacking.name, other=done.name)
    if failed:
        yield LeftOut("failed", tuple(sorted(failed)), side=lacking.name)


def _failed_alone(one: Side, other: Side) -> frozenset[int]:
    if len(one.failed) == 0:
        return frozenset()
    return frozenset(np.intersect1d(np.setdiff1d(one.failed, one.rounds), other.rounds).tolist())


def snap(log_ratios: Floats) -> Floats:
    """Ratios that differ from 1 by rounding only are 1: no verdict may rest on the last bit of a float."""
    return np.where(np.abs(log_ratios) <= ROUNDING, 0.0, log_ratios)


def pool(parts: Sequence[Pairs], names: Sequence[str]) -> Pairs:
    """Per round the mean of the log ratios of ``parts``, called ``names``, in the rounds that all of them have.

    Rounds stay the unit: combinations measured in the same round share its disturbances.
    """
    if not parts:
        return Pairs()
    problem = next((part.problem for part in parts if part.problem), None)
    rounds = parts[0].rounds
    whole = all(np.array_equal(part.rounds, rounds) for part in parts)
    for part in () if whole else parts[1:]:
        rounds = np.intersect1d(rounds, part.rounds, assume_unique=True)
    warnings = _warnings_of(parts, names)
    if problem:
        return Pairs(rounds, warnings=warnings, problem=problem)
    incomplete = sorted({number for part in parts for number in part.rounds.tolist()} - set(rounds.tolist()))
    missing = (LeftOut("incomplete", tuple(incomplete)),) if incomplete else ()
    rows = [p.log_ratios if whole else p.log_ratios[np.isin(p.rounds, rounds, assume_unique=True)] for p in parts]
    return Pairs(
        rounds,
        snap(np.mean(rows, axis=0)),
        warnings=(*warnings, *missing),
        failed_a=frozenset[int]().union(*(part.failed_a for part in parts)),
        failed_b=frozenset[int]().union(*(part.failed_b for part in parts)),
        parts=dict(zip(names, rows, strict=True)),
        counts=any(part.counts for part in parts),
        shrunk=max(part.shrunk for part in parts),
        hosts={number: host for part in parts for number, host in part.hosts.items()},
    )


def _warnings_of(parts: Sequence[Pairs], names: Sequence[str]) -> tuple[AnyFinding, ...]:
    about = grouped((warning, name) for part, name in zip(parts, names, strict=True) for warning in part.warnings)
    return tuple(
        found if len(each) == len(parts) else About("combinations", tuple(each), found) for found, each in about.items()
    )


def without_logarithm(name: str, rounds: Rounds, values: Floats) -> NoLogarithm | None:
    """Why ``values`` (of these ``rounds``) have no logarithm; ``None`` if they have."""
    if bool((values > 0).all()) and bool((values < np.inf).all()):  # NaN fails the first
        return None
    missing = ~np.isfinite(values)
    if missing.any():
        return NoLogarithm(name, "lacking", tuple(rounds[missing].tolist()))
    if (values == 0).all():
        return NoLogarithm(name, "always zero")
    return NoLogarithm(name, "not positive" if (values < 0).any() else "zero", tuple(rounds[values <= 0].tolist()))


# Whether the trials of two sides were interleaved, told by when they ran, and which of them are pairs.
#
# Rounds of separate runs have the same numbers by chance alone. Pairs are trials that are neighbours in time: so that
# what drifts hits both alike. That holds where
#
# 1. both sides ran on one machine, in one boot of it, 2. in the order of their starts, every two trials are one of
# each side, and none overlap, and 3. not mostly the same side went first: else whatever favours the second would look
# like a difference. Mostly is what a    coin would hardly do: always, or a sign test of the order of the pairs at 5 %
# (Dixon and Mood 1946, "The statistical    sign test").

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
