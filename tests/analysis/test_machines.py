"""Rounds and levels of several machines, and of several boots: what may be judged together, and what is no evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest

from storlab.analysis.compare import Question, compare
from storlab.analysis.data import Effects
from storlab.analysis.design import CompareSpec, Design, machines_of_rounds
from storlab.analysis.effects import effects_of
from storlab.analysis.estimates import Recorded
from storlab.analysis.judging import apply, parse_gate
from storlab.analysis.runs.across_runs import RunsCompared, compare_runs
from storlab.analysis.runs.merged_runs import RunData
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison
from storlab.analysis.verdict import Rules
from storlab.findings.runs import MachinesApart
from storlab.report.language.say import said, say
from storlab.run.planning.order import round_order

from .run_data import run
from .simulate import MACHINES as NOISES
from .simulate import Factors, Values, at_most, design, first_difference, noise, tables
from .test_across_runs import HIGH, LOW

RULES = Rules(0.05, 0.05, "higher", 5)
SEED = 20_261_128


def of_machines(kind: str, studies: int, machines: int, differs: float = 0.0) -> Floats:
    """Log ratios of studies whose rounds so many machines did, ten each. Each machine has a speed of its own, and its
    difference between the two set-ups varies by ``differs`` around none.
    """
    rng = np.random.default_rng([SEED, machines, round(1000 * differs), NOISES.index(kind)])
    found = []
    for _ in range(machines):
        slots = noise(kind, studies, 20, rng) + rng.normal(0, 0.5, size=(studies, 1))
        first = rng.random((studies, 10)) < 0.5
        one, other = slots[:, ::2], slots[:, 1::2]
        found.append(np.where(first, one - other, other - one) + rng.normal(0, differs, size=(studies, 1)))
    return np.concatenate(found, axis=1)


@pytest.mark.parametrize("kind", NOISES)
def test_a_against_a_has_a_verdict_in_5_percent_of_merged_runs_at_most_however_machines_differ_in_speed(
    kind: str,
) -> None:
    for machines in (2, 4):
        found = first_difference(of_machines(kind, 300, machines), RULES) > 0
        assert found.mean() <= at_most(0.05, 300), machines


def test_rounds_of_different_machines_together_would_claim_differences_that_are_those_of_machines() -> None:
    """Why ``compare`` judges none of these: no set-up is better, and 12 to 32 % of studies would say that one is."""
    for machines, differs in ((2, 0.03), (2, 0.05), (3, 0.03), (3, 0.05), (4, 0.05)):
        claimed = (first_difference(of_machines("normal", 400, machines, differs), RULES) > 0).mean()
        assert 0.08 < claimed < 0.36, (machines, differs)


def on(name: str, host: str | None, old: Sequence[float] = LOW, new: Sequence[float] = HIGH, at: int = 0) -> RunData:
    starts = [10.0 * n + 1000 * at for n in range(2 * len(old))]
    return run(name, {"ext4": old, "xfs": new}, host=host, machine=f"boot of {host}", starts=starts)


def told(found: RunsCompared) -> list[tuple[str, str, str]]:
    return [
        (c.comparison.within.get("machine", ""), c.basis, c.comparison.verdict)
        for c in found.comparisons
    ]  # fmt: skip


def test_levels_over_runs_of_different_machines_get_a_verdict_for_each_machine_and_none_together() -> None:
    gates = [parse_gate("worse>3%")]
    found = compare_runs([on("a", "lab1"), on("b", "lab2", LOW, LOW, at=1)], by="fs", gates=gates)
    assert told(found) == [
        ("", "none", "missing"),
        ("lab1", "interleaved", "better"),
        ("lab2", "interleaved", "equivalent"),
    ]
    assert found.family == 2 and found.failed and MachinesApart() in found.cautions
    together = found.comparisons[0]
    assert say(together.comparison.reason).startswith("their rounds are of different machines (lab1; lab2)")
    assert [gate.outcome for gate in together.gates] == ["missing"]
    same = compare_runs([on("a", "lab1"), on("b", "lab1", at=1)], by="fs", gates=gates)
    assert told(same) == [("", "interleaved", "better")] and not same.failed and MachinesApart() not in same.cautions


def test_runs_of_different_machines_are_described_and_no_gate_takes_that_for_an_answer() -> None:
    runs = [on("base", "lab1", LOW, LOW), on("new", "lab2", HIGH, HIGH, at=1)]
    found = compare_runs(runs, gates=[parse_gate("better>3%"), parse_gate("missing")])
    assert {each[1:] for each in told(found)} == {("not interleaved", "undecided")}
    assert {gate.outcome for c in found.comparisons for gate in c.gates} == {"undecided"}
    assert "they ran on different machines, new on lab2 and base on lab1" in say(
        found.comparisons[0].apart or MachinesApart()
    )
    passed = compare_runs([runs[0], on("new", "lab1", at=1)], gates=[parse_gate("missing")])
    assert {gate.outcome for c in passed.comparisons for gate in c.gates} == {"passed"}


def test_several_runs_whose_machines_nobody_recorded_are_not_put_together() -> None:
    one, two = on("a", None), on("b", None, at=1)
    assert told(compare_runs([one, two], by="fs")) == [("", "none", "missing")]
    assert told(compare_runs([one], by="fs")) == [("", "interleaved", "better")]


def merged(*of_hosts: tuple[str, Sequence[float], Sequence[float]]) -> RunData:
    """One run, of which each of these machines did its rounds."""
    old, new = ([value for _, *sides in of_hosts for value in sides[side]] for side in (0, 1))
    hosts = [host for host, values, _ in of_hosts for _ in values]
    found = run("r", {"ext4": old, "xfs": new})
    places = dict(enumerate(hosts, start=1))
    return replace(found, trials=found.trials.with_columns(host=pl.col("round").replace_strict(places)))


def test_a_merged_run_is_judged_by_all_its_rounds_unless_a_machine_contradicts() -> None:
    agree = merged(("lab1", LOW, HIGH), ("lab2", [10 * v for v in LOW], [10 * v for v in HIGH]))
    contrary = merged(("lab1", LOW * 3, HIGH * 3), ("lab2", HIGH, LOW))
    for given, verdict in ((agree, "better"), (contrary, "undecided")):
        (of_run,) = summarise(given.trials, given.metrics, given.design).comparisons
        (compared,) = compare_runs([given], by="fs").comparisons
        assert (of_run.a, compared.comparison.verdict) == ("ext4", verdict)
        assert of_run.verdict == {"better": "worse"}.get(verdict, verdict)
    assert "Machines differ: the ratio is 0.50× on lab2." in say(compared.comparison.reason)


def test_a_gate_is_not_passed_where_a_machine_is_surely_beyond_its_limit() -> None:
    ratios = np.array([0.0] * 40 + [-0.3] * 12)
    hosts = {number: "lab1" if number <= 40 else "lab2" for number in range(1, 53)}
    pairs = Pairs(np.arange(1, 53), ratios, hosts=hosts)
    question = Question("fs", "xfs", "ext4", {}, False, "load", "bandwidth", "B/s", "higher")
    (found,) = apply([parse_gate("worse>20%")], compare(question, pairs, 0.05), pairs, RULES)
    assert found.outcome == "undecided" and "lab2" in say(found.why)
    alone = replace(pairs, hosts={})
    (alone_found,) = apply([parse_gate("worse>20%")], compare(question, alone, 0.05), alone, RULES)
    assert alone_found.outcome == "passed"


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
    assert "baseline ran on lab1 and dev on lab2" in say(found.described or MachinesApart())
    (same,) = _judged(factors, values, "", None)
    assert same.verdict == "worse", "on one machine the same numbers are a verdict"


def test_a_level_that_is_on_fewer_machines_than_others_of_its_round_makes_no_rounds_of_several_machines() -> None:
    factors: Factors = {"transport": ("local", "relay", "whole")}
    trials, _, cells = tables(_values({("local",): 50.0, ("relay",): 100.0, ("whole",): 110.0}), factors)
    number = {levels["transport"]: cell for cell, levels in cells}
    place = pl.when(pl.col("cell") == number["local"]).then(pl.lit("lab2")).otherwise(pl.lit("lab1+lab2"))
    assert machines_of_rounds(trials.with_columns(host=place)) == {}
    merged = pl.concat_str(pl.format("other{}+", pl.col("round") % 2), place)
    found = machines_of_rounds(trials.with_columns(host=merged))
    assert (len(found), found[2]) == (_ROUNDS, "other0+lab1+lab2, other0+lab2")


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


KERNELS, FILE_SYSTEMS = ("a", "b"), ("ext4", "xfs", "btrfs")
CELLS = dict(enumerate(product(KERNELS, FILE_SYSTEMS), start=1))
BLOCKS = {cell: KERNELS.index(kernel) + 1 for cell, (kernel, _) in CELLS.items()}
GROUPS = {cell: FILE_SYSTEMS.index(fs) + 1 for cell, (_, fs) in CELLS.items()}  # kernels are compared within each
OF_BOOTS = Rules(alpha=0.05, margin=0.05, better="higher", min_rounds=6)
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
        assert (first_difference(seen, OF_BOOTS) > 0).mean() <= at_most(OF_BOOTS.alpha, 200)


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
    assert found.rounds == 5 and "From the 5 rounds that have every combination, of 6." in said(found.warnings)


def test_blocks_of_one_cell_each_are_none() -> None:
    apart = {cell: cell for cell in CELLS}
    assert shares(recorded(6, 0.1, seed=1), apart) == shares(recorded(6, 0.1, seed=1), {})
