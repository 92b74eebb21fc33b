"""What a run says of its comparisons after each round: a table on a terminal, a line for each new verdict elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from storlab.analysis.summary import Comparison, Summary, Undecided, Verdict
from storlab.cli.standings import MOST, News, table

BASE = Comparison(
    factor="fs", a="ext4", b="xfs", within={"load": "write"}, pooled=False, source="write", metric="write.bandwidth",
    unit="B/s", better="higher", rounds=8, ratio=1.42, low=1.31, high=1.54, confidence=0.99, margin=0.1,
    verdict="better", reason="",
)  # fmt: skip


def summary(*comparisons: Comparison) -> Summary:
    return Summary("A study", "write.bandwidth", 0.95, 8, "", comparisons=comparisons)


def drawn(of: Summary, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table(of))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_table_marks_what_is_decided_and_calls_the_rest_undecided() -> None:
    leaning = replace(BASE, b="btrfs", verdict="undecided", undecided=Undecided("leaning", 8, 10))
    open_ = replace(BASE, a="xfs", b="btrfs", verdict="undecided", low=None, high=None)
    assert drawn(summary(BASE, leaning, open_)) == [
        "▲ ext4 vs xfs    1.42× (1.31× to 1.54×)   better              write.bandwidth: …",
        "? ext4 vs btrfs  1.42× (1.31× to 1.54×)   undecided, leaning  write.bandwidth: …",
        "? xfs vs btrfs   1.42× (no interval yet)  undecided           write.bandwidth: …",
    ]


def test_of_many_comparisons_the_first_are_shown_and_the_others_counted() -> None:
    many = [replace(BASE, b=f"fs{number}") for number in range(MOST + 3)]
    assert len(drawn(summary(*many[:MOST]))) == MOST
    lines = drawn(summary(*many))
    assert (len(lines), lines[-1]) == (MOST + 1, "and 3 more")


def test_there_is_no_table_before_there_are_ratios() -> None:
    assert table(summary()) is None
    assert table(summary(replace(BASE, ratio=None, low=None, high=None, verdict="undecided"))) is None


def test_names_of_levels_give_no_orders_to_the_terminal() -> None:
    assert "\x1b" not in "".join(drawn(summary(replace(BASE, a="[red]\x1b[2J"))))


def test_a_verdict_is_news_once_and_so_is_its_loss() -> None:
    news = News()

    def said(verdict: Verdict) -> list[str]:
        return list(news.of(summary(replace(BASE, verdict=verdict))))

    assert said("undecided") == []
    assert said("better") == ["write.bandwidth: write: ext4 is better than xfs: 1.42× (1.31× to 1.54×, 8 rounds)."]
    assert said("better") == []
    (lost,) = said("undecided")
    assert "no longer decided: ext4 against xfs is undecided" in lost
    assert len(said("better")) == 1
