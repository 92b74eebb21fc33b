"""Findings that answer: verdicts, gates, claims, curves, and effects of factors."""

from __future__ import annotations

from typing import Literal

from storlab.findings.base import Finding
from storlab.findings.rounds import PartsDiffer


class FarRounds(Finding, frozen=True):
    """Rounds whose ratio is beyond the ``band`` (0.3: 30 %) around 1, upwards and downwards.

    ``rarer_than``: the share of all rounds that such rounds are rarer than, as surely as a verdict is; null if there
    are too few rounds to say any.
    """

    above: int
    below: int
    rounds: int
    band: float
    rarer_than: float | None

    @property
    def one_sided(self) -> bool:
        """Whether there are some, at least three, all of them on the same side."""
        return self.above + self.below >= 3 and 0 in (self.above, self.below)


class WithinMargin(Finding, frozen=True):
    """The interval lies within the margin. ``real``: though there is a difference. ``far``: rounds that are far off.

    ``but``: why that makes no "equivalent".
    """

    margin: float
    real: bool = False
    far: FarRounds | None = None
    but: Literal["", "far rounds", "failed rounds", "zeros", "small counts", "evidence"] = ""


class MeanBeyondMargin(Finding, frozen=True):
    """Typical rounds lie within the margin, but the mean, with its interval as ratios, may lie beyond."""

    margin: float
    low: float
    mean: float
    high: float


class NoInterval(Finding, frozen=True):
    """These rounds allow no interval; ``need``: how many it takes at least, if there are fewer."""

    need: int = 0


class IncludesOne(Finding, frozen=True):
    """The interval includes 1, and reaches beyond a margin that is not 0."""

    margin: float


class FailedMayMatter(Finding, frozen=True):
    """The interval excludes 1, but rounds that failed on one side might have changed the answer."""

    rounds: int


class MeanDisagrees(Finding, frozen=True):
    """The interval excludes 1, but the mean does not: a few rounds go far the other way."""

    mean: float


class Differs(Finding, frozen=True):
    """The interval excludes 1; ``better``: which direction is. ``kept``: earlier rounds showed it, all of them do no
    longer."""

    better: str
    kept: bool = False


class NotEverywhere(Finding, frozen=True):
    """All combinations together are within the margin, or all machines give a verdict, and one by one they aren't."""

    differ: PartsDiffer
    margin: float = 0.0
    verdict: str = ""


class NotSteady(Finding, frozen=True):
    """Points of the metric that are not in steady state, which a study asks for; of none (0), nothing was measured."""

    moving: int
    of: int
    metric: str


class NotSteadyRuns(Finding, frozen=True):
    """Runs that have no steady state, which they ask for; ``alone``: of one, by which nothing is judged."""

    runs: tuple[tuple[str, NotSteady], ...]
    alone: bool = False


class Gated(Finding, frozen=True):
    """What became of a gate with the word ``word`` ("worse", "differs") and a limit; with what interval.

    ``given``: whether the limit is the gate's own, and not the margin. ``paired``: whether rounds are pairs.
    """

    a: str
    b: str
    word: str
    limit: float
    given: bool
    outcome: str
    rounds: int
    paired: bool
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    need: int = 0
    differ: PartsDiffer | None = None


class GateWithoutDirection(Finding, frozen=True):
    """A gate asks for better or worse of a metric of which neither direction is better."""

    metric: str
    word: str


class ClaimAnswer(Finding, frozen=True):
    """What is known of a claim: on which side of ``limit`` the ratio lies, or whether it is within a margin."""

    lies: Literal["above", "below", "open", "equivalent", "within", "beyond", "open within"]
    limit: float = 1.0


class ClaimRange(Finding, frozen=True):
    """How an interval lies to what is claimed. ``lacks``: why that is true of these rounds only."""

    lies: Literal["within", "outside", "reaches beyond"]
    low: float | None
    high: float | None
    unit: str
    lacks: NotIndependent | None = None


class ClaimUnanswered(Finding, frozen=True):
    """Why a claim has no answer: no cell has its levels, none differ in them alone, or cells were not interleaved.

    ``absent``: the run has not these levels.
    """

    why: Literal["no cell", "no pair", "not interleaved", "absent"]
    absent: tuple[str, ...] = ()


class ClaimContradicted(Finding, frozen=True):
    """Combinations that contradict the answer that all together give to a claim."""

    combinations: tuple[str, ...]


class LostRounds(Finding, frozen=True):
    """Rounds without a value, which might have changed the answer to a claim."""

    rounds: int


class NotIndependent(Finding, frozen=True):
    """Whether one round tells of the next: it does, or there are fewer than ``need`` rounds to say."""

    need: int = 0


class KneeFound(Finding, frozen=True):
    """Throughput ÷ latency is largest there. ``may_be_end``: the rounds allow for a knee at an end of the range."""

    may_be_end: bool


class NoKnee(Finding, frozen=True):
    """Throughput ÷ latency still grows at the last ``level``, or falls from the first on. ``sure``: by all rounds."""

    level: str
    grows: bool
    sure: bool
    need: int = 0


class ObjectiveEnds(Finding, frozen=True):
    """How steps of a sweep lie to a limit: ``unclear`` ones, or all on one side; and what keeps from saying more."""

    unclear: int = 0
    all_hold: bool = False
    none_holds: bool = False
    need: int = 0
    confidence: float = 0.0
    lacks: NotIndependent | None = None
    unmeasurable: int = 0


class EffectsDoubt(Finding, frozen=True):
    """Something to know of shares of variation: what they are from, and what they can't tell."""

    why: Literal[
        "not interleaved", "resting", "complete rounds", "no value", "not positive", "chance", "combinations",
        "unbalanced",
    ]  # fmt: skip
    have: int = 0
    of: int = 0


class Aliased(Finding, frozen=True):
    """A factor, or an interaction of two, that is indistinguishable from others."""

    factors: tuple[str, ...]


class NotExamined(Finding, frozen=True):
    """What was watched and lacks a value in some round: the first metrics, as source and name, and how many more."""

    metrics: tuple[tuple[str, str], ...]
    more: int
