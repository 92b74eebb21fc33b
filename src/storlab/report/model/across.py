"""Runs compared with each other: words, tables and the document of all that is said of them."""

from __future__ import annotations

from collections.abc import Sequence

from storlab.analysis.runs.across_runs import RunComparison, RunsCompared
from storlab.analysis.summary import Comparison
from storlab.analysis.variability import Varying
from storlab.analysis.verdict import is_endless
from storlab.base.text import grouped
from storlab.findings import Finding
from storlab.report.document import FIRST, Document, Group, Line, Plot, Sentences, Span, Table, Tone, said, section
from storlab.report.formats.plot import domain
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.methods import runs_method
from storlab.report.language.say import said as told_of
from storlab.report.language.say import say
from storlab.report.model.questions import OUTCOMES, gates, gates_together
from storlab.report.model.tables import heading, noted, split_all
from storlab.report.model.variability import variability_between_runs

_NEAR_1 = 0.1
_MOST = 24  # answers that are listed one by one; the table has all


def title(given: RunsCompared) -> str:
    """What is compared with what."""
    others = words.listed(list(given.levels[1:]))
    return f"{others} compared with {given.levels[0]}" + ("" if given.factor == "run" else f" ({given.factor})")


def groups(given: RunsCompared) -> dict[str, list[RunComparison]]:
    """Comparisons that have an answer, by metric and place; the pooled ones first, then in the order of the runs."""
    ordered = sorted(given.comparisons, key=lambda c: not c.comparison.pooled)
    return grouped((place(c), c) for c in ordered if c.basis != "none")


def place(c: RunComparison) -> str:
    """What a comparison is about and where it holds: "write.bandwidth: load, bs=4k"."""
    answer = c.comparison
    where = heading(answer.metric, answer.source, answer.within)
    return f"{where}, {words.POOLED}" if answer.pooled else where


def name(c: RunComparison) -> str:
    """One comparison, named by its metric, its place and its two sides."""
    return f"{place(c)}: {c.comparison.a} against {c.comparison.b}"


def mark(c: RunComparison) -> str:
    """A shape for each kind of answer."""
    return words.DESCRIBED if c.basis == "not interleaved" else words.MARKS[c.comparison.verdict]


def verdict(c: RunComparison) -> str:
    """A verdict, or why there is none, in two words."""
    return "not judged" if c.basis == "not interleaved" else c.comparison.verdict


def ratio(c: RunComparison) -> str:
    """ "1.42×"; without an interval one digit more near 1, where two would hide the difference."""
    answer = c.comparison
    if answer.ratio is not None and answer.low is None and abs(answer.ratio - 1) < _NEAR_1:
        return f"{fmt.number(answer.ratio, 3)}×"
    return words.ratio(answer)


def rounds(c: RunComparison) -> str:
    """ "12", or of both sides where they are no pairs: "12 and 10"."""
    a, b = c.rounds
    return str(a) if c.basis == "interleaved" else f"{a} and {b}"


def sentence(c: RunComparison) -> str:
    """The answer, whole."""
    if c.basis == "not interleaved":
        return f"{described(c)} It is described and not judged, as it was not interleaved: {_why(c.apart)}"
    if c.basis == "interleaved":
        return f"{words.sentence(c.comparison)} {_why(c.comparison.reason)}"
    return _why(c.comparison.reason)


def _why(reason: Finding | None) -> str:
    return "" if reason is None else words.stop(say(reason))


def described(c: RunComparison) -> str:
    """A difference that is not judged: "new ÷ old is 0.90× (0.88× to 0.92×; 12 and 12 rounds)."."""
    answer = c.comparison
    span = fmt.ratio_interval(answer.low, answer.high, answer.ratio) or "no interval"
    noun = "round" if c.rounds == (1, 1) else "rounds"
    return f"{answer.a} ÷ {answer.b} is {ratio(c)} ({span}; {rounds(c)} {noun})."


def why_described(given: RunsCompared) -> list[str]:
    """For each reason why rounds were no pairs, one sentence."""
    found = [c for c in given.comparisons if c.basis == "not interleaved"]
    said = []
    for why, same in grouped((c.apart, c) for c in found).items():
        some = f" of {words.listed([name(c) for c in same[:3]])}{' and others' if len(same) > 3 else ''}"
        which = "" if len(same) == len(found) else some
        said.append(f"Described and not judged, as trials{which} were not interleaved: {_why(why)}")
    return said


def not_compared(given: RunsCompared) -> list[str]:
    """A sentence for each reason why comparisons have no answer, with where it keeps from comparing."""
    answers = (c.comparison for c in given.comparisons if c.basis == "none")
    reasons = grouped(((c.a, c.b, c.metric, c.reason), words.place(c)) for c in answers)
    said = []
    for (a, b, metric, reason), places in reasons.items():
        found = "; ".join(filter(None, dict.fromkeys(places)))
        where = f" ({found})" if found else ""
        said.append(f"{a} against {b} cannot be compared by {metric}{where}: {_why(reason)}")
    return said


def varies(found: Varying) -> str:
    """Which side's samples vary more, and how much: "on varies more within its trials: 1.31× the variance of off."."""
    a, b = found.of_a.variance, found.of_b.variance
    if not found.larger:
        return f"{found.a} and {found.b} have the same variance within trials."
    other = found.b if found.larger == found.a else found.a
    if found.factor is None or a is None or b is None:
        return f"{found.larger} varies within trials, and {other} does not."
    return f"{found.larger} varies more within trials: {fmt.ratio(found.factor)} the variance of {other}."


def varying_of(given: RunsCompared, c: RunComparison) -> Varying | None:
    """The variability that belongs to a comparison, where there is any."""
    answer = c.comparison
    key = (answer.a, answer.b, answer.source, answer.metric, answer.within)
    all_of_them = (v for v in given.variability if (v.a, v.b, v.source, v.metric, v.within) == key)
    return None if answer.pooled else next(all_of_them, None)


def cautions(given: RunsCompared) -> tuple[str, ...]:
    """What nobody may overlook: first the gates that have no answer."""
    missing = words.unanswered([c.comparison for c in given.comparisons], [c.gates for c in given.comparisons])
    return (*missing, *told_of(given.cautions))


def outcome(given: RunsCompared) -> str:
    """All gates in one sentence; without gates how many comparisons there are."""
    count = fmt.plural(len(given.comparisons), "comparison")
    if not any(c.gates or c.comparison.optional for c in given.comparisons):
        return f"{count}; no gate was asked for."
    return gates_together(
        [c.gates for c in given.comparisons], allow_undecided=given.allow_undecided, more_rounds=given.resumable
    )


def ratio_tables(given: RunsCompared) -> list[Table]:
    """One table a metric of a source: a row a comparison that has an answer, the pooled ones first."""
    answers = (c for group in groups(given).values() for c in group)
    metrics = grouped(((c.comparison.source, c.comparison.metric), c) for c in answers)
    return [_ratios(given, group) for group in metrics.values()]


def _ratios(given: RunsCompared, group: Sequence[RunComparison]) -> Table:
    first = group[0].comparison
    shared, factors = split_all([c.comparison.within for c in group if not c.comparison.pooled])
    named = list(dict.fromkeys(result.gate for c in group for result in c.gates))
    where = factors if len(factors) < 2 else ("where",)
    judged = any(c.basis == "interleaved" for c in group)
    counts = {rounds(c) for c in group}
    counted = len(counts) > 1 or len(group) == 1
    rows = []
    for c in group:
        answer = c.comparison
        outcomes = {result.gate: OUTCOMES[result.outcome] for result in c.gates}
        doubts = [answer.reason] if c.basis == "interleaved" and answer.verdict == "undecided" else []
        side = answer.a if counted else noted(answer.a, answer.warnings)
        at = [_where(c, factors)] if factors else []
        span = fmt.ratio_interval(answer.low, answer.high, answer.ratio) or "none"
        judgement = [noted(f"{mark(c)} {verdict(c)}", doubts, _tone(c))] if judged else []
        both = [noted(rounds(c), answer.warnings)] if counted else []
        hit = (outcomes.get(gate, "") for gate in named)
        rows.append((side, *at, ratio(c), span, *judgement, *both, *hit))
    spans = tuple(_span(c.comparison) for c in group)
    how, many = "" if judged else "described, not judged", "" if counted else f"{counts.pop()} rounds"
    return Table(
        title=heading(first.metric, first.source, shared),
        columns=(given.factor, *where, "ratio", "interval", *["verdict"] * judged, *["rounds"] * counted, *named),
        rows=tuple(rows),
        labels=1 + len(where),
        caption="; ".join(filter(None, (f"÷ {first.b}", words.direction(first.better), how, many))),
        plot=Plot(f"÷ {first.b}", spans, first.margin, domain(list(spans), first.margin)),
        divisible=True,
        words=tuple(named),
    )


def _tone(c: RunComparison) -> Tone:
    return c.comparison.verdict if c.basis == "interleaved" else "described"


def _span(c: Comparison) -> Span | None:
    if c.low is None or c.ratio is None or c.high is None or is_endless(c.low) or is_endless(c.high):
        return None
    return Span(c.low, c.ratio, c.high)


def _where(c: RunComparison, factors: Sequence[str]) -> str:
    """Where a row holds, without what all rows share; of a single factor the level, as its name heads the column."""
    answer = c.comparison
    if answer.pooled:
        return words.POOLED
    return answer.within[factors[0]] if len(factors) == 1 else words.levels({f: answer.within[f] for f in factors})


def comparison_document(given: RunsCompared) -> Document:
    """All that is said of runs that are compared: the outcome, answers one by one, tables of all of them."""
    tone: Tone = "hit" if given.failed else "passed" if any(c.gates for c in given.comparisons) else "strong"
    head = (*said(outcome(given), tone=tone), *said(*cautions(given), tone="caution"))
    chosen = _chosen(given)
    answers = tuple(_group(given, where, group) for where, group in chosen.items())
    without = dict.fromkeys(result for c in given.comparisons if c.basis == "none" for result in c.gates)
    missing = (*(Line(text, "−", "missing") for text in not_compared(given)), *gates(without))
    tables = ratio_tables(given)
    sections = (
        *section("answers", "Answers", *answers, *said(*why_described(given), mark=words.DESCRIBED, tone="described"),
                 weight=FIRST, titled=False),
        *section("compared", "Compared", *tables, weight=FIRST),
        *section("not-compared", "Not compared", *([Sentences(missing)] if missing else []), weight=FIRST),
        *section("variability", "Variability", *variability_between_runs(given), weight=FIRST),
        *section("method", "Method", *said(runs_method(given.method), tone="soft"), weight=FIRST, titled=False),
    )  # fmt: skip
    return Document(title(given), head, sections)


def _group(given: RunsCompared, where: str, group: Sequence[RunComparison]) -> Group:
    better = words.direction(group[0].comparison.better)
    lines = tuple(_line(given, c) for c in group)
    return Group(f"{where} ({better})" if better else where, (Sentences(lines),))


def _chosen(given: RunsCompared) -> dict[str, list[RunComparison]]:
    """What is said in sentences: everything, or of many answers those that a reader must not overlook."""
    found = groups(given)
    if sum(map(len, found.values())) <= _MOST:
        return found
    chosen = {where: [c for c in group if _stands_out(c)] for where, group in found.items()}
    return {where: group for where, group in chosen.items() if group}


def _stands_out(c: RunComparison) -> bool:
    answer = c.comparison
    return answer.pooled or answer.verdict in ("better", "worse") or any(r.outcome == "hit" for r in c.gates)


def _line(given: RunsCompared, c: RunComparison) -> Line:
    judged = c.basis == "interleaved"
    text = words.sentence(c.comparison) if judged else described(c)
    varying = varying_of(given, c)
    under = (
        *([Line(varies(varying), words.DESCRIBED, "described")] if varying else []),
        *(Line(words.stop(say(warning)), "!", "note") for warning in c.comparison.warnings),
        *gates(c.gates),
    )
    return Line(text, mark(c), _tone(c), under)
