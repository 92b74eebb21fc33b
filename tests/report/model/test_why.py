"""The chapter "why": each difference is a sentence with both values, and nothing is called a cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storlab.analysis.summary import Comparison, Difference, Summary, Underneath
from storlab.report.formats import render
from storlab.report.formats.terminal import render_text
from storlab.report.model.input import ReportInput
from storlab.report.model.why import best_lines, details, nothing_differs, sentence, why_chapter

ACKS = Difference(
    source="probe:tcp", metric="acks", unit="1", per="operation", noun="ACKs", a=46.0, b=3.9, ratio=11.8, low=11.2,
    high=12.4, evidence=5.0, agreeing=8, moves="unclear",
)  # fmt: skip
COMPARISON = Comparison(
    factor="transport", a="iSCSI", b="NVMe/TCP", within={}, pooled=False, source="load", metric="read.bandwidth",
    unit="B/s", better="higher", rounds=8, ratio=0.5, low=0.4, high=0.6, confidence=0.95, margin=0.1, verdict="worse",
    reason="it is",
)  # fmt: skip


def with_why(*differences: Difference, comparison: Comparison = COMPARISON, rounds: int = 8) -> Comparison:
    return replace(comparison, why=Underneath(rounds, 20, 6, 0.95, differences))


def said(d: Difference) -> str:
    return sentence(with_why(d), d)


def given(*comparisons: Comparison) -> ReportInput:
    return ReportInput(Summary("t", "read.bandwidth", 0.95, 8, "Done.", comparisons=comparisons))


def test_a_line_is_a_sentence_with_both_values_under_names_that_speak() -> None:
    assert said(ACKS) == "iSCSI: 46.0 ACKs per operation, NVMe/TCP: 3.90"
    assert said(replace(ACKS, a=0.0, ratio=None)) == "NVMe/TCP: 3.90 ACKs per operation, iSCSI: none"
    d = replace(ACKS, metric="read.service.p50", noun="", per="", unit="s", a=0.004, b=0.001)
    assert said(d) == "read.service.p50: 4.00 ms with iSCSI, 1.00 ms with NVMe/TCP"
    c = with_why(ACKS, comparison=replace(COMPARISON, factor="sack", a="on", b="off"))
    assert sentence(c, ACKS) == "sack=on: 46.0 ACKs per operation, sack=off: 3.90"


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (replace(ACKS, per="", unit="B", noun="a read request", a=131072, b=65536),
         "128 KiB a read request, NVMe/TCP: 64.0 KiB"),
        (replace(ACKS, per="", noun="of the time some task waited for io", a=0.5, b=0.25),
         "50 % of the time some task waited for io, NVMe/TCP: 25 %"),
        (replace(ACKS, unit="s", noun="of CPU time", a=46e-6, b=12e-6),
         "46.0 µs of CPU time per operation, NVMe/TCP: 12.0 µs"),
        (replace(ACKS, per="byte", a=46 / 2**20, b=4 / 2**20), "46.0 ACKs per MiB, NVMe/TCP: 4.00"),
        (replace(ACKS, per="byte", unit="B", noun="written to the disk", a=2, b=1),
         "2.00 B written to the disk per byte, NVMe/TCP: 1.00 B"),
        (replace(ACKS, per="trial"), "46.0 ACKs in all, NVMe/TCP: 3.90"),
        (replace(ACKS, source="probe:tcp@store"), "46.0 ACKs per operation on store, NVMe/TCP: 3.90"),
        (replace(ACKS, b=0.0, ratio=None, low=None, high=None), "46.0 ACKs per operation, NVMe/TCP: none"),
    ],
)  # fmt: skip
def test_values_have_the_unit_and_the_words_of_their_metric(difference: Difference, text: str) -> None:
    assert said(difference) == f"iSCSI: {text}"


def test_the_chapter_says_how_sure_and_how_large_it_is_and_whether_it_moves_along() -> None:
    assert details(with_why(ACKS), ACKS) == "(11.8×, 11.2× to 12.4×; in 8 of 8 rounds)"
    moving = replace(ACKS, moves="against", agreeing=7)
    assert "in 7 of 8 rounds; from round to round, the more of it, the less read.bandwidth" in details(
        with_why(moving), moving
    )
    assert "the same rate per second on both sides" in details(with_why(ACKS), replace(ACKS, same_rate=True))
    assert details(with_why(ACKS), replace(ACKS, low=11.8, high=11.8)) == "(11.8× in every round; in 8 of 8 rounds)"


def test_a_verdict_is_followed_by_three_lines_at_most() -> None:
    many = [replace(ACKS, metric=f"m{number}", noun=f"things {number}") for number in range(5)]
    assert [line.split(" things ")[1][0] for line in best_lines(with_why(*many))] == ["0", "1", "2"]
    text = render_text(given(with_why(*many)), full=True)
    assert "Evidence, not a cause:" in text
    assert "things 2" in text and "things 3" not in text
    assert "things 4" in render(given(with_why(*many)), "md")


def test_nothing_that_differs_is_an_answer_and_what_is_undecided_has_a_place_in_the_chapter() -> None:
    text = render_text(given(with_why()), full=True)
    assert "Nothing that was watched differs (20 metrics from underneath)." in text
    assert "Evidence" not in text
    few = Underneath(5, 20, 6, 0.95)
    assert (
        nothing_differs(few)
        == "Too few rounds to say why: none of the 20 metrics from underneath can be named before round 6."
    )
    undecided = with_why(ACKS, comparison=replace(COMPARISON, verdict="undecided"))
    assert best_lines(undecided) == ()
    chapter = why_chapter(given(undecided).summary)
    assert chapter is not None
    assert [part.claim for group in chapter.groups for part in group.parts] == ["iSCSI against NVMe/TCP is undecided."]
    assert "Evidence, not a cause:" not in render(given(undecided), "text")


@pytest.mark.parametrize("form", ["text", "md", "adoc", "html"])
def test_without_probes_there_is_no_such_chapter(form: str) -> None:
    text = render(given(COMPARISON), form)
    assert "differs" not in text and ">Why<" not in text and "# Why" not in text and "== Why" not in text


@pytest.mark.parametrize("form", ["md", "adoc", "html"])
def test_the_chapter_says_that_it_is_no_cause_and_how_sure_it_is(form: str) -> None:
    text = render(given(with_why(ACKS)), form)
    assert "This is evidence, not a cause:" in text
    assert "those named all differ, with a confidence of 95 % for each comparison on its own" in text
