"""Levels that ran on different machines: what a machine does is taken for nothing that a level does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from storlab.analysis.design import CompareSpec
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison

from .simulate import Factors, Values, design, tables

_MACHINE = 1.2  # dev is faster than baseline by this, whatever runs there
_ROUNDS = 20
_HOSTS = {"baseline": ("lab1",), "dev": ("lab2",)}


def _values(cells: dict[tuple[str, ...], float], seed: int = 3) -> Values:
    rng = np.random.default_rng(seed)
    return {at: [float(v) for v in of * np.exp(0.01 * rng.normal(size=_ROUNDS))] for at, of in cells.items()}


def _judged(factors: Factors, values: Values, on: str, specs: tuple[CompareSpec, ...] | None) -> list[Comparison]:
    """``on``: the factor that says on which machine a cell runs; empty where all run on one."""
    trials, metrics, cells = tables(values, factors)
    machines = {cell: _HOSTS[levels[on]] for cell, levels in cells} if on else {}
    return list(summarise(trials, metrics, replace(design(factors, cells, specs), machines=machines)).comparisons)


def test_baseline_and_dev_on_two_machines_are_shown_and_never_judged() -> None:
    factors: Factors = {"host": ("baseline", "dev")}
    values = _values({("baseline",): 100.0, ("dev",): 100.0 * _MACHINE})
    (found,) = _judged(factors, values, "host", None)
    assert found.verdict == "undecided" and found.settled  # more rounds would not tell them apart
    assert found.ratio == pytest.approx(1 / _MACHINE, rel=0.02)
    assert "baseline ran on lab1 and dev on lab2" in found.described
    (same,) = _judged(factors, values, "", None)
    assert same.verdict == "worse", "on one machine the same numbers are a verdict"


@pytest.mark.parametrize("effect", [1.0, 1.1])
def test_a_change_that_ran_on_each_machine_is_judged_within_them(effect: float) -> None:
    factors: Factors = {"kernel": ("old", "new"), "host": ("baseline", "dev")}
    means: dict[tuple[str, ...], float] = {("old", "baseline"): 100.0, ("new", "baseline"): 100.0 * effect}
    means |= {("old", "dev"): 100.0 * _MACHINE, ("new", "dev"): 100.0 * _MACHINE * effect}
    specs = (CompareSpec("kernel"), CompareSpec("host"))
    found = _judged(factors, _values(means), "host", specs)
    kernels = [each for each in found if each.factor == "kernel"]
    hosts = [each for each in found if each.factor == "host"]
    assert len(kernels) == len(hosts) == 3  # on each machine, or for each kernel, and pooled
    assert {each.verdict for each in kernels} <= ({"worse"} if effect > 1 else {"equivalent", "undecided"})
    assert all(each.described and each.verdict == "undecided" for each in hosts)
