"""Rounds of several machines: what may be judged by them together, and what is only true of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from storlab.analysis.compare import Question, compare
from storlab.analysis.gates import apply, parse_gate
from storlab.analysis.runs.across_runs import MACHINES, RunsCompared, compare_runs
from storlab.analysis.runs.merged_runs import RunData
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.summarise import summarise
from storlab.analysis.verdict import Rules

from .run_data import run
from .simulate import MACHINES as NOISES
from .simulate import at_most, first_difference, noise
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
    assert found.family == 2 and found.failed and MACHINES in found.cautions
    together = found.comparisons[0]
    assert together.comparison.reason.startswith("Their rounds are of different machines (lab1; lab2)")
    assert [gate.outcome for gate in together.gates] == ["missing"]
    same = compare_runs([on("a", "lab1"), on("b", "lab1", at=1)], by="fs", gates=gates)
    assert told(same) == [("", "interleaved", "better")] and not same.failed and MACHINES not in same.cautions


def test_runs_of_different_machines_are_described_and_no_gate_takes_that_for_an_answer() -> None:
    runs = [on("base", "lab1", LOW, LOW), on("new", "lab2", HIGH, HIGH, at=1)]
    found = compare_runs(runs, gates=[parse_gate("better>3%"), parse_gate("missing")])
    assert {each[1:] for each in told(found)} == {("not interleaved", "undecided")}
    assert {gate.outcome for c in found.comparisons for gate in c.gates} == {"undecided"}
    assert "they ran on different machines, new on lab2 and base on lab1" in found.comparisons[0].apart
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
    assert "Machines differ: the ratio is 0.50× on lab2." in compared.comparison.reason


def test_a_gate_is_not_passed_where_a_machine_is_surely_beyond_its_limit() -> None:
    ratios = np.array([0.0] * 40 + [-0.3] * 12)
    hosts = {number: "lab1" if number <= 40 else "lab2" for number in range(1, 53)}
    pairs = Pairs(np.arange(1, 53), ratios, hosts=hosts)
    question = Question("fs", "xfs", "ext4", {}, False, "load", "bandwidth", "B/s", "higher")
    found = apply(parse_gate("worse>20%"), compare(question, pairs, 0.05), pairs, RULES)
    assert found.outcome == "undecided" and "lab2" in found.sentence
    alone = replace(pairs, hosts={})
    assert apply(parse_gate("worse>20%"), compare(question, alone, 0.05), alone, RULES).outcome == "passed"
