"""Three ways to fit one model: fixed effects of cells, an effect of the round, residuals. See ``factorial``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storlab.analysis.stats.anytime import Floats


@dataclass(frozen=True)
class Components:
    """``squares``: sum of squares of each term. ``rounds``, ``residual``: variances."""

    squares: tuple[float, ...]
    rounds: float
    residual: float
    df_rounds: int
    df_residual: int


def in_closed_form(table: Floats, columns: Floats, terms: Sequence[slice]) -> Components:
    """``table``: (rounds, cells), without gaps; ``columns``: (cells, cells), of full rank."""
    rounds, cells = table.shape
    means = table.mean(axis=0)
    beta = np.linalg.solve(columns, means)
    covariance = np.linalg.inv(columns.T @ columns) / rounds  # by σ²; rounds cancel, as every one has all cells
    between = cells * float(((table.mean(axis=1) - table.mean()) ** 2).sum())
    left = table - means - table.mean(axis=1, keepdims=True) + table.mean()
    df_rounds, df_left = rounds - 1, (rounds - 1) * (cells - 1)
    residual = float((left**2).sum()) / df_left
    of_rounds = (between / df_rounds - residual) / cells
    if of_rounds < 0:  # REML's boundary: rounds make nothing
        of_rounds = 0.0
        residual = (between + residual * df_left) / (df_rounds + df_left)
    return Components(_squares(beta, covariance, terms), of_rounds, residual, df_rounds, df_left)


def by_likelihood(
    values: Floats, columns: Floats, rounds: NDArray[np.int64], terms: Sequence[slice]
) -> Components | None:
    """By statsmodels' REML; ``None`` if it does not converge.

    ``values``: (n,), ``columns``: (n, k), ``rounds``: (n,), numbered from 0. Powell's method: where rounds make little,
    the others stop at the boundary before the maximum (statsmodels 0.15).
    """
    from statsmodels.regression.linear_model import OLS
    from statsmodels.regression.mixed_linear_model import MixedLM  # slow to import, and seldom needed

    size = float(values.std()) or 1.0  # the optimiser's tolerances are for numbers near 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a variance near 0, which is no fault; convergence is looked at below
        try:
            fitted = MixedLM(values / size, columns, groups=rounds).fit(reml=True, method=["powell"])
        except (np.linalg.LinAlgError, ValueError):
            return None
    residual, of_rounds = float(fitted.scale), float(np.asarray(fitted.cov_re)[0, 0])
    if not (fitted.converged and residual > 0 and np.isfinite(of_rounds)):
        return None
    # With the variances known, least squares of the rotated data (Fuller and Battese 1973) has the covariance as well.
    counts = np.bincount(rounds)
    kept = (1 - np.sqrt(1 / (1 + counts * max(of_rounds, 0.0) / residual)))[rounds]
    rotated = OLS(values - kept * _means(values, rounds), columns - kept[:, None] * _means(columns, rounds)).fit()
    squares = _squares(np.asarray(rotated.params), np.asarray(rotated.normalized_cov_params), terms)
    left = len(values) - columns.shape[1] - len(counts) + 1
    return Components(squares, max(of_rounds, 0.0) * size**2, residual * size**2, len(counts) - 1, left)


def by_blocks(values: Floats, columns: Floats, rounds: NDArray[np.int64], terms: Sequence[slice]) -> Components | None:
    """Least squares with a fixed effect of each round, which is taken out first (Frisch and Waugh 1933).

    ``None`` where some rounds and cells can't be told apart, or nothing is left to tell chance by.

    Shapes as in ``by_likelihood``. The variance of rounds is of their mean square, as in a balanced design.
    """
    counts = np.bincount(rounds)
    df_rounds = len(counts) - 1
    df_left = len(values) - columns.shape[1] - df_rounds
    inner = columns[:, 1:] - _means(columns[:, 1:], rounds)
    products = inner.T @ inner  # contrasts are well conditioned, and normal equations take a tenth of the time
    if df_left < 1 or np.linalg.matrix_rank(products, hermitian=True) < len(products):
        return None
    within = values - _means(values, rounds)
    beta = np.asarray(np.linalg.solve(products, inner.T @ within), dtype=np.float64)
    covariance = np.asarray(np.linalg.inv(products), dtype=np.float64)
    residual = float(((within - inner @ beta) ** 2).sum()) / df_left
    # Columns are of full rank in cells: without rounds, the fitted values are the means of cells.
    left = values - columns @ np.linalg.solve(columns.T @ columns, columns.T @ values)
    mean_square = max(float((left**2).sum()) - residual * df_left, 0.0) / df_rounds
    of_rounds = max(0.0, (mean_square - residual) / float(counts.mean()))
    shifted = [slice(term.start - 1, term.stop - 1) for term in terms]
    return Components(_squares(beta, covariance, shifted), of_rounds, residual, df_rounds, df_left)


def _means(values: Floats, rounds: NDArray[np.int64]) -> Floats:
    """The mean of ``values`` ((n,) or (n, k)) in the round of each."""
    totals = np.zeros((int(rounds.max()) + 1, *values.shape[1:]))
    np.add.at(totals, rounds, values)
    counts = np.bincount(rounds).reshape(-1, *(1 for _ in values.shape[1:]))
    return np.asarray((totals / counts)[rounds])


def _squares(beta: Floats, covariance: Floats, terms: Sequence[slice]) -> tuple[float, ...]:
    """Wald's statistic × σ² of each term; ``covariance`` is that of ``beta`` by σ²."""
    return tuple(float(beta[t] @ np.linalg.solve(covariance[t, t], beta[t])) for t in terms)
