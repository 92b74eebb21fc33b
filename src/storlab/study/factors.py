"""Factors and their levels, as a study file writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storlab.study.positions import Path
from storlab.units import size_text

Report = Callable[[Path, str], None]


@dataclass(frozen=True)
class Level:
    """One value of a factor. ``label`` names it in tables, ``origin`` is where it was written."""

    label: str
    value: Any
    origin: Path


@dataclass(frozen=True)
class Factor:
    """What varies, with its levels in the order in which they were written."""

    name: str
    levels: tuple[Level, ...]


def read_factors(raw: Mapping[str, Any], only: Mapping[str, Sequence[str]], report: Report) -> list[Factor]:
    """The study's factors, cut down to the levels of ``only``; problems go to ``report`` with their place."""
    factors = []
    for name, tree in raw.items():
        levels = _levels(name, tree, report)
        _refuse_twice(levels, report)
        if name in only:
            levels = [level for level in levels if level.label in only[name]]
        if levels:
            factors.append(Factor(name, tuple(levels)))
    return factors


def _levels(name: str, tree: Any, report: Report) -> list[Level]:
    path: Path = ("factors", name)
    if isinstance(tree, list):
        tree = {"levels": tree}
    if not isinstance(tree, dict) or not tree:
        report(path, "a factor is a table: levels = [...], or a name for each level")
        return []
    if "levels" not in tree:
        return [Level(label, value, (*path, label)) for label, value in tree.items()]
    if len(tree) > 1:
        report(path, "a factor has either levels = [...] or a name for each level, not both")
        return []
    if not isinstance(tree["levels"], list) or not tree["levels"]:
        report((*path, "levels"), "levels must be a list of one or more values")
        return []
    levels = []
    for index, value in enumerate(tree["levels"]):
        at = (*path, "levels", index)
        if isinstance(value, dict | list):
            report(at, f"a level that is a table or a list needs a name: write [factors.{name}] and NAME = …")
        else:
            levels.append(Level(_label(value), value, at))
    return levels


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return size_text(value) if isinstance(value, int) and value >= 4096 and value % 1024 == 0 else str(value)


def _refuse_twice(levels: Sequence[Level], report: Report) -> None:
    seen: dict[str, Level] = {}
    for level in levels:
        if level.label in seen:
            report(level.origin, f"the level {level.label!r} is there twice")
        elif any(level.value == other.value and type(level.value) is type(other.value) for other in seen.values()):
            twin = next(other for other in seen.values() if level.value == other.value)
            if not isinstance(level.value, str | int | float | bool):
                seen[level.label] = level
                continue  # two names for the same stack: an A/A comparison is a sound thing to ask for
            report(level.origin, f"the level {level.label!r} is the same as {twin.label!r}")
        seen[level.label] = level
