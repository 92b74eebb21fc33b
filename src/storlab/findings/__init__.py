"""Everything that can be found of a run's numbers, or warned of, as data; ``report.language`` has the sentences.

A finding is what ``summary.json``, tables and records hold, so that a program can act on it. What it is about is a
field; numbers are in base units, a share of 0.05 is 5 %. In JSON each has its ``type``: ``too-few-rounds``. Here are
the findings that are about others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Union

from storlab.findings import answers, rounds, runs
from storlab.findings.base import Finding, Reported

__all__ = ["AnyFinding", "Finding", "Reported", "answers", "innermost", "kinds", "rounds", "runs"]

if TYPE_CHECKING:
    AnyFinding = Finding


class Together(Finding, frozen=True):
    """Several findings that are one answer."""

    each: tuple[AnyFinding, ...]


class OnNode(Finding, frozen=True):
    """What a load or probe found on a node."""

    source: str
    node: str
    finding: AnyFinding


class About(Finding, frozen=True):
    """A finding that is true only of a side or run, of some combinations, or that keeps some out of a pool."""

    of: Literal["side", "combinations", "left out"]
    names: tuple[str, ...]
    finding: AnyFinding


class InTrials(Finding, frozen=True):
    """A finding that is about these trials."""

    trials: tuple[int, ...]
    finding: AnyFinding


class NoRatio(Finding, frozen=True):
    """There is no ratio to base a verdict on, and why."""

    why: AnyFinding
    metric: str


class NotInterleaved(Finding, frozen=True):
    """A ratio of two sides whose rounds are no pairs: described, not judged."""

    a: str
    b: str
    ratio: float
    low: float | None
    high: float | None
    rounds: tuple[int, int]
    why: AnyFinding


class Compared(Finding, frozen=True):
    """In how many rounds ``a`` is higher or lower than ``b``, by how much, and what follows."""

    a: str
    b: str
    higher: int
    lower: int
    rounds: int
    so: AnyFinding
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


class GateOnVerdict(Finding, frozen=True):
    """What a gate on "missing" or "undecided" found, with the comparison's own reason."""

    a: str
    b: str
    state: Literal["missing", "undecided", "decided", "there"]
    why: AnyFinding | None = None


class GateUnpaired(Finding, frozen=True):
    """A gate has no answer, as the rounds are of different machines."""

    a: str
    b: str
    why: AnyFinding


class Stopped(Finding, frozen=True):
    """A run ended after so many rounds, and why; ``goal``: what it has, or lacks. ``limit``: minutes, or rounds."""

    rounds: int
    why: Literal["reached", "most", "nothing to compare", "resting", "budget", "hopeless"]
    goal: AnyFinding | None = None
    limit: float = 0.0


class NotYet(Finding, frozen=True):
    """A run goes on: what it lacks, the rounds that are expected, if estimable, and how many are allowed.

    ``forecast``: whether to say so if it isn't.
    """

    rounds: int
    lacks: AnyFinding
    expected: int | None
    allowed: int
    forecast: bool = True


def innermost(finding: Finding) -> Finding:
    """What is found, whatever of: a node, trials, a side."""
    while isinstance(finding, OnNode | InTrials | About):
        finding = finding.finding
    return finding


def kinds() -> tuple[type[Finding], ...]:
    """Every finding that there is."""
    return tuple(Finding.__subclasses__())


if not TYPE_CHECKING:
    AnyFinding = Union[kinds()]  # noqa: UP007 (made of a tuple)
