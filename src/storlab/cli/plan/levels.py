"""What the levels of each factor change, as a table for people and as data for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from storlab.grouping import few, grouped
from storlab.study.differences import LevelSettings, differences

if TYPE_CHECKING:
    from storlab.run.planning.plan import Plan

_MOST_LEVELS, _MOST_SETTINGS = 12, 6
_LONGEST = 48  # characters of one value


def levels_table(made: Plan) -> Table | None:
    """A row a level, or a factor where its levels are simply the values of a setting; ``None`` without factors."""
    rows = [row for levels in _by_factor(made) for row in _rows(levels)]
    if not rows:
        return None
    table = Table(box=None, pad_edge=False)
    table.add_column("factor", style="cyan")
    table.add_column("level")
    table.add_column("what it changes", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def levels_as_data(made: Plan) -> dict[str, dict[str, dict[str, str]]]:
    """Factor → level → settings."""
    return {levels[0].factor: {each.level: dict(each.settings) for each in levels} for levels in _by_factor(made)}


def _by_factor(made: Plan) -> list[list[LevelSettings]]:
    return list(grouped((each.factor, each) for each in differences(made.study.cells)).values())


def _rows(levels: Sequence[LevelSettings]) -> list[tuple[str, str, str]]:
    factor = levels[0].factor
    if all(each.settings and set(each.settings.values()) == {each.level} for each in levels):
        names = [each.level for each in levels]
        return [(factor, few(names, _MOST_LEVELS), ", ".join(levels[0].settings))]
    if not any(each.settings for each in levels):
        return [(factor, few([each.level for each in levels], _MOST_LEVELS), "nothing")]
    rows = [(factor if not at else "", each.level, _text(each)) for at, each in enumerate(levels[:_MOST_LEVELS])]
    more = len(levels) - _MOST_LEVELS
    return [*rows, ("", f"and {more} more", "--json has all")] if more > 0 else rows


def _text(level: LevelSettings) -> str:
    named = [f"{name} {_short(value)}" for name, value in list(level.settings.items())[:_MOST_SETTINGS]]
    more = len(level.settings) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])]) or "nothing"


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST or " → " in value else f"{value[: _LONGEST - 1]}…"
