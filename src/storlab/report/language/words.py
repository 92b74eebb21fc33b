"""The sentences of a report: what a comparison says, in words that need no table beside them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from storlab.analysis.summary import Comparison, GateResult, Summary, Verdict
from storlab.base.text import grouped
from storlab.report.language import format as fmt
from storlab.report.language.phrases import stop as stop
from storlab.report.language.say import say

MARKS: dict[Verdict, str] = {"better": "▲", "worse": "▼", "equivalent": "≈", "undecided": "?", "missing": "−"}
"""A shape for each verdict, so that none depends on colour alone."""
DESCRIBED = "~"
"""The mark of a difference that is described and not judged."""

TERMS = {
    "cell": "A cell is one combination of levels: what is set up and measured as one.",
    "level": "A level is one of the values that a factor takes, such as a file system.",
    "round": "In a round each cell is measured once, in a random order; levels are compared within rounds.",
    "pooled": "Pooled: over all combinations of the other factors together.",
}
"""What our own words mean, for who meets them first in a report."""
NOT_MEASURED = "not measured"
POOLED = "all combinations pooled"
FAIRNESS = "Jain's index: 1 where all nodes get the same, 1/n where one of n nodes gets everything."
START_SKEW = "From the first node's start to the last one's."
STOOD_STILL = (
    "The longest time for which a node stood still as a whole: it answered nothing, and its own ticks came late."
)
UNSAFE = "A flush is answered before the data are on the disk: a power cut can lose data that were reported as safe."
_BARE = re.compile(r"[-+]?[0-9][0-9.]*|on|off|yes|no|true|false|none|default", re.IGNORECASE)
_NAMED = 4  # of more, the first are named
_SAID = 2  # claims in one sentence; of more, nobody makes an order
NOT_ESTABLISHED = "no difference established yet"
NO_INTERVAL = "One round gives no interval."
_DIRECTIONS = {"higher": "higher is better", "lower": "lower is better"}


def direction(better: str) -> str:
    """ "higher is better"; empty for a metric without a preferred direction."""
    return _DIRECTIONS.get(better, "")


def levels(chosen: Mapping[str, str]) -> str:
    """ "load=random-write, bs=4k"."""
    return ", ".join(f"{factor}={level}" for factor, level in chosen.items())


def speaks_for_itself(level: str) -> bool:
    """Whether a level is understood without its factor; "8" and "on" are not."""
    return _BARE.fullmatch(level) is None


def named(factor: str, level: str) -> str:
    """ "qd=8"; a level that speaks for itself alone."""
    return level if speaks_for_itself(level) else f"{factor}={level}"


def legend(comparisons: Iterable[Comparison]) -> str:
    described = f", {DESCRIBED} described" if any(c.described for c in comparisons) else ""
    return f"▲ better, ▼ worse, ≈ equivalent{described}, ? undecided"


def mark(comparison: Comparison) -> str:
    """A shape for each kind of answer."""
    return DESCRIBED if comparison.described else MARKS[comparison.verdict]


def place(comparison: Comparison) -> str:
    """Where a comparison holds: levels of the other factors, or all of them pooled."""
    return ", ".join(filter(None, (POOLED if comparison.pooled else "", levels(comparison.within))))


def listed(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def compact(names: Sequence[str]) -> str:
    """As ``listed``, with a row of numbered names in short: "vm-1 to vm-4 and storage"."""
    parts: list[str] = []
    rest = list(names)
    while rest:
        run = _run(rest)
        parts += [f"{rest[0]} to {rest[run - 1]}"] if run > 2 else rest[:run]
        rest = rest[run:]
    return listed(parts)


def _run(names: Sequence[str]) -> int:
    """How many of the first names count on: ``vm-1``, ``vm-2``, …"""
    text = names[0].rstrip("0123456789")
    digits = names[0][len(text) :]
    if not digits.isascii() or not digits or len(digits) > 9:
        return 1
    counted = (f"{text}{number}" for number in range(int(digits), int(digits) + len(names)))
    return max(1, next((i for i, (a, b) in enumerate(zip(names, counted, strict=True)) if a != b), len(names)))


def claim(comparison: Comparison) -> str:
    """The verdict alone: "ext4 is better than xfs"."""
    a, b = comparison.a, comparison.b
    if comparison.verdict == "equivalent":
        return f"{a} and {b} are equivalent within {fmt.margin(comparison.margin)}"
    if comparison.verdict == "undecided":
        return f"{a} against {b}{'' if comparison.described else ' is undecided'}"
    return f"{a} is {comparison.verdict} than {b}"


def evidence(comparison: Comparison) -> str:
    """What stands behind the ratio: its interval and rounds, and what is missing where it is undecided."""
    span = fmt.ratio_interval(comparison.low, comparison.high, comparison.ratio) or "no interval yet"
    text = f"({span}, {fmt.plural(comparison.rounds, 'round')})."
    if comparison.verdict != "undecided":
        return text
    return f"{text} {lacks(comparison)}".strip()


def lacks(comparison: Comparison) -> str:
    if comparison.described is not None:
        return stop(say(comparison.described))
    return " ".join(filter(None, (lacking(comparison), more_rounds(comparison))))


def lacking(comparison: Comparison) -> str:
    """What kind of undecided it is, as a sentence that can't be taken for a verdict; empty where there are no kinds."""
    found = comparison.undecided
    if found is None:
        return ""
    match found.kind:
        case "leaning":
            return f"Leaning: {leaning(comparison)}, which is not enough yet."
        case "too few rounds":
            return f"Too few rounds to decide anything: a verdict takes at least {found.fewest}."
        case "no evidence":
            return "No evidence of a difference yet."
        case "not steady":
            return stop(say(comparison.reason))


def leaning(comparison: Comparison) -> str:
    """ "better in 12 of 12 rounds"; "higher" of a metric without a better direction."""
    assert comparison.undecided is not None and comparison.ratio is not None
    above = comparison.ratio > 1
    if direction(comparison.better):
        side = "better" if above == (comparison.better == "higher") else "worse"
    else:
        side = "higher" if above else "lower"
    return f"{side} in {comparison.undecided.agreeing} of {fmt.plural(comparison.rounds, 'round')}"


def sentence(comparison: Comparison) -> str:
    """Verdict, ratio, interval and rounds; for comparisons without a ratio, why there is none."""
    if comparison.ratio is None:
        return not_compared([comparison])
    return f"{claim(comparison)}: {ratio(comparison)} {evidence(comparison)}"


def ratio(comparison: Comparison) -> str:
    """ "1.42×", to the digits that its interval supports."""
    return fmt.ratio(comparison.ratio, comparison.low, comparison.high)


def not_compared(comparisons: Sequence[Comparison], places: Iterable[str] = ()) -> str:
    """Comparisons without a ratio that share a reason, as one sentence; ``places``: where, unless everywhere."""
    pairs = against(comparisons)
    found = list(filter(None, dict.fromkeys(places)))
    where = "; ".join(found if len(found) <= _NAMED else [*found[: _NAMED - 1], f"{len(found) - _NAMED + 1} more"])
    where = f" ({where})" if where else ""
    return f"{pairs} cannot be compared{where}: {stop(say(comparisons[0].reason))}"


def against(comparisons: Iterable[Comparison]) -> str:
    """ "zfs against ext4 and zfs against xfs"."""
    return _some(list(dict.fromkeys(f"{named(c.factor, c.a)} against {named(c.factor, c.b)}" for c in comparisons)))


def unanswered(comparisons: Iterable[Comparison], gates: Sequence[Sequence[GateResult]]) -> tuple[str, ...]:
    """A sentence for each reason why gates have no measurement to go by. ``gates``: of each comparison."""
    missing = [
        (c, tuple(result.gate for result in of if result.outcome == "missing"))
        for c, of in zip(comparisons, gates, strict=True)
    ]
    reasons = grouped(((names, c.reason), c) for c, names in missing if names)
    return tuple(
        f"Not answered: {listed(names)} on {against(those)}{_of_places(those)}: {stop(say(reason))}"
        for (names, reason), those in reasons.items()
    )


def unsteady(summary: Summary) -> tuple[str, ...]:
    """That the steady state which a study asks for was not reached, in a sentence; none where it was."""
    if summary.unsteady is None:
        return ()
    return (
        f"{say(summary.unsteady)} The study asks for it: nothing is judged, and all figures, of the rounds from "
        f"{summary.reported_since} on, are of a state that was still changing.",
    )


def missing(summary: Summary) -> str:
    """ "2 of 3 comparisons and 1 of 2 claims are missing"; empty where nothing is that was asked for."""
    asked = {
        "comparison": [c.verdict == "missing" for c in summary.comparisons if not c.optional],
        "claim": [claim.verdict == "missing" for claim in summary.claims_of_its_levels],
        "objective": [objective.missing for objective in summary.objectives],
    }
    said = [f"{sum(of)} of {fmt.plural(len(of), noun)}" for noun, of in asked.items() if any(of)]
    return f"{listed(said)} {are(sum(map(sum, asked.values())))} missing" if said else ""


def _of_places(comparisons: Sequence[Comparison]) -> str:
    places = [where for where in dict.fromkeys(map(place, comparisons)) if where]
    return f" ({_some(places)})" if places else ""


def more_rounds(comparison: Comparison) -> str:
    if comparison.rests_after is not None:
        return f"It rests from round {comparison.rests_after + 1} on."
    if comparison.rounds_to_decide:
        rounds = fmt.plural(fmt.about(comparison.rounds_to_decide), "more round")
        return f"About {rounds} would be needed to decide."
    if not direction(comparison.better):
        return "Neither direction of this metric is better."
    if comparison.settled:
        return "More rounds would not decide it."
    return "How many more rounds it needs is not yet estimable."


def lead(comparisons: Sequence[Comparison]) -> str:
    """Who wins among several levels under one load; empty where one comparison says it all."""
    if len(comparisons) < 2:
        return ""
    names = list(dict.fromkeys(name for c in comparisons for name in (c.a, c.b)))
    if all(c.verdict == "equivalent" for c in comparisons):
        if len(comparisons) < len(names) * (len(names) - 1) // 2:  # a like b, and b like c, says little of a and c
            return "All pairs that were compared are equivalent; not every pair was compared."
        return f"{listed(names)} are equivalent."
    wins = _wins(comparisons)
    if winner := best(comparisons):
        return f"{winner} is better than {listed([n for n in names if n in wins[winner]])}."
    if all(c.described for c in comparisons):
        return ""
    if not any(wins.values()):
        return f"{NOT_ESTABLISHED[0].upper()}{NOT_ESTABLISHED[1:]}."
    alike = grouped((tuple(n for n in names if n in wins[name]), name) for name in names if wins[name])
    if len(alike) <= _SAID:
        return f"{'; '.join(f'{_are_better(having, than)}' for than, having in alike.items())}."
    if len(names) == 2 * len(comparisons):  # no level was compared with those of another pair
        return _of_pairs(comparisons)
    unbeaten = [name for name in names if not any(name in beaten for beaten in wins.values())]
    return f"No single best: nothing beats {' or '.join(unbeaten)}." if unbeaten else "No single best."


def _of_pairs(comparisons: Sequence[Comparison]) -> str:
    found = Counter(c.verdict for c in comparisons)
    if len(found) == 1:
        return f"The first of each pair is {comparisons[0].verdict}."
    counts = [f"{verdict} in {found[verdict]}" for verdict in MARKS if found[verdict]]
    return f"Of {len(comparisons)} pairs, the first is {listed(counts)}."


def best(comparisons: Sequence[Comparison]) -> str | None:
    """The level that is better, by a verdict, than every other level of ``comparisons``."""
    wins = _wins(comparisons)
    return next((name for name, beaten in wins.items() if beaten == wins.keys() - {name}), None)


def _wins(comparisons: Sequence[Comparison]) -> dict[str, set[str]]:
    wins = {name: set[str]() for c in comparisons for name in (c.a, c.b)}
    for c in comparisons:
        if c.verdict == "better":
            wins[c.a].add(c.b)
        elif c.verdict == "worse":
            wins[c.b].add(c.a)
    return wins


def _are_better(names: Sequence[str], than: Sequence[str]) -> str:
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'} better than {listed(than)}"


def tally(comparisons: Sequence[Comparison]) -> str:
    """ "4 better or worse, 1 undecided": the whole study in one line."""
    compared = [c.verdict for c in comparisons if c.ratio is not None]
    described = sum(c.ratio is not None and bool(c.described) for c in comparisons)
    undecided = compared.count("undecided") - described
    leaning = sum(c.undecided is not None and c.undecided.kind == "leaning" for c in comparisons)
    equivalent = compared.count("equivalent")
    decided = len(compared) - undecided - equivalent - described
    parts = [
        f"{decided} better or worse" if decided else "",
        f"{equivalent} equivalent" if equivalent else "",
        f"{undecided} undecided{f' ({leaning} leaning)' if leaning else ''}" if undecided else "",
        f"{described} described" if described else "",
        f"{len(comparisons) - len(compared)} missing" if len(comparisons) > len(compared) else "",
    ]
    return ", ".join(part for part in parts if part)


def certainty(summary: Summary) -> str:
    """What confidence the intervals of comparisons have, and the verdicts together; one sentence for all of them."""
    each = sorted({c.confidence for c in summary.comparisons if c.ratio is not None})
    together = fmt.confidence(summary.confidence)
    if not each:
        return ""
    ends = list(dict.fromkeys(fmt.confidence(confidence) for confidence in (each[0], each[-1])))
    if ends == [together]:
        return f"Ranges in parentheses are {together} intervals."
    said = f"Ranges in parentheses are intervals at {' to '.join(ends)}, as much as each verdict needs"
    return f"{said}, so that all verdicts together hold at {together}."


def _some(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return listed(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more"


def are(count: int) -> str:
    """The verb for so many."""
    return "is" if count == 1 else "are"
