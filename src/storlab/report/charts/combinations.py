"""Which cells share a chart: those that differ in one factor only, the one that the study compares."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storlab.analysis.summary import Summary
from storlab.report.primary import compared_factor
from storlab.report.tables import heading
from storlab.report.view import split_primary


@dataclass(frozen=True)
class Combination:
    """Cells of one primary metric under one load: level of the compared factor → cell."""

    source: str
    metric: str
    unit: str
    better: str
    within: tuple[tuple[str, str], ...]
    cells: Mapping[str, int]

    @property
    def title(self) -> str:
        """ "write.bandwidth: random-write, bs=4k"."""
        return heading(self.metric, self.source, dict(self.within))


def all_levels(summary: Summary, factor: str) -> list[str]:
    """Levels of ``factor`` in the study's order, measured or not: a level keeps its colour in every chart."""
    cells = [*(c.levels for c in summary.cells), *(e.levels for e in summary.estimates)]
    return list(dict.fromkeys(levels[factor] for levels in cells if factor in levels)) or ["all"]


def combinations(summary: Summary) -> list[Combination]:
    """Every primary metric under every load, in the study's order."""
    factor = compared_factor(summary)
    groups: dict[tuple[str, str, str, str, tuple[tuple[str, str], ...]], dict[str, int]] = {}
    for e in split_primary(summary)[0]:
        within = tuple((name, level) for name, level in e.levels.items() if name != factor)
        key = (e.source, e.metric, e.unit, e.better, within)
        groups.setdefault(key, {})[e.levels.get(factor, "all")] = e.cell
    return [Combination(*key, cells=cells) for key, cells in groups.items()]


def file_stem(kind: str, parts: Sequence[str], taken: set[str]) -> str:
    """A file's name from names of levels, which may hold anything: letters, digits and dashes only, never twice."""
    words = [re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts]
    stem = "-".join([kind, *(word for word in words if word)])[:80]
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    taken.add(name)
    return name
