"""Chapters that some runs have: why, claims, conformance, what power cuts left, effects of factors, packets."""

import csv
import html
import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from storlab.analysis.data import Claim, Effects, Expected, LevelMean, Share
from storlab.analysis.summary import Comparison, Difference, Summary, Underneath
from storlab.findings import Reported
from storlab.findings.answers import ClaimAnswer, ClaimUnanswered
from storlab.findings.rounds import TooFewRounds
from storlab.report.charts.theme import to_svg
from storlab.report.formats import render
from storlab.report.model.chapters import claim_lines, power_cut_tables
from storlab.report.model.conformance import conformance_tables, worst
from storlab.report.model.factors import effect_tables, in_words
from storlab.report.model.input import Packets, PowerCuts, ReportInput
from storlab.report.model.why import best_lines, details, nothing_differs, sentence

from ..shown import drawn, kind, lines, rows, section, text_of
from ..vm_sample import GUESTS, ROUNDS, vm_sample

HOLDS = Claim(
    name="A storm of ACKs: iSCSI takes more than twice as many.", said_by="a blog", verdict="holds",
    reason=ClaimAnswer("above", 2.0), metric="acks.per-request", source="probe:tcp", unit="1",
    left={"transport": "iscsi"}, right={"transport": "nvme"}, expected=Expected("more", 2.0),
    rounds=6, value=11.8, low=11.2,
    high=12.4, confidence=0.98,
)  # fmt: skip
VALUE = replace(
    HOLDS, name="Every two segments", verdict="does not hold", metric="acks.sent.mss", right={},
    expected=Expected("between", low=1.8, high=2.2), value=20.0, low=19.0, high=21.0, said_by="",
)  # fmt: skip
ABSENT = replace(
    HOLDS, name="SACK", verdict="missing", reason=ClaimUnanswered("absent", ("sack=false",)), value=None,
    low=None, high=None,
)  # fmt: skip
OPEN = replace(
    HOLDS, name="<b>open</b> | x", verdict="undecided", reason=TooFewRounds(3, 5, "claim"), low=None, high=None
)
ALL = (HOLDS, VALUE, ABSENT, OPEN)


def claimed(*claims: Claim) -> ReportInput:
    return ReportInput(Summary("t", "acks", 0.95, 6, None, claims=claims))


def test_a_claims_line_has_answer_figure_and_reason_and_what_both_sides_share_behind() -> None:
    said = [line.text for line in claim_lines(claimed(*ALL).summary)]
    assert said == [
        "A storm of ACKs: iSCSI takes more than twice as many: holds. acks.per-request, iscsi ÷ nvme: 11.8× "
        "(11.2× to 12.4×, 6 rounds); claimed: more than 2×. The evidence puts the ratio above 2.",
        "Every two segments: does not hold. acks.sent.mss, transport=iscsi: 20.0 (19.0 to 21.0, 6 rounds); "
        "claimed: from 1.8 to 2.2. The evidence puts the ratio above 2.",
        "SACK: missing. acks.per-request, iscsi ÷ nvme; claimed: more than 2×. This run has no sack=false.",
        "<b>open</b> | x: undecided. acks.per-request, iscsi ÷ nvme: 11.8× (no interval yet, 6 rounds); "
        "claimed: more than 2×. 3 rounds of at least 5.",
    ]
    claim = replace(HOLDS, left={"t": "nbd", "sack": "true"}, right={"t": "nbd", "sack": "false"})
    assert "sack=true ÷ sack=false with t=nbd" in claim_lines(claimed(claim).summary)[0].text


def test_programs_have_every_field_of_claims() -> None:
    first = json.loads(render(claimed(*ALL), "json"))["claims"][0]
    assert (first["verdict"], first["value"], first["confidence"]) == ("holds", 11.8, 0.98)
    rows = [row for row in csv.DictReader(render(claimed(*ALL), "csv").splitlines()) if row["kind"] == "claim"]
    storm, value, absent, _ = rows
    assert (storm["factor"], storm["a"], storm["b"], storm["ratio"]) == ("transport", "iscsi", "nvme", "11.8")
    assert (storm["verdict"], storm["part"], storm["confidence"]) == ("holds", "more than 2×", "0.98")
    assert (storm["reason"], storm["warnings"]) == (HOLDS.name, "The evidence puts the ratio above 2.")
    assert (value["factor.transport"], value["value"], value["ratio"], value["factor"]) == ("iscsi", "20.0", "", "")
    assert (absent["verdict"], absent["ratio"]) == ("missing", "")


@pytest.fixture(scope="module")
def checked() -> ReportInput:
    return vm_sample()


def test_checks_have_a_line_each_with_the_worst_outcome_and_what_passed_everywhere_in_one(checked: ReportInput) -> None:
    (table,) = conformance_tables(checked)
    assert [row[0] for row in table.rows] == ["fsync", "birth-time", "flock"]
    flock = dict(zip(table.columns, table.rows[2], strict=True))
    flock = dict(zip(table.columns, rows(table)[2], strict=True))
    assert flock["raw, 4k"] == f"✗ fail (1 of {ROUNDS * len(GUESTS)}) [2]" and flock["raw, bs=512"] == "✓ pass"
    assert table.notes[1].startswith("flock(LOCK_EX) beside LOCK_SH succeeds")
    (table,) = conformance_tables(replace(checked, checks=checked.checks.filter(check="birth-time")))
    assert table.columns == ("check", "zvol", "zvol-async", "zfs-file", "raw", "qcow2")
    assert rows(table)[0][1:3] == ("− unsupported [1]",) * 2
    (table,) = conformance_tables(checked, brief=True)
    assert [row[0] for row in table.rows] == ["birth-time", "flock", "1 other check"]
    found = worst([("pass", "a remark"), ("fail", "b"), ("unsupported", "c"), ("fail", "b")])
    assert (found.outcome, found.count, found.times, found.reasons) == ("fail", 2, 4, ("b",))


def test_json_and_csv_have_each_check_of_each_cell(checked: ReportInput) -> None:
    entries = json.loads(render(checked, "json"))["facts"]["checks"]
    rows = [row for row in csv.DictReader(io.StringIO(render(checked, "csv"))) if row["kind"] == "check"]
    assert len(entries) == len(rows) == 3 * 10
    (failed,) = (entry for entry in entries if entry["outcome"] == "fail")
    assert (failed["check"], failed["count"], failed["times"]) == ("flock", 1, ROUNDS * len(GUESTS))
    (row,) = (row for row in rows if row["verdict"] == "fail")
    assert (row["metric"], row["factor.backing"], row["value"]) == ("flock", "raw", "1")


CUTS = (
    PowerCuts(1, {"fs": "xfs"}, moments=30, at_risk=21, interval=(0.0, 0.1157)),
    PowerCuts(
        2, {"fs": "ext4"}, moments=30, at_risk=29, broken=27, kinds={"lost": 25, "torn": 2}, interval=(0.735, 0.979),
        notes=("first at moment 2: commit 7 is <lost>",),
    ),
    PowerCuts(3, {"fs": "btrfs"}, why="a control failed: cuts that lose nothing that was completed recover"),
)  # fmt: skip


def test_each_set_up_has_a_line_with_its_interval() -> None:
    (table,) = power_cut_tables(CUTS)
    assert table.columns == ("fs", "moments that broke it", "95 % interval", "at risk")
    assert rows(table) == [
        ("xfs", "0 of 30", "0.0 % to 12 %", "21"),
        ("ext4", "27 of 30: 25 lost, 2 torn [1]", "74 % to 98 %", "29"),
        ("btrfs", "no result [2]", "", ""),
    ]
    assert table.notes == (
        "first at moment 2: commit 7 is <lost>.",
        "a control failed: cuts that lose nothing that was completed recover.",
    )


def test_programs_get_it_as_numbers() -> None:
    first, _, last = json.loads(render(replace(claimed(), power_cuts=CUTS), "json"))["facts"]["power_cuts"]
    assert (first["moments"], first["broken"], first["interval"]) == (30, 0, [0.0, 0.1157])
    assert "control" in last["reason"] and "broken" not in last


EFFECTS = Effects(
    *("load", "bandwidth", "B/s", "higher", {"media": "ssd"}, ("fs", "bs"), 6, 24),
    shares=(
        Share("factor", ("fs",), 0.7, 1), Share("factor", ("bs",), 0.2, 1), Share("interaction", ("fs", "bs"), 0.0, 1),
        Share("rounds", (), 0.02, 5), Share("residual", (), 0.08, 15),
    ),
    main=tuple(LevelMean({f: f"{f}{n}"}, 2.0**20 * (n + 1)) for f in ("fs", "bs") for n in range(2)),
    pairs=tuple(LevelMean({"fs": f"fs{a}", "bs": f"bs{b}"}, 2.0**20 * (1 + a + b)) for a in range(2) for b in range(2)),
    blocks=False,
    warnings=(Reported("Only 3 rounds"),),
)  # fmt: skip


def with_effects(found: Effects) -> ReportInput:
    return ReportInput(Summary("t", "bandwidth", 0.95, 6, None, effects=(found,)))


def test_shares_and_means_are_tables_with_their_warnings_and_the_largest_first() -> None:
    shares, means = effect_tables(with_effects(EFFECTS).summary)
    assert shares.title == "bandwidth: load, media=ssd" and rows(shares)[0] == ("fs", "70 % [1]")
    assert [row[0] for row in shares.rows[2:]] == ["fs × bs", "rounds", "between trials of a cell"]
    assert shares.notes == ("Only 3 rounds.",)
    assert means.rows[0] == ("fs", "fs0", "1024 KiB/s")
    (means,) = effect_tables(with_effects(replace(EFFECTS, shares=())).summary)
    assert means.notes == ("Only 3 rounds.",)
    assert in_words(EFFECTS).startswith("fs 70 %, bs 20 %, between trials of a cell 8")
    twice = replace(with_effects(EFFECTS).summary, method=None, effects=(EFFECTS, replace(EFFECTS, metric="iops")))
    assert lines(section(ReportInput(twice), "method").blocks) == [
        "Effects of factors: mixed model of logarithms: factors and interactions fixed, rounds random (REML)."
    ]


@pytest.mark.parametrize("spread", [1.0, 1.0001, 10.0, 1e6])
def test_main_effects_and_each_interaction_are_drawn(spread: float) -> None:
    wide = tuple(replace(mean, mean=mean.mean * spread**n) for n, mean in enumerate(EFFECTS.main))
    panels = [panel for panel in drawn(with_effects(replace(EFFECTS, main=wide))) if kind(panel) == "effects"]
    assert [panel.title for panel in panels] == ["Main effects", "fs × bs"]
    assert all(to_svg(panel.draw()).startswith("<svg") for panel in panels)
    assert "fs 70 %" in panels[0].alt


def test_csv_holds_every_share_and_every_mean_unrounded() -> None:
    rows = list(csv.DictReader(render(with_effects(EFFECTS), "csv").splitlines()))
    shares = [(row["part"], row["factor"], float(row["value"])) for row in rows if row["kind"] == "effect"]
    assert shares == [(share.part, " × ".join(share.factors), share.share) for share in EFFECTS.shares]
    means = [float(row["mean"]) for row in rows if row["kind"] == "level-mean"]
    assert means == [mean.mean for mean in (*EFFECTS.main, *EFFECTS.pairs)]
    assert {row["factor.media"] for row in rows} == {"ssd"}


INTERACTING = replace(
    EFFECTS,
    factors=("fs", "bs", "load"),
    shares=(
        Share("interaction", ("fs", "bs"), 0.02, 1), Share("interaction", ("fs", "load"), 0.2, 2),
        Share("interaction", ("bs", "load"), 0.1, 2), Share("residual", (), 0.68, 15),
    ),
    main=(*EFFECTS.main, *(LevelMean({"load": f"load{n}"}, 2.0**20) for n in range(3))),
    pairs=tuple(
        LevelMean({name: f"{name}{a}", "load": f"load{b}"}, 2.0**20 * (1 + a) * (1 + b * b))
        for name in ("fs", "bs")
        for a in range(2)
        for b in range(3)
        if (name, a, b) != ("bs", 1, 2)
    ),
)  # fmt: skip


def test_interactions_are_tables_of_means_unless_next_to_nothing() -> None:
    *_, strongest, next_ = effect_tables(with_effects(INTERACTING).summary)
    assert strongest.title == "bandwidth: load, media=ssd, load × fs"
    assert strongest.columns == ("load", "fs0", "fs1")
    assert strongest.rows[1] == ("load1", "2.00 MiB/s", "4.00 MiB/s (2.00×)")
    assert next_.rows[2] == ("load2", "5120 KiB/s", "none")
    assert next_.notes == ("Weaker ones (1) are in the charts of the HTML report and in CSV.",)
    assert strongest.notes == ()
    assert len(effect_tables(with_effects(EFFECTS).summary)) == 2
    weak = replace(INTERACTING, shares=(Share("interaction", ("fs", "load"), 0.004, 2),))
    assert len(effect_tables(with_effects(weak).summary)) == 2


def test_interactions_fit_the_terminal_and_text_and_markdown_have_effects(golden: Callable[[str, str], None]) -> None:
    golden("interactions-80.txt", text_of(with_effects(INTERACTING), width=80))
    for width in (80, 120):
        assert max(map(len, text_of(with_effects(INTERACTING), width=width).split("\n"))) <= width
    assert "## Effects of factors" in render(with_effects(EFFECTS), "md")
    assert "Effects of factors" in text_of(with_effects(EFFECTS))


PACKETS = Packets(
    {}, "server",
    ("00:00:00.000001 10.0.0.2.10809 > 10.0.0.3.40000: ack 1449", "00:00:00.000002 10.0.0.3.40000: ack 2897"),
    "trials/0001/server/probe-tcp/packets.pcap",
)  # fmt: skip


@pytest.mark.parametrize("name", ["text", "md", "html", "adoc"])
def test_every_report_that_is_read_has_each_chapter_and_none_that_its_run_has_not(
    checked: ReportInput, name: str
) -> None:
    summary = replace(checked.summary, comparisons=(), claims=ALL, effects=(INTERACTING,))
    run = replace(checked, summary=summary, power_cuts=CUTS, packets=(PACKETS,))

    def shown(run: ReportInput) -> str:
        text = text_of(run, width=120, full=True) if name == "text" else render(run, name)
        return " ".join(html.unescape(text).replace("\\", "").split())

    brief, text = " ".join(render(run, name).split()), shown(run)
    chapters = ("Claims", "Conformance", "After a power cut", *(("load × fs",) if name != "text" else ()))
    answers = ("holds", "does not hold", "missing", "undecided", "Source: a blog.")
    assert not [words for words in (*chapters, *answers, "statx gives no birth time", "0 of 30") if words not in brief]
    assert "<b>open</b>" not in brief or name in ("text", "adoc")
    assert all(line in text for line in (*PACKETS.lines, PACKETS.path, "Packets: server"))
    assert not [words for words in ("Claims", "Packets:") if words in shown(claimed())]


ACKS = Difference(
    source="probe:tcp", metric="acks", unit="1", per="operation", noun="ACKs", a=46.0, b=3.9, ratio=11.8, low=11.2,
    high=12.4, evidence=5.0, agreeing=8, moves="unclear",
)  # fmt: skip
COMPARISON = Comparison(
    factor="transport", a="iSCSI", b="NVMe/TCP", within={}, pooled=False, source="load", metric="read.bandwidth",
    unit="B/s", better="higher", rounds=8, ratio=0.5, low=0.4, high=0.6, confidence=0.95, margin=0.1, verdict="worse",
    reason=Reported("it is"),
)  # fmt: skip


def with_why(*differences: Difference, comparison: Comparison = COMPARISON, rounds: int = 8) -> Comparison:
    return replace(comparison, why=Underneath(rounds, 20, 6, 0.95, differences))


def said(d: Difference) -> str:
    return sentence(with_why(d), d)


def given(*comparisons: Comparison) -> ReportInput:
    return ReportInput(Summary("t", "read.bandwidth", 0.95, 8, None, comparisons=comparisons))


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
        (replace(ACKS, unit="s", noun="of waiting", a=46e-6, b=12e-6, longer=35e-6),
         "46.0 µs of waiting per operation, NVMe/TCP: 12.0 µs; an operation takes 35.0 µs longer with iSCSI"),
        (replace(ACKS, unit="s", noun="of waiting", per="byte", a=1 / 2**20, b=3 / 2**20, longer=2 / 2**20),
         "1.00 s of waiting per MiB, NVMe/TCP: 3.00 s; a MiB takes 2.00 s longer with NVMe/TCP"),
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


def test_little_of_a_report_has_the_surest_difference_and_all_of_it_every_one() -> None:
    many = [replace(ACKS, metric=f"m{number}", noun=f"things {number}") for number in range(5)]
    assert [line.split(" things ")[1][0] for line in best_lines(with_why(*many))] == ["0", "1", "2"]
    brief = text_of(given(with_why(*many)))
    assert "evidence, not a cause" in brief and "things 0" in brief and "things 1" not in brief
    assert all(
        "things 4" in text
        for text in (text_of(given(with_why(*many)), full=True), render(given(with_why(*many)), "md"))
    )


def test_nothing_that_differs_is_an_answer_and_what_is_undecided_has_a_place_in_the_chapter() -> None:
    text = " ".join(text_of(given(with_why()), full=True).split())
    assert "Nothing that was watched differs (20 metrics from underneath)." in text
    assert "surest difference" not in text
    few = Underneath(5, 20, 6, 0.95)
    assert (
        nothing_differs(few)
        == "Too few rounds to say why: none of the 20 metrics from underneath can be named before round 6."
    )
    undecided = with_why(ACKS, comparison=replace(COMPARISON, verdict="undecided"))
    assert best_lines(undecided) == ()
    assert "? iSCSI against NVMe/TCP is undecided." in lines(section(given(undecided), "why").blocks)
    assert "evidence, not a cause" not in render(given(undecided), "text")


@pytest.mark.parametrize("form", ["text", "md", "adoc", "html"])
def test_without_probes_there_is_no_such_chapter(form: str) -> None:
    text = render(given(COMPARISON), form)
    assert "differs" not in text and ">Why<" not in text and "# Why" not in text and "== Why" not in text


@pytest.mark.parametrize("form", ["md", "adoc", "html"])
def test_the_chapter_says_that_it_is_no_cause_and_how_sure_it_is(form: str) -> None:
    text = render(given(with_why(ACKS)), form)
    assert "This is evidence, not a cause:" in text
    assert "those named all differ, with a confidence of 95 % for each comparison on its own" in text
