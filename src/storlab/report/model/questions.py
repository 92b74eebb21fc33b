"""Questions and their answers in tables: absolute values with the ratios beside them; of many questions, a matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from storlab.analysis.summary import Comparison, Estimate
from storlab.grouping import grouped
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model.tables import Notes, Span, Table, heading, span_of, split_levels

FEW = 3
"""Questions that are shown one by one; more become a matrix."""
_PAIRS = 6  # a matrix has a column for each two levels, up to so many
_POOLED = "all"
SPREAD = "spread"
"""The column of coefficients of variation, which a narrow page can do without."""


class Values:
    """Absolute values by source, metric and levels."""

    def __init__(self, estimates: Iterable[Estimate]) -> None:
        everything = [e for e in estimates if e.node is None]
        self._found = {(e.source, e.metric, tuple(sorted(e.levels.items()))): e for e in everything}
        self._levels = dict.fromkeys(pair for e in everything for pair in e.levels.items())

    def of(self, c: Comparison, level: str) -> Estimate | None:
        """What ``level`` had where ``c`` compares it; ``None`` where that is many values, which are pooled."""
        levels = tuple(sorted((c.within | {c.factor: level}).items()))
        return None if c.pooled else self._found.get((c.source, c.metric, levels))

    def levels_of(self, question: Sequence[Comparison]) -> list[str]:
        """The levels that are compared, and those that were measured beside them, in the study's order."""
        compared = dict.fromkeys((c.factor, level) for c in question for level in (c.a, c.b))
        factors = {c.factor for c in question}
        beside = {
            (name, level)
            for name, level in self._levels
            if name in factors and any(self.of(c, level) is not None for c in question)
        }
        known = [pair for pair in self._levels if pair in compared or pair in beside]
        return list(dict.fromkeys(level for _, level in (*known, *compared)))


def question_table(question: Sequence[Comparison], values: Values, title: str) -> Table:
    """A row a level: its value, and its ratio to each level that it is compared with.

    Where each has but one that it is compared with, and not all the same, that one is named beside the ratio; so it is
    where there are no values (of pooled combinations), and then a row is a comparison.
    """
    first, notes = question[0], Notes()
    levels = values.levels_of(question)
    against = [level for level in levels if any(c.b == level for c in question)]
    found = {level: e for level in levels if (e := values.of(first, level)) is not None}
    if not found:
        return _pairs_table(question, levels, against, title)
    pairs = {(c.a, c.b): c for c in question}
    unit = fmt.common_scale([e.mean for e in found.values()], first.unit)
    single = len(against) > 1 and len({c.a for c in question}) == len(question)
    rows = []
    for level in levels:
        e = found.get(level)
        ratios = [pairs.get((level, other)) for other in against]
        told = ["" if c is None else notes.mark(_ratio(c), c.warnings) for c in ratios]
        if single:
            told = next(([c.b, text] for c, text in zip(ratios, told, strict=True) if c is not None), ["", ""])
        rows.append((level, _value(e, unit), *_spread(e, notes), *told))
    confidences = list(dict.fromkeys(fmt.confidence(e.confidence) for e in found.values()))
    known = any(e.low is not None for e in found.values())
    half = f"± {'/'.join(confidences)} interval" if known else ""
    columns = (first.factor, "mean", SPREAD, "rounds", *_compared_with(against, named=single))
    caption = ", ".join(filter(None, (words.direction(first.better), half)))
    drawn: tuple[Span | None, ...] = ()
    if single or len(against) == 1:
        by_level = {c.a: c for c in question}
        drawn = tuple(None if (c := by_level.get(level)) is None else span_of(c) for level in levels)
    words_in = ("vs",) if single else ()
    return Table(title, columns, tuple(rows), 1, caption, notes.sentences(), drawn, divisible=True, words=words_in)


def _pairs_table(question: Sequence[Comparison], levels: Sequence[str], against: Sequence[str], title: str) -> Table:
    first, notes, several = question[0], Notes(), len(against) > 1
    ordered = sorted(question, key=lambda c: (levels.index(c.a), levels.index(c.b)))
    rows = [(c.a, *([c.b] if several else []), notes.mark(_ratio(c), c.warnings)) for c in ordered]
    rounds = {c.rounds for c in question}
    counted = fmt.plural(rounds.pop(), "round") if len(rounds) == 1 else ""
    caption = ", ".join(filter(None, (words.direction(first.better), counted)))
    columns = (first.factor, *_compared_with(against, named=several))
    spans = tuple(span_of(c) for c in ordered)
    words_in = ("vs",) if several else ()
    return Table(title, columns, tuple(rows), 1, caption, notes.sentences(), spans, divisible=True, words=words_in)


def _compared_with(against: Sequence[str], *, named: bool) -> tuple[str, ...]:
    """The headings of ratios; ``named``: to which level each is stands beside it."""
    return ("vs", "ratio") if named else tuple(f"vs {level}" for level in against)


def _value(e: Estimate | None, unit: fmt.Scale | None) -> str:
    return words.NOT_MEASURED if e is None else fmt.plus_minus(e.mean, e.unit, e.low, e.high, within=unit)


def _spread(e: Estimate | None, notes: Notes) -> tuple[str, str]:
    return ("", "") if e is None else (fmt.share(e.cv) or "unknown", notes.mark(str(e.rounds), e.warnings))


def _ratio(c: Comparison) -> str:
    """ "▲ 1.43× (1.35 to 1.52)"."""
    span = fmt.ratio_interval(c.low, c.high, c.ratio).replace("×", "")
    return f"{words.mark(c)} {words.ratio(c)}{f' ({span})' if span else ''}"


def matrix_tables(questions: Sequence[Sequence[Comparison]], values: Values) -> list[Table]:
    """A row a question: the value of each level, then a mark and a ratio for each two levels. A table a factor."""
    by_factor = grouped((question[0].factor, question) for question in questions)
    return [_matrix(factor, those, values) for factor, those in by_factor.items()]


def _matrix(factor: str, questions: Sequence[Sequence[Comparison]], values: Values) -> Table:
    comparisons = [c for question in questions for c in question]
    levels = values.levels_of(comparisons)
    pairs = list(dict.fromkeys((c.a, c.b) for c in comparisons))
    shared, factors = split_levels([_told(question[0]) for question in questions])
    metrics = dict.fromkeys((question[0].source, question[0].metric) for question in questions)
    several = len(metrics) > 1
    first = questions[0][0]
    by = ", ".join(filter(None, (f"By {factor}", words.levels(shared))))
    title = by if several else heading(first.metric, first.source, shared)
    valued = any(values.of(c, level) for c in comparisons for level in (c.a, c.b))
    rows = []
    for question in questions:
        numbers = _values([values.of(question[0], level) for level in levels]) if valued else []
        rows.append((*_labels(question[0], factors, several), *numbers, *_marks(question, pairs)))
    columns = (
        *(["metric"] if several else []),
        *(factors or ([] if several else [""])),
        *(levels if valued else ()),
        *([f"{a} vs {b}" for a, b in pairs] if len(pairs) <= _PAIRS else ["decided"]),
    )
    better = {question[0].better for question in questions}
    caption = ", ".join(
        filter(None, (words.direction(better.pop()) if len(better) == 1 else "", words.legend(comparisons)))
    )
    labels = max(1, several + len(factors))
    table = Table(title, columns, tuple(rows), labels, caption, divisible=True)
    said = [at for at in range(len(columns)) if at >= labels or at == 0 or any(row[at] for row in rows)]
    return replace(table.of_columns(said), labels=labels - len(columns) + len(said))


def _labels(c: Comparison, factors: Sequence[str], several: bool) -> tuple[str, ...]:
    if not factors and not several:
        return (_POOLED,)
    levels = _told(c)
    where = [levels.get(name, _POOLED if c.pooled and name not in c.within else "") for name in factors]
    return (*([heading(c.metric, c.source, {})] if several else []), *where)


def _told(c: Comparison) -> dict[str, str]:
    """Levels that the name of the load does not say already."""
    return {name: level for name, level in c.within.items() if level != c.source}


def _values(estimates: Sequence[Estimate | None]) -> list[str]:
    """One display unit for all, so that they can be read against each other."""
    found = [e for e in estimates if e is not None]
    unit = fmt.common_scale([e.mean for e in found], found[0].unit) if found else None
    return ["" if e is None else fmt.quantity(e.mean, e.unit, e.low, e.high, within=unit) for e in estimates]


def _marks(question: Sequence[Comparison], pairs: Sequence[tuple[str, str]]) -> list[str]:
    found: Mapping[tuple[str, str], Comparison] = {(c.a, c.b): c for c in question}
    if len(pairs) > _PAIRS:
        return [f"{sum(c.verdict != 'undecided' for c in question)} of {len(question)}"]
    return [f"{words.mark(c)} {words.ratio(c)}" if (c := found.get(pair)) else "" for pair in pairs]
