"""Which comparisons a study plans: by its design and by which metrics exist, never by what was measured.

The number of comparisons enters every interval, so it must not depend on the data. Counted is every
comparison that can have an answer; not counted are those that the design rules out: a level that this machine
does not support, a metric that a workload does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from storlab.analysis.compare import Question
from storlab.analysis.design import CompareSpec, Design, Levels
from storlab.analysis.wording import level_names

Key = tuple[str, str]
"""Source and metric."""


PROBE = "probe:"
"""How the sources of probes begin (``docs/reference/records.md``)."""


@dataclass(frozen=True)
class Trait:
    """What a metric is, beside its name."""

    unit: str
    better: str


@dataclass(frozen=True)
class Catalogue:
    """What is there to compare: metrics of each cell with a trial done, and why cells are unsupported."""

    metrics: Mapping[int, Mapping[Key, Trait]]
    unsupported: Mapping[int, str]


@dataclass(frozen=True)
class Planned:
    """A question with the cells (a, b) of each of its combinations; one combination unless pooled.

    ``problem``: why it can't have an answer. ``counted``: whether it belongs to the family.
    """

    question: Question
    cells: tuple[tuple[int, int], ...]
    problem: str = ""
    counted: bool = True
    warnings: tuple[str, ...] = ()


def plan(design: Design, catalogue: Catalogue) -> list[Planned]:
    """Every comparison of ``design`` once, in its order: within combinations first, then pooled."""
    planned: dict[tuple[object, ...], Planned] = {}
    for spec in design.planned():
        for a, b in design.pairs(spec):
            for item in _plan_pair(design, catalogue, spec, a, b):
                q = item.question
                same = (q.factor, q.a, q.b, tuple(q.within.items()), q.pooled, q.source, q.metric)
                planned.setdefault(same, item)
    return list(planned.values())


def matching(wanted: str, keys: Mapping[Key, Trait]) -> list[Key]:
    """The keys that ``wanted`` names (see ``Design.primary``): by exact name, else by the name's last part.

    ``bandwidth`` names ``bandwidth`` where a source has it, else ``read.bandwidth`` and ``write.bandwidth``.
    Without a source it names a probe's metrics only where no workload has one.
    """
    source, _, name = wanted.rpartition(":")
    exact = [key for key in keys if key[1] == name]
    having = {key[0] for key in exact}
    found = exact + [key for key in keys if key[0] not in having and key[1].endswith(f".{name}")]
    if source:
        return [key for key in found if key[0] == source]
    return [key for key in found if not key[0].startswith(PROBE)] or found


def _plan_pair(design: Design, catalogue: Catalogue, spec: CompareSpec, a: str, b: str) -> Iterator[Planned]:
    combinations = list(_combinations(design, spec.factor, a, b))
    for wanted in spec.metrics or (design.primary,):
        parts = [
            part
            for within, cells in combinations
            for part in _plan_combination(
                catalogue,
                Question(spec.factor, a, b, within, False, "", wanted, "", "neither", spec.margin),
                cells,
            )
        ]
        if spec.within or len(combinations) == 1:
            yield from parts
        if spec.pooled and len(combinations) > 1:
            yield from _plan_pooled(parts, alone=spec.within)


def _combinations(design: Design, factor: str, a: str, b: str) -> Iterator[tuple[Levels, tuple[int, int]]]:
    """Levels of the other factors for which both cells exist, with the two cells."""
    by_levels = {tuple(levels[name] for name in design.factors): cell for cell, levels in design.cells}
    for cell, levels in design.cells:
        if levels[factor] == a:
            other = by_levels.get(tuple({**levels, factor: b}[name] for name in design.factors))
            if other is not None:
                within = {name: levels[name] for name in design.factors if name != factor}
                yield within, (cell, other)


def _plan_combination(catalogue: Catalogue, question: Question, cells: tuple[int, int]) -> Iterator[Planned]:
    """One item for each source and metric that both sides have, or one that says why there is none."""
    sides = dict(zip((question.a, question.b), cells, strict=True))
    found = {name: catalogue.metrics.get(cell) for name, cell in sides.items()}
    keys = {name: matching(question.metric, metrics or {}) for name, metrics in found.items()}
    known: dict[Key, Trait] = {}
    for name in (question.b, question.a):
        known |= {key: (found[name] or {})[key] for key in keys[name]}

    unsupported = [
        f"{name} is unsupported: {catalogue.unsupported[cell]}"
        for name, cell in sides.items()
        if cell in catalogue.unsupported
    ]
    waiting = [name for name in sides if found[name] is None]
    if unsupported or waiting:
        problem = " ".join(unsupported)
        counted = not unsupported
        for key in known or [("", question.metric)]:
            trait = known.get(key, Trait("", "neither"))
            yield Planned(_about(question, key, trait), (cells,), problem, counted)
        return

    common = [key for key in keys[question.a] if key in keys[question.b]]
    for key in common:
        yield Planned(_about(question, key, known[key]), (cells,))
    for key in sorted(set(known) - set(common)):
        has, lacks = sides if key in keys[question.a] else reversed(sides)
        if _has_source(found[lacks], key[0]) or not common:
            problem = f"{lacks} has no {key[1]} of {key[0]}, which {has} has: nothing to compare it with."
            yield Planned(_about(question, key, known[key]), (cells,), problem, counted=False)


def _plan_pooled(parts: list[Planned], alone: bool) -> Iterator[Planned]:
    """One item for each source and metric, over the combinations that can answer it.

    ``alone``: combinations are reported on their own, too, so that one over a single combination adds
    nothing.
    """
    by_key: dict[Key, list[Planned]] = {}
    for part in parts:
        if part.question.source:
            by_key.setdefault((part.question.source, part.question.metric), []).append(part)
    for having in by_key.values():
        able = [part for part in having if not part.problem]
        if len(able) < (2 if alone else 1):
            continue
        unable = [part for part in having if part.problem]
        warnings = tuple(f"Not over {level_names(part.question.within)}: {part.problem}" for part in unable)
        question = replace(able[0].question, within={}, pooled=True)
        yield Planned(question, tuple(part.cells[0] for part in able), warnings=warnings)


def _about(question: Question, key: Key, trait: Trait) -> Question:
    return replace(question, source=key[0], metric=key[1], unit=trait.unit, better=trait.better)


def _has_source(metrics: Mapping[Key, Trait] | None, source: str) -> bool:
    return any(key[0] == source for key in metrics or {})
