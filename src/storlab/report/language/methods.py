"""How intervals and verdicts were made, how long a study takes to decide, and what is claimed: in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storlab.base.amounts import percent, plural
from storlab.report.language.format import interval, quantity, ratio, ratio_interval
from storlab.report.language.of_answers import claimed_range

if TYPE_CHECKING:
    from storlab.analysis.data import Claim, Expected
    from storlab.analysis.foresight import Foresight
    from storlab.analysis.runs.across_runs import RunsMethod
    from storlab.analysis.summary import Method

_COMPARED = (
    "Levels are compared by round: the logarithm of the ratio of two trials of the same round, so that drift "
    "of the machine cancels. Verdicts and intervals rest on signs and ranks of these (sequential signed ranks, "
    "anytime-valid): they hold for noise of any shape, {order}, even if one looks after every round. The ratio is "
    "the typical one (Hodges and Lehmann), which a few odd rounds don't move; a verdict also needs a mean on the same "
    "side. {corrected} No verdict is given before {min_rounds} rounds. Intervals of means of single cells are t "
    "intervals (Gaussian mixture, effect variance {g:g}) at {confidence}, each for itself."
)
_DRAWN = "as the order within rounds is random"
_NOT_DRAWN = "as far as the order within rounds favours neither side (that it was drawn at random is not known)"
_DESCRIBED = (
    "Nothing was compared. Means are over rounds; their intervals are anytime-valid t intervals (Gaussian mixture, "
    "effect variance {g:g}) at {confidence}, each for itself and not corrected for how many there are."
)
_SINGLE = "Nothing was compared. Each number is of one round, which has no interval."
_RESTED = (
    "Cells that no open comparison needed any more were not run again; their comparisons stand as they were then, and "
    "means are of the rounds in which a cell was run."
)
_STEADY = (
    "Reported are the rounds from {since} on: those in steady state, or the last five, unjudged. "
    "What came before is in the records, and in no figure or verdict."
)
_AIMED = (
    "Part of the evidence aims at round {planned}, the last one planned, as was recorded before the rounds that this "
    "governs."
)
_SAMPLES = "Samples within a trial are not repeats and never count as such."


def method(of: Method) -> str:
    confidence = percent(of.confidence)
    corrected = f"The confidence of {confidence} holds for the whole study"
    if of.family > 1:
        corrected += (
            f": by closed testing, each of its {plural(of.family, 'comparison')} needs more evidence, and has a wider "
            "interval, the more of the others are still open"
        )
    lead = {"compared": _COMPARED, "described": _DESCRIBED, "single": _SINGLE}[of.kind].format(
        g=of.effect_variance, order=_DRAWN if of.drawn else _NOT_DRAWN, corrected=f"{corrected}.",
        min_rounds=of.min_rounds, confidence=confidence,
    )  # fmt: skip
    further = [_AIMED.format(planned=of.planned)] if of.planned is not None and of.kind == "compared" else []
    further += [_RESTED] if of.rested else []
    if of.since is not None:
        further.append(_STEADY.format(since=of.since))
    return " ".join((lead, *further, _SAMPLES))


def effects_method(blocks: bool) -> str:
    if blocks:
        return (
            "Mixed model of logarithms: factors and interactions fixed, rounds and what is set up once for several "
            "cells of a round random (moments)."
        )
    return "Mixed model of logarithms: factors and interactions fixed, rounds random (REML)."


def runs_method(of: RunsMethod) -> str:
    corrected = f"The confidence of {percent(of.confidence)} holds for all together"
    if of.family > 1:
        each = percent(1 - (1 - of.confidence) / of.family)
        corrected += f": {plural(of.family, 'comparison')}, by closed testing; what is described is held to {each}"
    said = {
        "Trials that were interleaved are paired by round: anytime-valid intervals and verdicts, as in a report.": (
            of.paired
        ),
        "Trials that were not interleaved: Welch's t interval of the difference of mean logarithms (Welch 1947), for a "
        "number of rounds that was fixed in advance; it covers the spread of rounds within a run, not what differs "
        "between runs.": of.unpaired,
        "One round of a side has no spread, and so no interval.": of.single,
        "Pooled: for each round, the mean of the logarithms of all combinations, so that rounds remain the unit, and "
        "all combinations have equal weight.": of.pooled,
        f"{corrected}.": of.intervals,
        "Variability is that of samples within trials, which depend on each other: it is described, by population "
        "variances, and never judged.": of.variability,
    }
    return " ".join(text for text, true in said.items() if true)


def claim_value(claim: Claim) -> str:
    """ "8.3 ms (4.2 to 12.3 ms, 15 rounds)", or a ratio; empty if nothing was measured."""
    if claim.value is None:
        return ""
    if claim.right:
        value = ratio(claim.value, claim.low, claim.high)
        span = ratio_interval(claim.low, claim.high, claim.value)
    else:
        value = quantity(claim.value, claim.unit, claim.low, claim.high)
        span = interval(claim.low, claim.high, claim.unit, claim.value)
    return f"{value} ({span or 'no interval yet'}, {plural(claim.rounds, 'round')})"


def expected(claim: Expected, unit: str) -> str:
    """ "more than 2×", "below 10 ms"."""
    if claim.word == "between":
        return claimed_range(claim.low, claim.high, unit)
    if claim.word != "equivalent":
        return claim.word if claim.limit == 1 else f"{claim.word} than {claim.limit:g}×"
    return claim.word if claim.margin is None else f"{claim.word} within ±{percent(claim.margin)}"


def earliest(seen: Foresight) -> str:
    first = f"after {plural(seen.fewest, 'round')} at the earliest"
    if seen.alone == seen.fewest:
        return first
    return (
        f"{first}, where all {seen.comparisons} comparisons are clear; "
        f"after {seen.alone} where one is clear and the others show nothing"
    )


def forecast(seen: Foresight) -> str:
    takes = [
        f"of {percent(by)} in {'more rounds than is practical' if n is None else 'about ' + plural(n, 'round')}"
        for by, n in seen.rounds
    ]
    late = any(rounds is None or rounds > seen.most for _, rounds in seen.rounds)
    stops = f" (it stops after {seen.most})" if late else ""
    if seen.finds is not None:
        stops += f", and one of {percent(seen.finds)} in four of five cases within {plural(seen.most, 'round')}"
    return f"a difference {', '.join(takes)}{stops}, if ratios vary by {percent(seen.noise.sd)} {seen.noise.source}"


def too_few(seen: Foresight) -> str:
    """Where the study allows too few rounds, as sentences; else empty."""
    most = f"{'it stops after' if seen.most > 1 else 'there is only'} {plural(seen.most, 'round')}"
    remedy = "Raise repeat.max (or --rounds)"
    if seen.most < seen.fewest:
        return f"This can't decide anything: {most}, and a verdict takes at least {seen.fewest}. {remedy}."
    if seen.most < seen.alone:
        return (
            f"This can hardly decide anything: {most}, and a verdict on one of {seen.comparisons} comparisons "
            f"takes at least {seen.alone} while the others show nothing. {remedy}, or ask fewer questions."
        )
    return ""
