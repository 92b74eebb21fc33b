"""A factorial design as columns of a linear model: sum-to-zero contrasts of factors and of their pairs.

Terms are added one by one, factors before interactions. One whose columns are not new, because its levels vary together
with those of terms before it, can't be told from them and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from storlab.analysis.anytime import Floats
from storlab.analysis.effects import Part


@dataclass(frozen=True, eq=False)
class Term:
    """Columns of one factor or interaction (shape ``(cells, df)``)."""

    part: Part
    factors: tuple[str, ...]
    columns: Floats


def terms_of(levels: Sequence[Mapping[str, str]], factors: Sequence[str]) -> tuple[list[Term], list[tuple[str, ...]]]:
    """Terms for cells with these ``levels``, and the names of those that can't be told from the ones before.

    With the column of ones, the terms span every difference between cells: what factors and pairs leave is ``others``.
    """
    alone = {name: _contrasts([cell[name] for cell in levels]) for name in factors}
    wanted: list[tuple[tuple[str, ...], Floats]] = [((name,), columns) for name, columns in alone.items()]
    wanted += [((a, b), _products(alone[a], alone[b])) for a, b in combinations(factors, 2)]
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


def _products(a: Floats, b: Floats) -> Floats:
    return np.asarray((a[:, :, None] * b[:, None, :]).reshape(len(a), -1))
