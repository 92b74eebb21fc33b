"""The fit of effects: in balanced designs the known closed form, in all others what no other variances do better."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.analysis.effects.mixed import Components, Numbers, fit
from storlab.analysis.stats.anytime import Floats


def contrasts(cells: int) -> Floats:
    """A column of ones, and what tells each cell but the last from all others."""
    return np.column_stack([np.ones(cells), np.vstack([np.eye(cells - 1), -np.ones((1, cells - 1))])])


def terms(cells: int) -> list[slice]:
    return [slice(1, 2), slice(2, cells)] if cells > 2 else [slice(1, 2)]


def closed_form(table: Floats) -> Components:
    """REML of a balanced ``table`` (rounds, cells): Searle, Casella and McCulloch 1992, section 3.8."""
    rounds, cells = table.shape
    columns = contrasts(cells)
    beta = np.linalg.solve(columns, table.mean(axis=0))
    covariance = np.linalg.inv(columns.T @ columns) / rounds
    between = cells * float(((table.mean(axis=1) - table.mean()) ** 2).sum())
    left = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    df_rounds, df_left = rounds - 1, (rounds - 1) * (cells - 1)
    residual = float((left**2).sum()) / df_left
    of_rounds = (between / df_rounds - residual) / cells
    if of_rounds < 0:
        of_rounds, residual = 0.0, (between + residual * df_left) / (df_rounds + df_left)
    squares = tuple(float(beta[t] @ np.linalg.solve(covariance[t, t], beta[t])) for t in terms(cells))
    return Components(squares, of_rounds, residual, df_rounds, df_left)


@settings(max_examples=100, deadline=None)
@given(
    cells=st.integers(2, 12),
    rounds=st.integers(2, 40),
    of_rounds=st.sampled_from([0.0, 0.01, 0.3, 10.0]),
    size=st.sampled_from([1e-4, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_in_a_balanced_design_it_is_the_closed_form(
    cells: int, rounds: int, of_rounds: float, size: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    table = size * (rng.normal(size=(rounds, cells)) + of_rounds * rng.normal(size=(rounds, 1)) + np.arange(cells))
    cell, round_ = (each.ravel() for each in np.meshgrid(np.arange(cells), np.arange(rounds)))
    found, known = fit(table.ravel(), cell, round_, contrasts(cells), terms(cells)), closed_form(table)
    assert (found.df_rounds, found.df_residual) == (known.df_rounds, known.df_residual)
    assert found.squares == pytest.approx(known.squares, rel=1e-6)
    assert found.residual == pytest.approx(known.residual, rel=1e-6)
    assert found.rounds == pytest.approx(known.rounds, rel=1e-6, abs=1e-6 * known.residual)


def misfit(values: Floats, cell: Numbers, round_: Numbers, of_rounds: float, residual: float) -> float:
    """−2 log likelihood of REML, by the definition: Harville 1977, equation 3.4, but for a constant."""
    means, rounds = np.eye(int(cell.max()) + 1)[cell], np.eye(int(round_.max()) + 1)[round_]
    inverse = np.linalg.inv(of_rounds * rounds @ rounds.T + residual * np.eye(len(values)))
    products = means.T @ inverse @ means
    left = values - means @ np.linalg.solve(products, means.T @ inverse @ values)
    return float(-np.linalg.slogdet(inverse)[1] + np.linalg.slogdet(products)[1] + left @ inverse @ left)


@settings(max_examples=40, deadline=None)
@given(
    cells=st.integers(2, 6),
    rounds=st.integers(4, 12),
    of_rounds=st.sampled_from([0.0, 0.3, 2.0]),
    share=st.floats(0.3, 0.95),
    seed=st.integers(0, 2**32 - 1),
)
def test_in_any_design_no_other_variances_are_likelier(
    cells: int, rounds: int, of_rounds: float, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    there = rng.random((rounds, cells)) < share
    there[0], there[:, 0] = True, True
    round_, cell = np.nonzero(there)
    values = rng.normal(size=len(cell)) + of_rounds * rng.normal(size=rounds)[round_] + cell
    if len(values) < cells + rounds:
        return
    found = fit(values, cell, round_, contrasts(cells), terms(cells))
    least = misfit(values, cell, round_, found.rounds, found.residual)
    for ratio in [0.0, *10 ** np.linspace(-4, 4, 33)]:
        for residual in found.residual * 10 ** np.linspace(-0.3, 0.3, 7):
            assert least <= misfit(values, cell, round_, ratio * residual, residual) + 1e-6


def test_the_sum_of_squares_of_a_term_is_walds_statistic_by_generalised_least_squares() -> None:
    rng = np.random.default_rng(7)
    there = np.arange(9)[:, None] < np.array([9, 9, 4, 6])
    round_, cell = np.nonzero(there)
    values = 0.1 * rng.normal(size=len(cell)) + 0.2 * rng.normal(size=9)[round_] + 0.1 * cell
    found = fit(values, cell, round_, contrasts(4), terms(4))
    columns, rounds = contrasts(4)[cell], np.eye(9)[round_]
    inverse = np.linalg.inv(found.rounds * rounds @ rounds.T + found.residual * np.eye(len(values)))
    covariance = np.linalg.inv(columns.T @ inverse @ columns)
    beta = covariance @ columns.T @ inverse @ values
    walds = [float(beta[t] @ np.linalg.solve(covariance[t, t], beta[t])) for t in terms(4)]
    assert found.squares == pytest.approx([each * found.residual for each in walds], rel=1e-9)


def test_values_without_noise_have_no_variance_but_that_of_rounds() -> None:
    round_, cell = (each.ravel() for each in np.mgrid[:6, :3])
    shifts = np.array([0.1, -0.2, 0.05, 0.3, -0.1, 0.0])
    found = fit(shifts[round_] + cell, cell, round_, contrasts(3), terms(3))
    assert found.rounds == pytest.approx(float(shifts.var(ddof=1)), rel=1e-6)
    assert found.residual < 1e-6 * found.rounds
    assert fit(cell.astype(float), cell, round_, contrasts(3), terms(3)).rounds == 0.0
