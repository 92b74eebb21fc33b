"""What a report says of a run as a whole: first what was found out, from the verdicts alone.

A level is called the best of its question only where it is better, by a verdict, than every other level there. What is
not decided is called so, and nothing is taken from means.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from storlab.analysis.data import Claim
from storlab.analysis.design import machines_of_rounds
from storlab.analysis.summary import Comparison, Estimate, Summary
from storlab.base.text import grouped, ranges
from storlab.findings import Stopped
from storlab.findings.runs import Answered, Unanswered
from storlab.metrics import PROBE
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.methods import claim_value
from storlab.report.language.of_runs import rested
from storlab.report.language.say import say
from storlab.report.model.input import ReportInput, shared_levels
from storlab.report.model.questions import times
from storlab.report.model.setup import load_facts
from storlab.report.model.tables import split_levels, together

_MOST = 4  # clauses: a sentence of more is not read
_OTHERS = 3  # levels that the best is held against by name
_OVER_ALL = "over all combinations together"
_EXTREMES = {"higher": ("higher", "highest"), "lower": ("lower", "lowest")}


@dataclass(frozen=True)
class _Finding:
    """What one question came to. ``rank``: of two, the lower is said first; ``numbers`` are of this question alone.

    ``metric``: with the load where several have it. ``place``: levels of the other factors, of pooled ones those that
    are fixed.
    """

    rank: int
    metric: str
    said: str
    numbers: str = ""
    place: str = ""
    pooled: bool = False

    @property
    def pooled_at(self) -> str:
        """Where only some combinations are pooled: nothing that is said of these is said of others."""
        return self.place if self.pooled else ""


_BEST, _SOME, _ALIKE, _DESCRIBED, _OPEN = range(5)


def answer(summary: Summary, questions: Sequence[Sequence[Comparison]], primary: Sequence[Estimate]) -> str:
    """``questions``: comparisons of one metric under one load each; ``primary``: estimates of what is asked about."""
    if not questions:
        return _without_verdicts(summary, primary)
    several = _under_several_loads((question[0].source, question[0].metric) for question in questions)
    findings = [_finding(question, several) for question in questions]
    counts = Counter(f.metric for f in findings if not f.pooled)
    decided = grouped(((f.rank, f.metric, f.said, f.pooled_at), f) for f in findings if f.rank < _DESCRIBED)
    clauses = [_clause(same, counts) for same in decided.values()]
    shown, more = clauses[:_MOST], len(clauses) - _MOST
    if more > 0:
        shown.append(f"{fmt.plural(more, 'further finding')} below")
    for rank, said in ((_DESCRIBED, "described, not judged"), (_OPEN, words.NOT_ESTABLISHED)):
        if those := [f for f in findings if f.rank == rank]:
            shown.append(f"{_metrics(those, counts)}: {said}")
    text = words.stop("; ".join(filter(None, (*shown, _missing(summary)))))
    metrics = tuple(f.metric for f in findings)
    text = text[0].upper() + text[1:] if text.startswith(metrics) else text  # and never the name of a level
    asked = _asked(primary)
    return f"{_described(summary, asked, _name_asked(primary))} {text}" if summary.sweeps and len(asked) > 1 else text


def _missing(summary: Summary) -> str:
    """ "2 of 3 comparisons are missing"; empty where none is."""
    missing = sum(c.verdict == "missing" for c in summary.comparisons)
    of = fmt.plural(len(summary.comparisons), "comparison")
    return f"{missing} of {of} {'is' if missing == 1 else 'are'} missing" if missing else ""


def _without_verdicts(summary: Summary, primary: Sequence[Estimate]) -> str:
    if not summary.claims or summary.comparisons:
        return _values(summary, primary)
    of = grouped((claim.name.rstrip(".:"), _verdict(claim)) for claim in summary.claims)
    said = " ".join(f"{name}: {', '.join(each)}." for name, each in list(of.items())[:_MOST])
    # A claim's interval is as wide as its verdict needs: a second one of the same metric would contradict it.
    claimed = {(claim.source, claim.metric) for claim in summary.claims}
    told = bool(primary) and (primary[0].source, primary[0].metric) in claimed
    return said if told else f"{said} {_values(summary, primary)}"


def _verdict(claim: Claim) -> str:
    where = f"{words.levels(claim.left)}: " if claim.left else ""
    return ", ".join(filter(None, (f"{where}{claim.verdict}", claim_value(claim))))


def _values(summary: Summary, primary: Sequence[Estimate]) -> str:
    if summary.comparisons:
        return f"Nothing could be compared: {_missing(summary)}."
    asked, name = _asked(primary), _name_asked(primary)
    if len(asked) == 1:
        (only,) = asked
        span = fmt.interval(only.low, only.high, only.unit, only.mean)
        return f"{name}: {_mean(only)}{f' ({span})' if span else ''}."
    if asked:
        return _described(summary, asked, name)
    measured = sum(cell.rounds > 0 for cell in summary.cells)
    return f"{fmt.plural(measured, 'cell')} measured, none compared." if measured else "Nothing was measured."


def _asked(primary: Sequence[Estimate]) -> list[Estimate]:
    return [e for e in primary if (e.source, e.metric) == (primary[0].source, primary[0].metric)]


def _name_asked(primary: Sequence[Estimate]) -> str:
    """Of the first load alone where several have the metric: the values are of that one."""
    several = _under_several_loads((e.source, e.metric) for e in primary)
    return next((_name(e.metric, e.source if e.metric in several else "") for e in primary), "")


def _described(summary: Summary, asked: Sequence[Estimate], name: str) -> str:
    """Values of a metric that nothing judges: all of a few, else the ends; of a single curve also its knee."""
    shared, _ = split_levels([e.levels for e in asked])

    def of(e: Estimate) -> str:
        return ", ".join(words.named(name, level) for name, level in e.levels.items() if name not in shared)

    if len(asked) <= _MOST and not summary.sweeps:
        return f"{name}: {', '.join(f'{of(e)} {_mean(e)}' for e in asked)}; described, not judged."
    low, high = min(asked, key=lambda e: e.mean), max(asked, key=lambda e: e.mean)
    said = f"{name}: from {_mean(low)} ({of(low)}) to {_mean(high)} ({of(high)})"
    knees = [knee for knee in summary.knees if knee.level is not None and knee.low is not None]
    if len(summary.knees) == len(knees) == 1:
        first, last = (words.named(knees[0].factor, str(end)) for end in (knees[0].low, knees[0].high))
        said += f"; the knee is {f'at {first}' if first == last else f'between {first} and {last}'}"
    return words.stop(said)


def _mean(e: Estimate) -> str:
    return fmt.quantity(e.mean, e.unit, e.low, e.high)


def _name(metric: str, source: str = "") -> str:
    """ "write bandwidth", for "write.bandwidth"; "bytes per transaction under oltp", with the load ``oltp``."""
    parts = re.split(r"[._](?![0-9])", metric.replace(".per-", ".per."))
    name = " ".join("IOPS" if part == "iops" else part for part in parts)
    if not source:
        return name
    return f"{name} of {source.removeprefix(PROBE)}" if source.startswith(PROBE) else f"{name} under {source}"


def _under_several_loads(keys: Iterable[tuple[str, str]]) -> Set[str]:
    """The metrics, of ``keys`` (source, metric), that more than one source has."""
    sources = Counter(metric for _, metric in dict.fromkeys(keys))
    return {metric for metric, count in sources.items() if count > 1}


def _load(c: Comparison, several: Set[str]) -> str:
    """The load, where it tells ``c`` from others and its place does not name it: loads can be levels of a factor."""
    return c.source if c.metric in several and c.source not in c.within.values() else ""


def _finding(question: Sequence[Comparison], several: Set[str]) -> _Finding:
    first = question[0]
    levels = list(dict.fromkeys(level for c in question for level in (c.a, c.b)))
    metric, place = _name(first.metric, _load(first, several)), words.levels(first.within)

    def found(rank: int, said: str = "", numbers: str = "") -> _Finding:
        return _Finding(rank, metric, said, numbers, place, first.pooled)

    verdicts = {c.verdict for c in question}
    if verdicts & {"better", "worse"}:
        return _of_differences(question, levels, metric, found)
    if "equivalent" in verdicts:
        return found(_ALIKE, _alike([c for c in question if c.verdict == "equivalent"], metric))
    return found(_DESCRIBED if all(c.described for c in question) else _OPEN)


def _alike(alike: Sequence[Comparison], metric: str) -> str:
    """Levels that are all equivalent to each other in one list; else what each is equivalent to."""
    first, margin = alike[0], fmt.margin(max(c.margin for c in alike))
    pairs = [(c.a, c.b) for c in alike]
    levels = list(dict.fromkeys(level for pair in pairs for level in pair))

    def named(those: Sequence[str]) -> str:
        return words.listed([words.named(first.factor, level) for level in those])

    if len(alike) == len(levels) * (len(levels) - 1) // 2:
        return f"{metric} of {named(levels)} is equivalent within {margin}"
    shared = next((level for level in levels if all(level in pair for pair in pairs)), None)
    if shared is not None:
        others = named([level for level in levels if level != shared])
        return f"{metric}: {others} are each equivalent to {named([shared])} within {margin}"
    (one, its), *rest = grouped(pairs).items()
    said = [f"{named([one])} is equivalent to {named(its)}", *(f"{named([a])} to {named(those)}" for a, those in rest)]
    return f"{metric}: {', '.join(said[:-1])}, and {said[-1]}, within {margin}"


def _of_differences(
    question: Sequence[Comparison], levels: Sequence[str], metric: str, found: Callable[..., _Finding]
) -> _Finding:
    first = question[0]
    best = words.best(question)
    if best is None and len(levels) == 2 * len(question):
        return found(_SOME, _pairs(question, metric))
    if best is None:
        return found(_SOME, f"{metric}: {words.lead(question).removesuffix('.') or words.claim(first)}")
    high, highest = _EXTREMES[first.better]
    who = words.named(first.factor, best)
    said = f"{who} has the {highest if len(levels) > 2 else high} {metric}"
    against = sorted((c for c in question if best in (c.a, c.b)), key=lambda c: abs((c.ratio or 1.0) - 1.0))
    times = [_times(c, best) for c in against]
    rest = len(times) - _OTHERS
    return found(_BEST, said, ", ".join(times[:_OTHERS]) + (f", and {rest} more" if rest > 0 else ""))


def _pairs(question: Sequence[Comparison], metric: str) -> str:
    """Of levels that are held against one other each: who is how many times whom, of those that are decided."""
    first, decided = question[0], [c for c in question if c.verdict in ("better", "worse")]
    clauses = []
    for c in decided:
        sides = [words.named(c.factor, level) for level in (c.a, c.b)]
        first_, second = reversed(sides) if c.better == "lower" else sides
        clauses.append(f"{first_} {_ratio(*times(c))} {second}")
    return f"{metric}: {', '.join(clauses)} ({first.better} is better)"


def _times(c: Comparison, best: str) -> str:
    """ "1.43× xfs" if higher is better, else "xfs 1.43×": a number above 1 in both."""
    other = words.named(c.factor, c.b if c.a == best else c.a)
    shown = _ratio(*times(c))
    return f"{shown} {other}" if c.better == "higher" else f"{other} {shown}"


def _ratio(value: float | None, low: float | None, high: float | None) -> str:
    """What the interval supports, of three digits at most where these do not read as 1."""
    short, whole = fmt.ratio(value), fmt.ratio(value, low, high)
    return whole if short == fmt.ratio(1.0) else min(short, whole, key=len)


def _clause(same: Sequence[_Finding], counts: Mapping[str, int]) -> str:
    """What one question, or several in the same way, came to; with numbers where they are of one."""
    places = _places(same, counts)
    numbered = next((f for f in same if f.pooled), same[0] if len(same) == 1 else None)
    numbers = f" ({numbered.numbers})" if numbered is not None and numbered.numbers else ""
    if len(same) > 1 and numbers:
        numbers = f"{numbers[:-1]} together)"
    return f"{same[0].said}{f' {places}' if places else ''}{numbers}"


def _metrics(findings: Sequence[_Finding], counts: Mapping[str, int]) -> str:
    """ "iops in 7 of 16 combinations, read bandwidth"."""
    metrics = grouped((f.metric, f) for f in findings)
    return ", ".join(" ".join(filter(None, (name, _places(same, counts)))) for name, same in metrics.items())


def _places(same: Sequence[_Finding], counts: Mapping[str, int]) -> str:
    """Where it is so, of all places where this metric was compared; empty where there is only one."""
    single = [f for f in same if not f.pooled]
    of = counts[same[0].metric]
    pooled = dict.fromkeys(f.place for f in same if f.pooled and (f.place or of))
    parts = [f"over the combinations with {place} together" if place else _OVER_ALL for place in pooled]
    if single and of > 1:
        some = f"in {len(single)} of {of}" if len(single) < of else "in both" if of == 2 else f"in all {of}"
        parts.append(f"with {single[0].place}" if len(single) == 1 else f"{some}{'' if parts else ' combinations'}")
    return " and ".join(parts)


# What stands around the answer: how much was measured and why the run ended, where and when it ran


def not_compared(comparisons: Iterable[Comparison]) -> list[str]:
    """A sentence for each reason why comparisons have no ratio, with where that is so, if elsewhere they have one."""
    every = list(comparisons)
    compared = {(c.factor, c.a, c.b) for c in every if c.ratio is not None}
    groups = grouped((c.reason, c) for c in every if c.ratio is None)
    return [
        words.not_compared(group, [words.place(c) for c in group if (c.factor, c.a, c.b) in compared])
        for group in groups.values()
    ]


def overview(summary: Summary) -> str:
    """How much was measured, and why the run ended, in one or two sentences."""
    measured = sum(cell.status in ("measured", "partly failed") for cell in summary.cells)
    cells = f"{measured} of {fmt.plural(len(summary.cells), 'cell')} measured" if summary.cells else ""
    rounds = f"{fmt.plural(summary.rounds_done, 'round')} done"
    undecided = sum(c.verdict == "undecided" for c in summary.comparisons)
    tally = words.tally(summary.comparisons)
    compared = f"{fmt.plural(len(summary.comparisons), 'comparison')}: {tally}" if tally else "no comparisons"
    stopped, ended = summary.stopped, "" if summary.stopped is None else words.stop(say(summary.stopped))
    goal = stopped.goal if isinstance(stopped, Stopped) else None
    if tally and isinstance(goal, Unanswered):  # the tally says what is open
        rounds, ended = f"{rounds}, the most that the study allows", ""
    elif tally and undecided == 0 and isinstance(goal, Answered) and goal.count == len(summary.comparisons):
        ended = ""
    counted = "; ".join(part for part in (rounds, cells, compared) if part)
    return f"{words.stop(counted)} {ended}".strip()


def within_budget(given: ReportInput) -> str:
    """ "One round fits the budget of 3 min. ", of a run that its budget ended; else empty."""
    manifest = given.manifest
    if manifest is None or not manifest.spent or manifest.minutes is None:
        return ""
    rounds = given.summary.rounds_done
    fit = "One round fits" if rounds == 1 else f"{fmt.plural(rounds, 'round')} fit"
    return f"{fit} the budget of {manifest.minutes:g} min. "


def resting(summary: Summary) -> str:
    """A sentence for all cells that were not run again after the same round; empty if every cell was due."""
    groups = grouped(((c.rests_after, c.rests_because), c) for c in summary.cells if c.rests_after is not None)
    return " ".join(
        f"{together(cells, summary.cells)} rested from round {after + 1} on: "
        + words.stop(rested(because, several=len(cells) > 1))
        for (after, because), cells in sorted(groups.items(), key=lambda group: group[0][0] or 0)
        if after is not None and because is not None
    )


def facts_line(given: ReportInput) -> str:
    manifest, shared = given.manifest, words.levels(shared_levels(given.summary))
    cells = {state.cell for state in given.summary.cells if state.rounds}
    loads = [
        f"{load}: {', '.join(facts)}"
        for load, of in load_facts(given.summary).items()
        if (facts := [f"{n} {t}" for n, t, at in of if {*at} == cells])
    ]
    parts = [f"everywhere {shared}" if shared else "", *loads]
    if manifest is not None:
        nodes = manifest.nodes
        kernels = sorted({facts.kernel.release for facts in nodes.values() if facts.kernel})
        parts = [
            f"run {manifest.run}",
            f"started {fmt.instant(manifest.started)}",
            f"{'node' if len(nodes) == 1 else 'nodes'} {words.compact(list(nodes))}" if nodes else "",
            f"Linux {', '.join(kernels)}" if kernels else "",
            f"Storlab {manifest.storlab}",
            *parts,
        ]
    return " · ".join(part for part in parts if part)


def hosts(given: ReportInput) -> Iterator[str]:
    """Which machine did which rounds, if several did."""
    places = machines_of_rounds(given.trials)
    if not places:
        return
    rounds = grouped((host, number) for number, host in places.items() if host)
    each = "; ".join(f"{host}: {ranges(numbers)}" for host, numbers in rounds.items())
    yield (
        f"Several machines did rounds ({each}). Ratios are of trials on the same machine; means of cells mix machines, "
        "and verdicts are about these machines"
    )
