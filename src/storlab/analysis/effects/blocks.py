"""Variances where cells of a round share what is set up once for them, such as a boot: a block. See ``factorial``.

What one boot happens to be, all of its cells have in common. Taken for independent, they would make a factor that is
constant within a boot, such as the kernel, look as if it did something. So a block has a random effect of its own,
beside that of the round: a split-plot design, whose whole plots are blocks (Montgomery, "Design and Analysis of
Experiments", section 14.5). Blocks may be of unequal size. With C cells in blocks of n₁, n₂, … and R rounds,

    E[SS of rounds]    = (R − 1)(Cρ² + Σn²/C·β² + σ²)
    E[SS of blocks]    = (R − 1)((K − 1)σ² + (C − Σn²/C)β²)
    E[SS of residuals] = (R − 1)(C − K)σ²

where ρ², β² and σ² are the variances of rounds, of blocks within them, and of trials within blocks. A term with d
degrees of freedom and the projector P has E[SS] = dσ² + β²·tr(PZZᵀ) where it does nothing; Z says which cell is in
which block. Every round has every cell here: of others, nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storlab.analysis.stats.anytime import Floats

Numbers = NDArray[np.int64]


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
