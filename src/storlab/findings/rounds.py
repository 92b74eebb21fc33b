"""Findings about rounds: what they are like, what was left out, and why two sides have no ratio or no pairs."""

from __future__ import annotations

from typing import Literal

from storlab.findings.base import Finding


class TooFewRounds(Finding, frozen=True):
    """There are fewer rounds than it takes; ``what`` it takes them for."""

    have: int
    need: int
    what: Literal["estimate", "verdict", "claim", "shares"] = "estimate"


class Outliers(Finding, frozen=True):
    """Rounds, or trials, whose modified z-score is above 3.5; none are named if there are too many of them."""

    rounds: tuple[int, ...]
    noun: Literal["round", "trial"] = "round"


class Drift(Finding, frozen=True):
    """What was measured rises or falls over the rounds, so that they are no repeats of one steady state."""

    of: Literal["ratio", "value", "metric", "speed"]
    rising: bool
    noun: Literal["round", "trial"] = "round"


class Constant(Finding, frozen=True):
    """Nothing varies over the rounds: the interval is a point, right for counts only."""

    of: Literal["ratio", "value", "sides"]


class LeftOut(Finding, frozen=True):
    """What could not be used. ``side`` lacks it, ``other`` has it; of so many ``count`` or ``rounds``."""

    why: Literal[
        "not done", "failed", "incomplete", "failed trials", "one side", "one side or order", "one combination",
        "not finite", "no request",
    ]  # fmt: skip
    rounds: tuple[int, ...] = ()
    count: int = 0
    of: int = 0
    side: str = ""
    other: str = ""


class ZeroRounds(Finding, frozen=True):
    """A side is 0 in some rounds: a ratio with 0 counts as beyond all others, and is no evidence of equivalence."""

    side: str
    rounds: tuple[int, ...]


class CountsShifted(Finding, frozen=True):
    """A ratio of counts, with ½ added to each; ``zeros``: some are 0, so they are never equivalent."""

    zeros: bool = False


class PartsDiffer(Finding, frozen=True):
    """Combinations, or machines, whose own rounds contradict what all together say."""

    parts: Literal["combinations", "machines"]
    ratios: tuple[tuple[str, float], ...]  # name, typical ratio


class SomeRounds(Finding, frozen=True):
    """A mean is of these rounds only, as there is no value in others."""

    have: int
    of: int


class PairedByTime(Finding, frozen=True):
    """Trials of runs alternate in time and are pairs; that their order was random is not known."""


class NoLogarithm(Finding, frozen=True):
    """A side has rounds without a value that a ratio can be made of."""

    side: str
    why: Literal["lacking", "always zero", "zero", "not positive"]
    rounds: tuple[int, ...] = ()


class NoRound(Finding, frozen=True):
    """No round was done for both sides, or none has every combination of a side (``b`` is empty)."""

    a: str
    b: str = ""


class NoTrial(Finding, frozen=True):
    """Sides, or a cell (no side), without a completed trial, and why of each that failed."""

    sides: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


class Unsupported(Finding, frozen=True):
    """Levels that this machine does not support, or steps of a sweep (without a name), each with its reason."""

    levels: tuple[tuple[str, str], ...]


class Excluded(Finding, frozen=True):
    """The study excludes it, with one level or the other."""


class NoMetric(Finding, frozen=True):
    """A metric that was asked for and that no trial has: of two sides, of one (``other`` has it), of a cell, or any."""

    metric: str
    sides: tuple[str, ...] = ()
    source: str = ""
    other: str = ""
    done: bool = False


class OneSided(Finding, frozen=True):
    """A combination that one side has and the other lacks."""

    within: str
    has: str
    lacks: str


class NotPaired(Finding, frozen=True):
    """Why trials of two sides are no pairs. ``order``: mostly, or always, one of them ran first."""

    why: Literal[
        "no starts", "boots", "overlap", "no turns", "no machines", "no ends", "order", "failed", "one side",
        "runs without machines",
    ]  # fmt: skip
    always: bool = False


class RanFirst(Finding, frozen=True):
    """One of two always, or mostly, ran first in a round, so its place would look like a difference."""

    first: str
    second: str
    rounds: int
    of: int
    always: bool


class OtherMachines(Finding, frozen=True):
    """Two sides, or rounds that would be one comparison (no sides), are of different machines."""

    machines: tuple[tuple[str, ...], ...]
    sides: tuple[str, ...] = ()


class LevelsOnMachines(Finding, frozen=True):
    """Two levels ran on different machines, so a difference may be the machines': described, not judged."""

    a: str
    b: str
    on_a: str
    on_b: str


class Emulated(Finding, frozen=True):
    """Guests were emulated, whose rates are the emulator's: described, not judged."""
