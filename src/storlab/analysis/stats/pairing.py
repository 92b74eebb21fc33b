"""Two sides of a comparison, brought together round by round as log ratios.

Logs, because effects of storage multiply: a slow moment of the machine takes the same share of both sides,
and "twice as fast" must mean the same as "half as slow" the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from storlab.analysis.stats.anytime import ROUNDING, Floats
from storlab.analysis.wording import listed

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

    ``problem`` says why where there is no ratio (``no_ratio`` makes a sentence of it); ``log_ratios`` is then empty.
    ``failed_a``: rounds in which only ``a`` failed; ``failed_b`` likewise.
    ``parts``: where combinations were pooled, the log ratios of each by its name. ``counts``: as of ``Side``.
    ``shrunk``: by how much the ½ of counts makes a log ratio smaller at most; infinite where any value is 0.
    ``hosts``: which machine did each round, where rounds were done on several.
    """

    rounds: Rounds = field(default_factory=_NO_ROUNDS.copy)
    log_ratios: Floats = field(default_factory=_NO_VALUES.copy)
    problem: str = ""
    warnings: tuple[str, ...] = ()
    failed_a: frozenset[int] = frozenset()
    failed_b: frozenset[int] = frozenset()
    parts: Mapping[str, Floats] = field(default_factory=dict)
    counts: bool = False
    shrunk: float = 0.0
    hosts: Mapping[int, str] = field(default_factory=dict)

    @property
    def machines(self) -> dict[str, Floats]:
        """The log ratios of each machine by its name, where there are several."""
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
    unpaired: tuple[str, ...] = ()
    if not np.array_equal(a.rounds, b.rounds):
        rounds, in_a, in_b = np.intersect1d(a.rounds, b.rounds, assume_unique=True, return_indices=True)
        of_a, of_b = of_a[in_a], of_b[in_b]
        unpaired = (*_left_out(a, b, lost_b), *_left_out(b, a, lost_a))
    problem = _without_order(a.name, rounds, of_a) or _without_order(b.name, rounds, of_b)
    if not problem and len(rounds):  # of what never is anything but 0, nobody knows whether it was measured
        problem = _always_zero(a.name, of_a) or _always_zero(b.name, of_b)
    if problem:
        return Pairs(rounds, problem=problem, warnings=unpaired)
    # Difference of logs: the quotient of two extreme values could overflow.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = snap(np.nan_to_num(np.log(of_a) - np.log(of_b), nan=0.0, posinf=_ENDLESS, neginf=-_ENDLESS))
    zeros = (*_zeros(a.name, rounds, of_a), *_zeros(b.name, rounds, of_b))
    shrunk = _shrunk(of_a, of_b, ratios) if a.counts else math.inf if zeros else 0.0
    return Pairs(rounds, ratios, "", (*unpaired, *zeros), lost_a, lost_b, counts=a.counts, shrunk=shrunk)


def _without_order(name: str, rounds: Rounds, values: Floats) -> str:
    """As ``without_logarithm``, but for zeros."""
    return without_logarithm(name, rounds, np.where(values == 0, 1.0, values))


def _always_zero(name: str, values: Floats) -> str:
    return "" if values.any() else f"{name} is 0 in every round"


def _zeros(name: str, rounds: Rounds, values: Floats) -> Iterator[str]:
    if not values.all():
        where = listed(rounds[values == 0].tolist())
        yield (
            f"{name} is 0 in {where}: a ratio with 0 counts as beyond all others, that of 0 and 0 as 1, and neither as "
            "evidence of equivalence."
        )


def _shrunk(of_a: Floats, of_b: Floats, ratios: Floats) -> float:
    """``Pairs.shrunk`` of counts with ½ added, and of their log ``ratios``."""
    if min(of_a.min(initial=math.inf), of_b.min(initial=math.inf)) <= _HALF:
        return math.inf
    whole = np.abs(np.log(of_a - _HALF) - np.log(of_b - _HALF))
    return float((whole - np.abs(ratios)).max(initial=0.0))


def _left_out(done: Side, lacking: Side, failed: frozenset[int]) -> list[str]:
    """What to say of rounds that only one side has. ``failed``: in which the other one failed."""
    alone = [number for number in np.setdiff1d(done.rounds, lacking.rounds).tolist() if number not in failed]
    said = [f"Left out: {listed(alone)}, done for {done.name} but not for {lacking.name}."] if alone else []
    if failed:
        count = "it counts" if len(failed) == 1 else "they count"
        said.append(f"Left out: {listed(sorted(failed))}, in which only {lacking.name} failed; {count} against it.")
    return said


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
    problem = next((part.problem for part in parts if part.problem), "")
    rounds = parts[0].rounds
    whole = all(np.array_equal(part.rounds, rounds) for part in parts)
    for part in () if whole else parts[1:]:
        rounds = np.intersect1d(rounds, part.rounds, assume_unique=True)
    warnings = _warnings_of(parts, names)
    if problem:
        return Pairs(rounds, warnings=warnings, problem=problem)
    incomplete = sorted({number for part in parts for number in part.rounds.tolist()} - set(rounds.tolist()))
    rows = [p.log_ratios if whole else p.log_ratios[np.isin(p.rounds, rounds, assume_unique=True)] for p in parts]
    return Pairs(
        rounds,
        snap(np.mean(rows, axis=0)),
        warnings=(*warnings, *_not_everywhere(incomplete)),
        failed_a=frozenset[int]().union(*(part.failed_a for part in parts)),
        failed_b=frozenset[int]().union(*(part.failed_b for part in parts)),
        parts=dict(zip(names, rows, strict=True)),
        counts=any(part.counts for part in parts),
        shrunk=max(part.shrunk for part in parts),
        hosts={number: host for part in parts for number, host in part.hosts.items()},
    )


def _not_everywhere(incomplete: Sequence[int]) -> Iterator[str]:
    if incomplete:
        yield f"Left out: {listed(incomplete)}, not done in every combination."


def _warnings_of(parts: Sequence[Pairs], names: Sequence[str]) -> tuple[str, ...]:
    """Each once, with the combinations that it is about, unless it is about all."""
    about: dict[str, list[str]] = {}
    for part, name in zip(parts, names, strict=True):
        for warning in part.warnings:
            about.setdefault(warning, []).append(name)
    return tuple(
        said if len(each) == len(parts) else f"In {' and '.join(each)}: {said}" for said, each in about.items()
    )


def without_logarithm(name: str, rounds: Rounds, values: Floats) -> str:
    """Why ``values`` (of these ``rounds``) have no logarithm, in words; an empty text where they have."""
    if bool((values > 0).all()) and bool((values < np.inf).all()):  # NaN fails the first
        return ""
    missing = ~np.isfinite(values)
    if missing.any():
        return f"{name} lacks the metric in {listed(rounds[missing].tolist())}"
    if (values == 0).all():
        return f"{name} is 0 in every round"
    what = "0 or negative" if (values < 0).any() else "0"
    return f"{name} is {what} in {listed(rounds[values <= 0].tolist())}"


def no_ratio(problem: str, metric: str) -> str:
    """Why there is no verdict, as a sentence for the reader. ``problem``: as ``without_logarithm`` has it."""
    return f"{problem}, so there is no ratio of {metric} to base a verdict on; its values are in the tables."
