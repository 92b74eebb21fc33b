"""Evidence for a study that knows beforehand how many rounds it may run: a share of the stake aims at the last one.

The bets of ``signed_rank`` are the same in every round, so they win as much early as late. Where the number of rounds N
is known, a bet can save itself for N, as group-sequential designs do, and find in N rounds what a test of just so many
would nearly find. It is a bet all the same: whatever is known before a round, and however large that round's ratio
turns out, it wins with one sign what it loses with the other. So the capital is a martingale round by round, and every
look, extension and early end is valid; N may depend on all that is known when it is set, but not on the coming round,
which is why it is recorded before (``records/manifest.py``) and read from there.

Let u_k be the sign of round k times its normal score, as in ``signed_rank``, and σ the standard deviation of all scores
still to come. A price p is what it costs to have 1 if the walk of u reaches a barrier by round N, which a random walk
does with the chance 2Q(x/σ) from a distance x, Q(x) = 1 − Φ(x). After a round the walk is nearer or farther by |u|; the
new price if it is nearer is ``up``, if farther ``2p − up``, with x chosen so that the two are the price on average.
Prices are rounded to multiples of 2^−(rounds left), so that the last rounds end at 0 or 1 exactly: else a part of the
stake is never won. p = 1 is cash, and stays.

The capital of who bets on one side, to reach a goal G (2h/α, where h of the study's hypotheses may be true at once), is

    K = R + Σ O_λ + G · p:

R is the strongest bet of ``signed_rank``, which decides what is clear in few rounds, O are its four weakest, which go
on beyond N, and G·p is the bet on N. Shares of the stake are those of a preset, stated beforehand like N.

If N is moved before it is reached, the price is kept; if a study is extended after it, and by enough, three quarters of
R and O buy a new price. A round without a ratio is no step, and one that a side has lost is a step of the highest rank
against it (``signed_rank``), where it happened. Everything falls as the centre rises, so that intervals are found as
there.

Sources: Ville 1939 and Ramdas et al. 2020, as for ``signed_rank``. O'Brien and Fleming 1979, "A multiple testing
procedure for clinical trials", for spending late. Waudby-Smith and Ramdas 2024, "Estimating means of bounded random
variables by betting", for bets that aim at a number of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np

from storlab.analysis.stats import signed_rank
from storlab.analysis.stats.anytime import ROUNDING, Floats
from storlab.analysis.stats.signed_rank import log_stake, odds, sequential_signed_ranks

Preset = Literal["A", "B"]
PRESETS: tuple[Preset, ...] = get_args(Preset)

_SHARES: dict[Preset, tuple[float, float, float]] = {"A": (0.67, 0.17, 0.16), "B": (0.50, 0.33, 0.17)}
"""Of the bet on N, of the strongest one, and of the others together: A finds smaller differences, B large ones sooner.
"""
_OPEN = np.array([0.10, 0.10, 0.11, 0.07, 0.0, 0.0]) / 0.38  # by ``signed_rank.STRENGTHS``
_RUNS = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])

_MOVED = 0.75  # of what the other bets have, at an extension
_LEAST_EXTENSION = 8  # rounds; and at least as many as there were
_FINEST = 50  # binary digits of a price
_NOTHING = 1e-9  # of Newton's steps, after which the next is beyond what a float shows
_NORMAL = NormalDist()
_ROOT2 = math.sqrt(2)
_ROOT2PI = math.sqrt(2 * math.pi)
_EXACT = 1000  # rounds up to which the variance of scores is computed; of later ones it hardly changes
_LARGEST = 600.0


@dataclass(frozen=True)
class Bet:
    """What was stated beforehand. ``horizons``: pairs (k, N): from round k + 1 on, the study was to end with round N.

    The first is in force from the first round on.
    """

    preset: Preset
    horizons: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        starts = [after for after, _ in self.horizons]
        if not starts or starts[0] != 0 or starts != sorted(starts):
            raise ValueError(f"horizons begin after rounds {starts}; the first must begin after 0, the others later")
        if any(rounds <= after for after, rounds in self.horizons):
            raise ValueError(f"horizons are {self.horizons}; each must end after it begins")

    @property
    def last(self) -> int:
        """The number of rounds that is in force now."""
        return [*self._in_force()][-1][1]

    def _in_force(self) -> Iterator[tuple[int, int, bool]]:
        """Of each change that counts: after which round, the new N, and whether it extends a study that was over."""
        now = 0
        for after, rounds in self.horizons:
            over = 0 < now <= after
            if not over or rounds - after >= max(_LEAST_EXTENSION, after):
                now = rounds
                yield after, rounds, over


Tuned = tuple[tuple[float, float], ...]
"""What is needed of evidence that is tuned to several goals: of each the log, and that of how much is needed."""


@dataclass(frozen=True, eq=False)
class History:
    """In which rounds the log ratios of a comparison were found, under which bet.

    ``lost``: rounds that count against "above", and those that count against "below". ``tuned``: if more than one goal
    is to be reached (``closed_testing``); evidence is then what of all of them is least, as if it were tuned to one.
    ``proved``: the side (1 or −1) on which that was reached in some round, be it less now; else 0.
    """

    bet: Bet
    rounds: tuple[int, ...]
    lost: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    tuned: Tuned = ()
    proved: int = 0

    @cached_property
    def last(self) -> int:
        return max([*self.rounds, *self.lost[0], *self.lost[1]], default=0)

    def log_evidence(self, values: Floats, log_goal: float, centre: float = 0.0, side: int = 1) -> float:
        """log K that ``values`` lie above ``centre``, or below it for a ``side`` of −1, tuned to reach its goal."""
        return float(self.path(values, log_goal, centre, side)[-1]) if self.last else 0.0

    def interval(self, values: Floats, log_goal: float) -> tuple[float, float]:
        """As ``signed_rank.interval``."""
        won = lru_cache(maxsize=8)(partial(self._won, values))
        goals = sorted(self.tuned or ((log_goal, log_goal),), key=lambda each: -each[1])
        return signed_rank.not_ruled_out(
            values, *(lambda c, side, each=each: self._reaches(*won(c, side), *each) for each in goals)
        )

    def _reaches(self, won: Floats, scores: Sequence[float], goal: float, needed: float) -> bool:
        """Whether evidence tuned to this goal is as much as needed, looking no further than it takes to know."""
        others = _Others(won, self.bet, goal)
        if not others.extended and goal + float(others.after_each()[-1]) >= needed:
            return True
        *_, price = self._prices(scores, others)
        share = math.exp(min(float(others.after_each()[-1]), _LARGEST))
        return goal + math.log(max(share + price, 1e-300)) >= needed

    def path(self, values: Floats, log_goal: float, centre: float = 0.0, side: int = 1) -> Floats:
        """log K after each round of the study, whether the comparison has a ratio in it or not."""
        goals = self.tuned or ((log_goal, log_goal),)
        found = self.paths(values, [goal for goal, _ in goals], centre, side)
        over = [each - needed for each, (_, needed) in zip(found, goals, strict=True)]
        return np.asarray(log_goal + np.min(over, axis=0))

    def paths(self, values: Floats, log_goals: Sequence[float], centre: float, side: int) -> list[Floats]:
        """log K after each round, tuned to each of these goals."""
        won, scores = self._won(values, centre, side)
        found = []
        for log_goal in log_goals:
            to_goal = _Others(won, self.bet, log_goal)
            prices = list(self._prices(scores, to_goal))
            with np.errstate(divide="ignore"):
                found.append(log_goal + np.logaddexp(to_goal.after_each(), np.log(prices)))
        return found

    def _won(self, values: Floats, centre: float, side: int) -> tuple[Floats, list[float]]:
        """Log factors of all bets but that on the last round, after each round, and the scores of the rounds."""
        off = values - centre
        off = np.where(np.abs(off) <= ROUNDING, 0.0, np.round(off, 12))
        stakes = np.zeros((len(signed_rank.STRENGTHS), self.last))
        own = np.array(self.rounds, dtype=np.int64) - 1
        stakes[:, own] = side * odds(sequential_signed_ranks(off), np.arange(1.0, len(values) + 1))
        gone = np.array(sorted(self.lost[0 if side > 0 else 1]), dtype=np.int64)
        stakes[:, gone - 1] = -odds(np.ones(len(gone)), gone.astype(np.float64))
        return np.cumsum(log_stake(stakes), axis=1), (stakes[1] / signed_rank.STRENGTHS[1]).tolist()

    def _prices(self, scores: Sequence[float], others: _Others) -> Iterator[float]:
        changes = dict[int, list[tuple[int, bool]]]()
        for after, rounds, over in self.bet._in_force():
            changes.setdefault(after, []).append((rounds, over))
        (ends, _), *changes[0] = changes[0]
        price = others.first_price
        left = _left(ends)
        for number, score in enumerate(scores, 1):
            for rounds, over in changes.get(number - 1, ()):
                if over:
                    price += others.bought(number - 1, rounds - number + 1)
                else:
                    price = _floor(price, rounds - number + 1)
                ends, left = rounds, _left(rounds)
            if number <= ends and 0 < price < 1:
                price = step(price, score, ends - number, left[number])
            yield price

    def rounds_for_evidence(self, values: Floats, log_goal: float, side: int) -> float:
        """The number of ``values`` with which the evidence is expected to reach it, if rounds go on as they did.

        Infinite if that is not by the round at which the bet aims: then the other bets go on alone.
        """
        if self.last >= self.bet.last or not len(values):
            return math.inf
        times = -(-self.bet.last // self.last)
        again = [self.last * more for more in range(times)]
        lost = tuple(frozenset(n + more for n in each for more in again) for each in self.lost)
        assert len(lost) == 2
        whole = History(self.bet, tuple(n + more for more in again for n in self.rounds), lost, self.tuned)
        reached = np.nonzero(whole.path(np.tile(values, times), log_goal, 0.0, side)[: self.bet.last] >= log_goal)[0]
        known = [at + 1 for at in reached.tolist() if at + 1 > self.last]
        return len(values) + known[0] - self.last if known else math.inf


class _Others:
    """R and O, in logs and as shares of the goal. ``won``: log factors of each of their bets, after each round."""

    def __init__(self, won: Floats, bet: Bet, log_goal: float) -> None:
        aimed, runs, others = _SHARES[bet.preset]
        self.first_price = _floor(aimed * math.exp(-log_goal), bet.horizons[0][1])
        self.extended = len(bet.horizons) > 1
        # Where no price can be as low as the stake, the strongest bet has it instead.
        weights = (runs if self.first_price else runs + aimed) * _RUNS + others * _OPEN
        with np.errstate(divide="ignore"):
            self._alone = np.logaddexp.reduce(won + np.log(weights)[:, None]) - log_goal
        self._kept = np.zeros(won.shape[1])  # log of what extensions have left

    def bought(self, after: int, rounds: int) -> float:
        share = math.exp(min(float(self.after_each()[after - 1]), _LARGEST))
        self._kept[after:] += math.log(1 - _MOVED)
        return _floor(_MOVED * share, rounds)

    def after_each(self) -> Floats:
        return np.asarray(self._alone + self._kept)


def _floor(price: float, rounds: int) -> float:
    """``price`` as a multiple of 2^−rounds; the small number only guards exact ones against rounding."""
    grid = 2.0 ** min(rounds, _FINEST)
    return math.floor(price * grid + 1e-9) / grid


def _beyond(x: float) -> float:
    return 0.5 * math.erfc(x / _ROOT2)


def step(price: float, score: float, left: int, sigma: float) -> float:
    """The price after a round of ``score`` towards the barrier; ``left`` rounds are to come, of ``sigma`` together."""
    grid = 2.0 ** min(left, _FINEST)
    if score == 0:
        return math.floor(price * grid) / grid
    up = _raised(price, abs(score) / sigma) if left else min(1.0, 2 * price)
    lowest, highest = math.ceil(price * grid) / grid, math.floor(min(1.0, 2 * price) * grid) / grid
    assert lowest <= highest, "a price is a multiple of half a step"
    up = min(max(math.floor(up * grid + 0.5) / grid, lowest), highest)
    return up if score > 0 else 2 * price - up


def _raised(price: float, size: float) -> float:
    if price >= 0.5 + _beyond(2 * size):
        return 1.0
    y = size - _NORMAL.inv_cdf(min(price, 0.5))
    for _ in range(6):
        near, far = y - size, y + size
        density = (math.exp(-near * near / 2) + math.exp(-far * far / 2)) / _ROOT2PI
        more = ((math.erfc(near / _ROOT2) + math.erfc(far / _ROOT2)) / 2 - price) / density
        y += more
        if abs(more) < _NOTHING:
            break
    return min(max(2 * _beyond(max(y - size, 0.0)), price), min(1.0, 2 * price))


@lru_cache(maxsize=64)
def _left(ends: int) -> list[float]:
    """For each round up to ``ends``, the standard deviation of the scores after it (index 0: of all)."""
    known = _variances()
    numbers = np.minimum(np.arange(ends), _EXACT - 1)
    sums = np.concatenate([np.cumsum(known[numbers][::-1])[::-1], [0.0]])
    return [float(each) for each in np.sqrt(sums)]


@lru_cache(maxsize=1)
def _variances() -> Floats:
    from scipy.special import ndtri

    return np.array([np.mean(ndtri((1 + (np.arange(1, i + 1) - 0.5) / i) / 2) ** 2) for i in range(1, _EXACT + 1)])


@lru_cache(maxsize=256)
def fewest_rounds(bet: Bet, log_goal: float, tuned: Tuned = ()) -> int:
    """The least number of rounds that can be so much evidence: all agree, and each is larger than those before."""
    n = 4
    while True:
        n *= 2
        path = History(bet, tuple(range(1, n + 1)), tuned=tuned).path(np.arange(1.0, n + 1), log_goal)
        if (enough := np.nonzero(path >= log_goal)[0]).size:
            return int(enough[0]) + 1
