"""Gates: what the user may write, and when one is hit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.gates import WORDS, Gate, parse_gate
from storlab.analysis.runs.across_runs import RunComparison, compare_runs
from storlab.errors import UserError

from .run_data import run, two_factors


@given(word=st.sampled_from(WORDS[:3]), percent=st.none() | st.decimals(0, 99_999, places=2).map(str))
def test_what_a_gate_says_is_read_back_as_the_same_gate(word: str, percent: str | None) -> None:
    gate = parse_gate(word if percent is None else f" {word} > {percent} % ")
    assert gate.word == word
    assert gate.beyond == (None if percent is None else pytest.approx(float(percent) / 100))
    assert parse_gate(str(gate)).word == gate.word


@given(st.text(max_size=40))
def test_any_other_text_is_refused_in_one_sentence_that_says_what_to_write(text: str) -> None:
    try:
        assert parse_gate(text).word in WORDS
    except UserError as error:
        assert "worse" in str(error)
        assert "\n" not in str(error).replace(repr(text), "")


def test_near_misses_are_refused_and_a_gate_says_itself() -> None:
    for near in ("worse>", "worse>3", "worse<3%", "worse>-3%", "worse>3%%", "worse>1e3%", "worse>٣%", "worst", ""):
        with pytest.raises(UserError, match="cannot read"):
            parse_gate(near)
    with pytest.raises(UserError, match="cannot read"):
        parse_gate("missing>3%")
    assert (str(Gate("worse", 0.03)), str(Gate("missing"))) == ("worse>3%", "missing")


def paired(ratio: float, gate: str, *, better: str = "higher", rounds: int = 30) -> RunComparison:
    rng = np.random.default_rng(1)
    base = 100 * np.exp(0.05 * rng.normal(size=rounds))
    new = base * ratio * np.exp(0.002 * rng.normal(size=rounds))
    given = run("r", {"old": base.tolist(), "new": new.tolist()}, better=better)
    (found,) = compare_runs([given], by="fs", gates=[parse_gate(gate)]).comparisons
    return found


def apart(ratio: float, gate: str, *, better: str = "higher", rounds: int = 10) -> RunComparison:
    rng = np.random.default_rng(1)
    base, new = (100 * np.exp(0.01 * rng.normal(size=rounds)) for _ in range(2))
    runs = [run("old", {"x": base.tolist()}, better=better), run("new", {"x": (ratio * new).tolist()}, better=better)]
    (found,) = compare_runs(runs, gates=[parse_gate(gate)]).comparisons
    return found


@pytest.mark.parametrize(
    ("ratio", "gate", "better", "outcome"),
    [
        (0.90, "worse>3%", "higher", "hit"),
        (0.90, "worse>20%", "higher", "passed"),
        (1.10, "worse>3%", "higher", "passed"),
        (1.10, "worse>3%", "lower", "hit"),
        (0.90, "better>3%", "lower", "hit"),
        (0.90, "worse", "higher", "hit"),
        (0.90, "better", "higher", "passed"),
        (0.90, "differs>3%", "higher", "hit"),
        (1.10, "differs>3%", "neither", "hit"),
        (1.10, "worse>3%", "neither", "undecided"),
        (1.01, "differs>3%", "neither", "passed"),
        (1.00, "worse", "higher", "passed"),
        (1.10, "missing", "higher", "passed"),
    ],
)
@pytest.mark.parametrize("kind", [paired, apart])
def test_a_gate_is_hit_by_what_is_surely_beyond_it(kind, ratio, gate, better, outcome) -> None:  # type: ignore[no-untyped-def]
    assert kind(ratio, gate, better=better).gates[0].outcome == outcome


def test_worse_alone_follows_the_verdict_and_runs_apart_are_said_to_be_apart() -> None:
    found = paired(0.98, "worse")  # within the margin of 5 %
    assert (found.comparison.verdict, found.gates[0].outcome) == ("equivalent", "passed")
    assert paired(0.98, "worse>1%").gates[0].outcome == "hit"
    for found in (paired(0.88, "worse"), apart(0.88, "worse")):
        (result,) = found.gates
        assert result.outcome == "hit" and "by more than" not in result.sentence
    (result,) = apart(0.90, "worse>3%").gates
    assert result.sentence.startswith("new differs from old by more than 3 %, for the worse: 0.9")
    assert "with this interval, runs not interleaved" in result.sentence


def test_a_difference_near_the_limit_is_undecided_and_few_rounds_show_what_is_not_worse() -> None:
    found = paired(1 / 1.03, "worse>3%")
    assert found.comparison.high is not None and found.comparison.high < 1
    assert found.gates[0].outcome == "undecided", "the verdict is sure, but not by how much"
    (result,) = paired(1.02, "worse>3%", rounds=7).gates
    assert result.outcome == "passed"
    assert result.sentence.startswith("new is not worse than old by more than 3 %: 1.0")


def test_too_few_rounds_are_neither_hit_nor_passed_but_by_the_gate_undecided() -> None:
    for ratio in (0.5, 1.0):
        (result,) = paired(ratio, "worse>3%", rounds=3).gates
        assert result.outcome == "undecided" and result.sentence.startswith("It is undecided whether new is worse")
    assert apart(0.5, "worse>3%", rounds=1).gates[0].outcome == "undecided"
    assert paired(1.05, "undecided", rounds=3).gates[0].outcome == "hit"
    assert paired(2.0, "undecided").gates[0].outcome == "passed"
    assert paired(2.0, "undecided", better="neither").gates[0].outcome == "passed", "that they differ is an answer"
    assert apart(2.0, "undecided").gates[0].outcome == "hit", "what was not interleaved is never judged"


@pytest.mark.parametrize("gate", ["worse>10%", "worse", "differs>10%"])
def test_no_gate_passes_what_is_surely_worse_in_one_combination(gate: str) -> None:
    """On average nothing is worse: half as fast in one block size, and a quarter faster in the others."""
    rng = np.random.default_rng(1)
    ratios = {"4k": 0.55, "16k": 1.25, "64k": 1.25, "1m": 1.25}
    base = {bs: 100 * np.exp(0.01 * rng.normal(size=30)) for bs in ratios}
    values = {("old", bs): each.tolist() for bs, each in base.items()}
    values |= {("new", bs): (ratio * base[bs]).tolist() for bs, ratio in ratios.items()}
    given = two_factors("r", values)
    found = compare_runs([given], by="fs", gates=[parse_gate(gate)]).comparisons
    (pooled,) = (each for each in found if each.comparison.pooled)
    assert pooled.gates[0].outcome == "undecided"
    assert "Combinations differ: the ratio is 0.55× in bs=4k" in pooled.gates[0].sentence


def test_a_gate_that_is_undecided_does_not_pass_unless_it_is_let_and_effects_that_cancel_are() -> None:
    given = run("r", {"old": [1.0, 2.0, 3.0], "new": [1.0, 2.0, 3.0]})
    for allowed in (False, True):
        found = compare_runs([given], by="fs", gates=[parse_gate("worse>3%")], allow_undecided=allowed)
        assert found.failed == (not allowed)
    cells = {("a", "4k"): 2.0, ("a", "64k"): 1.0, ("b", "4k"): 1.0, ("b", "64k"): 2.0}
    given = two_factors("r", {key: [value] * 12 for key, value in cells.items()})
    each_of = compare_runs([given], by="fs", gates=[parse_gate("differs"), parse_gate("undecided")]).comparisons
    (pooled,) = (c for c in each_of if c.comparison.pooled)
    assert pooled.comparison.verdict == "undecided" and pooled.comparison.settled
    assert pooled.gates[0].outcome != "hit" and pooled.gates[1].outcome == "hit"
