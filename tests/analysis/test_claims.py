"""Claims and gates: which answer each gets, what may be written, and that no answer is beyond what rounds tell."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.claims import _Evidence
from storlab.analysis.data import Claim
from storlab.analysis.design import ClaimSpec, CompareSpec
from storlab.analysis.judging import WORDS, Gate, parse_gate
from storlab.analysis.runs.across_runs import RunComparison, compare_runs
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary, from_json, to_json
from storlab.analysis.verdict import NONE_FAILED, Rules
from storlab.base.errors import UserError
from storlab.findings.answers import ClaimUnanswered
from storlab.findings.rounds import Emulated
from storlab.report.language.say import say

from .run_data import run, two_factors
from .simulate import Factors, Values, design, tables

FACTORS: Factors = {"transport": ("iscsi", "nvme", "nbd"), "sack": ("on", "off")}
MEANS = {"iscsi": 46.0, "nvme": 4.0, "nbd": 4.0}
MORE = ClaimSpec("iSCSI takes more ACKs", None, {"transport": "iscsi"}, {"transport": "nvme"})
VALUE = ClaimSpec("2 MSS per ACK", None, {"transport": "nvme"}, word="between", between=(3.0, 5.0))


def claimed(claim: ClaimSpec, *, rounds: int = 12, noise: float = 0.002, **changes: Any) -> Summary:
    """What a study says whose off is as on, but where ``changes`` say otherwise: by levels, joined by an underscore."""
    rng = np.random.default_rng(7)
    means = {(t, s): changes.pop(f"{t}_{s}", mean) for t, mean in MEANS.items() for s in FACTORS["sack"]}
    values: Values = {at: [float(v) for v in of * np.exp(noise * rng.normal(size=rounds))] for at, of in means.items()}
    trials, metrics, cells = tables(values, FACTORS, metric="acks", better="lower")
    asked = design(FACTORS, cells, (CompareSpec("transport", (("nvme", "nbd"),), within=False),))
    return summarise(trials, metrics, replace(asked, primary="acks", claims=(claim,), **changes))


def only(claim: ClaimSpec, **changes: Any) -> Claim:
    (found,) = claimed(claim, **changes).claims
    return found


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"word": "more"}, "holds"),
        ({"word": "less"}, "does not hold"),
        ({"word": "more", "limit": 10.0}, "holds"),
        ({"word": "more", "limit": 12.0}, "does not hold"),
        ({"word": "more", "limit": 11.5}, "undecided"),
        ({"word": "less", "limit": 0.5}, "does not hold"),
        ({"word": "equivalent"}, "does not hold"),
    ],
)
def test_a_claim_on_two_levels_follows_the_ratio(changes: dict[str, Any], verdict: str) -> None:
    found = only(replace(MORE, **changes), noise=0.0005 if changes.get("limit") != 11.5 else 0.01)
    assert found.verdict == verdict, found
    assert found.value == pytest.approx(11.5, rel=0.02) and found.rounds == 12


def test_sides_may_be_turned_and_two_that_are_equivalent_have_no_more_and_no_less() -> None:
    turned = ClaimSpec("NBD as NVMe", None, {"transport": "nbd"}, {"transport": "nvme"}, "equivalent")
    more = replace(turned, word="more")
    summary = claimed(turned, nbd_on=5.0, nbd_off=5.0)
    assert len(summary.comparisons) == 1, "the comparison that is there answers it"
    (found,) = summary.claims
    assert found.verdict == "does not hold" and found.value == pytest.approx(1.25, rel=0.01)
    assert only(more, nbd_on=5.0, nbd_off=5.0).verdict == "holds"
    assert (only(more).verdict, only(turned).verdict) == ("does not hold", "holds")
    assert only(replace(turned, margin=0.0001)).verdict == "undecided", "its own margin counts"
    assert only(more, noise=0.3).verdict == only(MORE, rounds=3).verdict == "undecided", "noise decides nothing"


def test_the_comparison_of_a_claim_belongs_to_the_family_and_a_value_needs_rounds_as_a_verdict_does() -> None:
    assert claimed(VALUE).family == 1
    assert claimed(MORE).family == 2
    assert [c.within for c in claimed(MORE).comparisons] == [{}, {}]
    summary = claimed(MORE)
    assert from_json(to_json(summary)).claims == summary.claims
    assert {claim.verdict for claim in claimed(VALUE, rounds=4, noise=0.0).claims} == {"undecided"}
    one = replace(VALUE, left={"transport": "nvme", "sack": "on"})
    (found,) = claimed(one).claims
    assert (found.left, found.verdict) == (one.left, "holds")


def test_levels_that_are_fixed_leave_the_others_to_be_pooled_unless_they_differ() -> None:
    one = ClaimSpec(
        "x", None, {"transport": "iscsi", "sack": "on"}, {"transport": "iscsi", "sack": "off"}, "equivalent"
    )
    summary = claimed(one)
    assert summary.claims[0].verdict == "holds"
    assert (summary.comparisons[-1].within, summary.comparisons[-1].pooled) == ({"transport": "iscsi"}, False)
    pooled = claimed(replace(one, left={"sack": "on"}, right={"sack": "off"}))
    assert (pooled.comparisons[-1].within, pooled.comparisons[-1].pooled) == ({}, True)
    assert only(MORE, iscsi_off=2.0, nvme_off=4.0).verdict == "undecided"
    assert "Combinations differ" in say(only(MORE, iscsi_off=2.0, nvme_off=4.0).reason)


def test_claims_of_several_metrics_share_the_chance_to_be_wrong() -> None:
    """Each metric that the name of a claim matches is an answer of its own."""
    claim = replace(VALUE, left={"transport": "nvme", "sack": "on"})
    assert only(claim).confidence == pytest.approx(0.95)
    noise = np.exp(0.002 * np.random.default_rng(7).normal(size=(6, 12)))
    values: Values = dict(zip(product(*FACTORS.values()), (4 * noise).tolist(), strict=True))
    trials, read, cells = tables(values, FACTORS, metric="read.iops", better="higher")
    write = read.with_columns(metric=pl.lit("write.iops"))
    asked = replace(design(FACTORS, cells, ()), primary="read.iops", claims=(replace(claim, metric="iops"),))
    found = summarise(trials, pl.concat([read, write]), asked).claims
    assert [each.metric for each in found] == ["read.iops", "write.iops"]
    assert [each.confidence for each in found] == pytest.approx([0.975] * 2)


def test_that_two_are_equivalent_is_denied_no_more_often_than_is_allowed() -> None:
    """True ratio 1, looked at after every fifth round: the chance that the answer is ever *does not hold*."""
    rules = Rules(0.05, 0.01, "neither", 5, 1)

    def denied(ratios: Floats) -> bool:
        looks = (_Evidence(ratios[:n], {}, NONE_FAILED, 20.0, rules, False) for n in range(5, 61, 5))
        return any(look._equivalent()[0] == "does not hold" for look in looks)

    assert sum(map(denied, 0.3 * np.random.default_rng(11).normal(size=(1500, 60)))) / 1500 < 0.05


def test_what_the_run_does_not_have_is_not_measured_and_no_answer_to_be_wrong_about() -> None:
    absent = replace(MORE, absent=ClaimUnanswered("absent", ("transport=aoe",)))
    for word in ("more", "less", "equivalent"):
        assert only(replace(absent, word=word, limit=2.0)).verdict == "missing"
    found = only(absent)
    assert (found.verdict, found.reason) == ("missing", absent.absent)
    assert say(found.reason) == "This run has no transport=aoe."
    assert only(replace(MORE, metric="no.such")).verdict == "missing"
    assert only(replace(MORE, limit=2.0)).verdict == "holds"


@pytest.mark.parametrize(
    ("between", "verdict"),
    [((3.9, 4.1), "holds"), ((4.5, 5.0), "does not hold"), ((4.0, 4.5), "undecided"), ((3.0, float("inf")), "holds")],
)
def test_a_value_is_answered_by_its_interval_in_each_cell(between: tuple[float, float], verdict: str) -> None:
    found = claimed(replace(VALUE, between=between)).claims
    assert [(claim.left["sack"], claim.verdict) for claim in found] == [("on", verdict), ("off", verdict)]


def test_what_is_described_answers_no_claim_and_counts_in_no_family() -> None:
    spec = CompareSpec("transport", (("iscsi", "nvme"),), within=False, native=True)
    summary = claimed(MORE, comparisons=(spec,), emulated=True)
    (comparison,) = summary.comparisons
    assert (comparison.verdict, comparison.settled, summary.family) == ("undecided", True, 1)
    assert comparison.described and comparison.ratio == pytest.approx(11.5, rel=0.01)
    assert summary.claims[0].verdict == "undecided"
    assert claimed(MORE, comparisons=(spec,)).comparisons[0].verdict == "worse", (
        "it is judged where nothing is emulated"
    )


def test_a_claim_about_rates_is_not_answered_by_a_comparison_that_is_judged_where_guests_are_emulated() -> None:
    spec = CompareSpec("transport", (("iscsi", "nvme"),), within=False)
    for asked in (MORE, replace(MORE, limit=20.0), replace(MORE, word="less")):
        rate = replace(asked, native=True)
        summary = claimed(rate, comparisons=(spec,), emulated=True)
        assert summary.comparisons[0].verdict == "worse", "the study asks for it by itself, and not natively"
        assert (summary.claims[0].verdict, summary.claims[0].reason) == ("undecided", Emulated())
        assert claimed(rate, comparisons=(spec,)).claims[0].verdict in ("holds", "does not hold")


@pytest.mark.parametrize("emulated", [False, True])
def test_a_claim_about_rates_of_what_was_not_measured_is_missing_wherever_it_ran(emulated: bool) -> None:
    factors: Factors = {"transport": ("iscsi", "nvme")}
    trials, metrics, cells = tables({("iscsi",): [1.0] * 8, ("nvme",): []}, factors, metric="acks")
    asked = design(factors, cells, ())
    asked = replace(asked, primary="acks", claims=(replace(MORE, native=True),), emulated=emulated)
    (claim,) = summarise(trials, metrics, asked).claims
    assert (claim.verdict, claim.reason == Emulated()) == ("missing", False), claim


@pytest.mark.parametrize("claim", [MORE, replace(MORE, limit=1.01), replace(MORE, word="equivalent", margin=0.01)])
def test_no_claim_on_pure_noise_is_ever_answered_falsely_in_more_studies_than_it_may(claim: ClaimSpec) -> None:
    """Two sides that do not differ: "more" never holds, and they are never beyond a margin."""
    falsely = "does not hold" if claim.word == "equivalent" else "holds"
    factors: Factors = {"transport": ("iscsi", "nvme")}
    false = 0
    for study in np.exp(0.05 * np.random.default_rng(11).normal(size=(60, 2, 15))):
        trials, metrics, cells = tables({("iscsi",): [*study[0]], ("nvme",): [*study[1]]}, factors, metric="acks")
        asked = replace(design(factors, cells, ()), primary="acks", claims=(claim,))
        (found,) = summarise(trials, metrics, asked).claims
        false += found.verdict == falsely
    assert false <= 6, "60 studies, 5 % each: more than 7 have a chance of 1 in 100"


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
        assert result.outcome == "hit" and "by more than" not in say(result.why)
    (result,) = apart(0.90, "worse>3%").gates
    assert say(result.why).startswith("new differs from old by more than 3 %, for the worse: 0.9")
    assert "with this interval, runs not interleaved" in say(result.why)


def test_a_difference_near_the_limit_is_undecided_and_few_rounds_show_what_is_not_worse() -> None:
    found = paired(1 / 1.03, "worse>3%")
    assert found.comparison.high is not None and found.comparison.high < 1
    assert found.gates[0].outcome == "undecided", "the verdict is sure, but not by how much"
    (result,) = paired(1.02, "worse>3%", rounds=7).gates
    assert result.outcome == "passed"
    assert say(result.why).startswith("new is not worse than old by more than 3 %: 1.0")


def test_too_few_rounds_are_neither_hit_nor_passed_but_by_the_gate_undecided() -> None:
    for ratio in (0.5, 1.0):
        (result,) = paired(ratio, "worse>3%", rounds=3).gates
        assert result.outcome == "undecided" and say(result.why).startswith("It is undecided whether new is worse")
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
    assert "Combinations differ: the ratio is 0.55× in bs=4k" in say(pooled.gates[0].why)


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
