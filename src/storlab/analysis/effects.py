"""Effects of factors: the share of a metric's variation that each factor and each interaction makes.

The model is that of a randomised block design, on logarithms (effects of storage multiply): fixed effects of the
factors and their interactions, a random effect of the round, independent residuals. A term with sum of squares SS
and df degrees of freedom, over N trials, makes the variance

    max(0, (SS − df·σ²) ÷ N)

with σ² that of the residuals: Hays' correction, without which a factor that does nothing would get a share as well.
Its share is that variance by the sum of those of all terms, of rounds and of residuals. SS is Wald's statistic of
the term × σ²: in a balanced design the sum of squares of the usual analysis of variance, otherwise that of type
III.

Variances are those of restricted maximum likelihood (REML), for balanced and unbalanced designs alike: see
``mixed``. Where every round has every cell they are those of the analysis of variance (Searle, Casella and
McCulloch 1992, "Variance Components", section 3.8): σ² is the mean square of residuals, the variance of rounds is
(MS of rounds − σ²) ÷ cells, and where that would be negative, it is 0 and both are pooled.

Where cells of a round share what is set up once for them, such as a boot, that has a random effect as well:
``blocks``.

The design is columns of a linear model: sum-to-zero contrasts of factors and of their pairs, added one by one,
factors before interactions. One whose columns are not new, because its levels vary together with those of terms
before it, is indistinguishable from them and is left out.

Sources: Montgomery, "Design and Analysis of Experiments", chapters 4 and 5. Hays 1963, "Statistics for
Psychologists", for ω². Olejnik and Algina 2003, "Generalized eta and omega squared statistics". Jain 1991, "The Art
of Computer Systems Performance Analysis", chapter 17, on allocation of variation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product

import numpy as np
import polars as pl

from storlab.analysis.data import Effects, LevelMean, Part, Share
from storlab.analysis.design import MIN_ROUNDS, Design, Levels
from storlab.analysis.estimates import Recorded
from storlab.analysis.stats.anytime import ROUNDING, Floats
from storlab.analysis.stats.mixed import BlockComponents, Components, fit, fit_blocks, share_something
from storlab.base.text import grouped
from storlab.findings import AnyFinding
from storlab.findings.answers import Aliased, EffectsDoubt
from storlab.findings.rounds import TooFewRounds
from storlab.metrics import Key


def effects_of(
    recorded: Recorded, design: Design, keys: Sequence[Key], blocks: Mapping[int, int] | None = None
) -> tuple[Effects, ...]:
    """Effects on each metric of ``keys``, where at least two factors vary among the cells that have it.

    Where cells came to rest, only rounds count in which all were due: means of levels must be of the same rounds.
    ``blocks``: cell → block, of those that share what is set up once a round.
    """
    levels = dict(design.cells)
    doubts: tuple[AnyFinding, ...] = () if design.compared else (EffectsDoubt("not interleaved"),)
    if rests := design.rests_after.values():
        values = recorded.values.filter(pl.col("round") <= min(rests))
        recorded = Recorded(recorded.series, values)
        doubts = (*doubts, EffectsDoubt("resting", min(rests)))
    found = []
    for source, metric in keys:
        series = recorded.series.filter(pl.col("source") == source, pl.col("metric") == metric)
        varying = [name for name in design.factors if len({levels[cell][name] for cell in series["cell"]}) > 1]
        if len(varying) >= 2:
            chosen = {name: design.factors[name] for name in varying}
            found.append(_effects(recorded, series, levels, chosen, doubts, blocks or {}))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Logs:
    """Logarithms of one metric: ``values``, and of each its ``cell`` and ``round`` as numbers from 0."""

    values: Floats
    cell: np.ndarray
    round: np.ndarray
    cells: int
    rounds: int

    @property
    def balanced(self) -> bool:
        return len(self.values) == self.cells * self.rounds

    def cell_means(self) -> Floats:
        counts = np.bincount(self.cell, minlength=self.cells)
        return np.asarray(np.bincount(self.cell, self.values, self.cells) / counts)


def _effects(
    recorded: Recorded,
    series: pl.DataFrame,
    levels: dict[int, Levels],
    varying: Mapping[str, tuple[str, ...]],
    doubts: tuple[AnyFinding, ...],
    blocks: Mapping[int, int],
) -> Effects:
    factors = tuple(varying)
    first = series.row(0, named=True)
    rows = recorded.values.join(series.select("series", "cell"), on="series").drop_nulls("value")
    cells = [cell for cell in series["cell"] if cell in set(rows["cell"].unique())]
    block = np.array([blocks.get(cell, -cell) for cell in cells], dtype=np.int64)
    if split := share_something(block):
        before = rows["round"].n_unique()
        rows = rows.filter(pl.len().over("round") == len(cells))
        if (after := rows["round"].n_unique()) < before:
            doubts = (*doubts, EffectsDoubt("complete rounds", after, before))
    fixed = {name: level for name, level in levels[cells[0]].items() if name not in factors} if cells else {}

    def answer(
        shares: tuple[Share, ...], means: tuple[tuple[LevelMean, ...], tuple[LevelMean, ...]], *more: AnyFinding
    ) -> Effects:
        traits = (first["source"], first["metric"], first["unit"], first["better"])
        counts = (rows["round"].n_unique(), rows.height)
        blocked = bool(split) if shares else None
        return Effects(*traits, fixed, factors, *counts, shares, *means, blocked, (*doubts, *more))

    if rows.is_empty():
        return answer((), ((), ()), EffectsDoubt("no value"))
    values = rows["value"].to_numpy()
    if not bool(((values > 0) & (values < np.inf)).all()):
        return answer((), ((), ()), EffectsDoubt("not positive"))
    index = {cell: at for at, cell in enumerate(cells)}
    rounds, of_round = np.unique(rows["round"].to_numpy(), return_inverse=True)
    of_cell = rows["cell"].replace_strict(index, return_dtype=pl.Int64).to_numpy()
    logs = _Logs(np.log(values), of_cell, of_round, len(cells), len(rounds))
    chosen = [levels[cell] for cell in cells]
    means = _means(chosen, varying, logs.cell_means())
    warnings = _doubts(chosen, factors, logs)
    if len(values) < len(cells) + len(rounds) or len(rounds) < 2:
        return answer((), means, *warnings, EffectsDoubt("chance"))
    terms, aliased = terms_of(chosen, factors)
    warnings += map(Aliased, aliased)
    fitted = _columns(terms, logs)
    found: Components | BlockComponents
    if split:
        table = np.empty((logs.rounds, logs.cells))
        table[logs.round, logs.cell] = logs.values
        found = fit_blocks(table, block, *fitted)
    else:
        found = fit(logs.values, logs.cell, logs.round, *fitted)
    return answer(_shares(terms, found, len(values)), means, *warnings)


def _columns(terms: Sequence[Term], logs: _Logs) -> tuple[Floats, list[slice]]:
    columns = np.column_stack([np.ones(logs.cells), *(term.columns for term in terms)])
    ends = np.cumsum([1, *(term.columns.shape[1] for term in terms)]).tolist()
    return columns, [slice(*span) for span in pairwise(ends)]


def _shares(terms: Sequence[Term], found: Components | BlockComponents, trials: int) -> tuple[Share, ...]:
    df = [term.columns.shape[1] for term in terms]
    split = found if isinstance(found, BlockComponents) else None
    nothing = [d * found.residual for d in df] if split is None else split.expected
    made = [max(0.0, (ss - by_chance) / trials) for ss, by_chance in zip(found.squares, nothing, strict=True)]
    of_blocks = 0.0 if split is None else split.blocks
    total = sum(made) + found.rounds + of_blocks + found.residual
    if total <= ROUNDING**2:
        return ()
    listed = [Share(t.part, t.factors, m / total, d) for t, m, d in zip(terms, made, df, strict=True)]
    listed.append(Share("rounds", (), found.rounds / total, found.df_rounds))
    if split is not None:
        listed.append(Share("blocks", (), of_blocks / total, split.df_blocks))
    return (*listed, Share("residual", (), found.residual / total, found.df_residual))


def _means(
    cells: Sequence[Levels], factors: Mapping[str, tuple[str, ...]], logs: Floats
) -> tuple[tuple[LevelMean, ...], tuple[LevelMean, ...]]:

    def by(names: tuple[str, ...]) -> list[LevelMean]:
        values = zip(cells, logs.tolist(), strict=True)
        groups = grouped((tuple(cell[name] for name in names), value) for cell, value in values)
        return [
            LevelMean(dict(zip(names, chosen, strict=True)), float(np.exp(np.mean(group))))
            for chosen in product(*(factors[name] for name in names))
            if (group := groups.get(chosen))
        ]

    main = tuple(mean for name in factors for mean in by((name,)))
    return main, tuple(mean for pair in combinations(factors, 2) for mean in by(pair))


def _doubts(cells: Sequence[Levels], factors: tuple[str, ...], logs: _Logs) -> list[AnyFinding]:
    found: list[AnyFinding] = []
    full = int(np.prod([len({cell[name] for cell in cells}) for name in factors]))
    if len(cells) < full:
        found.append(EffectsDoubt("combinations", len(cells), full))
    if not logs.balanced:
        found.append(EffectsDoubt("unbalanced"))
    if logs.rounds < MIN_ROUNDS:
        found.append(TooFewRounds(logs.rounds, MIN_ROUNDS, "shares"))
    return found


@dataclass(frozen=True, eq=False)
class Term:
    """Columns of one factor or interaction (shape ``(cells, df)``)."""

    part: Part
    factors: tuple[str, ...]
    columns: Floats


def terms_of(levels: Sequence[Mapping[str, str]], factors: Sequence[str]) -> tuple[list[Term], list[tuple[str, ...]]]:
    """Terms for cells with these ``levels``, and the names of those that are indistinguishable from the ones before.

    With the column of ones, the terms span every difference between cells: what factors and pairs leave is ``others``.
    """
    alone = {name: _contrasts([cell[name] for cell in levels]) for name in factors}
    wanted: list[tuple[tuple[str, ...], Floats]] = [((name,), columns) for name, columns in alone.items()]
    wanted += [
        ((a, b), (alone[a][:, :, None] * alone[b][:, None, :]).reshape(len(alone[a]), -1))
        for a, b in combinations(factors, 2)
    ]
    found: list[Term] = []
    aliased: list[tuple[str, ...]] = []
    spanned = np.ones((len(levels), 1))
    for names, columns in wanted:
        wider = np.column_stack([spanned, columns])
        if np.linalg.matrix_rank(wider) == wider.shape[1]:
            found.append(Term("factor" if len(names) == 1 else "interaction", names, columns))
            spanned = wider
        else:
            aliased.append(names)
    if spanned.shape[1] < len(levels):
        base, _ = np.linalg.qr(spanned, mode="complete")
        found.append(Term("others", (), base[:, spanned.shape[1] :]))
    return found, aliased


def _contrasts(values: Sequence[str]) -> Floats:
    """Sum-to-zero columns: one for each level but the last, which is −1 in all of them."""
    names = list(dict.fromkeys(values))
    coded = np.vstack([np.eye(len(names) - 1), -np.ones((1, len(names) - 1))])
    return np.asarray(coded[[names.index(value) for value in values]], dtype=np.float64)
