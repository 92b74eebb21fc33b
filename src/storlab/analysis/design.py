"""What the analysis must know of a study: factors, cells and the comparisons that were planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from storlab.analysis.stats.horizon import Bet
from storlab.findings import AnyFinding
from storlab.findings.runs import Rested
from storlab.metrics import Declarations

if TYPE_CHECKING:
    import polars as pl

Levels = dict[str, str]
"""Level of each factor."""

MIN_ROUNDS = 5
"""Verdicts of fewer rounds would rest on the assumed shape of the noise alone."""


@dataclass(frozen=True)
class Rest:
    """A cell that was not due any more: ``after`` is the last round in which it was."""

    cell: int
    after: int
    why: Rested


@dataclass(frozen=True)
class CompareSpec:
    """One planned family of comparisons: levels of ``factor``, pair by pair.

    ``pairs`` is ``None`` for all pairs, in the order of the levels; a pair reads "a against b".
    ``within``: in each combination of the other factors' levels. ``pooled``: over all of them together.
    ``metrics`` is ``None`` for the study's primary metric; names as in ``Design.primary``.
    ``only``: levels of other factors to which all of it is restricted. ``native``: not judged where nodes are emulated.
    ``margin``: equivalent when the whole interval lies within 1/(1+margin) … 1+margin; 0 for never. ``None``: that of
    each metric's own kind (``MetricSpec.margin``).
    """

    factor: str
    pairs: tuple[tuple[str, str], ...] | None = None
    within: bool = True
    pooled: bool = True
    metrics: tuple[str, ...] | None = None
    margin: float | None = None
    only: Levels = field(default_factory=dict)
    native: bool = False


@dataclass(frozen=True)
class ClaimSpec:
    """Something that is claimed. ``left`` and ``right`` are levels of which one differs: left ÷ right is said to be
    ``word`` ("more", "less": above or below ``limit``; "equivalent": within the ``margin``). Without ``right``: in each
    cell that has ``left`` the metric is said to be ``between`` two values, as they are written. ``native``: not
    answered where nodes are emulated. ``absent``: why no cell can answer.
    """

    name: str
    metric: str | None
    left: Levels
    right: Levels = field(default_factory=dict)
    word: Literal["more", "less", "equivalent", "between"] = "more"
    limit: float = 1.0
    between: tuple[str | float, str | float] = (0.0, 0.0)
    margin: float | None = None
    source: str = ""
    native: bool = False
    absent: AnyFinding | None = None

    @property
    def factor(self) -> str:
        """The factor of which the two sides have different levels; empty for a claim about a value."""
        return next((name for name in self.left if self.right and self.left[name] != self.right[name]), "")

    def compared(self) -> CompareSpec | None:
        name = self.factor
        if not name or self.absent:
            return None
        only = {other: level for other, level in self.left.items() if other != name}
        pair = (self.left[name], self.right[name])
        metrics = None if self.metric is None else (self.metric,)
        return CompareSpec(name, (pair,), within=False, metrics=metrics, only=only, native=self.native)


@dataclass(frozen=True)
class ObjectiveSpec:
    """A ``metric`` that should stay ``below`` (or else above) a ``limit``, as somebody wrote it: up to which level of
    ``factor`` does it?
    """

    metric: str
    factor: str
    limit: str | float
    below: bool = True


@dataclass(frozen=True)
class Design:
    """A study, as far as statistics are concerned. Raises ``ValueError`` where its parts do not fit together.

    ``primary`` and other names of metrics are as ``metrics.named`` has them. ``factors``: name → levels, in the order
    of the study. ``cells``: number and levels of each cell. ``comparisons``: none at all where empty; ``None`` for
    the default, all pairs of the first factor's levels within each combination of the others, and pooled.
    ``min_rounds``: no verdict of fewer rounds. ``compared``: false where the cells were not run against each other,
    so that nothing could be concluded from a difference. ``order``: of each round the cells in the order in which
    they ran, where nobody knows that it was drawn at random; empty where it was. ``declared``: what the metrics are.
    ``gates``: as `--fail-on` has them. ``claims``: their comparisons are among those that are planned. ``emulated``:
    whether any node is. ``rests``: cells that were not due in all rounds. ``partial``: cells whose loads don't count
    what they did in a warm-up. ``settings``: of each cell's stack, by name, those that were the same in all of its
    trials. ``sweeps``: factors whose levels are numbers, of which curves are drawn; the first ``loading`` of them say
    how much is asked of storage at once. ``steady``: whether the run stops at steady state. ``optional``: by factor,
    levels that may be absent on this machine. ``silent``: cells with names of metrics that their trials can't have, as
    their loads do something else. ``machines``: of each cell, the other machines
    that it ran on, by node group; none where that is this one. ``excluded``: whether it leaves combinations out.
    ``bet``: what was recorded of the number of rounds before each of them; none where nothing was.
    """

    title: str
    primary: str
    factors: Mapping[str, tuple[str, ...]]
    cells: tuple[tuple[int, Levels], ...]
    comparisons: tuple[CompareSpec, ...] | None = None
    confidence: float = 0.95
    min_rounds: int = MIN_ROUNDS
    stopped: AnyFinding | None = None
    warnings: tuple[AnyFinding, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)
    compared: bool = True
    order: tuple[tuple[int, ...], ...] = ()
    declared: Declarations = field(default_factory=Declarations)
    gates: tuple[str, ...] = ()
    rests: tuple[Rest, ...] = ()
    partial: frozenset[int] = frozenset()
    settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    claims: tuple[ClaimSpec, ...] = ()
    emulated: bool = False
    sweeps: tuple[str, ...] = ()
    loading: int = 0
    objectives: tuple[ObjectiveSpec, ...] = ()
    steady: bool = False
    optional: Mapping[str, Sequence[str]] = field(default_factory=dict)
    silent: frozenset[tuple[int, str]] = frozenset()
    machines: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    excluded: bool = False
    bet: Bet | None = None

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence is {self.confidence}; it must lie between 0.5 and 1")
        if self.min_rounds < 2:
            raise ValueError(f"min_rounds is {self.min_rounds}; one round has no spread, so 2 is the least")
        for cell, levels in self.cells:
            self._check_cell(cell, levels)
        for spec in self.comparisons or ():
            self._check_spec(spec)

    @property
    def rests_after(self) -> dict[int, int]:
        return {rest.cell: rest.after for rest in self.rests}

    def is_optional(self, levels: Levels) -> bool:
        return any(level in self.optional.get(factor, ()) for factor, level in levels.items())

    def planned(self) -> tuple[CompareSpec, ...]:
        if not self.compared:
            return ()
        claimed = tuple(spec for claim in self.claims if (spec := claim.compared()) is not None)
        if self.comparisons is not None:
            return (*self.comparisons, *claimed)
        return (*(CompareSpec(factor) for factor in list(self.factors)[:1]), *claimed)

    def pairs(self, spec: CompareSpec) -> Sequence[tuple[str, str]]:
        return spec.pairs if spec.pairs is not None else tuple(combinations(self.factors[spec.factor], 2))

    def _check_cell(self, cell: int, levels: Levels) -> None:
        if set(levels) != set(self.factors):
            raise ValueError(f"cell {cell} has levels of {sorted(levels)}, the study of {sorted(self.factors)}")
        for factor, level in levels.items():
            if level not in self.factors[factor]:
                raise ValueError(f"cell {cell}: factor {factor!r} has no level {level!r}")

    def _check_spec(self, spec: CompareSpec) -> None:
        if spec.factor not in self.factors:
            raise ValueError(f"can't compare levels of {spec.factor!r}: the study has no such factor")
        if spec.margin is not None and not spec.margin >= 0:
            raise ValueError(f"margin is {spec.margin}; it must be 0 or more, such as 0.05")
        for pair in spec.pairs or ():
            if pair[0] == pair[1]:
                raise ValueError(f"can't compare level {pair[0]!r} of {spec.factor!r} with itself")
            for level in pair:
                if level not in self.factors[spec.factor]:
                    raise ValueError(f"can't compare {level!r}: factor {spec.factor!r} has no such level")


def machines_of_rounds(trials: pl.DataFrame) -> dict[int, str]:
    """Which machines did each round, where several did the same cell: rounds of a merged run; else empty.

    Cells of one run may be on different machines: a level without a network is not on the one that would serve.
    """
    import polars as pl

    done = trials.filter(pl.col("status") == "done")
    if "host" not in done.columns or done.group_by("cell").agg(pl.col("host").n_unique())["host"].max() in (None, 1):
        return {}
    hosts = pl.col("host").fill_null("").unique().sort().str.join(", ")
    return dict(done.group_by("round").agg(hosts).sort("round").iter_rows())
