"""The result of the analysis, as data: what ``summary.json`` holds and every report renders.

All numbers are in base units. ``low`` and ``high`` are the ends of an interval at the stated confidence; they are null
if the data allow none. ``warnings`` travel with the number they qualify.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from storlab.analysis.data import Claim, Effects, Knee, Objective, Sweep
from storlab.analysis.unequal import Unequal
from storlab.base.errors import ParseError
from storlab.findings import AnyFinding, answers, runs
from storlab.findings.base import Finding
from storlab.metrics import named

Why = Literal["shorter", "uneven", "across"]
"""Why a request is no whole number of units: shorter than one; of an uneven length; or off the boundary."""


@dataclass(frozen=True)
class Share:
    """A part of a whole (0 to 1), or a ratio: its mean over the rounds, the least and the most of any round."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class SizeShare:
    """Requests of one size: those of at least ``size`` bytes and less than twice as much."""

    size: int  # B, a power of two
    requests: Share
    bytes: Share | None = None  # null: unknown


@dataclass(frozen=True)
class UnitShare:
    """How requests lie in units of ``unit`` bytes. Null is unknown."""

    unit: int
    requests: Share | None  # share of requests whose length and offset are multiples of the unit
    bytes: Share | None  # the same, share of bytes
    offsets: Share | None  # share of requests whose offset alone is a multiple
    shorter: Share | None  # share of requests that are shorter than a unit
    amplification: Share | None  # bytes of all units touched, for each byte sent; nothing merged


@dataclass(frozen=True)
class BelowUnit:
    """Requests of one kind that are no whole number of units."""

    flags: str | None  # as in the table of requests; null: all further kinds together
    comm: str | None  # the command; null where commands were not told apart
    why: Why | None  # null: several
    count: float  # requests, mean over the rounds
    requests: Share  # of all requests of the operation
    bytes: Share
    lengths: tuple[tuple[int, float], ...]  # the most frequent, with their share of this kind


@dataclass(frozen=True)
class BlockIO:
    """One operation's block requests in one cell: how long and how aligned they are, and what goes below a unit.

    Shares are of its requests (or bytes), all nodes and disks of a trial added up first, then averaged over the rounds.
    """

    cell: int
    levels: dict[str, str]
    operation: str  # "write"; "all": not told apart
    unit: int  # B: that of ``below``
    rounds: int
    requests: float  # mean over the rounds
    bytes: float | None
    lengths: tuple[SizeShare, ...]
    alignments: tuple[SizeShare, ...]  # of length and offset together
    offsets: tuple[SizeShare, ...]  # of the offset alone
    units: tuple[UnitShare, ...]
    below: tuple[BelowUnit, ...] | None  # null: what they are is unknown
    warnings: tuple[AnyFinding, ...] = ()


@dataclass(frozen=True)
class Percentile:
    """Of all operations. The true one is at least ``low`` and at most ``high``; ``value`` lies in their middle.

    ``high`` is null where nothing is known but that it is at least ``low``, which is the value then.
    """

    percentile: float  # 99.9
    value: float
    low: float
    high: float | None
    beyond: int  # operations of a higher rank

    @property
    def error(self) -> float | None:
        """How far the true percentile is from ``value`` at most, as a share of it; ``None`` where nothing bounds it."""
        if self.high is None:
            return None
        off = max(self.value - self.low, self.high - self.value)
        return off / self.value if self.value else 0.0


@dataclass(frozen=True)
class Distribution:
    """How long the operations of one kind took: of all nodes of a cell, or the one that ``node`` names."""

    cell: int
    levels: dict[str, str]
    source: str
    metric: str  # "write.latency"
    unit: str
    node: str | None  # null: all nodes together
    rounds: int
    operations: int
    percentiles: tuple[Percentile, ...]


Verdict = Literal["better", "worse", "equivalent", "undecided", "missing"]
"""Of level ``a`` against level ``b``. ``better`` respects the metric's direction. ``missing``: there is no ratio, as a
side is unsupported, failed, or has no value that a ratio can be made of.
"""

HOST = "host"  # the node that is the machine where Storlab runs; it is there in every run

CellStatus = Literal["measured", "partly failed", "failed", "unsupported", "not run"]


@dataclass(frozen=True)
class CellState:
    """What became of one cell: one combination of levels."""

    cell: int
    levels: dict[str, str]
    status: CellStatus
    rounds: int  # trials done
    failed: int = 0
    reasons: tuple[str, ...] = ()  # why unsupported or failed, each reason once
    rests_after: int | None = None  # the last round in which it was due; null: it was in all
    rests_because: runs.Rested | None = None


@dataclass(frozen=True)
class Estimate:
    """One metric of one cell over its rounds: all jobs together, and all nodes, or the one that ``node`` names."""

    cell: int
    levels: dict[str, str]
    source: str  # workload or probe
    metric: str
    unit: str
    better: str
    rounds: int
    median: float
    mean: float
    sd: float | None  # sample standard deviation (n − 1) over rounds; null for one round
    cv: float | None  # sd ÷ mean
    low: float | None  # interval of the mean
    high: float | None
    confidence: float
    warnings: tuple[AnyFinding, ...] = ()
    node: str | None = None  # null: all nodes together


@dataclass(frozen=True)
class SteadyWindow:
    """The last five rounds of one point of the primary metric, as SNIA's definition of steady state looks at them."""

    cell: int
    levels: dict[str, str]
    source: str
    metric: str
    unit: str
    first: int  # round
    last: int
    mean: float | None  # null: there are fewer rounds with a value
    range: float | None  # from the least to the most, as a share of the mean
    slope: float | None  # along the least-squares line, from the first to the last, likewise
    steady: bool


Outcome = Literal["hit", "passed", "undecided", "missing"]


@dataclass(frozen=True)
class GateResult:
    """What came of one gate at one comparison. ``settled``: more rounds of the run could not change it."""

    gate: str
    outcome: Outcome
    why: AnyFinding
    settled: bool = True

    def fails(self, *, allow_undecided: bool) -> bool:
        return self.outcome in ("hit", "missing") or (self.outcome == "undecided" and not allow_undecided)


UndecidedKind = Literal["too few rounds", "leaning", "no evidence", "not steady"]
"""What it lacks: rounds, for any verdict; certainty, of a direction; any evidence; or the steady state asked for."""


@dataclass(frozen=True)
class Undecided:
    """Of a comparison that more rounds may decide. No kind is a verdict, and none has a confidence."""

    kind: UndecidedKind
    agreeing: int  # rounds on the same side of 1 as the ratio
    fewest: int  # rounds in which any verdict is possible, as long as the other comparisons are as they are


Per = Literal["operation", "byte", "trial", ""]
"""What an amount is divided by: operations or bytes of the load; nothing where the load counts neither; "": none."""

Moves = Literal["with", "against", "unclear"]
"""Whether in rounds in which the one ratio is larger the other is, too; or smaller. Unclear: neither is certain."""


@dataclass(frozen=True)
class Difference:
    """One metric from underneath that differs between two levels: evidence of why they do, and never the cause."""

    source: str
    metric: str
    unit: str
    per: Per
    noun: str  # as its declaration has it; may be empty
    a: float  # median over the rounds, of each operation or as it is
    b: float
    ratio: float | None  # a ÷ b, the geometric mean over the rounds; null where one was 0 in a round
    low: float | None
    high: float | None
    evidence: float  # by how much it is likelier than under "no difference", as log10
    agreeing: int  # rounds in which it was on the side where it mostly is
    moves: Moves  # in which way its ratio moves, from round to round, with that of the metric that was judged
    same_rate: bool = False  # of an amount that all that the machine does adds to: as much a second on both sides
    longer: float | None = None  # of waiting that accounts for it: s that an operation takes longer where more waits
    alike: tuple[str, ...] = ()  # further metrics that say the same in other words


@dataclass(frozen=True)
class FactDifference:
    """A setting that differs between the two levels' stacks: "scheduler", with its values of each."""

    name: str
    a: str
    b: str


@dataclass(frozen=True)
class Underneath:
    """What differs underneath a comparison that was decided. No verdict rests on it."""

    rounds: int
    watched: int  # metrics that varied at all, for which the evidence is corrected
    needed: int  # rounds in which any of these could be named
    confidence: float  # that none is named that does not differ
    differences: tuple[Difference, ...] = ()  # waiting that accounts for it, then the surest and largest
    facts: tuple[FactDifference, ...] = ()
    left_out: answers.NotExamined | None = None


@dataclass(frozen=True)
class Comparison:
    """Level ``a`` against level ``b`` of one factor, paired by round."""

    factor: str
    a: str
    b: str
    within: dict[str, str]  # levels of the other factors; where pooled, only those that are fixed
    pooled: bool  # over all combinations of the other factors
    source: str
    metric: str
    unit: str
    better: str
    rounds: int  # pairs
    ratio: float | None  # a ÷ b: exp of the typical log ratio, of described ones of the difference of means
    low: float | None
    high: float | None
    confidence: float  # of this interval, after correction for what the other comparisons are about
    margin: float  # equivalent: the ratio lies within 1/(1+margin) … 1+margin
    verdict: Verdict
    reason: AnyFinding  # why this verdict, or why none
    rounds_to_decide: int | None = None  # how many more are expected to be needed; null: unknown or none
    warnings: tuple[AnyFinding, ...] = ()
    settled: bool = False  # no more rounds are needed: decided, or there can be no verdict
    gates: tuple[GateResult, ...] = ()  # of `--fail-on`
    optional: bool = False  # missing, and `--optional` names what is absent: no gate asks for it
    rests_after: int | None = None  # the round as of which it stands, where its cells were not due any more
    undecided: Undecided | None = None  # null: decided, not interleaved, or nothing that more rounds could decide
    why: Underneath | None = None  # null: not better or worse, or the run goes on, or nothing was watched
    described: AnyFinding | None = None  # why it is shown and not judged
    far: answers.FarRounds | None = None  # where typical rounds are alike: how many are not
    spread: float | None = None  # standard deviation of the log ratios; null of one round


@dataclass(frozen=True)
class Method:
    """How intervals and verdicts were made: of how many comparisons, in what order, at what confidence."""

    kind: Literal["compared", "described", "single"]
    effect_variance: float  # of the mixture behind intervals of means
    confidence: float
    family: int
    min_rounds: int
    drawn: bool  # whether the order within rounds is known to be random
    rested: bool
    since: int | None = None  # of a study that stops at steady state: the first round that counts
    planned: int | None = None  # the round at which a part of the evidence aims; null: none was recorded beforehand


@dataclass(frozen=True)
class Summary:
    """Everything that a report says about numbers."""

    title: str
    primary: str
    confidence: float  # family-wise, over all comparisons
    rounds_done: int
    stopped: AnyFinding | None  # why the run ended when it did
    cells: tuple[CellState, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    warnings: tuple[AnyFinding, ...] = ()
    method: Method | None = None  # how intervals and verdicts were made; null if nothing was measured
    facts: dict[str, object] = field(default_factory=dict)  # of JSON's types only
    family: int = 1  # number of comparisons that the intervals are corrected for
    by_node: tuple[Estimate, ...] = ()  # what nodes are seen side by side for; each with its node
    block_io: tuple[BlockIO, ...] = ()  # block requests as the kernel issued them, where they were counted
    effects: tuple[Effects, ...] = ()  # of factors, where two or more vary; only in summaries of runs that ended
    distributions: tuple[Distribution, ...] = ()  # of latencies, over all rounds, nodes and jobs, and of each node
    claims: tuple[Claim, ...] = ()  # in the study's order
    sweeps: tuple[Sweep, ...] = ()  # factors whose levels are numbers, in the study's order
    knees: tuple[Knee, ...] = ()  # of the first of them
    objectives: tuple[Objective, ...] = ()  # in the study's order
    unequal: tuple[Unequal, ...] = ()  # what was measured under settings that nobody declared
    steady: tuple[SteadyWindow, ...] = ()  # where the study stops at steady state: its points, in the order of cells
    reported_since: int = 1  # the first round that counts in figures and verdicts: later, in such a study
    unsteady: answers.NotSteady | None = None  # why nothing is judged, in such a study; null once all points are steady

    @property
    def claims_of_its_levels(self) -> list[Claim]:
        """Those that it could answer: levels may be left out by ``--only``, or by a profile."""

        def has(side: dict[str, str]) -> bool:
            return any(side.items() <= cell.levels.items() for cell in self.cells)

        return [claim for claim in self.claims if has(claim.left) and has(claim.right)]

    @property
    def answers_nothing(self) -> bool:
        """Whether nothing that was asked for was measured: no cell, or none of the answers that may not be absent."""
        answers = [c.ratio is not None for c in self.comparisons if not c.optional]
        answers += [claim.verdict != "missing" for claim in self.claims_of_its_levels]
        answers += [not objective.missing for objective in self.objectives]
        keys = named(self.primary, [(e.source, e.metric) for e in self.estimates])
        points = {e.cell for e in self.estimates if (e.source, e.metric) in keys}
        lines = (line for sweep in self.sweeps[:1] for line in sweep.lines)
        answers += [any(step.cell in points for step in line.steps) for line in lines]
        return not any(cell.rounds for cell in self.cells) or (bool(answers) and not any(answers))


def to_json(summary: Summary) -> bytes:
    """``summary`` as indented UTF-8 JSON, which ``from_json`` reads back exactly.

    Raises ``ValueError`` where a number is NaN or infinite, which JSON can't hold.
    """
    _require_finite(summary.facts, "facts")
    for kind in ("estimates", "comparisons", "by_node", "claims"):
        _require_finite([vars(row) for row in getattr(summary, kind)], kind)
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"


def from_json(text: bytes | str, source: str = "summary.json") -> Summary:
    """What ``to_json`` wrote. Raises ``ParseError`` (naming ``source``) for anything else."""
    try:
        return msgspec.json.decode(text, type=Summary)
    except msgspec.MsgspecError as error:
        raise ParseError(f"not a summary of this version of Storlab: {error}", source) from None


def _require_finite(value: object, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which JSON can't hold: leave it null")
    if isinstance(value, dict):
        for key, inner in value.items():
            _require_finite(inner, f"{where}.{key}")
    elif isinstance(value, Finding):
        _require_finite({name: getattr(value, name) for name in value.__struct_fields__}, where)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _require_finite(inner, f"{where}[{index}]")
