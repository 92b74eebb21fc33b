"""What the schedule of a run is worth: cells that are compared run next to each other, and decided ones rest.

Studies of three levels in several combinations, cells and comparisons as in ``families``. Noise is that of the slots of
time in which trials run, so it matters which cells run when: what rests leaves its slots to the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.soundness import noise
from benchmarks.soundness.families import PAIRS
from benchmarks.soundness.noise import Floats
from benchmarks.soundness.trials import ALPHA, LEAST, Share, share
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds
from storlab.analysis.stats.signed_rank import WEIGHTS, log_stake, odds
from storlab.run.planning.order import round_order

Bools = NDArray[np.bool_]

LEVELS = 3
KINDS = ("log-normal", "heavy tails", "drift", "AR(1)", "recorded: fio")
COMBINATIONS = (2, 4, 10)
"""Of three levels each: 6, 12 and 30 cells a round."""
ROUNDS = 30
MARGIN = 0.05
EAGER = 10.0
"""Evidence with which the eager rule lets a comparison rest, half of what any verdict needs."""

Rule = Literal["none", "decided", "eager"]
"""Who rests: nobody; what is decided; and what has any evidence to speak of, to show that errors don't depend on it."""


@dataclass(frozen=True)
class Adjacency:
    """Variance of log ratios of two cells that are compared, next to each other ÷ anywhere in the round."""

    kind: str
    cells: int
    variance: float


def adjacency(kind: str, combinations: int, studies: int, rng: np.random.Generator) -> Adjacency:
    """On the same machines, in ``ROUNDS`` rounds each; orders are those that a run has."""
    cells = range(LEVELS * combinations)
    groups = {cell: cell // LEVELS for cell in cells}
    seeds = rng.integers(2**32, size=ROUNDS)
    slots = noise.slots(kind, studies, ROUNDS * len(cells), rng).reshape(studies, ROUNDS, len(cells))

    def variance(rule: dict[int, int] | None) -> float:
        squares = []
        for number, seed in enumerate(seeds):
            order = [planned.cell for planned in round_order(cells, number + 1, int(seed), {}, rule)]
            given = slots[:, number, np.argsort(order)]
            pairs = [(LEVELS * c + a, LEVELS * c + b) for c in range(combinations) for a, b in PAIRS]
            squares.append(np.mean([(given[:, a] - given[:, b]) ** 2 for a, b in pairs]))
        return float(np.mean(squares))

    return Adjacency(kind, len(cells), variance(groups) / variance(None))


@dataclass(frozen=True)
class Setting:
    """In ``differing`` of the ``combinations`` the third level is higher by ``effect``."""

    kind: str
    combinations: int
    differing: int
    effect: float

    def __str__(self) -> str:
        differ = f"{self.differing} of {self.combinations} combinations differ by {self.effect}"
        return f"{self.kind}, {differ}, with resting"


def settings() -> Iterator[Setting]:
    """All of them, each once."""
    for kind in KINDS:
        yield Setting(kind, 3, 0, 0.0)
        for differing in (1, 2, 3):
            yield Setting(kind, 3, differing, 0.20)
        yield Setting(kind, 3, 2, 0.05)


@dataclass(frozen=True)
class Resting:
    """``trials``: with resting ÷ without, both until all is decided or after ``ROUNDS`` rounds.

    ``wrong``: studies that ever claim a difference where there is none, or in the wrong direction, where decided cells
    rest; ``eager``: the same by the eager rule. ``decided``, ``decided_without``: comparisons with a verdict at the
    end, with resting and without.
    """

    setting: Setting
    trials: float
    wrong: Share
    eager: Share
    decided: float
    decided_without: float


def resting(setting: Setting, studies: int, rng: np.random.Generator) -> Resting:
    """One setting; with and without resting on machines of the same kind."""
    plain, decided, eager = (_Studies(setting, studies, rule, rng).run() for rule in ("none", "decided", "eager"))
    wrong, eagerly = (share(int(of.wrong.sum()), studies) for of in (decided, eager))
    known, known_without = (float(of.known.mean()) for of in (decided, plain))
    return Resting(setting, decided.trials / plain.trials, wrong, eagerly, known, known_without)


class _Studies:
    """Many studies at once, round by round. Arrays begin with the study; then come cells or comparisons."""

    def __init__(self, setting: Setting, studies: int, rule: Rule, rng: np.random.Generator) -> None:
        self.rule, self.rng, self.all = rule, rng, np.arange(studies)
        self.groups, self.cells = setting.combinations, LEVELS * setting.combinations
        self.a = np.array([LEVELS * g + a for g in range(self.groups) for a, _ in PAIRS])
        self.b = np.array([LEVELS * g + b for g in range(self.groups) for _, b in PAIRS])
        self.effect = np.zeros(self.cells)
        self.effect[[LEVELS * g + 2 for g in range(setting.differing)]] = math.log1p(setting.effect)
        self.truth = np.sign(self.effect[self.a] - self.effect[self.b])
        self.slots = noise.slots(setting.kind, studies, ROUNDS * self.cells, rng)
        self.used = np.zeros(studies, dtype=np.int64)
        shape = (studies, len(self.a))
        edge = math.log1p(MARGIN)
        self.bets = [_Bets(shape, centre) for centre in (0.0, -edge, edge)]
        self.values = np.zeros((*shape, 0))
        self.log_evidence = np.zeros(shape)
        self.known: Bools = np.zeros(shape, dtype=np.bool_)
        self.wrong: Bools = np.zeros(studies, dtype=np.bool_)
        self.awake: Bools = np.ones(shape, dtype=np.bool_)
        self.due: Bools = np.ones((studies, self.cells), dtype=np.bool_)
        self.trials = 0

    def run(self) -> _Studies:
        for number in range(1, ROUNDS + 1):
            self._round()
            if number >= LEAST:
                self._judge()
                self._let_rest()
        return self

    def _round(self) -> None:
        """Groups in an order drawn by lot, cells within them too, and what is not due passed over."""
        keys = self.rng.random((len(self.all), self.groups)).repeat(LEVELS, axis=1) * 1e6
        keys = np.where(self.due, keys + self.rng.random(keys.shape), np.inf)
        place = keys.argsort(axis=1).argsort(axis=1)
        at = np.minimum(self.used[:, None] + place, self.slots.shape[1] - 1)
        given = self.slots[self.all[:, None], at] + self.effect
        self.used += self.due.sum(axis=1)
        self.trials += int(self.due.sum())
        self.awake = self.due[:, self.a] & self.due[:, self.b]
        self.values = np.concatenate([self.values, (given[:, self.a] - given[:, self.b])[:, :, None]], axis=2)
        for bets in self.bets:
            bets.take(self.values, self.awake)
        self.log_evidence = self.bets[0].log_evidence()

    def _judge(self) -> None:
        """Verdicts on what is awake; what rests stays as it was."""
        above, below = self.bets[0].above(), self.bets[0].below()
        both = np.logaddexp(above, below) - math.log(2)
        side = np.where(above > below, 1.0, -1.0)
        agrees = np.sign(self.values.sum(axis=2)) == side
        most = np.maximum(above, below) - math.log(2)
        alike = np.minimum(self.bets[1].above(), self.bets[2].below()) >= math.log(len(self.a) / ALPHA)
        claims = np.zeros_like(self.known)
        for study in np.nonzero((self.awake & agrees & (most >= math.log(1 / ALPHA))).any(axis=1))[0]:
            evidence = zip(self.a, self.b, both[study], strict=True)
            asked = [Hypothesis(int(a) // LEVELS, str(a), str(b), float(of)) for a, b, of in evidence]
            claims[study] = agrees[study] & (most[study] >= np.log(thresholds(asked, ALPHA)))
        self.known = np.where(self.awake, claims | alike, self.known).astype(np.bool_)
        differs = claims & ~alike & self.awake  # "equivalent" goes first
        self.wrong |= (differs & (side != self.truth)).any(axis=1)

    def _let_rest(self) -> None:
        """Cells of which nothing is open; and all cells, where nothing is open at all, for then the study ends."""
        eager = self.log_evidence >= (math.log(EAGER) if self.rule == "eager" else math.inf)
        done: Bools = np.logical_or(self.known, eager)
        if self.rule == "none":
            finished: Bools = np.asarray(done.all(axis=1))
            self.due &= ~finished[:, None]
            return
        for cell in range(self.cells):
            self.due[:, cell] &= ~done[:, (self.a == cell) | (self.b == cell)].all(axis=1)


class _Bets:
    """The capital of all bets that log ratios lie above a centre, and below it."""

    def __init__(self, shape: tuple[int, int], centre: float) -> None:
        self.centre = centre
        self.logs = np.log(WEIGHTS) + np.zeros((2, *shape, len(WEIGHTS)))

    def take(self, values: Floats, awake: Bools) -> None:
        """The last of ``values``, where it counts."""
        off = values - self.centre
        size, n = np.abs(off), values.shape[2]
        before, own = size[:, :, :-1], size[:, :, -1:]
        rank = 1 + ((before < own).sum(axis=2) + (before <= own).sum(axis=2)) / 2
        signed = np.sign(off[:, :, -1]) * rank / n
        stakes = np.moveaxis(odds(signed, np.array(float(n))), 0, -1)
        for side, logs in zip((1, -1), self.logs, strict=True):
            logs += np.where(awake[:, :, None], log_stake(side * stakes), 0.0)

    def above(self) -> Floats:
        return np.asarray(np.logaddexp.reduce(self.logs[0], axis=2))

    def below(self) -> Floats:
        return np.asarray(np.logaddexp.reduce(self.logs[1], axis=2))

    def log_evidence(self) -> Floats:
        return np.asarray(np.logaddexp(self.above(), self.below()) - math.log(2))
