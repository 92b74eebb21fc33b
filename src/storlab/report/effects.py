"""What each factor has to do with a metric, as tables: shares of its variation, and means of levels."""

from __future__ import annotations

from storlab.analysis.effects import Effects, Share
from storlab.analysis.summary import Summary
from storlab.report import format as fmt
from storlab.report import words
from storlab.report.tables import Notes, Table, heading

_OTHERS = {"others": "other interactions", "rounds": "rounds", "residual": "between trials of a cell"}
_CAPTION = "share of the variation of its logarithm"


def effect_tables(summary: Summary) -> list[Table]:
    """Two tables a metric of a source: shares, where there are any, and means of the levels of each factor."""
    return [table for found in summary.effects for table in _tables(found)]


def how_made(summary: Summary) -> list[str]:
    """One sentence for each way in which shares were made."""
    methods = dict.fromkeys(found.method for found in summary.effects if found.shares and found.method)
    return [f"Effects of factors: {method[0].lower()}{method[1:]}" for method in methods]


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
    notes = Notes()
    marked = notes.mark("", found.warnings).strip()
    tables = []
    if found.shares:
        rows = [[part_name(share), fmt.part(share.share)] for share in found.shares]
        rows[0][1] = f"{rows[0][1]} {marked}".strip()
        shares = Table(title(found), ("part", "share"), tuple((a, b) for a, b in rows), 1, _CAPTION, notes.sentences())
        tables.append(shares)
    if found.main:
        shown = fmt.common_scale([mean.mean for mean in found.main], found.unit)
        lines = [
            (factor, level, fmt.quantity(mean.mean, found.unit, within=shown))
            for mean in found.main
            for factor, level in mean.levels.items()
        ]
        caption = "geometric mean over all combinations with other factors"
        said = () if found.shares else tuple(words.stop(warning) for warning in found.warnings)
        tables.append(Table(f"{title(found)}, by level", ("factor", "level", "mean"), tuple(lines), 2, caption, said))
    return tables
