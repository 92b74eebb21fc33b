"""Which of several changes made a test fail, though it may fail only now and then, with a stated chance of error.

Candidates are in order; from the culprit on a test fails at some rate, before it at a lower one, or never. The rates
aren't known: all are kept in view, each as likely as the others beforehand, and so is each candidate as the culprit.
After each result these are updated by Bayes' rule, and whichever candidate's next result is expected to tell most is
tested next (Burnashev and Zigangirov, Problems of Information Transmission 10, 1974; here with unknown rates). It
ends once the culprit is known with the probability that was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from storlab.base.amounts import percent
from storlab.base.errors import UserError

Floats = NDArray[np.float64]
Probe = Callable[[int], bool | None]
"""Tests a candidate once: whether it passed; ``None`` if it can't be tested. Number 0 is the good one."""

_GRID = 200
_ENOUGH = 3  # failures of the bad one, by which its rate is known well enough to begin
_STAY = 3.0  # a test of the candidate that is built already is preferred, until another tells so many times as much
_BLOCK = 10
_FLAKY_RUNS = 200  # of the good one, to see that it fails less often


@dataclass(frozen=True)
class Terms:
    """``error``: that the wrong one is named. ``least``: rate of failures below which the test counts as passing.

    ``flaky``: the test may fail before the culprit as well, if less often.
    """

    error: float = 0.05
    least: float = 0.05
    flaky: bool = False

    @property
    def patience(self) -> int:
        """Passes in a row after which a rate of ``least`` is ruled out."""
        return math.ceil(math.log(self.error) / math.log(1 - self.least))


@dataclass(frozen=True)
class Culprits:
    """Numbers of candidates, several if those between can't be tested, and the probability that it is among them."""

    candidates: tuple[int, ...]
    probability: float
    tests: int
    rate: float  # at which the test fails from there on


@dataclass
class Tally:
    """What came of each candidate so far, the good one first."""

    passed: NDArray[np.int64]
    failed: NDArray[np.int64]
    dead: set[int] = field(default_factory=set)  # can't be tested

    @classmethod
    def of(cls, count: int) -> Tally:
        return cls(np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64))

    def add(self, number: int, passed: bool | None) -> None:
        if passed is None:
            self.dead.add(number)
        else:
            (self.passed if passed else self.failed)[number] += 1


def find_culprit(count: int, probe: Probe, terms: Terms) -> Culprits:
    """The culprit among candidates 1 to ``count``, the last of which is bad. Raises ``UserError`` if an end is not."""
    tally = Tally.of(count)

    def test(number: int) -> bool | None:
        result = probe(number)
        tally.add(number, result)
        return result

    _check_bad(count, test, tally, terms)
    _check_good(count, test, tally, terms)
    here = count
    while True:
        belief, rates = beliefs(tally, terms)
        found = _settled(belief, tally, count)
        if found[1] >= 1 - terms.error:
            tests = int(tally.passed.sum() + tally.failed.sum())
            return Culprits(found[0], found[1], tests, rates[1])
        here = _most_telling(belief, rates, tally, here)
        test(here)


def _check_bad(count: int, test: Probe, tally: Tally, terms: Terms) -> None:
    for _ in range(terms.patience):
        if test(count) is None:
            raise UserError("the bad one can't be tested: its build failed, or the check ended with 125")
        if tally.failed[count] >= _ENOUGH:
            return
    if not tally.failed[count]:
        raise UserError(
            f"the bad one passes: {terms.patience} of {terms.patience} runs of the check passed, so it fails in less "
            f"than {percent(terms.least)} of them ({percent(1 - terms.error)} sure). Is this the check that you saw "
            "fail? For a rarer failure, lower --at-least"
        )


def _check_good(count: int, test: Probe, tally: Tally, terms: Terms) -> None:
    block = _BLOCK if terms.flaky else 1
    while _same_rate(tally, count, terms) > terms.error:
        runs = tally.passed + tally.failed
        # Where both fail, both rates are needed; several runs at a time, since each change takes a build.
        end = count if terms.flaky and runs[0] > runs[count] else 0
        for _ in range(block):
            if test(end) is None:
                raise UserError("the good one can't be tested: its build failed, or the check ended with 125")
        if tally.failed[0] and not terms.flaky:
            raise UserError(
                f"the good one fails: run {tally.passed[0] + 1} of its check failed. Take an older one; or, if the "
                "test has always failed now and then and does so more often now, say --flaky-before"
            )
        if tally.passed[0] + tally.failed[0] > _FLAKY_RUNS:
            raise UserError(
                f"the good one fails as often as the bad one, as far as can be seen: {tally.failed[0]} of "
                f"{tally.passed[0] + tally.failed[0]} runs of its check failed, and {tally.failed[count]} of "
                f"{tally.failed[count] + tally.passed[count]} of the bad one"
            )


def _same_rate(tally: Tally, count: int, terms: Terms) -> float:
    """The probability that the good one fails at the bad one's rate; beforehand, one half."""
    low, high = _grids(terms)
    good, bad = (tally.passed[0], tally.failed[0]), (tally.passed[count], tally.failed[count])
    same = np.exp(_log_likelihood(high, good[0] + bad[0], good[1] + bad[1])).mean()
    other = _joint(np.exp(_log_likelihood(low, *good))[None], np.exp(_log_likelihood(high, *bad))[None], low, high)[0]
    return float(same / (same + other))


def _grids(terms: Terms) -> tuple[Floats, Floats]:
    """Rates of failure before the culprit and from it on: each order of magnitude of the second is as likely."""
    high = terms.least ** (1 - (np.arange(_GRID) + 0.5) / _GRID)
    low = np.concatenate([np.zeros(_GRID // 4), np.linspace(0.0025, 0.5, _GRID)]) if terms.flaky else np.zeros(1)
    return low, high


def _log_likelihood(rates: Floats, passed: int, failed: int) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        fails = np.where(failed > 0, failed * np.log(rates), 0.0)
        passes = np.where(passed > 0, passed * np.log1p(-rates), 0.0)
    return np.asarray(fails + passes, dtype=np.float64)


def _joint(before: Floats, after: Floats, low: Floats, high: Floats) -> Floats:
    """Averages of ``before`` × ``after`` over all pairs of rates of which the first is lower. A row a candidate."""
    allowed = (low[:, None] < high[None, :]).astype(np.float64)
    return np.asarray(((before @ allowed) * after).sum(axis=1) / allowed.sum(), dtype=np.float64)


def beliefs(tally: Tally, terms: Terms) -> tuple[Floats, tuple[float, float]]:
    """The probability of each candidate (1 and on) to be the culprit; the expected rates before it and from it on."""
    low, high = _grids(terms)
    passed, failed = np.cumsum(tally.passed)[:-1], np.cumsum(tally.failed)[:-1]  # before candidate 1, 2, …
    all_passed, all_failed = tally.passed.sum(), tally.failed.sum()
    before = np.stack([_log_likelihood(low, p, f) for p, f in zip(passed, failed, strict=True)])
    after = np.stack(
        [_log_likelihood(high, all_passed - p, all_failed - f) for p, f in zip(passed, failed, strict=True)]
    )
    best = (before.max(axis=1) + after.max(axis=1)).max()
    shift = after.max(axis=1, keepdims=True)
    before, after = np.exp(before + shift - best), np.exp(after - shift)
    weights = _joint(before, after, low, high)
    total = weights.sum()
    rate_after = _joint(before, after * high, low, high).sum() / total
    rate_before = _joint(before * low, after, low, high).sum() / total
    return weights / total, (float(rate_before), float(rate_after))


def _settled(belief: Floats, tally: Tally, count: int) -> tuple[tuple[int, ...], float]:
    """The likeliest culprit, with those just before it that can't be tested: nothing tells them apart."""
    groups: list[list[int]] = [[]]
    for number in range(1, count + 1):
        groups[-1].append(number)
        if number not in tally.dead:
            groups.append([])
    chances = [float(belief[[number - 1 for number in group]].sum()) if group else 0.0 for group in groups]
    best = int(np.argmax(chances))
    return tuple(groups[best]), chances[best]


def _most_telling(belief: Floats, rates: tuple[float, float], tally: Tally, here: int) -> int:
    """Whose next result is expected to say most: the mutual information of a result and the culprit."""
    at_fault = np.cumsum(belief)  # the probability that the culprit is this one or one before it
    low, high = rates
    told = _entropy(at_fault * high + (1 - at_fault) * low) - at_fault * _entropy(high) - (1 - at_fault) * _entropy(low)
    for number in tally.dead:
        told[number - 1] = -1.0
    best = int(np.argmax(told)) + 1
    return here if told[here - 1] > 0 and told[here - 1] * _STAY >= told[best - 1] else best


def _entropy(rate: Floats | float) -> Floats:
    clipped = np.clip(rate, 1e-12, 1 - 1e-12)
    return np.asarray(-clipped * np.log(clipped) - (1 - clipped) * np.log(1 - clipped), dtype=np.float64)
