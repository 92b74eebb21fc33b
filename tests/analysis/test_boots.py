"""Kernels that boot once a round: what a boot happens to be is no evidence for a kernel, and no share of it."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest

from analysis.simulate import at_most, first_difference, noise
from storlab.analysis.design import Design
from storlab.analysis.effects.data import Effects
from storlab.analysis.effects.factorial import effects_of
from storlab.analysis.estimates import Recorded
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.verdict import Rules
from storlab.run.planning.order import round_order

KERNELS, FILE_SYSTEMS = ("a", "b"), ("ext4", "xfs", "btrfs")
CELLS = dict(enumerate(product(KERNELS, FILE_SYSTEMS), start=1))
BLOCKS = {cell: KERNELS.index(kernel) + 1 for cell, (kernel, _) in CELLS.items()}
GROUPS = {cell: FILE_SYSTEMS.index(fs) + 1 for cell, (_, fs) in CELLS.items()}  # kernels are compared within each
RULES = Rules(alpha=0.05, margin=0.05, better="higher", min_rounds=6)
KEY = ("load", "bandwidth")


def log_ratios(machine: str, studies: int, rounds: int, of_boots: float, seed: int) -> Floats:
    """b ÷ a where both kernels are the same, shape ``(studies, rounds, file systems)``, in the order that is run."""
    rng = np.random.default_rng(seed)
    slots = noise(machine, studies, rounds * len(CELLS), rng).reshape(studies, rounds, len(CELLS))
    boots = of_boots * rng.normal(size=(studies, rounds, len(KERNELS)))
    found = np.empty((studies, rounds, len(CELLS)))
    for study, number in product(range(studies), range(rounds)):
        order = round_order([*CELLS], number + 1, seed * 10_000 + study, BLOCKS, GROUPS)
        found[study, number, [planned.cell - 1 for planned in order]] = slots[study, number]
    by_kernel = found.reshape(studies, rounds, len(KERNELS), len(FILE_SYSTEMS)) + boots[..., None]
    return np.asarray(by_kernel[:, :, 1] - by_kernel[:, :, 0])


@pytest.mark.parametrize("machine", ["normal", "drift", "AR(1)", "bursts"])
def test_equal_kernels_are_found_to_differ_no_more_often_than_is_stated(machine: str) -> None:
    ratios = log_ratios(machine, 200, 14, of_boots=0.1, seed=3)
    for seen in (ratios[:, :, 0], ratios.mean(axis=2)):  # on one file system, and pooled over all
        assert (first_difference(seen, RULES) > 0).mean() <= at_most(RULES.alpha, 200)


def test_trials_of_one_boot_taken_for_independent_would_be_false_evidence() -> None:
    ratios = log_ratios("normal", 200, 14, of_boots=0.1, seed=3)
    apiece = ratios.reshape(200, -1)  # as if each file system of a round had been another round
    assert (first_difference(apiece, RULES) > 0).mean() > 2 * RULES.alpha


def recorded(rounds: int, of_boots: float, seed: int, of_kernel: float = 0.0, of_fs: float = 0.0) -> Recorded:
    rng = np.random.default_rng(seed)
    boots, shifts = of_boots * rng.normal(size=(rounds, 2)), 0.05 * rng.normal(size=rounds)
    rows = []
    for (cell, (kernel, fs)), number in product(CELLS.items(), range(rounds)):
        fixed = of_kernel * (-1) ** KERNELS.index(kernel) + of_fs * (FILE_SYSTEMS.index(fs) - 1)
        log = fixed + shifts[number] + boots[number, KERNELS.index(kernel)] + 0.02 * rng.normal()
        rows.append((cell - 1, number + 1, float(np.exp(log))))
    series = [(cell - 1, cell, *KEY, "B/s", "higher") for cell in CELLS]
    names = ["series", "cell", "source", "metric", "unit", "better"]
    return Recorded(
        pl.DataFrame(series, schema=names, orient="row"),
        pl.DataFrame(rows, schema=["series", "round", "value"], orient="row"),
    )


def shares(found: Recorded, blocks: dict[int, int]) -> dict[tuple[str, ...] | str, float]:
    (one,) = effects(found, blocks)
    return {share.factors or share.part: share.share for share in one.shares}


def effects(found: Recorded, blocks: dict[int, int]) -> tuple[Effects, ...]:
    factors = {"kernel": KERNELS, "fs": FILE_SYSTEMS}
    cells = tuple((cell, {"kernel": kernel, "fs": fs}) for cell, (kernel, fs) in CELLS.items())
    return effects_of(found, Design("t", "bandwidth", factors, cells), [KEY], blocks)


def test_the_share_of_boots_is_not_the_kernels() -> None:
    with_blocks, without = (
        np.mean([shares(recorded(6, 0.1, seed), blocks)["kernel",] for seed in range(100)]) for blocks in (BLOCKS, {})
    )
    assert (
        with_blocks < 0.7 * without
    )  # it is not 0: no share is below, and five rounds say little of what boots vary by


def test_shares_are_those_that_were_simulated() -> None:
    variances: dict[tuple[str, ...] | str, float]
    found = shares(recorded(4000, 0.1, seed=1, of_kernel=0.05, of_fs=0.1), BLOCKS)
    variances = {("kernel",): 0.05**2, ("fs",): 0.1**2 * 2 / 3, "rounds": 0.05**2, "blocks": 0.1**2, "residual": 4e-4}
    total = sum(variances.values())
    for part, variance in variances.items():
        assert found[part] == pytest.approx(variance / total, rel=0.1), part
    assert sum(found.values()) == pytest.approx(1)


def test_only_rounds_that_are_whole_count_and_that_is_said() -> None:
    whole = recorded(6, 0.1, seed=1)
    cut = Recorded(whole.series, whole.values.filter((pl.col("round") != 6) | (pl.col("series") != 2)))
    (found,) = effects(cut, BLOCKS)
    assert found.rounds == 5 and "From the 5 rounds that have every combination, of 6." in found.warnings


def test_blocks_of_one_cell_each_are_none() -> None:
    apart = {cell: cell for cell in CELLS}
    assert shares(recorded(6, 0.1, seed=1), apart) == shares(recorded(6, 0.1, seed=1), {})
