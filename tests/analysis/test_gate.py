"""Gates: what the user may write, and when one is hit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.across_runs import WORDS, Gate, RunComparison, compare_runs, parse_gate
from storlab.errors import UserError

from .runs import run


@given(word=st.sampled_from(WORDS[:3]), percent=st.none() | st.decimals(0, 99_999, places=2).map(str))
def test_what_a_gate_says_is_read_back_as_the_same_gate(word: str, percent: str | None) -> None:
    gate = parse_gate(word if percent is None else f" {word} > {percent} % ")
    assert gate.word == word
    assert gate.beyond == (None if percent is None else pytest.approx(float(percent) / 100))
    assert parse_gate(str(gate)).word == gate.word


@given(st.text(max_size=40))
def test_any_other_text_is_refused_in_one_sentence_that_says_what_to_write(text: str) -> None:
    try:
        gate = parse_gate(text)
    except UserError as error:
        assert "worse" in str(error)
        assert "\n" not in str(error).replace(repr(text), "")
    else:
        assert gate.word in WORDS


@pytest.mark.parametrize(
    "text",
    ["", "worse>", "worse>3", "worse<3%", "worse>-3%", "worse>3%%", "worst", "missing>3%", "worse>1e3%", "worse>٣%"],
)
def test_near_misses_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="can't be read"):
        parse_gate(text)


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
        (1.10, "worse>3%", "neither", "unknown"),
        (1.10, "missing", "higher", "passed"),
    ],
)
@pytest.mark.parametrize("kind", [paired, apart])
def test_a_gate_is_hit_by_what_is_surely_beyond_it(kind, ratio, gate, better, outcome) -> None:  # type: ignore[no-untyped-def]
    assert kind(ratio, gate, better=better).gates[0].outcome == outcome


def test_worse_alone_follows_the_verdict_and_its_margin() -> None:
    found = paired(0.98, "worse")  # within the margin of 5 %
    assert (found.comparison.verdict, found.gates[0].outcome) == ("equivalent", "passed")
    assert paired(0.98, "worse>1%").gates[0].outcome == "hit"


def test_a_difference_of_runs_that_were_not_interleaved_is_told_with_its_interval_and_that_they_were_not() -> None:
    (result,) = apart(0.90, "worse>3%").gates
    assert result.sentence.startswith("new differs from old by more than 3 %, for the worse: 0.9")
    assert "with this interval, runs not interleaved" in result.sentence


def test_too_few_rounds_are_neither_hit_nor_passed() -> None:
    assert paired(0.5, "worse>3%", rounds=3).gates[0].outcome == "unknown"
    assert apart(0.5, "worse>3%", rounds=1).gates[0].outcome == "unknown"


def test_a_gate_says_itself() -> None:
    assert str(Gate("worse", 0.03)) == "worse>3%"
    assert str(Gate("missing")) == "missing"
