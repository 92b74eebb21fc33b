"""Which comparisons a study plans: by its design and by which metrics exist, never by what was measured.

The number of comparisons enters every interval, so it must not depend on the data. Counted is every
comparison that can have an answer; not counted are those that the design rules out: a level that this machine
does not support, a metric that a workload does not have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from storlab.analysis.compare import Question
from storlab.analysis.design import CompareSpec, Design, Levels
from storlab.analysis.stats.pairing import same_order
from storlab.base.text import grouped
from storlab.findings import About, AnyFinding
from storlab.findings.rounds import Emulated, Excluded, LevelsOnMachines, NoMetric, NoTrial, Unsupported
from storlab.metrics import RATE_MARGIN, Key, MetricSpec, named


@dataclass(frozen=True)
class Trait:
    """What a metric is, beside its name."""

    unit: str
    better: str
    margin: float = RATE_MARGIN  # where the study names none
    counts: bool = False  # of what may not happen at all

    @classmethod
    def of(cls, spec: MetricSpec, unit: str, better: str) -> Trait:
        """What ``spec`` declares, with unit and direction as they are recorded."""
        return cls(unit, better, spec.margin, spec.counts)


Metrics = Mapping[Key, Trait]


@dataclass(frozen=True)
class Catalogue:
    """What there is to compare: metrics of each cell with a trial done, and why cells are unsupported, or failed in all
    rounds so far."""

    metrics: Mapping[int, Metrics]
    unsupported: Mapping[int, str]
    failed: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """A question with the cells (a, b) of each of its combinations; one combination unless pooled.

    ``problem``: why it can't have an answer. ``waiting``: which sides have no trial done yet. ``counted``:
    whether it belongs to the family. ``optional``: every side that is not supported has a level that may be absent.
    """

    question: Question
    cells: tuple[tuple[int, int], ...]
    problem: AnyFinding | None = None
    waiting: NoTrial | None = None
    counted: bool = True
    described: AnyFinding | None = None  # why it is shown and not judged
    names: tuple[str, ...] = ("",)  # of the combinations, as ``cells``; for sentences
    warnings: tuple[AnyFinding, ...] = ()
    optional: bool = False
    counts: bool = False  # whether what is compared counts what may not happen at all


def plan(design: Design, catalogue: Catalogue) -> list[Planned]:
    """Every comparison of ``design`` once, in its order: within combinations first, then pooled."""
    return list(each_planned(design, catalogue))


def each_planned(design: Design, catalogue: Catalogue) -> Iterator[Planned]:
    """The same one by one: a factor with 500 levels has 124,750 pairs, and not everybody wants all."""
    known: set[tuple[object, ...]] = set()
    grid = _Grid(design)
    for spec in design.planned():
        for wanted in spec.metrics or (design.primary,):
            named = {cell: matching(wanted, metrics) for cell, metrics in catalogue.metrics.items()}
            for a, b in design.pairs(spec):
                asked = Question(spec.factor, a, b, {}, False, "", wanted, "", "neither")
                for item in _plan_pair(design, catalogue, named, asked, spec, grid):
                    if item.question.key not in known and item.question.mirrored not in known:
                        known.add(item.question.key)
                        yield (
                            item
                            if not item.problem
                            else replace(item, optional=_may_be_absent(item, design, catalogue))
                        )


def _may_be_absent(item: Planned, design: Design, catalogue: Catalogue) -> bool:
    levels = [{**item.question.within, item.question.factor: side} for side in (item.question.a, item.question.b)]
    absent = [
        of for cells in item.cells for of, cell in zip(levels, cells, strict=True) if cell in catalogue.unsupported
    ]
    return bool(absent) and all(design.is_optional(of) for of in absent)


def count_of_pairs(design: Design) -> int:
    count = 0
    for spec in design.planned():
        pairs = math.comb(len(design.factors[spec.factor]), 2) if spec.pairs is None else len(spec.pairs)
        only = (spec.only or {}).items()
        count += pairs * sum(only <= levels.items() for _, levels in design.cells) // len(design.factors[spec.factor])
    return count


def compared_cells(design: Design) -> Iterator[tuple[int, int]]:
    """The two cells of every comparison, in each combination; some of them several times."""
    grid = _Grid(design)
    for spec in design.planned():
        for a, b in design.pairs(spec):
            for _, cells in grid.combinations(spec.factor, a, b, spec.only):
                yield cells


def matching(wanted: str, metrics: Metrics) -> dict[Key, Trait]:
    """The ``metrics`` that ``wanted`` names."""
    return {key: metrics[key] for key in named(wanted, metrics)}


def _plan_pair(
    design: Design, catalogue: Catalogue, named: Mapping[int, Metrics], asked: Question, spec: CompareSpec, grid: _Grid
) -> Iterator[Planned]:
    combinations = list(grid.combinations(asked.factor, asked.a, asked.b, spec.only))
    parts = [
        part if spec.margin is None else replace(part, question=replace(part.question, margin=spec.margin))
        for within, cells in combinations
        for part in _plan_combination(catalogue, design, named, replace(asked, within=within), cells)
    ]
    parts = [_with_its_machines(part, design) for part in parts]
    if spec.native and design.emulated:
        parts = [replace(part, counted=False, described=Emulated()) for part in parts]
    if combinations and all(map(_lacks, parts)):  # one answer for all of them
        cells = tuple(both for _, both in combinations)
        question = replace(asked, within=dict(spec.only), pooled=len(combinations) > 1)
        yield Planned(question, cells, _nowhere(asked), counted=False, names=("",) * len(cells))
        return
    if spec.within or len(combinations) == 1:
        yield from parts
    if spec.pooled and len(combinations) > 1:
        gaps = tuple(grid.gaps(asked.factor, asked.a, asked.b, spec.only)) if design.excluded else ()
        left_out = (About("left out", gaps, Excluded()),) if gaps else ()
        for pooled in _plan_pooled(parts, least=2 if spec.within else 1, within=spec.only):
            yield replace(pooled, warnings=(*pooled.warnings, *left_out))
        yield from (part for part in parts if part.problem)  # what is pooled says nothing of these


def _with_its_machines(part: Planned, design: Design) -> Planned:
    a, b = (design.machines.get(cell, ()) for cell in part.cells[0])
    if a == b:
        return part
    on_a, on_b = (", ".join(dict.fromkeys(each)) or "this machine" for each in (a, b))
    return replace(part, counted=False, described=LevelsOnMachines(part.question.a, part.question.b, on_a, on_b))


class _Grid:
    """A design's cells by their levels."""

    def __init__(self, design: Design) -> None:
        self._factors = design.factors
        self._by_levels = {tuple(levels[name] for name in design.factors): cell for cell, levels in design.cells}
        self._having = grouped(
            ((name, levels[name]), (cell, levels)) for cell, levels in design.cells for name in design.factors
        )

    def combinations(
        self, factor: str, a: str, b: str, only: Levels | None = None
    ) -> Iterator[tuple[Levels, tuple[int, int]]]:
        """Levels of the other factors for which both cells exist, with the two cells. ``only``: with these levels."""
        for cell, levels in self._having.get((factor, a), ()):
            if only and not only.items() <= levels.items():
                continue
            opposite = {**levels, factor: b}
            other = self._by_levels.get(tuple(opposite[name] for name in self._factors))
            if other is not None:
                yield {name: levels[name] for name in self._factors if name != factor}, (cell, other)

    def gaps(self, factor: str, a: str, b: str, only: Levels | None = None) -> Iterator[str]:
        """The levels of the other factors for which one of both cells exists."""
        for one, other in ((a, b), (b, a)):
            paired = {cell for _, (cell, _) in self.combinations(factor, one, other, only)}
            for cell, levels in self._having.get((factor, one), ()):
                if cell not in paired and (not only or only.items() <= levels.items()):
                    yield level_names({name: level for name, level in levels.items() if name != factor})


def _plan_combination(
    catalogue: Catalogue, design: Design, named: Mapping[int, Metrics], asked: Question, cells: tuple[int, int]
) -> Iterator[Planned]:
    """One item for each source and metric that both sides have, or one that says why there is none."""
    sides = dict(zip((asked.a, asked.b), cells, strict=True))
    fixed = same_order(design.order, cells, (asked.a, asked.b))
    found = {name: named.get(cell, {}) for name, cell in sides.items()}
    known = {**found[asked.b], **found[asked.a]}
    unsupported = {name: catalogue.unsupported[cell] for name, cell in sides.items() if cell in catalogue.unsupported}
    waiting = [name for name, cell in sides.items() if cell not in catalogue.metrics]
    if unsupported or waiting:
        problem = Unsupported(tuple(unsupported.items())) if unsupported else None
        failed = ((name, catalogue.failed[sides[name]]) for name in waiting if sides[name] in catalogue.failed)
        late = NoTrial(tuple(waiting), tuple(failed))
        for key, trait in known.items() or [(("", asked.metric), Trait("", "neither"))]:
            question = _about(asked, key, trait)
            yield Planned(question, (cells,), problem, waiting=late, counted=not unsupported)
        return
    if not known and not design.silent.issuperset((cell, asked.metric) for cell in cells):
        # Asked for, and no trial yields it: the question must not vanish with its answer.
        yield Planned(asked, (cells,), _nowhere(asked), counted=False)
    common = [key for key in found[asked.a] if key in found[asked.b]]
    for key in common:
        question, counts = _about(asked, key, known[key]), known[key].counts
        yield Planned(question, (cells,), fixed, counted=not fixed, counts=counts)
    for key in [key for key in known if key not in common]:
        has, lacks = sides if key in found[asked.a] else reversed(sides)
        # Of a workload that the other side does not run at all, nothing was asked: unless that is all there is.
        if not common or any(source == key[0] for source, _ in catalogue.metrics[sides[lacks]]):
            lacking = NoMetric(key[1], (lacks,), key[0], has)
            yield Planned(_about(asked, key, known[key]), (cells,), lacking, counted=False)


def _nowhere(asked: Question) -> NoMetric:
    return NoMetric(asked.metric, (asked.a, asked.b))


def _plan_pooled(parts: list[Planned], least: int, within: Levels) -> Iterator[Planned]:
    """One item for each source and metric that at least ``least`` combinations can answer, or could yet."""
    lacking = [part for part in parts if _lacks(part)]
    asked = (part for part in parts if not _lacks(part))
    for of_key in grouped(((part.question.source, part.question.metric), part) for part in asked).values():
        having = [*of_key, *lacking]
        named = list(zip(_names_of([part.question.within for part in having]), having, strict=True))
        able = [(name, part) for name, part in named if not part.problem and not part.waiting]
        late = [part for part in having if part.waiting and part.counted]
        if len(able) < least <= len(able) + len(late):  # it counts all the same, lest failures make others less strict
            yield replace(late[0], question=replace(late[0].question, within=within, pooled=True))
        if len(able) >= least:
            missing = grouped((why, name) for name, part in named if (why := part.problem or part.waiting))
            warnings = tuple(About("left out", tuple(names), why) for why, names in missing.items())
            first = able[0][1]
            question = replace(first.question, within=within, pooled=True)
            cells = tuple(part.cells[0] for _, part in able)
            names = tuple(name for name, _ in able)
            described = next((part.described for _, part in able if part.described), None)
            found = Planned(question, cells, names=names, warnings=warnings, described=described)
            yield replace(found, counted=not found.described, counts=first.counts)


def _lacks(part: Planned) -> bool:
    return not part.question.source and bool(part.problem) and not part.waiting


def _names_of(combinations: Sequence[Levels]) -> list[str]:
    common = set.intersection(*(set(levels.items()) for levels in combinations))
    return [level_names(dict(pair for pair in levels.items() if pair not in common)) for levels in combinations]


def level_names(levels: Levels) -> str:
    """``bs=4k, media=ssd``."""
    return ", ".join(f"{factor}={level}" for factor, level in levels.items())


def _about(asked: Question, key: Key, trait: Trait) -> Question:
    known = replace(asked, unit=trait.unit, better=trait.better, margin=trait.margin)
    return replace(known, source=key[0], metric=key[1])
