"""What each factor has to do with a metric, as tables: shares of its variation, and means of levels."""

from __future__ import annotations

from collections.abc import Iterator

from storlab.analysis.data import Effects, Share, interactions
from storlab.analysis.summary import Summary
from storlab.report.document import Table
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.methods import effects_method
from storlab.report.language.say import lowered, say
from storlab.report.model.tables import heading, noted

_OTHERS = {
    "others": "other interactions",
    "rounds": "rounds",
    "blocks": "boots and set-ups of a round",
    "residual": "between trials of a cell",
}
_STRONG = 0.01  # of the variation: what is weaker is hardly seen in means
_MOST = 2
_ELSEWHERE = "are in the charts of the HTML report and in CSV"
_CAPTION = "share of the variation of its logarithm"


def effect_tables(summary: Summary) -> list[Table]:
    """Two tables a metric of a source: shares, where there are any, and means of the levels of each factor."""
    return [table for found in summary.effects for table in _tables(found)]


def how_made(summary: Summary) -> list[str]:
    """One sentence for each way in which shares were made."""
    kinds = dict.fromkeys(found.blocks for found in summary.effects if found.shares and found.blocks is not None)
    return [f"Effects of factors: {lowered(effects_method(blocks))}" for blocks in kinds]


def title(found: Effects) -> str:
    """The metric and where it was measured."""
    return heading(found.metric, found.source, found.within)


def part_name(share: Share) -> str:
    """ "fs", "fs × bs", "rounds"."""
    return " × ".join(share.factors) or _OTHERS[share.part]


def in_words(found: Effects) -> str:
    """The shares in one sentence, largest first."""
    ordered = sorted(found.shares, key=lambda share: -share.share)
    return ", ".join(f"{part_name(share)} {fmt.part(share.share)}" for share in ordered)


def _tables(found: Effects) -> list[Table]:
    tables = []
    if found.shares:
        rows = [(part_name(share), fmt.part(share.share)) for share in found.shares]
        rows[0] = (rows[0][0], noted(rows[0][1], found.warnings))
        tables.append(Table(title(found), ("part", "share"), tuple(rows), 1, _CAPTION))
    if found.main:
        shown = fmt.common_scale([mean.mean for mean in found.main], found.unit)
        lines = [
            (factor, level, fmt.quantity(mean.mean, found.unit, within=shown))
            for mean in found.main
            for factor, level in mean.levels.items()
        ]
        caption = "geometric mean over all combinations with other factors"
        below = () if found.shares else tuple(words.stop(say(warning)) for warning in found.warnings)
        tables.append(
            Table(f"{title(found)}, by level", ("factor", "level", "mean"), tuple(lines), 2, caption, more=below)
        )
    return [*tables, *_interactions(found)]


def _interactions(found: Effects) -> Iterator[Table]:
    """The strongest of two factors: means, and how many times that of the first column each is."""
    strong = interactions(found, _STRONG)
    shown, weaker = strong[:_MOST], len(strong) - _MOST
    for each in shown:
        unit = fmt.common_scale([mean for row in each.means for mean in row if mean is not None], found.unit)
        rows = tuple(
            (level, *(_mean(*cell, found.unit, unit) for cell in zip(means, (None, *ratios[1:]), strict=True)))
            for level, means, ratios in zip(each.rows, each.means, each.ratios, strict=True)
        )
        left = [f"Weaker ones ({weaker}) {_ELSEWHERE}"] if weaker > 0 and each is shown[-1] else []
        same = f"means by {each.across}, and times {each.columns[0]}: the same in every row if they don't interact"
        named, caption = f"{title(found)}, {each.down} × {each.across}", noted(same, left)
        yield Table(named, (each.down, *each.columns), rows, 1, caption, divisible=True)


def _mean(mean: float | None, ratio: float | None, unit: str, within: fmt.Scale | None) -> str:
    """ "412 MiB/s (1.31×)"; without a ratio in the first column, as it is what the others are times of."""
    shown = "none" if mean is None else fmt.quantity(mean, unit, within=within)
    return shown if ratio is None else f"{shown} ({fmt.ratio(ratio)})"
