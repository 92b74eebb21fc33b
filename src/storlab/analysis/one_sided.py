"""Combinations that only one of two sides of a comparison of runs has: named, and left out of what is pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storlab.analysis.compare import Question
from storlab.analysis.design import DEFAULT_MARGIN, Design
from storlab.analysis.questions import Planned
from storlab.analysis.wording import level_names, plural


def without(item: Planned, lone: Sequence[Planned]) -> Planned:
    """``item``, with a warning where it is pooled over fewer combinations than there are."""
    q = item.question
    left = len({tuple(x.question.within.items()) for x in lone if (x.question.a, x.question.b) == (q.a, q.b)})
    if not q.pooled or not left:
        return item
    return replace(item, warnings=(*item.warnings, f"Left out: {plural(left, 'combination')} that only one side has."))


def one_sided(design: Design, factor: str, levels: Sequence[str], metrics: Sequence[str]) -> list[Planned]:
    """A comparison without an answer for each combination that one side has and the other has not."""
    by_level: dict[str, dict[tuple[tuple[str, str], ...], int]] = {level: {} for level in levels}
    for cell, chosen in design.cells:
        by_level[chosen[factor]][tuple((name, level) for name, level in chosen.items() if name != factor)] = cell
    found = []
    first = levels[0]
    for level in levels[1:]:
        both = dict.fromkeys([*by_level[first], *by_level[level]])
        for within in both:
            has = [name for name in (first, level) if within in by_level[name]]
            if len(has) == 1:
                lacks = level if has == [first] else first
                where = level_names(dict(within))
                problem = f"{where or 'the cell'} is in {has[0]} and not in {lacks}."
                cell = by_level[has[0]][within]
                found += [
                    Planned(
                        Question(factor, level, first, dict(within), False, "", name, "", "neither", DEFAULT_MARGIN),
                        ((cell, cell),),
                        problem[0].upper() + problem[1:] if not where else problem,
                        counted=False,
                    )
                    for name in metrics
                ]
    return found
