"""Claims: which of the four answers each gets, and that nothing is answered which rounds can't tell."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

from storlab.analysis.claims.data import Claim
from storlab.analysis.claims.judging import _Evidence
from storlab.analysis.design import ClaimSpec, CompareSpec
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary, from_json, to_json
from storlab.analysis.verdict import NONE_FAILED, Rules

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
    assert "Combinations differ" in only(MORE, iscsi_off=2.0, nvme_off=4.0).reason


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
    absent = replace(MORE, absent="This run has no transport=aoe.")
    for word in ("more", "less", "equivalent"):
        assert only(replace(absent, word=word, limit=2.0)).verdict == "missing"
    found = only(absent)
    assert (found.verdict, found.reason) == ("missing", absent.absent)
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
