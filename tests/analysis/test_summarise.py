"""Tests of ``storlab.analysis.summarise``, ``questions`` and ``design``: from tables to a summary."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

from storlab.analysis.compare import Question
from storlab.analysis.design import CompareSpec, Design
from storlab.analysis.judging import _hypothesis
from storlab.analysis.questions import Planned
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison, Summary
from storlab.findings import Reported
from storlab.findings.runs import Interrupted
from storlab.report.language.methods import method
from storlab.report.language.say import said, say

from .simulate import Factors, Values, design, metric_frame, tables, trial_frame

AB: Factors = {"x": ("a", "b")}
BY_SIZE: Factors = {**AB, "bs": ("4k", "64k")}
FS: Factors = {"fs": ("xfs", "ext4")}
TWO: Factors = {"backing": ("zvol", "file"), "bs": ("4k", "512")}


def rates(mean: float, rounds: int = 12, sd: float = 0.03, seed: int = 1) -> list[float | None]:
    noise = np.random.default_rng([seed, int(mean)]).normal(size=rounds)
    return [float(value) for value in mean * np.exp(sd * noise)]


def study(**changes: Any) -> tuple[pl.DataFrame, pl.DataFrame, Design]:
    """Two factors; zvol is twice as fast as file at 4k, and 1.5 times as fast at 512."""
    levels: Values = {("zvol", "4k"): rates(200), ("zvol", "512"): rates(150), ("file", "4k"): rates(100)}
    trials, metrics, cells = tables({**levels, ("file", "512"): rates(101)}, TWO)
    return trials, metrics, replace(design(TWO, cells), **changes)


def by_size(*means: float) -> Values:
    """Levels a and b with both block sizes."""
    return dict(zip(product(*BY_SIZE.values()), map(rates, means), strict=True))


def summarised(
    values: Values, factors: Factors = AB, comparisons: tuple[CompareSpec, ...] | None = None, **more: Any
) -> Summary:
    trials, metrics, cells = tables(values, factors, **more)
    return summarise(trials, metrics, design(factors, cells, comparisons))


def only(summary: Summary) -> Comparison:
    (found,) = summary.comparisons
    return found


def test_by_default_the_first_factor_is_compared_within_the_others_and_pooled() -> None:
    summary = summarise(*study())
    assert [(c.factor, c.a, c.b, c.within, c.pooled) for c in summary.comparisons] == [
        ("backing", "zvol", "file", {"bs": "4k"}, False),
        ("backing", "zvol", "file", {"bs": "512"}, False),
        ("backing", "zvol", "file", {}, True),
    ]
    assert [c.verdict for c in summary.comparisons] == ["better"] * 3
    four, half, pooled = (c.ratio or 0 for c in summary.comparisons)
    assert four == pytest.approx(2, rel=0.05) and half == pytest.approx(1.5, rel=0.05)
    assert pooled == pytest.approx((four * half) ** 0.5, rel=0.01), "about the geometric mean"


def test_what_is_pooled_says_where_the_study_has_one_of_both_alone() -> None:
    values: Values = {levels: rates(100) for levels in product(*BY_SIZE.values())}
    del values["b", "64k"]
    values |= {(a, "1M"): rates(100) for a in AB["x"]}
    trials, metrics, cells = tables(values, factors := {**BY_SIZE, "bs": (*BY_SIZE["bs"], "1M")})
    summary = summarise(trials, metrics, replace(design(factors, cells), excluded=True))
    (pooled,) = (c for c in summary.comparisons if c.pooled)
    assert len(summary.comparisons) == 3 and pooled.rounds == 12
    assert say(pooled.warnings[0]) == "Not over bs=64k: the study has one of the two alone there."


def test_the_confidence_is_shared_among_all_comparisons() -> None:
    summary = summarise(*study())
    assert summary.family == 3
    assert [c.confidence for c in summary.comparisons] == [pytest.approx(0.95)] * 3, "all are decided"
    assert summary.method is not None
    assert "by closed testing, each of its 3 comparisons needs more evidence" in method(summary.method)
    trials, metrics, asked = study(comparisons=(CompareSpec("backing", margin=0.0),))
    first = pl.when(pl.col("cell") == 3).then(1e8).otherwise("value")  # as much as zvol has with 4k, within noise
    same = metrics.with_columns(value=pl.when(pl.col("cell") == 1).then(1e8).otherwise(first))
    wide = summarise(trials, same, asked).comparisons
    assert [c.verdict for c in wide] == ["undecided", "better", "better"]
    assert wide[1].confidence == wide[2].confidence > 0.97 and wide[0].confidence == pytest.approx(0.95)


def test_cells_and_rounds_are_counted_and_what_the_executor_says_is_passed_on() -> None:
    summary = summarise(*study())
    assert summary.rounds_done == 12
    assert [(s.cell, s.status, s.rounds) for s in summary.cells] == [(n, "measured", 12) for n in (1, 2, 3, 4)]
    assert len(summary.estimates) == 4
    assert summary.title == "A study" and summary.primary == "bandwidth"
    summary = summarise(*study(stopped=Interrupted("broke off"), warnings=(Reported("Odd."),), facts={"seed": 7}))
    assert (summary.stopped, summary.warnings, summary.facts) == (
        Interrupted("broke off"),
        (Reported("Odd."),),
        {"seed": 7},
    )


def test_pairs_and_metrics_can_be_chosen_and_what_is_asked_twice_counts_once() -> None:
    spec = CompareSpec("bs", pairs=(("512", "4k"),), pooled=False, metrics=("load:write.bandwidth",), margin=0.1)
    found = summarise(*study(comparisons=(spec,))).comparisons
    assert [(c.a, c.b, c.within["backing"], c.margin) for c in found] == [
        ("512", "4k", "zvol", 0.1), ("512", "4k", "file", 0.1)
    ]  # fmt: skip
    assert summarise(*study(comparisons=(CompareSpec("backing"), CompareSpec("backing")))).family == 3


def test_one_factor_has_nothing_to_pool_none_nothing_to_compare_and_no_trial_is_a_summary_too() -> None:
    found = only(summarised({("xfs",): rates(120), ("ext4",): rates(100)}, FS))
    assert not found.pooled and found.within == {}
    trials, metrics, _ = tables({("x",): rates(100)}, {"fs": ("x",)})
    summary = summarise(trials, metrics, Design("One", "bandwidth", {}, ((1, {}),)))
    assert summary.comparisons == () and len(summary.estimates) == 1 and summary.family == 1
    _, _, asked = study()
    summary = summarise(trial_frame([]), metric_frame([]), asked)
    assert summary.rounds_done == 0
    assert {s.status for s in summary.cells} == {"not run"}
    assert {say(c.reason) for c in summary.comparisons} == {"There is no completed trial of zvol or of file."}
    assert not any(c.settled for c in summary.comparisons)


def test_a_level_that_this_machine_lacks_is_undecided_with_the_reason_and_not_counted() -> None:
    trials, metrics, asked = study()
    gone = pl.col("cell") == 3
    why = pl.lit("The kernel has no nbd module.")
    trials = trials.with_columns(
        status=pl.when(gone).then(pl.lit("unsupported")).otherwise(pl.col("status")),
        reason=pl.when(gone).then(why).otherwise(pl.col("reason")),
    )
    summary = summarise(trials, metrics, asked)
    assert summary.cells[2].status == "unsupported" and summary.cells[2].reasons == ("The kernel has no nbd module.",)
    four, half = summary.comparisons
    assert say(four.reason) == "file is unsupported: The kernel has no nbd module."
    assert four.verdict == "missing" and four.settled and four.source == "load"
    assert half.verdict == "better"
    assert summary.family == 1
    assert summary.rounds_done == 12, "rounds count the cells that can run"


def test_pooling_leaves_out_a_combination_that_can_not_be_compared_or_names_the_one_without_a_ratio() -> None:
    factors: Factors = {**FS, "bs": ("4k", "16k", "64k")}
    values: Values = {(fs, bs): rates(100 if fs == "ext4" else 150) for fs in factors["fs"] for bs in factors["bs"]}
    values["ext4", "16k"] = [None] * 12
    pooled = summarised(values, factors).comparisons[-1]
    assert pooled.pooled and pooled.rounds == 12 and pooled.verdict == "better"
    assert (
        said(pooled.warnings)[0] == "Not over bs=16k: there is no completed trial of ext4. ext4 failed: fio was killed."
    )
    trials, metrics, asked = study()
    zero = (pl.col("cell") == 2) & (pl.col("round") == 3)
    summary = summarise(trials, metrics.with_columns(value=pl.when(~zero).then("value").otherwise(0.0)), asked)
    assert [say(each.warnings[0])[:19] for each in summary.comparisons[1:]] == [
        "zvol is 0 in round ",
        "In bs=512: zvol is ",
    ]


def test_failed_trials_leave_their_round_out() -> None:
    trials, metrics, asked = study()
    lost = trials.filter((pl.col("cell") == 1) & (pl.col("round") == 4))["trial"].item()
    trials = trials.with_columns(
        status=pl.when(pl.col("trial") == lost).then(pl.lit("failed")).otherwise(pl.col("status")),
        reason=pl.when(pl.col("trial") == lost).then(pl.lit("The guest fell silent.")),
    )
    summary = summarise(trials, metrics, asked)
    four, half, pooled = summary.comparisons
    assert (four.rounds, half.rounds, pooled.rounds) == (11, 12, 11)
    assert said(four.warnings) == ("Left out: round 4, in which only zvol failed; it counts against it.",)
    assert said(pooled.warnings) == (
        "In bs=4k: Left out: round 4, in which only zvol failed; it counts against it.",
        "Left out: round 4, not done in every combination.",
    )
    assert summary.cells[0].status == "partly failed" and summary.cells[0].failed == 1
    assert summary.estimates[0].rounds == 11, "metrics of a failed trial don't count"


def test_pairs_that_were_pooled_over_other_combinations_are_no_family() -> None:
    """Where b was not measured in all of them, a = b and b = c may hold of those that it has, and a = c not of all."""
    pooled = Question("fs", "a", "b", {}, True, "load", "bandwidth", "B/s", "higher")
    two = Planned(pooled, ((1, 2), (3, 4)), names=("bs=4k", "bs=16k"))
    three = Planned(replace(pooled, b="c"), ((1, 5), (3, 6), (7, 8)), names=("bs=4k", "bs=16k", "bs=64k"))
    same = Planned(replace(pooled, a="c"), ((5, 2), (6, 4)), names=("bs=4k", "bs=16k"))
    assert _hypothesis(two, None).family == _hypothesis(same, None).family != _hypothesis(three, None).family


def failing(level: str, rounds: set[int], better: str) -> Comparison:
    """A study in which this level fails in these rounds, and "a" is twice as much as "b" in all others."""
    values: Values = {
        (name,): [None if name == level and number in rounds else value for number, value in enumerate(rates(mean), 1)]
        for name, mean in (("a", 2e8), ("b", 1e8))
    }
    return only(summarised(values, better=better))


@pytest.mark.parametrize(("better", "winner", "loser"), [("higher", "a", "b"), ("lower", "b", "a")])
def test_a_level_that_fails_can_not_win_by_the_rounds_in_which_it_did_not(better: str, winner: str, loser: str) -> None:
    verdict = "better" if winner == "a" else "worse"
    assert failing(winner, set(), better).verdict == verdict
    assert failing(loser, {2, 5, 7}, better).verdict == verdict, "who loses may fail as well"
    survivor = failing(winner, {2, 5, 7}, better)
    assert survivor.verdict == "undecided" and not survivor.settled and survivor.rounds_to_decide
    assert say(survivor.reason).endswith(
        "excludes 1, but 3 rounds that failed on one side might have changed the answer."
    )


def test_who_fails_is_not_equivalent_by_the_other_rounds_nor_in_the_pooled_comparison() -> None:
    alike: Values = {("a",): rates(1e8, sd=0.003), ("b",): rates(1e8, sd=0.003, seed=2)}
    for lost, verdict in ((0, "equivalent"), (3, "undecided")):
        assert only(summarised({**alike, ("b",): [*([None] * lost), *alike["b",][lost:]]})).verdict == verdict
    values = by_size(2e8, 2e8, 1e8, 1e8)
    for bs in ("4k", "64k"):
        values["a", bs] = [None if n in (2, 5, 7) else value for n, value in enumerate(values["a", bs], 1)]
    found = summarised(values, BY_SIZE).comparisons
    assert [c.verdict for c in found] == ["undecided"] * 3 and found[2].pooled
    assert say(found[2].reason).endswith("3 rounds that failed on one side might have changed the answer.")


def test_a_trial_run_again_counts_once_and_rows_of_nodes_jobs_and_their_order_change_nothing() -> None:
    trials, metrics, asked = study()
    again = trial_frame([(900, 1, 1, "done", None)])
    row = metric_frame([(900, 1, 1, None, "load", None, "write.bandwidth", 1e9, "B/s", "higher", "sum")])
    summary = summarise(pl.concat([trials.select(again.columns), again]), pl.concat([metrics, row]), asked)
    assert summary.estimates[0].rounds == 12
    assert summary.estimates[0].mean > 1e7
    trials, metrics, asked = study()
    noisy = pl.concat(
        [metrics, metrics.with_columns(node=pl.lit("vm1"), value=0.0), metrics.with_columns(job=pl.lit("j"))]
    )
    assert summarise(trials, noisy, asked) == summarise(trials, metrics, asked)
    trials, metrics, asked = study()
    shuffled = metrics.sample(fraction=1, shuffle=True, seed=5)
    assert summarise(trials.reverse(), shuffled, asked) == summarise(trials, metrics, asked)


def test_a_metric_missing_in_a_round_leaves_no_ratio_and_cells_left_out_are_not_compared() -> None:
    trials, metrics, asked = study()
    summary = summarise(trials, metrics.filter(~((pl.col("cell") == 1) & (pl.col("round") == 3))), asked)
    assert say(summary.comparisons[0].reason).startswith("zvol lacks the metric in round 3, so there is no ratio")
    assert summary.family == 3, "what was measured does not change the family"
    trials, metrics, asked = study()
    part = replace(asked, cells=asked.cells[:3])
    summary = summarise(trials.filter(pl.col("cell") < 4), metrics.filter(pl.col("cell") < 4), part)
    assert only(summary).within == {"bs": "4k"}


def test_cells_are_compared_source_by_source_and_levels_with_nothing_in_common_say_so() -> None:
    loads: Factors = {"load": ("reads", "writes")}
    values: Values = {(fs, load): rates(100) for fs in FS["fs"] for load in loads["load"]}
    summary = summarised(values, {**FS, **loads}, sources={key: key[1] for key in values})
    assert [(c.source, c.within, c.pooled) for c in summary.comparisons] == [
        (load, {"load": load}, False) for load in loads["load"]
    ]
    apart: Values = {("reads",): rates(100), ("writes",): rates(100)}
    summary = summarised(apart, loads, sources={key: key[0] for key in apart})
    assert all(c.settled for c in summary.comparisons)
    assert [say(c.reason) for c in summary.comparisons] == [
        f"{a} has no write.bandwidth of {b}, which {b} has: nothing to compare it with."
        for a, b in (("reads", "writes"), ("writes", "reads"))
    ]


def test_a_combination_in_which_no_trial_has_what_is_asked_for_is_missing_and_no_gate_passes_it() -> None:
    def gated(lost: tuple[int, ...], *specs: CompareSpec) -> Summary:
        trials, metrics, asked = study(comparisons=specs, gates=("worse>50%",))
        return summarise(trials, metrics.filter(~pl.col("cell").is_in(lost)), asked)

    each = gated((1, 3), CompareSpec("backing", pooled=False))  # at 4k
    absent, there = sorted(each.comparisons, key=lambda c: c.within["bs"])
    assert (absent.verdict, say(absent.reason)) == ("missing", "no trial of zvol or file has bandwidth.")
    assert (absent.within, absent.gates[0].outcome) == ({"bs": "4k"}, "missing")
    assert (there.verdict, there.gates[0].outcome, each.family) == ("better", "passed", 1)
    pooled, absent = gated((1, 3), CompareSpec("backing", within=False)).comparisons
    assert pooled.pooled and "Not over bs=4k: no trial of zvol or file has bandwidth." in said(pooled.warnings)
    assert absent.gates[0].outcome == "missing"
    only(gated((1, 2, 3, 4), CompareSpec("backing")))  # one answer for all of them


def test_a_combination_whose_loads_do_something_else_is_not_asked_about_and_no_gate_misses_it() -> None:
    trials, metrics, asked = study(comparisons=(CompareSpec("backing", pooled=False),), gates=("worse>50%",))
    asked = replace(asked, silent=frozenset({(1, "bandwidth"), (3, "bandwidth")}))
    there = only(summarise(trials, metrics.filter(~pl.col("cell").is_in((1, 3))), asked))
    assert (there.within, there.gates[0].outcome) == ({"bs": "512"}, "passed")
    assert len(summarise(trials, metrics, asked).comparisons) == 2, "what was measured all the same is compared"
    absent = only(summarise(trials, metrics.clear(), asked))
    assert (absent.verdict, absent.gates[0].outcome) == ("missing", "missing"), "and nothing at all is no answer"


@pytest.mark.parametrize(
    ("primary", "expected"),
    [
        ("bandwidth", [("a", "bandwidth"), ("b", "read.bandwidth"), ("b", "write.bandwidth")]),
        ("write.bandwidth", [("a", "write.bandwidth"), ("b", "write.bandwidth")]),
        ("b:bandwidth", [("b", "read.bandwidth"), ("b", "write.bandwidth")]),
        ("probe:tcp:bandwidth", [("probe:tcp", "bandwidth")]),
        ("acks", [("probe:tcp", "acks")]),
        ("probe:tcp:acks", [("probe:tcp", "acks")]),
        ("probe:tcp@store:acks", [("probe:tcp@store", "acks")]),
        ("drain", [("backing@store", "backing.drain")]),
        ("backing:drain", [("backing@store", "backing.drain")]),
        ("latency", [("", "latency")]),
    ],
)
def test_a_metric_is_named_exactly_or_by_its_last_part(primary: str, expected: list[tuple[str, str]]) -> None:
    have = [
        *(("a", name) for name in ("bandwidth", "write.bandwidth")),
        *(("b", name) for name in ("read.bandwidth", "write.bandwidth")),
        *((source, name) for source in ("probe:tcp@store", "probe:tcp") for name in ("bandwidth", "acks")),
        ("backing@store", "backing.drain"),
    ]
    trials = trial_frame([(cell, 1, cell, "done", None) for cell in (1, 2)])
    rows = [(c, 1, c, None, source, None, name, 1.0, "1", "higher", "sum") for c in (1, 2) for source, name in have]
    factors: Factors = {"fs": ("xfs", "ext4")}
    asked = design(factors, ((1, {"fs": "xfs"}), (2, {"fs": "ext4"})), primary=primary)
    found = summarise(trials, metric_frame(list(rows)), asked)
    assert [(c.source, c.metric) for c in found.comparisons] == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"min_rounds": 1}, "min_rounds is 1"),
        ({"cells": ((1, {"backing": "zvol"}),)}, "cell 1 has levels of"),
        ({"cells": ((1, {"backing": "lvm", "bs": "4k"}),)}, "no level 'lvm'"),
        ({"comparisons": (CompareSpec("fs"),)}, "no such factor"),
        ({"comparisons": (CompareSpec("bs", pairs=(("4k", "8k"),)),)}, "no such level"),
        ({"comparisons": (CompareSpec("bs", pairs=(("4k", "4k"),)),)}, "with itself"),
        ({"comparisons": (CompareSpec("bs", margin=-0.1),)}, "margin is -0.1"),
    ],
)
def test_a_design_that_does_not_fit_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study(**changes)


@pytest.mark.parametrize("within", [True, False])
def test_effects_that_cancel_out_are_not_equivalent_on_average(within: bool) -> None:
    specs = (CompareSpec("x", within=within, margin=0.1),)
    pooled = summarised(by_size(2e8, 1e8, 1.01e8, 1.99e8), BY_SIZE, specs).comparisons[-1]
    assert pooled.low is not None and pooled.high is not None and 0.91 < pooled.low < pooled.high < 1.1
    assert pooled.verdict == "undecided" and pooled.settled
    assert said(pooled.warnings) == ("Combinations differ: the ratio is 1.96× in bs=4k, 0.50× in bs=64k.",)
    assert say(pooled.reason).endswith(f"within the margin of ±10 %, but not everywhere. {said(pooled.warnings)[0]}")


def test_a_combination_in_which_a_pooled_verdict_is_the_other_way_round_is_named_by_what_differs_among_them() -> None:
    values = by_size(4e8, 1e8, 1.01e8, 1.99e8)
    one_fs: Factors = {**BY_SIZE, "fs": ("xfs",)}
    for found in (summarised(values, BY_SIZE), summarised({(*k, "xfs"): v for k, v in values.items()}, one_fs)):
        pooled = found.comparisons[-1]
        assert pooled.verdict == "better"
        assert said(pooled.warnings) == ("Combinations differ: the ratio is 0.50× in bs=64k.",)


@pytest.mark.parametrize("lost", [0, 5, 12])
def test_how_many_comparisons_there_are_does_not_depend_on_what_fails(lost: int) -> None:
    values = by_size(4e8, 1e8, 1.01e8, 1e8)
    found = summarised(values | {("b", "64k"): [*([None] * lost), *values["b", "64k"][lost:]]}, BY_SIZE)
    assert found.family == 3
    assert found.comparisons[0].verdict == "better"
    if lost == 12:
        assert [say(c.reason) for c in found.comparisons[1:]] == [
            "There is no completed trial of b. b failed: fio was killed."
        ] * 2
        assert not found.comparisons[2].settled
