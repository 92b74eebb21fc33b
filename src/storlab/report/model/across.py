"""Runs compared with each other, in words that all formats share."""

from __future__ import annotations

from storlab.analysis.runs.across_runs import RunComparison, RunsCompared
from storlab.analysis.variability.across_runs import Varying
from storlab.grouping import grouped
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model.gates import gates_together
from storlab.report.model.tables import heading

_NEAR_1 = 0.1


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
        return f"{described(c)} It is described and not judged, as it was not interleaved: {words.stop(c.apart)}"
    if c.basis == "interleaved":
        return f"{words.sentence(c.comparison)} {words.stop(c.comparison.reason)}"
    return words.stop(c.comparison.reason)


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
        said.append(f"Described and not judged, as trials{which} were not interleaved: {words.stop(why)}")
    return said


def not_compared(given: RunsCompared) -> list[str]:
    """A sentence for each reason why comparisons have no answer, with where it keeps from comparing."""
    answers = (c.comparison for c in given.comparisons if c.basis == "none")
    reasons = grouped(((c.a, c.b, c.metric, c.reason), words.place(c)) for c in answers)
    said = []
    for (a, b, metric, reason), places in reasons.items():
        found = "; ".join(filter(None, dict.fromkeys(places)))
        where = f" ({found})" if found else ""
        said.append(f"{a} against {b} cannot be compared by {metric}{where}: {words.stop(reason)}")
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
    return (*missing, *given.cautions)


def outcome(given: RunsCompared) -> str:
    """All gates in one sentence; without gates how many comparisons there are."""
    count = fmt.plural(len(given.comparisons), "comparison")
    if not any(c.gates or c.comparison.optional for c in given.comparisons):
        return f"{count}; no gate was asked for."
    return gates_together(
        [c.gates for c in given.comparisons], allow_undecided=given.allow_undecided, more_rounds=given.resumable
    )
