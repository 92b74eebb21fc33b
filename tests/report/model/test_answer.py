"""The first sentence: what was found out, from verdicts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storlab.analysis.summary import Comparison, Estimate, Summary, Verdict
from storlab.report.model.answer import answer

from .test_words import BASE

SUMMARY = Summary("t", "", 0.95, 8, "", comparisons=(BASE,))


def said(*questions: list[Comparison]) -> str:
    return answer(SUMMARY, questions, [])


def pair(a: str, b: str, ratio: float, verdict: Verdict = "better") -> Comparison:
    return replace(BASE, a=a, b=b, ratio=ratio, low=ratio * 0.98, high=ratio * 1.02, verdict=verdict)


def test_the_better_of_two_is_named_with_its_ratio() -> None:
    assert said([pair("ext4", "xfs", 1.43)]) == "ext4 has the higher write bandwidth (1.43× xfs)."


def test_a_ratio_that_was_decided_does_not_read_as_1() -> None:
    near = replace(pair("ext4", "xfs", 1.003), low=1.001, high=1.005)
    assert said([near]) == "ext4 has the higher write bandwidth (1.0030× xfs)."


def test_where_less_is_better_the_others_are_so_many_times_the_best() -> None:
    less = replace(pair("ext4", "xfs", 5.0, "worse"), better="lower", metric="write.amplification")
    assert said([less]) == "xfs has the lower write amplification (ext4 5.00×)."


def test_a_level_is_the_best_only_where_it_beats_every_other_by_a_verdict() -> None:
    whole = [pair("a", "b", 1.5), pair("a", "c", 2.0), pair("b", "c", 1.3, "undecided")]
    assert said(whole).startswith("a has the highest write bandwidth (1.50× b, 2.00× c)")
    part = [pair("a", "b", 1.5, "undecided"), pair("a", "c", 2.0), pair("b", "c", 1.3)]
    assert said(part) == "Write bandwidth: a and b are better than c."


def test_pairs_that_share_no_level_have_a_ratio_each() -> None:
    question = [replace(each, better="lower", metric="bytes_written.per-transaction") for each in (
        pair("new", "old", 0.5), pair("left", "right", 0.72)
    )]  # fmt: skip
    text = "Bytes written per transaction: new 0.500× old, left 0.720× right (lower is better)."
    assert said(question) == text


def test_what_is_open_is_called_so_after_what_is_decided() -> None:
    reads = replace(pair("ext4", "xfs", 1.1, "undecided"), metric="read.iops")
    text = said([reads], [pair("ext4", "xfs", 1.43)])
    assert text == "ext4 has the higher write bandwidth (1.43× xfs); read IOPS: no difference established yet."


def test_equivalence_is_an_answer() -> None:
    assert said([pair("a", "b", 1.0, "equivalent")]) == "write bandwidth of a and b is equivalent within ±5 %.".replace(
        "w", "W", 1
    )


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        (("ab", "ac", "bc"), "Write bandwidth of a, b and c is equivalent within ±5 %."),
        (("ab", "bc"), "Write bandwidth: a and c are each equivalent to b within ±5 %."),
        (("ab", "cd"), "Write bandwidth: a is equivalent to b, and c to d, within ±5 %."),
        (("ab", "ac", "de"), "Write bandwidth: a is equivalent to b and c, and d to e, within ±5 %."),
    ],
)
def test_several_levels_that_are_equivalent_are_one_statement(pairs: tuple[str, ...], text: str) -> None:
    assert said([pair(both[0], both[1], 1.0, "equivalent") for both in pairs]) == text


@pytest.mark.parametrize(("wins", "text"), [(2, "in both combinations"), (1, "with load=0")])
def test_places_are_counted_among_all_of_the_metric(wins: int, text: str) -> None:
    verdicts: list[Verdict] = ["better" if number < wins else "undecided" for number in range(2)]
    several = [
        [replace(pair("a", "b", 1.5, verdict), within={"load": str(number)})] for number, verdict in enumerate(verdicts)
    ]
    assert text in said(*several).partition(";")[0]


def everywhere(ratio: float, verdict: Verdict = "better", **within: str) -> list[Comparison]:
    """A question that pools all combinations of the factors that are not named."""
    return [replace(pair("ext4", "xfs", ratio, verdict), pooled=True, within=within)]


def test_what_is_pooled_over_some_combinations_is_not_said_of_all() -> None:
    alone = said(everywhere(1.4, bs="4k"))
    assert alone == "ext4 has the higher write bandwidth over the combinations with bs=4k together (1.40× xfs)."
    both = said(everywhere(1.4, bs="4k"), everywhere(1.2))
    assert "over the combinations with bs=4k together (1.40× xfs)" in both
    assert both.endswith("; ext4 has the higher write bandwidth (1.20× xfs).")
    assert said(everywhere(1.1, "undecided", bs="4k")) == (
        "Write bandwidth over the combinations with bs=4k together: no difference established yet."
    )


def test_what_is_pooled_over_all_combinations_stands_beside_those_in_single_ones() -> None:
    single = [[replace(pair("ext4", "xfs", 1.4), within={"bs": bs})] for bs in ("4k", "64k")]
    text = "ext4 has the higher write bandwidth over all combinations together and in both (1.20× xfs together)."
    assert said(everywhere(1.2), *single) == text


def test_loads_with_the_same_metric_are_told_apart() -> None:
    log, data = (replace(pair("ext4", "xfs", ratio), source=load, within={}) for load, ratio in (("a", 1.4), ("b", 2)))
    apart = "ext4 has the higher write bandwidth under a (1.40× xfs); ext4 has the higher write bandwidth under b ("
    assert said([log], [data]).startswith(apart)
    open_one = said([log], [replace(data, verdict="undecided")])
    assert open_one.endswith("(1.40× xfs); write bandwidth under b: no difference established yet.")
    alike = [[replace(load, verdict="equivalent")] for load in (log, data)]
    assert said(*alike).startswith("Write bandwidth under a of ext4 and xfs is equivalent within ±5 %; write")


def test_loads_that_are_levels_of_a_factor_need_no_other_name() -> None:
    loads = [[replace(pair("ext4", "xfs", 1.4), source=load, within={"load": load})] for load in ("read", "write")]
    assert said(*loads) == "ext4 has the higher write bandwidth in both combinations."


def test_values_of_one_load_of_several_are_not_told_as_those_of_all() -> None:
    one = Estimate(1, {}, "a", "write.iops", "IOPS", "higher", 1, 500, 500, None, None, None, None, 0.95)
    without = replace(SUMMARY, comparisons=())
    assert answer(without, [], [one, replace(one, source="b")]) == "write IOPS under a: 500 IOPS."
    assert answer(without, [], [one]) == "write IOPS: 500 IOPS."


def test_values_that_nothing_judges_are_told() -> None:
    def found(cache: str, mean: float) -> Estimate:
        levels = {"cache": cache, "bs": "4k"}
        return Estimate(1, levels, "load", "tps", "1/s", "higher", 1, mean, mean, None, None, None, None, 0.95)

    without = replace(SUMMARY, comparisons=())
    few = [found("none", 500.0), found("writeback", 900.0)]
    assert answer(without, [], few) == "tps: none 500/s, writeback 900/s; described, not judged.".replace(
        "none", "cache=none"
    )
    many = [found(f"c{number}", 100.0 * number) for number in range(1, 9)]
    assert answer(without, [], many) == "tps: from 100/s (c1) to 800/s (c8)."


def test_a_run_without_comparisons_says_what_was_done() -> None:
    assert answer(replace(SUMMARY, comparisons=()), [], []) == "Nothing was measured."
