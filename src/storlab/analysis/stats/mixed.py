"""One fit for all designs: fixed effects of cells, a random effect of the round, residuals. See ``analysis.effects``.

With θ the variance of rounds by that of residuals, all else is known in closed form: REML is a search along one line.
What is left of the trials once the means of cells are taken out falls apart into independent directions, of which each
has its variance 1 + θλ by that of residuals (Patterson and Thompson 1971, Biometrika 58, section 3). Rounds that have
the same cells differ from each other in directions that are known, λ being their number of cells; the others are found
as eigenvectors, of a matrix that is as large as there are kinds of rounds. A balanced design has one kind.

statsmodels' ``MixedLM`` fits the same model by a general optimiser, which does not always converge: of 100 cells in
100 rounds it takes 3 CPU s, most of it for loading, and this 3 ms. Tests compare with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storlab.analysis.stats.anytime import ROUNDING, Floats

Numbers = NDArray[np.int64]

_LOWEST, _HIGHEST = -9.0, 9.0  # powers of ten, of θ × cells of a round: where it is looked for
_LEAST = 1e-8  # of what a round varies by: residuals of less are rounding, of which no likelihood is left
_NOTHING = 1e-10  # of the largest λ: what is smaller is 0 but for rounding
_POINTS, _HALVINGS = 181, 40  # of that: ten to a decade, and to eleven digits between two of them


@dataclass(frozen=True)
class Components:
    """``squares``: sum of squares of each term. ``rounds``, ``residual``: variances."""

    squares: tuple[float, ...]
    rounds: float
    residual: float
    df_rounds: int
    df_residual: int


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Rounds of the same cells. ``cells``: (kinds, cells), trials that each such round has of each."""

    cells: Floats
    of_round: Numbers  # (rounds,)
    many: Numbers  # (kinds,): rounds

    @property
    def trials(self) -> Floats:
        return np.asarray(self.cells.sum(axis=1))


@dataclass(frozen=True, eq=False)
class _Directions:
    """What cells leave of the trials, by directions: those with the same λ together. The residuals have λ = 0."""

    factor: Floats  # λ
    df: Numbers
    squares: Floats
    df_residual: int
    residual: float


def fit(values: Floats, cell: Numbers, round_: Numbers, columns: Floats, terms: Sequence[slice]) -> Components:
    """The estimates of maximum likelihood (REML).

    ``values``: (n,); ``cell``, ``round_``: of each, numbered from 0, n at least as large as both numbers together.
    ``columns``: (cells, cells), of full rank: what cells consist of, by ``terms``.
    """
    kinds = _kinds(cell, round_)
    found = _directions(values, cell, round_, kinds)
    of_rounds, residual = _variances(found)
    ratio = of_rounds / residual if residual > 0 else 0.0
    # Least squares for variances that are known, in what all rounds of a kind have together.
    weight = ratio / (1 + ratio * kinds.trials)
    totals = np.bincount(kinds.of_round[round_], values, len(kinds.many))
    products = np.diag(np.bincount(cell).astype(np.float64)) - kinds.cells.T @ (
        (kinds.many * weight)[:, None] * kinds.cells
    )
    means = np.linalg.solve(products, np.bincount(cell, values) - kinds.cells.T @ (weight * totals))
    into = np.linalg.inv(columns)
    squares = _squares(into @ means, into @ np.linalg.inv(products) @ into.T, terms)
    return Components(squares, of_rounds, residual, int(found.df.sum()), found.df_residual)


def _kinds(cell: Numbers, round_: Numbers) -> _Kinds:
    counts = np.zeros((int(round_.max()) + 1, int(cell.max()) + 1))
    np.add.at(counts, (round_, cell), 1)
    cells, of_round, many = np.unique(counts, axis=0, return_inverse=True, return_counts=True)
    return _Kinds(cells, of_round.reshape(-1), many)


def _directions(values: Floats, cell: Numbers, round_: Numbers, kinds: _Kinds) -> _Directions:
    def less_cells(each: Floats) -> Floats:
        return np.asarray(each - (np.bincount(cell, each) / of_cell)[cell])

    of_cell = np.bincount(cell)
    left = less_cells(values)
    totals = np.bincount(round_, left)
    of_kind = np.bincount(kinds.of_round, totals) / kinds.many
    within = totals - of_kind[kinds.of_round]  # how rounds of a kind differ
    within_squares = np.bincount(kinds.of_round, within**2) / kinds.trials
    scale = np.sqrt(kinds.many)
    between = np.diag(kinds.trials) - scale[:, None] * ((kinds.cells / of_cell) @ kinds.cells.T) * scale
    factor, vectors = np.linalg.eigh(between)
    told = factor > _NOTHING * kinds.trials.max()  # the others are what cells span: of each connected part one
    factor, vectors = factor[told], vectors[:, told]
    along = vectors.T @ (scale * of_kind)
    of_rounds = within / kinds.trials[kinds.of_round] + ((vectors @ (along / factor)) / scale)[kinds.of_round]
    df = np.concatenate([kinds.many - 1, np.ones(len(factor), np.int64)])
    return _Directions(
        factor=np.concatenate([kinds.trials, factor]),
        df=df,
        squares=np.concatenate([within_squares, along**2 / factor]),
        df_residual=len(values) - len(of_cell) - int(df.sum()),
        residual=float((less_cells(left - of_rounds[round_]) ** 2).sum()),
    )


def _variances(found: _Directions) -> tuple[float, float]:
    df_rounds = int(found.df.sum())
    df = found.df_residual + df_rounds
    largest = float(found.factor.max())
    of_rounds = float(found.squares.sum())
    least = max(found.residual, _LEAST * of_rounds * found.df_residual / max(df_rounds, 1))

    def residual(ratio: Floats) -> Floats:
        return np.asarray(((found.squares / (1 + ratio[:, None] * found.factor)).sum(axis=1) + least) / df)

    def misfit(ratio: Floats) -> Floats:  # −2 log likelihood
        logs = (found.df * np.log1p(ratio[:, None] * found.factor)).sum(axis=1)
        return np.asarray(df * np.log(residual(ratio)) + logs)

    def slope(ratio: float) -> float:
        each = found.factor / (1 + ratio * found.factor)
        by_residual = found.squares / (1 + ratio * found.factor) / residual(np.array([ratio]))
        return float((each * (found.df - by_residual)).sum())

    if of_rounds + found.residual <= ROUNDING**2:
        return 0.0, 0.0
    powers = np.linspace(_LOWEST, _HIGHEST, _POINTS)
    best = powers[np.argmin(misfit(10**powers / largest))]
    low, high = best - (powers[1] - powers[0]), best + (powers[1] - powers[0])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(10**middle / largest) < 0 else (low, middle)
    ratios = np.array([0.0, 10**low / largest])  # at 0, rounds make nothing: the boundary
    ratio = ratios[[np.argmin(misfit(ratios))]]
    of_residual = float(residual(ratio)[0])
    return float(ratio[0]) * of_residual, of_residual


def _squares(beta: Floats, covariance: Floats, terms: Sequence[slice]) -> tuple[float, ...]:
    """Wald's statistic × σ² of each term; ``covariance`` is that of ``beta`` by σ²."""
    return tuple(float(beta[t] @ np.linalg.solve(covariance[t, t], beta[t])) for t in terms)


# Variances where cells of a round share what is set up once for them, such as a boot: a block. See ``effects``.
#
# What one boot happens to be, all of its cells have in common. Taken for independent, they would make a factor that
# is constant within a boot, such as the kernel, look as if it did something. So a block has a random effect of its
# own, beside that of the round: a split-plot design, whose whole plots are blocks (Montgomery, "Design and Analysis
# of Experiments", section 14.5). Blocks may be of unequal size. With C cells in blocks of n₁, n₂, … and R rounds,
#
#     E[SS of rounds]    = (R − 1)(Cρ² + Σn²/C·β² + σ²)
#     E[SS of blocks]    = (R − 1)((K − 1)σ² + (C − Σn²/C)β²)
#     E[SS of residuals] = (R − 1)(C − K)σ²
#
# where ρ², β² and σ² are the variances of rounds, of blocks within them, and of trials within blocks. A term with d
# degrees of freedom and the projector P has E[SS] = dσ² + β²·tr(PZZᵀ) where it does nothing; Z says which cell is in
# which block. Every round has every cell here: of others, nothing is said.


@dataclass(frozen=True)
class BlockComponents:
    """``squares``: sum of squares of each term; ``expected``: what it would be of one that does nothing. Variances of
    ``rounds``, ``blocks`` and ``residual``, with degrees of freedom.
    """

    squares: tuple[float, ...]
    expected: tuple[float, ...]
    rounds: float
    blocks: float
    residual: float
    df_rounds: int
    df_blocks: int
    df_residual: int


def share_something(block: Numbers) -> bool:
    """Whether there is more to a block than to a round or to a trial. ``block``: of each cell."""
    return 1 < len(np.unique(block)) < len(block)


def fit_blocks(table: Floats, block: Numbers, columns: Floats, terms: Sequence[slice]) -> BlockComponents:
    """Estimates by the method of moments, none below 0.

    ``table``: (rounds, cells), logarithms, at least two rounds; ``block``: of each cell. ``columns``: (cells, cells),
    of full rank, ones first: what cells consist of, by ``terms``.
    """
    many, cells = table.shape
    _, block = np.unique(block, return_inverse=True)
    sizes = np.bincount(block)
    among = np.equal.outer(block, block).astype(np.float64)  # ZZᵀ
    crowded = float((sizes**2).sum() / cells)
    means = table.mean(axis=0)
    left = table - means
    of_round = left.mean(axis=1)
    of_block = np.stack([left[:, block == each].mean(axis=1) for each in range(len(sizes))], axis=1)
    within = left - of_block[:, block]
    free = many - 1
    df_blocks, df_residual = free * (len(sizes) - 1), free * (cells - len(sizes))
    residual = float((within**2).sum()) / df_residual
    squares_of_blocks = float((sizes * (of_block - of_round[:, None]) ** 2).sum())
    blocks = max(0.0, (squares_of_blocks - df_blocks * residual) / (free * (cells - crowded)))
    squares_of_rounds = cells * float((of_round**2).sum())
    rounds = max(0.0, (squares_of_rounds / free - residual - crowded * blocks) / cells)
    into = np.linalg.inv(columns)
    squares, expected = [], []
    for term in terms:
        own = into[term]
        projector = own.T @ np.linalg.solve(own @ own.T, own)
        squares.append(many * float(means @ projector @ means))
        expected.append(len(own) * residual + blocks * float((projector * among).sum()))
    return BlockComponents(
        tuple(squares), tuple(expected), rounds, blocks, residual, free, df_blocks, df_residual
    )  # fmt: skip
