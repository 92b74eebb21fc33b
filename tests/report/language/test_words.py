"""The sentences: whoever reads only them knows the verdict, how sure it is, and what is missing."""

from dataclasses import replace
from typing import Any

import pytest

from storlab.analysis.summary import CellState, Comparison, Estimate, Summary, Undecided, UndecidedKind, Verdict
from storlab.findings import OnNode, Reported
from storlab.findings.rounds import Emulated
from storlab.findings.runs import BegunAgain
from storlab.report.language import words
from storlab.report.language.say import once
from storlab.report.model.answer import answer, not_compared, overview
from storlab.report.model.questions import ahead, ordered_comparisons, questions_of, title_of

from ..shown import lines, question, tables

BASE = Comparison(
    factor="fs", a="ext4", b="xfs", within={"load": "write"}, pooled=False, source="write", metric="write.bandwidth",
    unit="B/s", better="higher", rounds=8, ratio=1.42, low=1.31, high=1.54, confidence=0.99, margin=0.05,
    verdict="better", reason=Reported("ext4 is higher than xfs in 8 of 8 rounds"),
)  # fmt: skip


def _pair(a: str, b: str, verdict: Verdict) -> Comparison:
    return replace(BASE, a=a, b=b, verdict=verdict)


@pytest.mark.parametrize(
    ("comparison", "sentence"),
    [
        (BASE, "ext4 is better than xfs: 1.42× (1.31× to 1.54×, 8 rounds)."),
        (replace(BASE, verdict="worse", ratio=0.7, low=0.6, high=0.8, rounds=1),
         "ext4 is worse than xfs: 0.70× (0.60× to 0.80×, 1 round)."),
        (replace(BASE, verdict="equivalent", ratio=1.01, low=0.97, high=1.04),
         "ext4 and xfs are equivalent within ±5 %: 1.01× (0.97× to 1.04×, 8 rounds)."),
        (
            replace(BASE, verdict="undecided", rounds_to_decide=1),
            "ext4 against xfs is undecided: 1.42× (1.31× to 1.54×, 8 rounds). "
            "About 1 more round would be needed to decide.",
        ),
        (
            replace(BASE, verdict="undecided", low=None, high=None, reason=Reported("")),
            "ext4 against xfs is undecided: 1.42× (no interval yet, 8 rounds). "
            "How many more rounds it needs is not yet estimable.",
        ),
        (replace(BASE, verdict="undecided", ratio=None, reason=Reported("xfs is unsupported: no mkfs.xfs")),
         "ext4 against xfs cannot be compared: xfs is unsupported: no mkfs.xfs."),
    ],
)  # fmt: skip
def test_a_verdict_in_one_sentence(comparison: Comparison, sentence: str) -> None:
    assert words.sentence(comparison) == sentence


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        ("leaning", {}, "Leaning: better in 7 of 8 rounds, which is not enough yet. About 6 more rounds would"),
        ("leaning", {"ratio": 0.7}, "Leaning: worse in 7 of 8 rounds, "),
        ("leaning", {"better": "lower"}, "Leaning: worse in 7 of 8 rounds, "),
        ("leaning", {"better": "neither"}, "Leaning: higher in 7 of 8 rounds, "),
        ("leaning", {"better": "neither", "ratio": 0.7}, "Leaning: lower in 7 of 8 rounds, "),
        ("too few rounds", {}, "Too few rounds to decide anything: a verdict takes at least 9. About 6 more"),
        ("no evidence", {}, "No evidence of a difference yet. About 6 more rounds would be needed to decide."),
    ],
)
def test_what_is_undecided_is_called_so_first(kind: UndecidedKind, changed: dict[str, Any], said: str) -> None:
    comparison = replace(BASE, verdict="undecided", rounds_to_decide=6, undecided=Undecided(kind, 7, 9), **changed)
    sentence = words.sentence(comparison)
    assert sentence.startswith("ext4 against xfs is undecided: ") and said in sentence
    assert words.tally([comparison]) == f"1 undecided{' (1 leaning)' if kind == 'leaning' else ''}"


_SIGNS: dict[str, Verdict] = {">": "better", "<": "worse", "=": "equivalent", "?": "undecided"}


@pytest.mark.parametrize(
    ("pairs", "lead"),
    [
        ("a>b", ""), ("a>b a>c b?c", "a is better than b and c."), ("a<b a>c b>c", "b is better than a and c."),
        ("a?b b?c", "No difference established yet."), ("a=b a=c b=c", "a, b and c are equivalent."),
        ("a=b b=c", "All pairs that were compared are equivalent; not every pair was compared."),
        ("a=b a>c b>c", "a and b are better than c."), ("a>b b?c d>c", "a is better than b; d is better than c."),
        ("a>b c>d e>f", "The first of each pair is better."),
        ("a>b c>d e>f g?h", "Of 4 pairs, the first is better in 3 and undecided in 1."),
        ("a>b c>d e>d e>f", "No single best: nothing beats a or c or e."),
    ],
)  # fmt: skip
def test_the_lead_names_a_winner_only_where_there_is_one(pairs: str, lead: str) -> None:
    assert words.lead([_pair(pair[0], pair[2], _SIGNS[pair[1]]) for pair in pairs.split()]) == lead


def test_numbers_and_reasons_of_what_cannot_be_compared_are_told_once() -> None:
    pairs = [
        replace(_pair(a, b, "undecided"), ratio=None, reason=Reported("no trial"))
        for a, b in (("1", "16"), ("4k", "16"))
    ]
    assert words.not_compared(pairs) == "fs=1 against fs=16 and 4k against fs=16 cannot be compared: no trial."
    reason = "zfs is unsupported: no module"
    missing = [
        replace(BASE, b="zfs", ratio=None, reason=Reported(reason)),
        replace(BASE, a="xfs", b="zfs", ratio=None, reason=Reported(reason)),
    ]
    assert not_compared([BASE, *missing]) == [
        "ext4 against zfs and xfs against zfs cannot be compared: zfs is unsupported: no module."
    ]
    reason = "There is no completed trial of xfs."
    lacking = [replace(BASE, ratio=None, reason=Reported(reason), within={"bs": bs}) for bs in ("4k", "8k")]
    assert not_compared([BASE, *lacking, replace(lacking[0], pooled=True, within={})]) == [
        f"ext4 against xfs cannot be compared (bs=4k; bs=8k; all combinations pooled): {reason}"
    ]
    assert not_compared(lacking) == ["ext4 against xfs cannot be compared: There is no completed trial of xfs."]
    summary = Summary("t", "bandwidth", 0.95, 8, None, comparisons=(BASE, *missing))
    assert ordered_comparisons(summary) == [BASE]
    assert overview(summary) == "8 rounds done; 3 comparisons: 1 better or worse, 2 missing."


def test_what_is_described_has_a_mark_of_its_own_wherever_it_is_shown() -> None:
    told = replace(BASE, verdict="undecided", described=Emulated(), settled=True)
    group = question(told)
    assert tables(group.blocks)[0].rows[0][-1].startswith("~ 1.42×")
    assert (
        lines(group.blocks)[0]
        == "~ ext4 against xfs: Described, not judged: guests are emulated, and rates there are the emulator's."
    )
    undecided = replace(_pair("a", "b", "undecided"), rounds_to_decide=None)
    assert words.more_rounds(undecided) == "How many more rounds it needs is not yet estimable."
    assert words.more_rounds(replace(undecided, settled=True)) == "More rounds would not decide it."


@pytest.mark.parametrize(
    ("a", "b", "heading"),
    [("8", "16", "write.bandwidth: write, by fs"), ("on", "zfs", "write.bandwidth: write, by fs"), ("4k", "16k", "")],
)
def test_levels_that_say_little_by_themselves_stand_under_their_factors_name(a: str, b: str, heading: str) -> None:
    found = title_of([replace(_pair(a, b, "better"), within={"load": "write"})])
    assert found == (heading or "write.bandwidth: write")


def test_pooled_verdicts_come_first_in_an_overview_that_says_why_the_run_ended() -> None:
    pooled = replace(BASE, pooled=True, within={})
    groups = questions_of(Summary("t", "bandwidth", 0.95, 8, None, comparisons=(BASE, pooled)))
    assert list(map(title_of, groups)) == ["write.bandwidth: write, all combinations pooled", "write.bandwidth: write"]
    cells = (CellState(1, {"fs": "a"}, "measured", 5), CellState(2, {"fs": "b"}, "unsupported", 0))
    summary = Summary("t", "bandwidth", 0.95, 1, Reported("The precision was reached"), cells=cells)
    assert overview(summary) == "1 round done; 1 of 2 cells measured; no comparisons. The precision was reached."
    summary = Summary("t", "bandwidth", 0.95, 8, None, comparisons=(BASE,))
    assert words.certainty(summary) == (
        "Ranges in parentheses are intervals at 99 %, as much as each verdict needs, so that all verdicts together "
        "hold at 95 %."
    )
    among = replace(summary, comparisons=(BASE, replace(BASE, confidence=0.9)))
    assert "intervals at 90 % to 99 %, as" in words.certainty(among)
    assert words.certainty(replace(summary, comparisons=())) == ""
    assert words.certainty(replace(summary, confidence=0.99)) == "Ranges in parentheses are 99 % intervals."


def test_what_is_true_of_many_nodes_is_said_once_with_all_counts() -> None:
    many = [OnNode("fio", f"vm-{at}", Reported("it was cut short")) for at in range(1, 21)]
    odd = [OnNode("b", "vm", Reported("it is odd")), Reported("Nothing else"), OnNode("a", "vm", Reported("it is odd"))]
    assert once([*many, *odd]) == [
        "fio on vm-1, fio on vm-2, fio on vm-3 and 17 more: it was cut short", "b on vm and a on vm: it is odd",
        "Nothing else",
    ]  # fmt: skip
    lead = "transactions that were restarted after a deadlock or a conflict, as every client has to do"
    counts = [OnNode(name, "vm", BegunAgain((n,))) for name, n in (("a", (7, 1391)), ("b", (2, 9)), ("a", (3, 1200)))]
    assert once(counts) == [f"a on vm: {lead}: 7 of 1391 and 3 of 1200", f"b on vm: {lead}: 2 of 9"]
    (said,) = once(OnNode("a", "vm", BegunAgain(((n, 100),))) for n in range(1, 32))
    assert said == f"a on vm: {lead}: 1 of 100, 2 of 100, 3 of 100 and 28 more"


SUMMARY = Summary("t", "", 0.95, 8, None, comparisons=(BASE,))


def said(*questions: list[Comparison]) -> str:
    return answer(SUMMARY, [list(map(ahead, each)) for each in questions], [])


def decided(a: str, b: str, ratio: float, verdict: Verdict = "better") -> Comparison:
    return replace(BASE, a=a, b=b, ratio=ratio, low=ratio * 0.98, high=ratio * 1.02, verdict=verdict)


def test_the_better_of_two_is_named_with_its_ratio() -> None:
    assert said([decided("ext4", "xfs", 1.43)]) == "ext4 has the higher write bandwidth (1.43× xfs)."
    near = replace(decided("ext4", "xfs", 1.003), low=1.001, high=1.005)
    assert said([near]) == "ext4 has the higher write bandwidth (1.0030× xfs)."
    less = replace(decided("ext4", "xfs", 5.0, "worse"), better="lower", metric="write.amplification")
    assert said([less]) == "xfs has the lower write amplification (ext4 5.00×)."
    assert said(
        [decided("a", "b", 1.0, "equivalent")]
    ) == "write bandwidth of a and b is equivalent within ±5 %.".replace("w", "W", 1)


def test_a_level_is_the_best_only_where_it_beats_every_other_and_what_is_open_is_called_so() -> None:
    whole = [decided("a", "b", 1.5), decided("a", "c", 2.0), decided("b", "c", 1.3, "undecided")]
    assert said(whole).startswith("a has the highest write bandwidth (1.50× b, 2.00× c)")
    part = [decided("a", "b", 1.5, "undecided"), decided("a", "c", 2.0), decided("b", "c", 1.3)]
    assert said(part) == "Write bandwidth: a and b are better than c."
    question = [replace(each, better="lower", metric="bytes_written.per-transaction") for each in (
        decided("new", "old", 0.5), decided("left", "right", 0.72)
    )]  # fmt: skip
    text = "Bytes written per transaction: old 2.00× new, right 1.39× left (lower is better)."
    assert said(question) == text
    reads = replace(decided("ext4", "xfs", 1.1, "undecided"), metric="read.iops")
    text = said([reads], [decided("ext4", "xfs", 1.43)])
    assert text == "ext4 has the higher write bandwidth (1.43× xfs); read IOPS: no difference established yet."


@pytest.mark.parametrize(
    ("pairs", "text"),
    [(("ab", "ac", "bc"), "Write bandwidth of a, b and c is equivalent within ±5 %."),
     (("ab", "bc"), "Write bandwidth: a and c are each equivalent to b within ±5 %."),
     (("ab", "cd"), "Write bandwidth: a is equivalent to b, and c to d, within ±5 %."),
     (("ab", "ac", "de"), "Write bandwidth: a is equivalent to b and c, and d to e, within ±5 %.")],
)  # fmt: skip
def test_several_levels_that_are_equivalent_are_one_statement(pairs: tuple[str, ...], text: str) -> None:
    assert said([decided(both[0], both[1], 1.0, "equivalent") for both in pairs]) == text


@pytest.mark.parametrize(("wins", "text"), [(2, "in both combinations"), (1, "with load=0")])
def test_places_are_counted_among_all_of_the_metric(wins: int, text: str) -> None:
    verdicts: list[Verdict] = ["better" if number < wins else "undecided" for number in range(2)]
    several = [
        [replace(decided("a", "b", 1.5, verdict), within={"load": str(number)})]
        for number, verdict in enumerate(verdicts)
    ]
    assert text in said(*several).partition(";")[0]


def everywhere(ratio: float, verdict: Verdict = "better", **within: str) -> list[Comparison]:
    """A question that pools all combinations of the factors that are not named."""
    return [replace(decided("ext4", "xfs", ratio, verdict), pooled=True, within=within)]


def test_what_is_pooled_over_some_combinations_is_not_said_of_all() -> None:
    alone = said(everywhere(1.4, bs="4k"))
    assert alone == "ext4 has the higher write bandwidth over the combinations with bs=4k together (1.40× xfs)."
    both = said(everywhere(1.4, bs="4k"), everywhere(1.2))
    assert "over the combinations with bs=4k together (1.40× xfs)" in both
    assert both.endswith("; ext4 has the higher write bandwidth (1.20× xfs).")
    assert said(everywhere(1.1, "undecided", bs="4k")) == (
        "Write bandwidth over the combinations with bs=4k together: no difference established yet."
    )
    single = [[replace(decided("ext4", "xfs", 1.4), within={"bs": bs})] for bs in ("4k", "64k")]
    text = "ext4 has the higher write bandwidth over all combinations together and in both (1.20× xfs together)."
    assert said(everywhere(1.2), *single) == text


def test_loads_with_the_same_metric_are_told_apart_unless_they_are_levels() -> None:
    log, data = (
        replace(decided("ext4", "xfs", ratio), source=load, within={}) for load, ratio in (("a", 1.4), ("b", 2))
    )
    apart = "ext4 has the higher write bandwidth under a (1.40× xfs); ext4 has the higher write bandwidth under b ("
    assert said([log], [data]).startswith(apart)
    open_one = said([log], [replace(data, verdict="undecided")])
    assert open_one.endswith("(1.40× xfs); write bandwidth under b: no difference established yet.")
    alike = [[replace(load, verdict="equivalent")] for load in (log, data)]
    assert said(*alike).startswith("Write bandwidth under a of ext4 and xfs is equivalent within ±5 %; write")
    loads = [[replace(decided("ext4", "xfs", 1.4), source=load, within={"load": load})] for load in ("read", "write")]
    assert said(*loads) == "ext4 has the higher write bandwidth in both combinations."
    one = Estimate(1, {}, "a", "write.iops", "IOPS", "higher", 1, 500, 500, None, None, None, None, 0.95)
    without = replace(SUMMARY, comparisons=())
    assert answer(without, [], [one, replace(one, source="b")]) == "write IOPS under a: 500 IOPS."
    tail = replace(one, metric="write.latency.p99.9", unit="s", mean=0.25)
    assert answer(without, [], [tail]) == "write latency p99.9: 250 ms."
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
    assert answer(replace(SUMMARY, comparisons=()), [], []) == "Nothing was measured."
