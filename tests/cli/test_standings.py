"""What a run says of its comparisons after each round: a table on a terminal, a line for each new verdict elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from storlab.analysis.summary import Comparison, Summary, Undecided
from storlab.cli.standings import MOST, MOST_NEWS, News, table, tally

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


def test_the_table_marks_what_is_decided_and_says_what_is_measured_once() -> None:
    leaning = replace(BASE, b="btrfs", verdict="undecided", undecided=Undecided("leaning", 8, 10))
    open_ = replace(BASE, a="xfs", b="btrfs", verdict="undecided", low=None, high=None)
    assert drawn(summary(BASE, leaning, open_)) == [
        "write.bandwidth: write  ▲ ext4 vs xfs    1.42× (1.31× to 1.54×)  better",
        "                        ? ext4 vs btrfs  1.42× (1.31× to 1.54×)  leaning",
        "                        ? xfs vs btrfs   1.42×",
    ]
    assert tally(summary(BASE, leaning, open_)) == "1 of 3 decided"


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


def test_a_line_names_verdicts_that_are_new_before_ratios_that_are_and_nothing_twice() -> None:
    news = News()
    open_ = replace(BASE, verdict="undecided", low=None, high=None)
    other = replace(open_, b="btrfs", ratio=2.32)

    def said(*comparisons: Comparison) -> str:
        return news.of(summary(*comparisons))

    assert said(open_, other) == "write.bandwidth: write: ext4 ÷ xfs 1.42×; ext4 ÷ btrfs 2.32×"
    assert said(open_, other) == ""
    assert said(replace(open_, ratio=1.5), better := replace(other, verdict="better", low=2.1, high=2.5)) == (
        "write.bandwidth: write: ext4 better than btrfs, 2.32× (2.10× to 2.50×); ext4 ÷ xfs 1.50×"
    )
    assert said(replace(open_, ratio=1.5), replace(better, ratio=2.4)) == ""  # decided: other digits are no news
    assert said(other) == "write.bandwidth: write: ext4 and btrfs no longer decided, 2.32×"


def test_of_much_news_a_line_names_the_first_and_counts_the_rest() -> None:
    many = [replace(BASE, b=f"fs{number}") for number in range(MOST_NEWS + 3)]
    line = News().of(summary(*many))
    assert (line.count("better than"), line.endswith(" | and 3 more")) == (MOST_NEWS, True)
