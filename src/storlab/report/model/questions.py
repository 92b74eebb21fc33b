"""Questions and their answers: a row a comparison, drawn and written, the better side first; of many, a matrix.

A question is all comparisons of one metric under one load. What is shown of a ratio is never below 1 if it is decided:
it says how many times ahead the first side is, whether more is better or less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from storlab.analysis.summary import Comparison, Difference, Estimate, GateResult, Outcome, Summary, Verdict
from storlab.analysis.verdict import is_endless
from storlab.base.text import grouped
from storlab.findings.rounds import Outliers
from storlab.report.document import Block, Cell, Group, Line, Plot, Sentences, Span, Table, Tone
from storlab.report.formats.plot import domain
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.say import say
from storlab.report.language.words import are
from storlab.report.model.input import ReportInput, per_trial, split
from storlab.report.model.tables import estimate_table, heading, noted, split_levels

# What came of the gates of ``--fail-on``, in words.

OUTCOMES = {"hit": "FAILED", "passed": "passed", "undecided": "UNDECIDED", "missing": "MISSING"}


def gate_sentence(result: GateResult) -> str:
    """ "worse>3% passed. Not so: …"."""
    return f"{result.gate} {OUTCOMES[result.outcome]}. {say(result.why)}"


def gates_together(
    gates: Sequence[Sequence[GateResult]],
    *,
    allow_undecided: bool,
    failed: int = 0,
    more_rounds: bool = True,
    unsupported: bool = True,
) -> str:
    """What came of the gates of each comparison, in one sentence for all. Those without any are optional.

    ``failed``: trials that failed. ``more_rounds``: whether there can be any. ``unsupported``: whether a level can be.
    """
    count = fmt.plural(len(gates), "comparison")
    several: tuple[Outcome, ...] = ("hit", "missing", "undecided")
    found: dict[str, int] = {what: sum(any(r.outcome == what for r in of) for of in gates) for what in several}
    also = {**found, "absent, as --optional allows": sum(not of for of in gates)}

    def rest(*but: str) -> str:
        return "".join(f"; {n} {are(n)} {what}" for what, n in also.items() if n and what not in ("hit", *but))

    def lacks(what: str) -> str:
        number = found[what]
        return f"Not passed: no gate was hit, but {number} of {count} {are(number)} {what}{rest(what)}."

    if found["hit"]:
        return f"Failed: {found['hit']} of {count} hit a gate{rest()}."
    if not gates:
        return "Not passed: nothing was compared, so there is nothing that a gate could be about."
    if found["missing"]:
        here = unsupported and any(r.outcome == "missing" and r.settled for of in gates for r in of)
        remedy = " --optional FACTOR=LEVEL names levels that may be unsupported here." if here else ""
        return f"{lacks('missing')}{remedy}"
    if found["undecided"] and not allow_undecided:
        can = more_rounds and any(r.outcome == "undecided" and not r.settled for of in gates for r in of)
        remedy = f"{'More rounds may decide it; ' if can else ''}--allow-undecided lets it pass."
        return f"{lacks('undecided')} {remedy}"
    if failed:
        return f"Not passed: no gate was hit in {count}, but {fmt.plural(failed, 'trial')} failed{rest()}."
    if not any(gates):
        return f"Nothing passed or failed: {len(gates)} of {count} {are(len(gates))} absent, as --optional allows."
    return f"Passed: no gate was hit in {count}{rest()}."


FEW = 3
"""Questions that are shown one by one; more become a matrix."""
_PAIRS = 6  # a matrix has a column for each two levels, up to so many
_POOLED = "all"
_NAMED = 4  # comparisons of a sentence; of more, the first are named
_OUTCOMES: dict[Outcome, tuple[str, Tone]] = {
    "hit": ("✗", "hit"), "passed": ("✓", "passed"), "undecided": ("?", "undecided"), "missing": ("−", "hit"),
}  # fmt: skip

Ends = tuple[float | None, float | None, float | None]
"""A ratio, and the ends of its interval."""


def ahead(c: Comparison) -> Comparison:
    """The comparison with its better side first, if that is decided."""
    if c.verdict != "worse":
        return c
    ratio, low, high = _inverse((c.ratio, c.low, c.high))
    why = c.why
    if why is not None:
        facts = tuple(replace(fact, a=fact.b, b=fact.a) for fact in why.facts)
        why = replace(why, differences=tuple(map(_turned, why.differences)), facts=facts)
    return replace(c, a=c.b, b=c.a, verdict="better", ratio=ratio, low=low, high=high, why=why)


def _turned(d: Difference) -> Difference:
    ratio, low, high = _inverse((d.ratio, d.low, d.high))
    return replace(d, a=d.b, b=d.a, ratio=ratio, low=low, high=high)


def _inverse(ends: Ends) -> Ends:
    ratio, low, high = (None if end is None else 1 / end if end else math.inf for end in ends)
    return ratio, high, low


def times(c: Comparison) -> Ends:
    """How many times ahead the first side is: first ÷ second, or second ÷ first if less is better."""
    ends = (c.ratio, c.low, c.high)
    return _inverse(ends) if c.better == "lower" else ends


def ratio(c: Comparison) -> str:
    """ "1.42×", to the digits that its interval supports."""
    return fmt.ratio(*times(c))


def evidence(c: Comparison) -> str:
    """What stands behind the ratio: its interval and rounds, and what is missing if it is undecided."""
    value, low, high = times(c)
    text = f"({fmt.ratio_interval(low, high, value) or 'no interval yet'}, {fmt.plural(c.rounds, 'round')})."
    return f"{text} {words.lacks(c)}".strip() if c.verdict == "undecided" else text


def sentence(c: Comparison) -> str:
    """Verdict, ratio, interval and rounds."""
    return f"{words.claim(c)}: {ratio(c)} {evidence(c)}"


def ordered_comparisons(summary: Summary) -> list[Comparison]:
    """Comparisons that have a ratio, those of the primary metric first."""
    first, others = split(summary.primary, (c for c in summary.comparisons if c.ratio is not None))
    return first + others


def questions_of(summary: Summary) -> list[list[Comparison]]:
    """Comparisons by metric and load: those that pool others first, then those of which any is decided."""
    comparisons = map(ahead, ordered_comparisons(summary))
    groups = grouped(((c.pooled, c.factor, c.source, c.metric, tuple(c.within.items())), c) for c in comparisons)
    return sorted(groups.values(), key=lambda of: (not of[0].pooled, all(c.verdict == "undecided" for c in of)))


def title_of(question: Sequence[Comparison]) -> str:
    """The metric and where it was measured; the factor, if its levels don't speak for themselves."""
    first = question[0]
    bare = any(not words.speaks_for_itself(level) for c in question for level in (c.a, c.b))
    where = heading(first.metric, first.source, first.within)
    parts = (where, words.POOLED if first.pooled else "", f"by {first.factor}" if bare else "")
    return ", ".join(part for part in parts if part)


class Values:
    """Absolute values by source, metric and levels; and the ratio of every round, of runs that are to be drawn."""

    def __init__(self, summary: Summary, drawn: ReportInput | None = None) -> None:
        everything = [e for e in summary.estimates if e.node is None]
        self._found = {(e.source, e.metric, tuple(sorted(e.levels.items()))): e for e in everything}
        self._levels = dict.fromkeys(pair for e in everything for pair in e.levels.items())
        self._cells = {tuple(sorted(cell.levels.items())): cell.cell for cell in summary.cells}
        self._drawn = drawn
        self._rounds = cache(self._of_rounds)

    def of(self, c: Comparison, level: str) -> Estimate | None:
        """What ``level`` had where ``c`` compares it; ``None`` if that is many values, which are pooled."""
        levels = tuple(sorted((c.within | {c.factor: level}).items()))
        return None if c.pooled else self._found.get((c.source, c.metric, levels))

    def levels_of(self, question: Sequence[Comparison]) -> list[str]:
        """The levels that are compared, in the study's order."""
        compared = dict.fromkeys((c.factor, level) for c in question for level in (c.a, c.b))
        return list(dict.fromkeys(level for _, level in (*(p for p in self._levels if p in compared), *compared)))

    def span(self, c: Comparison) -> Span | None:
        """What can be drawn of it: without an interval, or with one that has no end, the ratio alone."""
        value, low, high = times(c)
        if value is None or is_endless(value):
            return None
        points = self._points(c)
        outliers = {number for finding in c.warnings if isinstance(finding, Outliers) for number in finding.rounds}
        far = tuple(points[n] for n in points if n in outliers)
        if low is None or high is None or is_endless(low) or is_endless(high):
            return Span(value, value, value, tuple(points.values()), far, sure=False)
        return Span(low, value, high, tuple(points.values()), far)

    def _points(self, c: Comparison) -> dict[int, float]:
        """Round → how many times ahead the first side was."""
        if self._drawn is None or c.pooled:
            return {}
        cells = (self._cells.get(tuple(sorted((c.within | {c.factor: level}).items())), -1) for level in (c.a, c.b))
        first, second = (self._rounds(c.source, c.metric).get(cell, {}) for cell in cells)
        above, below = (second, first) if c.better == "lower" else (first, second)
        both = [n for n in sorted(first) if n in second and first[n] > 0 and second[n] > 0]
        return {n: ratio for n in both if math.isfinite(ratio := above[n] / below[n])}

    def _of_rounds(self, source: str, metric: str) -> dict[int, dict[int, float]]:
        assert self._drawn is not None
        rows = per_trial(self._drawn.metrics, source, metric).select("cell", "round", "value").iter_rows()
        return {cell: dict(each) for cell, each in grouped((cell, (n, value)) for cell, n, value in rows).items()}


def question_group(question: Sequence[Comparison], values: Values) -> Group:
    """One question: its rows, what open ones lack, what came of gates, and how it was decided."""
    open_ = [c for c in question if c.verdict == "undecided" and not c.described]
    shown = [c for c in question if c not in open_] or list(question)
    spans = [values.span(c) for c in question]
    axis = domain(spans, question[0].margin)
    blocks: list[Block] = [_rows(shown, values, axis)]
    if lines := open_lines([question]):
        blocks.append(Sentences(tuple(lines)))
    if open_ and shown != list(question):
        blocks.append(Group(f"{len(open_)} undecided", (_rows(open_, values, axis),), folded=True))
    if lines := gate_lines(question):
        blocks.append(Sentences(tuple(lines)))
    levels = [e for level in values.levels_of(question) if (e := values.of(question[0], level))]
    of_levels = [replace(estimate_table(levels), title="Each by itself")] if levels else []
    how = tuple(Line(f"{sentence(c)} {words.stop(say(c.reason))}", words.mark(c), c.verdict) for c in question)
    return Group(
        title_of(question), (*blocks, Group("How this was decided", (Sentences(how), *of_levels), folded=True))
    )


def _rows(question: Sequence[Comparison], values: Values, axis: tuple[float, float]) -> Table:
    first = question[0]
    found = [e for c in question for level in (c.a, c.b) if (e := values.of(c, level)) is not None]
    unit = fmt.common_scale([e.mean for e in found], first.unit) if found else None
    counts = {c.rounds for c in question}
    rows = []
    for c in question:
        means = [_value(values.of(c, level), unit) for level in (c.a, c.b)] if found else ["", ""]
        rows.append((c.a, means[0], c.b, means[1], noted(_ratio(c), c.warnings, tone(c))))
    columns = (first.factor, "mean", "against", "mean", "ratio")
    confidences = list(dict.fromkeys(fmt.confidence(e.confidence) for e in found if e.low is not None))
    half = f"± {'/'.join(confidences)} interval" if confidences else ""
    done = fmt.plural(max(counts), "round") if len(counts) == 1 else f"{min(counts)} to {max(counts)} rounds"
    caption = ", ".join(filter(None, (words.direction(first.better), half, done)))
    sides = (first.a, first.b) if len(question) == 1 else ("first", "second")
    title = " ÷ ".join(reversed(sides) if first.better == "lower" else sides)
    spans = tuple(map(values.span, question))
    plot = Plot(title, spans, first.margin, axis) if any(spans) else None
    table = Table("", columns, tuple(rows), 1, caption, plot, words=("against",))
    return table if found else table.of_columns([at for at in range(len(columns)) if at not in (1, 3)])


def tone(c: Comparison) -> Tone:
    return "described" if c.described else c.verdict


def _value(e: Estimate | None, unit: fmt.Scale | None) -> str:
    return (
        words.NOT_MEASURED
        if e is None
        else noted(fmt.plus_minus(e.mean, e.unit, e.low, e.high, within=unit), e.warnings)
    )


def _ratio(c: Comparison) -> str:
    """ "▲ 1.43× (1.35 to 1.52)"."""
    value, low, high = times(c)
    span = fmt.ratio_interval(low, high, value).replace("×", "")
    return f"{words.mark(c)} {ratio(c)}{f' ({span})' if span else ''}"


def open_lines(questions: Sequence[Sequence[Comparison]]) -> list[Line]:
    """What undecided comparisons lack, each kind once, with all that it is so for."""
    several = len(questions) > 1
    found = [
        (
            (words.mark(c), tone(c), words.lacks(c)),
            f"{words.named(c.factor, c.a)} against {words.named(c.factor, c.b)}"
            f"{f' ({title_of(question)})' if several else ''}",
        )
        for question in questions
        for c in question
        if c.verdict == "undecided"
    ]
    return [
        Line(f"{_first_of(those)}: {lacks if like == 'described' else f'undecided. {lacks}'}".strip(), mark, like)
        for (mark, like, lacks), those in grouped(found).items()
    ]


def _first_of(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return words.listed(names) if rest <= 0 else f"{', '.join(names[:_NAMED])} and {rest} more"


def gate_lines(question: Iterable[Comparison]) -> list[Line]:
    """What came of each gate, with a shape for each outcome."""
    return [Line(f"{words.claim(c)}: {ratio(c)}", words.mark(c), tone(c), gates(c.gates)) for c in question if c.gates]


def gates(results: Iterable[GateResult]) -> tuple[Line, ...]:
    return tuple(Line(gate_sentence(result), *_OUTCOMES[result.outcome]) for result in results)


def matrix_tables(questions: Sequence[Sequence[Comparison]], values: Values) -> list[Table]:
    """A row a question: the value of each level, then a mark and a ratio for each two levels. A table a factor."""
    by_factor = grouped((question[0].factor, question) for question in questions)
    return [_matrix(factor, those, values) for factor, those in by_factor.items()]


def _matrix(factor: str, questions: Sequence[Sequence[Comparison]], values: Values) -> Table:
    comparisons = [c for question in questions for c in question]
    levels = values.levels_of(comparisons)
    pairs = list(dict.fromkeys(_pair(c, levels) for c in comparisons))
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
        rows.append((*_labels(question[0], factors, several), *numbers, *_marks(question, pairs, levels)))
    columns = (
        *(["metric"] if several else []),
        *(factors or ([] if several else [""])),
        *(levels if valued else ()),
        *([f"{a} vs {b}" for a, b in pairs] if len(pairs) <= _PAIRS else ["decided"]),
    )
    better = {question[0].better for question in questions}
    ways = (words.direction(better.pop()) if len(better) == 1 else "", words.legend(comparisons))
    labels = max(1, several + len(factors))
    table = Table(title, columns, tuple(rows), labels, ", ".join(filter(None, ways)), divisible=True)
    kept = [at for at in range(len(columns)) if at >= labels or at == 0 or any(row[at] for row in rows)]
    labels -= len(columns) - len(kept)
    table = replace(table.of_columns(kept), labels=labels)
    ratios = [*range(labels), *range(labels + (len(levels) if valued else 0), len(kept))]
    return replace(table, narrow=table.of_columns(ratios))


def _pair(c: Comparison, levels: Sequence[str]) -> tuple[str, str]:
    """Its two levels in the study's order, whichever is better."""
    a, b = sorted((c.a, c.b), key=levels.index)
    return a, b


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


def _marks(question: Sequence[Comparison], pairs: Sequence[tuple[str, str]], levels: Sequence[str]) -> list[str]:
    """The mark is the first level's; the number says how many times ahead the better one is."""
    found: Mapping[tuple[str, str], Comparison] = {_pair(c, levels): c for c in question}
    if len(pairs) > _PAIRS:
        return [f"{sum(c.verdict != 'undecided' for c in question)} of {len(question)}"]
    return [_mark(c, pair) if (c := found.get(pair)) else "" for pair in pairs]


def _mark(c: Comparison, pair: tuple[str, str]) -> Cell:
    verdict: Verdict = "worse" if c.verdict == "better" and pair != (c.a, c.b) else c.verdict
    return Cell(f"{words.DESCRIBED if c.described else words.MARKS[verdict]} {ratio(c)}", tone=verdict)
