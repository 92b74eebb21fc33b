"""Effects of factors in a report: tables and charts of what the summary holds."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace

import pytest

from storlab.analysis.effects.data import Effects, LevelMean, Share
from storlab.analysis.summary import Summary
from storlab.report.charts.all import all_panels
from storlab.report.charts.theme import to_svg
from storlab.report.formats import render
from storlab.report.formats.markdown import render_markdown
from storlab.report.formats.terminal import render_text
from storlab.report.model.effects import effect_tables, in_words
from storlab.report.model.input import ReportInput
from storlab.report.model.view import View

FOUND = Effects(
    *("load", "bandwidth", "B/s", "higher", {"media": "ssd"}, ("fs", "bs"), 6, 24),
    shares=(
        Share("factor", ("fs",), 0.7, 1),
        Share("factor", ("bs",), 0.2, 1),
        Share("interaction", ("fs", "bs"), 0.0, 1),
        Share("rounds", (), 0.02, 5),
        Share("residual", (), 0.08, 15),
    ),
    main=tuple(LevelMean({f: f"{f}{n}"}, 2.0**20 * (n + 1)) for f in ("fs", "bs") for n in range(2)),
    pairs=tuple(LevelMean({"fs": f"fs{a}", "bs": f"bs{b}"}, 2.0**20 * (1 + a + b)) for a in range(2) for b in range(2)),
    method="A model.",
    warnings=("Only 3 rounds",),
)


def given(found: Effects) -> ReportInput:
    return ReportInput(Summary("t", "bandwidth", 0.95, 6, "Done.", effects=(found,)))


def test_shares_and_means_are_tables_with_their_warnings() -> None:
    shares, means = effect_tables(given(FOUND).summary)
    assert shares.title == "bandwidth: load, media=ssd"
    assert shares.rows[0] == ("fs", "70 % [1]")
    assert [row[0] for row in shares.rows[2:]] == ["fs × bs", "rounds", "between trials of a cell"]
    assert shares.notes == ("Only 3 rounds.",)
    assert means.rows[0] == ("fs", "fs0", "1024 KiB/s")


def test_without_shares_the_means_say_why() -> None:
    (means,) = effect_tables(given(replace(FOUND, shares=())).summary)
    assert means.notes == ("Only 3 rounds.",)


def test_the_largest_share_is_said_first() -> None:
    assert in_words(FOUND).startswith("fs 70 %, bs 20 %, between trials of a cell 8")


@pytest.mark.parametrize("spread", [1.0, 1.0001, 10.0, 1e6])
def test_main_effects_and_each_interaction_are_drawn(spread: float) -> None:
    wide = tuple(replace(mean, mean=mean.mean * spread**n) for n, mean in enumerate(FOUND.main))
    panels = [panel for panel in all_panels(given(replace(FOUND, main=wide))) if panel.kind == "effects"]
    assert [panel.title for panel in panels] == ["Main effects", "fs × bs"]
    assert all(to_svg(panel.draw()).startswith("<svg") for panel in panels)
    assert "fs 70 %" in panels[0].alt


def test_the_asciidoc_report(golden: Callable[[str, str], None]) -> None:
    golden("effects.adoc", render(given(FOUND), "adoc"))


def test_the_csv_report(golden: Callable[[str, str], None]) -> None:
    golden("effects.csv", render(given(FOUND), "csv"))


def test_csv_holds_every_share_and_every_mean_unrounded() -> None:
    rows = list(csv.DictReader(render(given(FOUND), "csv").splitlines()))
    shares = [(row["part"], row["factor"], float(row["value"])) for row in rows if row["kind"] == "effect"]
    assert shares == [(share.part, " × ".join(share.factors), share.share) for share in FOUND.shares]
    means = [float(row["mean"]) for row in rows if row["kind"] == "level-mean"]
    assert means == [mean.mean for mean in (*FOUND.main, *FOUND.pairs)]
    assert {row["factor.media"] for row in rows} == {"ssd"}


def test_the_method_says_how_shares_were_made_once() -> None:
    twice = replace(given(FOUND).summary, method="How.", effects=(FOUND, replace(FOUND, metric="iops")))
    assert View(ReportInput(twice)).method == "How. Effects of factors: a model."


INTERACTING = replace(
    FOUND,
    factors=("fs", "bs", "load"),
    shares=(
        Share("interaction", ("fs", "bs"), 0.02, 1),
        Share("interaction", ("fs", "load"), 0.2, 2),
        Share("interaction", ("bs", "load"), 0.1, 2),
        Share("residual", (), 0.68, 15),
    ),
    main=(*FOUND.main, *(LevelMean({"load": f"load{n}"}, 2.0**20) for n in range(3))),
    pairs=tuple(
        LevelMean({name: f"{name}{a}", "load": f"load{b}"}, 2.0**20 * (1 + a) * (1 + b * b))
        for name in ("fs", "bs")
        for a in range(2)
        for b in range(3)
        if (name, a, b) != ("bs", 1, 2)
    ),
)


def test_the_two_strongest_interactions_are_tables_of_means_with_ratios_along_each_row() -> None:
    *_, strongest, next_ = effect_tables(given(INTERACTING).summary)
    assert strongest.title == "bandwidth: load, media=ssd, load × fs"
    assert strongest.columns == ("load", "fs0", "fs1")
    assert strongest.rows[1] == ("load1", "2.00 MiB/s", "4.00 MiB/s (2.00×)")
    assert next_.rows[2] == ("load2", "5120 KiB/s", "none")
    assert next_.notes == ("Weaker ones (1) are in the charts of the HTML report and in CSV.",)
    assert strongest.notes == ()


def test_an_interaction_that_is_next_to_nothing_is_no_table() -> None:
    assert len(effect_tables(given(FOUND).summary)) == 2
    weak = replace(INTERACTING, shares=(Share("interaction", ("fs", "load"), 0.004, 2),))
    assert len(effect_tables(given(weak).summary)) == 2


@pytest.mark.parametrize("format_name", ["md", "adoc", "html"])
def test_interactions_are_in_every_report_with_tables(format_name: str) -> None:
    assert "load × fs" in render(given(INTERACTING), format_name)


@pytest.mark.parametrize("width", [80, 120])
def test_interactions_fit_the_terminal(width: int, golden: Callable[[str, str], None]) -> None:
    text = render_text(given(INTERACTING), width=width)
    golden(f"interactions-{width}.txt", text)
    assert max(map(len, text.split("\n"))) <= width


def test_text_and_markdown_have_them() -> None:
    assert "## Effects of factors" in render_markdown(given(FOUND))
    assert "Effects of factors" in render_text(given(FOUND))
