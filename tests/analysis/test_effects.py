"""What factors have to do with a metric: shares of simulated factorials, fitted as others fit them."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.analysis.data import Effects, Share, interactions
from storlab.analysis.design import Design
from storlab.analysis.effects import effects_of
from storlab.analysis.estimates import Recorded
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.mixed import Components, Numbers, fit
from storlab.analysis.summary import Summary, from_json, to_json
from storlab.findings.answers import EffectsDoubt
from storlab.report.language.methods import effects_method
from storlab.report.language.say import said

LOAD = ("load", "bandwidth")
VALUES = ["series", "round", "value"]


def recorded(
    sizes: Sequence[int],
    rounds: int,
    tell: Callable[..., float],
    *,
    noise: float = 0.0,
    of_rounds: float = 0.0,
    without: Iterable[tuple[int, int]] = (),
    cells_left: Callable[..., bool] = lambda *at: True,
    seed: int = 1,
) -> tuple[Recorded, Design]:
    """A study whose log bandwidth is ``tell(level, …)`` + round + noise. ``without``: (cell, round) left out."""
    rng = np.random.default_rng(seed)
    factors = {f"f{n}": tuple(f"f{n}-{level}" for level in range(size)) for n, size in enumerate(sizes)}
    places = [at for at in itertools.product(*map(range, sizes)) if cells_left(*at)]
    levels = [{f"f{n}": f"f{n}-{level}" for n, level in enumerate(at)} for at in places]
    shifts = of_rounds * rng.normal(size=rounds)
    missing = set(without)
    rows = [
        (cell, n, float(np.exp(tell(*at) + shifts[n - 1] + noise * rng.normal())))
        for cell, at in enumerate(places)
        for n in range(1, rounds + 1)
        if (cell + 1, n) not in missing
    ]
    names = ["series", "cell", "source", "metric", "unit", "better"]
    series = [(at, at + 1, *LOAD, "B/s", "higher") for at in range(len(places))]
    found = (pl.DataFrame(each, schema=of, orient="row") for each, of in ((series, names), (rows, VALUES)))
    return Recorded(*found), Design("t", "bandwidth", factors, tuple(enumerate(levels, start=1)))


def one(study: tuple[Recorded, Design]) -> Effects:
    (found,) = effects_of(*study, [LOAD])
    return found


def warned(found: Effects, words: str) -> bool:
    return any(words in warning for warning in said(found.warnings))


def shares(found: Effects) -> dict[tuple[str, ...] | str, float]:
    return {share.factors or share.part: share.share for share in found.shares}


def test_the_share_of_each_part_is_the_one_that_was_simulated() -> None:
    def tell(a: int, b: int) -> float:
        return float(0.2 * (-1) ** a + 0.1 * (-1) ** b + 0.05 * (-1) ** (a + b))

    variances: dict[tuple[str, ...] | str, float] = {
        ("f0",): 0.04,
        ("f1",): 0.01,
        ("f0", "f1"): 0.0025,
        "rounds": 0.01,
        "residual": 0.0025,
    }
    found = shares(one(recorded((2, 2), 4000, tell, noise=0.05, of_rounds=0.1)))
    for part, variance in variances.items():
        assert found[part] == pytest.approx(variance / 0.065, rel=0.1 if part == "rounds" else 0.05)


def test_a_factor_that_does_nothing_or_never_met_in_a_round_has_hardly_a_share() -> None:
    studies = (one(recorded((2, 3), 6, lambda a, b: 0.0, noise=0.05, seed=seed)) for seed in range(200))
    found = [shares(study)[("f1",)] for study in studies]
    assert np.mean(found) < 0.05  # uncorrected, df ÷ trials alone would be 0.06
    assert np.median(found) < 0.02
    apart = [(cell, n) for cell in range(1, 5) for n in range(1, 41) if (n > 20) != (cell > 2)]
    met = shares(one(recorded((2, 2), 40, lambda a, b: 0.05 * b, noise=0.02, of_rounds=0.5, without=apart)))
    assert met[("f1",)] > met["residual"], "which was measured within rounds"
    assert met[("f0",)] < 0.01, "though means over 20 rounds differ by more than residuals could explain"


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 4), min_size=2, max_size=3),
    rounds=st.integers(2, 6),
    seed=st.integers(0, 2**32 - 1),
    noise=st.floats(0.001, 1.0),
)
def test_shares_are_shares_and_sum_to_one(sizes: list[int], rounds: int, seed: int, noise: float) -> None:
    found = one(recorded(sizes, rounds, lambda *at: 0.1 * at[0], noise=noise, of_rounds=0.02, seed=seed))
    assert all(0 <= share.share <= 1 for share in found.shares)
    assert sum(share.share for share in found.shares) == pytest.approx(1)
    assert sum(share.df for share in found.shares) == int(np.prod(sizes)) * rounds - 1
    assert {share.part for share in found.shares} >= {"factor", "interaction", "rounds", "residual"}


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-6, 1e6))
def test_the_unit_of_the_metric_does_not_matter(seed: int, scale: float) -> None:
    study, design = recorded((2, 3), 5, lambda a, b: 0.1 * a * b, noise=0.05, seed=seed)
    scaled = Recorded(study.series, study.values.with_columns(pl.col("value") * scale))
    assert shares(one((scaled, design))) == pytest.approx(shares(one((study, design))), abs=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_balanced_design_agrees_with_statsmodels_anova(seed: int) -> None:
    import pandas as pd
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    study, _ = together = recorded((2, 3), 6, lambda a, b: 0.1 * a + 0.05 * b, noise=0.03, of_rounds=0.05, seed=seed)
    at = list(itertools.product(range(2), range(3)))
    frame = pd.DataFrame(
        {
            "y": np.log(study.values["value"].to_numpy()),
            "a": [at[n][0] for n in study.values["series"]],
            "b": [at[n][1] for n in study.values["series"]],
            "r": study.values["round"].to_list(),
        }
    )
    table = anova_lm(smf.ols("y ~ C(a) * C(b) + C(r)", frame).fit(), typ=2)
    residual = table.loc["Residual", "sum_sq"] / table.loc["Residual", "df"]
    rounds = (table.loc["C(r)", "sum_sq"] / table.loc["C(r)", "df"] - residual) / 6
    if rounds < 0:
        return  # on REML's boundary both are pooled, which an analysis of variance does not do
    terms: dict[tuple[str, ...] | str, str] = {("f0",): "C(a)", ("f1",): "C(b)", ("f0", "f1"): "C(a):C(b)"}
    variances = {
        names: max(0.0, (table.loc[row, "sum_sq"] - table.loc[row, "df"] * residual) / 36)
        for names, row in terms.items()
    }
    variances |= {"rounds": rounds, "residual": residual}
    total = sum(variances.values())
    assert shares(one(together)) == pytest.approx({part: variance / total for part, variance in variances.items()})


def resting(sizes: Sequence[int], rounds: int, seed: int) -> list[tuple[int, int]]:
    """(cell, round) that are left out where cells rest from some round on, and here and there a trial failed."""
    rng = np.random.default_rng(seed)
    last = rng.integers(3, rounds + 1, size=int(np.prod(sizes)))
    last[:2] = rounds  # some comparison stays open
    rested = [(cell, n) for cell, end in enumerate(last.tolist(), start=1) for n in range(end + 1, rounds + 1)]
    return rested + [(int(cell), int(n)) for cell, n in zip(rng.integers(1, 5, 3), rng.integers(1, 4, 3), strict=True)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("of_rounds", [0.05, 0.0])
def test_where_cells_rest_or_fail_the_shares_are_those_of_statsmodels_mixed_model(of_rounds: float, seed: int) -> None:
    from statsmodels.regression.mixed_linear_model import MixedLM

    left_out = resting((2, 3), 12, seed)
    study, _ = together = recorded(
        (2, 3), 12, lambda a, b: 0.1 * a, noise=0.05, of_rounds=of_rounds, without=left_out, seed=seed
    )
    found = one(together)
    assert warned(found, "Unbalanced")
    logs = np.log(study.values["value"].to_numpy())
    cells = np.eye(6)[study.values["series"].to_numpy()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a variance on the boundary
        fitted = MixedLM(logs / logs.std(), cells, groups=study.values["round"].to_numpy()).fit(method=["powell"])
    ratio = float(np.asarray(fitted.cov_re)[0, 0]) / float(fitted.scale)
    mine = shares(found)
    assert mine["rounds"] / mine["residual"] == pytest.approx(ratio, rel=0.02, abs=2e-3)


def test_an_unbalanced_design_is_fitted_and_said_to_be_so_unless_no_two_cells_share_a_round() -> None:
    left_out = [(1, n) for n in range(20, 61)] + [(4, n) for n in range(30, 61)]
    found = one(recorded((2, 2), 60, lambda a, b: 0.2 * (-1) ** a, noise=0.05, of_rounds=0.05, without=left_out))
    assert effects_method(bool(found.blocks)).startswith("Mixed model") and warned(found, "Unbalanced")
    assert shares(found)[("f0",)] == pytest.approx(0.04 / 0.045, abs=0.03)
    alone = [(cell, n) for cell in range(1, 5) for n in range(1, 13) if (n - 1) // 3 != cell - 1]
    found = one(recorded((2, 2), 12, lambda a, b: 0.0, noise=0.1, without=alone))
    assert found.shares == () and warned(found, "no shares")


def test_combinations_that_were_not_measured_aliases_and_few_rounds_are_named() -> None:
    def study(size: int, rounds: int = 6, left: Callable[..., bool] = lambda *at: True) -> Effects:
        return one(recorded((size, size), rounds, lambda a, b: 0.1 * a, noise=0.02, cells_left=left))

    assert warned(study(3, left=lambda a, b: a != b), "Only 6 of 9 combinations")
    assert warned(study(2, left=lambda a, b: a == b), "f1 is indistinguishable")
    assert warned(study(2, rounds=3), "Only 3 rounds")
    single = study(2, rounds=1)
    assert single.shares == () and len(single.main) == 4 and warned(single, "More rounds are needed")


def test_what_is_zero_missing_or_never_varies_has_no_shares_and_says_why() -> None:
    study, design = recorded((2, 2), 5, lambda a, b: 0.1, noise=0.1)
    zero = study.values.with_columns(value=pl.when(pl.col("round") == 2).then(0.0).otherwise(1))
    # Values that are missing: a metric that first has some after cells rested.
    for values, why in ((zero, "0 or negative"), (study.values.clear(), "It has no value in these rounds, so there")):
        found = one((Recorded(study.series, values), design))
        assert (found.shares, found.main) == ((), ()) and warned(found, why)
    assert one(recorded((2, 2), 5, lambda a, b: 0.0)).shares == ()


def test_means_are_geometric_over_the_other_factors_and_come_back_from_json() -> None:
    found = one(recorded((2, 2), 5, lambda a, b: float(np.log([[1, 4], [9, 16]][a][b]))))
    means = {tuple(mean.levels.values()): mean.mean for mean in (*found.main, *found.pairs)}
    known = {("f0-0",): 2, ("f0-1",): 12, ("f1-0",): 3, ("f0-1", "f1-1"): 16}
    assert {levels: means[levels] for levels in known} == pytest.approx(known)
    summary = Summary("t", "bandwidth", 0.95, 4, None, effects=(found,))
    assert from_json(to_json(summary)) == summary


@given(st.floats(-1, 1))
def test_rows_of_an_interaction_have_the_same_ratios_but_for_what_interacts(extra: float) -> None:
    found = one(recorded((2, 3), 6, lambda a, b: 0.3 * a + 0.2 * b + extra * (a == b == 1), noise=0.01))
    for each in interactions(found, 0.01):
        assert (each.down, each.across) == ("f1", "f0")
        assert (each.rows, each.columns) == (("f1-0", "f1-1", "f1-2"), ("f0-0", "f0-1"))
        told = np.log([row[1] or np.nan for row in each.ratios])
        assert told == pytest.approx([0.3, 0.3 + extra, 0.3], abs=0.05)
        assert [row[0] for row in each.ratios] == [1.0] * 3
    assert interactions(found, 0.01) or abs(extra) < 0.5


def test_a_combination_that_was_not_measured_has_neither_mean_nor_ratio() -> None:
    study = recorded((2, 3), 8, lambda a, b: float(a * b), noise=0.01, cells_left=lambda *at: at != (0, 1))
    (each,) = interactions(replace(one(study), shares=(Share("interaction", ("f0", "f1"), 0.5, 1),)), 0.01)
    assert each.rows == ("f1-0", "f1-1", "f1-2"), "as the study has them, though a cell of f1-2 comes first"
    lacks = [(means[0] is None, means[1] is None) for means in each.means]
    assert lacks == [(False, False), (True, False), (False, False)]
    assert [None in ratios for ratios in each.ratios] == [False, True, False]


def test_one_factor_has_no_effects_and_those_of_cells_apart_say_what_that_means() -> None:
    assert effects_of(*recorded((3,), 5, lambda a: 0.1 * a, noise=0.1), [LOAD]) == ()
    assert effects_of(*recorded((3, 2), 5, lambda a, b: 0.1 * a, cells_left=lambda a, b: b == 0), [LOAD]) == ()
    found, design = recorded((2, 2), 5, lambda a, b: 0.3 * a, noise=0.05)
    apart = one((found, replace(design, compared=False)))
    assert apart == replace(one((found, design)), warnings=(EffectsDoubt("not interleaved"),))
    assert apart.shares[0].share > 0.5


def test_effects_load_no_library_for_statistics_and_no_warning_of_one_reaches_the_user() -> None:
    code = (
        "import sys; from tests.analysis.test_effects import one, recorded; "
        "one(recorded((2, 2), 5, lambda a, b: 0.1 * a, noise=0.1, without=[(1, 1)])); "
        "assert not {'scipy', 'statsmodels', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one(recorded((2, 3, 2), 10, lambda *at: 0.1 * at[0], noise=0.05, without=[(1, 1), (2, 4), (7, 7)]))


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
def test_balanced_it_is_the_closed_form(cells: int, rounds: int, of_rounds: float, size: float, seed: int) -> None:
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
def test_no_other_variances_are_likelier(cells: int, rounds: int, of_rounds: float, share: float, seed: int) -> None:
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
