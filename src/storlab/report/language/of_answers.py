"""What findings say that answer: verdicts, gates, claims, curves and effects of factors."""

from __future__ import annotations

from storlab import findings
from storlab.base.amounts import percent, plural
from storlab.findings import Finding, answers
from storlab.report.language.format import scale
from storlab.report.language.phrases import Nested, Say, Words, stop, times, times_alone


def _compared(f: findings.Compared, say: Say) -> str:
    if f.higher == f.lower == 0:
        counted = f"{f.a} equals {f.b} in each of {f.rounds} rounds"
    else:
        side, count = ("higher", f.higher) if f.higher >= f.lower else ("lower", f.lower)
        counted = f"{f.a} is {side} than {f.b} in {count} of {f.rounds} rounds"
    seen = counted if f.ratio is None else f"{counted}: {times(f.low, f.ratio, f.high)}"
    so = _far(f.so, f.a, f.b) if isinstance(f.so, answers.WithinMargin) and f.so.but == "far rounds" else say(f.so)
    return stop(f"{seen}; {so}")


def _within_margin(f: answers.WithinMargin, say: Say) -> str:
    margin = f"the margin of ±{percent(f.margin)}"
    if f.but in _BUT:
        return f"the interval lies within {margin}, but {_BUT[f.but]}"
    real = ", and the difference, though real, is within it" if f.real else ""
    return f"the interval lies within {margin}{real}. {say(f.far) if f.far else ''}".strip()


_BUT = {
    "failed rounds": "failed rounds count against that",
    "evidence": "that takes a little more evidence",
    "zeros": "zeros are no evidence of that",
    "small counts": "counts so small are no evidence of that",
}


def _far(f: answers.WithinMargin, a: str, b: str) -> str:
    far = f.far
    assert far is not None
    lower = f"all with the lower value for {a if far.below else b}"
    return (
        f"typical rounds lie within the margin of ±{percent(f.margin)}, but {far.above + far.below} of "
        f"{plural(far.rounds, 'round')} differ by more than {percent(far.band)}, {lower}"
    )


def _far_rounds(f: answers.FarRounds) -> str:
    if f.rarer_than is None:
        return f"That is said of typical rounds: how many differ by more than {percent(f.band)} is not known."
    if f.rarer_than > 0.1:
        return (
            f"That is said of typical rounds: up to {percent(f.rarer_than)} of all may differ by more than "
            f"{percent(f.band)}."
        )
    return f"Fewer than {percent(f.rarer_than)} of rounds differ by more than {percent(f.band)}."


def _not_everywhere(f: answers.NotEverywhere, say: Say) -> str:
    if f.verdict:
        lead = f"All machines together give the verdict {f.verdict}, and one by one they contradict it."
    else:
        lead = f"On average the ratio is within the margin of ±{percent(f.margin)}, but not everywhere."
    return f"{lead} {say(f.differ)}"


def _not_steady(f: answers.NotSteady) -> str:
    if not f.of:
        return f"No trial has {f.metric}, whose steady state the study asks for."
    verb = "is" if f.moving == 1 else "are"
    return f"{f.moving} of {plural(f.of, 'point')} of {f.metric} {verb} not in steady state."


def _gated(f: answers.Gated, say: Say) -> str:
    more = f" by more than {f.limit * 100:.10g} %" if f.limit else ""
    differs = f.word == "differs"
    claim = f"{f.a} {'differs from' if differs else f'is {f.word} than'} {f.b}"
    unlike = f"{f.a} {'does not differ from' if differs else f'is not {f.word} than'} {f.b}{more}"
    span = "" if f.ratio is None else times(f.low, f.ratio, f.high)
    whether = f"It is undecided whether {claim}{more}: "
    if f.outcome == "undecided":
        return f"{whether}{_undecided(f, span, say)}"
    if f.paired:
        return f"{unlike if f.outcome == 'passed' else claim + more * f.given}: {span}, paired by round."
    if f.outcome == "passed":
        return f"{unlike}: {span} with this interval (runs not interleaved)."
    why = "runs not interleaved, so time, the machine's state or a version may be the cause"
    side = "" if differs else f", for the {f.word}"
    return f"{f.a} differs from {f.b}{more * f.given}{side}: {span} with this interval, {why}."


def _undecided(f: answers.Gated, span: str, say: Say) -> str:
    if f.differ is not None:
        return say(f.differ)
    if not f.paired:
        return "there are too few rounds for an interval." if not span else f"{span}, runs not interleaved."
    if f.need:
        return f"{f.rounds} of at least {plural(f.need, 'round')}."
    return f"{span} after {plural(f.rounds, 'round')}."


def _gate_on_verdict(f: findings.GateOnVerdict, say: Say) -> str:
    if f.state == "there" or f.why is None:
        return "Both sides are there."
    return f"{f.a} against {f.b} is {f.state}: {stop(say(f.why))}"


def _claim(f: answers.ClaimAnswer) -> str:
    limit = f"{f.limit:g}"
    margin = "" if f.limit is None else f"±{percent(f.limit)}" if f.lies in _WITHIN else ""
    return _CLAIM[f.lies].format(limit=limit, margin=margin)


_WITHIN = ("equivalent", "within", "beyond", "open within")
_CLAIM = {
    "above": "The evidence puts the ratio above {limit}.",
    "below": "The evidence puts the ratio below {limit}.",
    "open": "The evidence does not establish on which side of {limit} the ratio lies.",
    "equivalent": "They are equivalent within {margin}.",
    "within": "The evidence puts the ratio within the margin of {margin}.",
    "beyond": "The evidence puts the ratio beyond the margin of {margin}.",
    "open within": "The evidence is not enough to tell whether the ratio lies within the margin of {margin}.",
}


def claimed_range(low: float | None, high: float | None, unit: str) -> str:
    """ "below 10 ms", "from 1.9 to 2.1"; empty if neither end is known."""
    chosen = scale(low or high or 0.0, unit)
    first, last = ("" if end is None else chosen.attach(f"{end / chosen.factor:g}") for end in (low, high))
    if first and last:
        return f"from {first} to {last}"
    return f"above {first}" if first else f"below {last}" if last else ""


def _claim_range(f: answers.ClaimRange, say: Say) -> str:
    expected = claimed_range(f.low, f.high, f.unit)
    lead = {
        "within": "The interval lies within what is claimed",
        "outside": "The interval lies outside the claimed range",
        "reaches beyond": "The interval reaches beyond what is claimed",
    }[f.lies]
    lacks = "" if f.lacks is None else f" That is true of these rounds: {say(f.lacks)}."
    return f"{lead}, {expected}.{lacks}"


_UNANSWERED = {
    "no cell": "No cell of this run has these levels.",
    "no pair": "No cells of this study differ in these levels alone.",
    "not interleaved": "The cells were not interleaved with each other.",
}


def _no_knee(f: answers.NoKnee) -> str:
    seen = f"still grows at {f.level}" if f.grows else f"falls from {f.level} on"
    if f.sure:
        return f"No knee within the range: throughput ÷ latency {seen}."
    fewer = f"; that takes at least {f.need} rounds" if f.need else ""
    return f"Not established whether there is a knee within the range: on average, throughput ÷ latency {seen}{fewer}."


def _objectives(f: answers.ObjectiveEnds, say: Say) -> str:
    if f.need:
        lead = f"Too few rounds: a confidence of {percent(f.confidence)} takes at least {f.need}."
    elif f.unclear:
        lead = f"{plural(f.unclear, 'step')} may lie on either side of the limit."
    elif f.all_hold:
        lead = "It holds at every step: the limit lies beyond the range."
    else:
        lead = "It holds at no step." if f.none_holds else "Every step is established."
    lacks = "" if f.lacks is None else f" That is true of these rounds: {say(f.lacks)}."
    gone = f" {plural(f.unmeasurable, 'step')} cannot be measured here." if f.unmeasurable else ""
    return f"{lead}{lacks}{gone}"


def _effects_doubt(f: answers.EffectsDoubt) -> str:
    return _DOUBTS[f.why].format(have=f.have, of=f.of, rounds=plural(f.have, "round"))


_DOUBTS = {
    "not interleaved": (
        "Not interleaved: any drift is part of the shares and means of factors too, so none of them is a verdict."
    ),
    "resting": "From the first {rounds} only: in later ones some cells rested.",
    "complete rounds": "From the {rounds} that have every combination, of {of}.",
    "no value": "It has no value in these rounds, so there are no shares.",
    "not positive": "It is 0 or negative in some trials, so there are no logarithms and no shares.",
    "chance": "More rounds are needed to tell effects from chance: no shares yet.",
    "combinations": (
        "Only {have} of {of} combinations were measured: shares overlap, and means of levels are over different "
        "combinations."
    ),
    "unbalanced": "Unbalanced: not every round has every combination, so shares depend on what else is in the model.",
}


def _aliased(f: answers.Aliased) -> str:
    if len(f.factors) == 1:
        return f"{f.factors[0]} is indistinguishable from the other factors: its levels vary together with theirs."
    a, b = f.factors
    return f"The interaction of {a} and {b} is indistinguishable from the rest: combinations are missing."


def _not_examined(f: answers.NotExamined) -> str:
    names = ", ".join(f"{metric} of {source}" for source, metric in f.metrics)
    return f"Not examined, because a value is missing in some round: {names}{f' and {f.more} more' if f.more else ''}."


WORDS: dict[type[Finding], Words] = {
    findings.Compared: Nested(_compared),
    answers.FarRounds: _far_rounds,
    answers.WithinMargin: Nested(_within_margin),
    answers.MeanBeyondMargin: lambda f: (
        f"typical rounds lie within the margin of ±{percent(f.margin)}, but the mean may lie beyond: "
        f"{times(f.low, f.mean, f.high)}"
    ),
    answers.NoInterval: lambda f: (
        f"an interval takes at least {f.need} rounds" if f.need else "these allow no interval yet"
    ),
    answers.IncludesOne: lambda f: (
        f"the interval includes 1{f' and reaches beyond the margin of ±{percent(f.margin)}' if f.margin > 0 else ''}"
    ),
    answers.FailedMayMatter: (
        "the interval excludes 1, but {rounds:#round} that failed on one side might have changed the answer"
    ),
    answers.MeanDisagrees: lambda f: (
        f"the interval excludes 1, but the mean, {times_alone(f.mean)}, does not: a few rounds go far the other way"
    ),
    answers.Differs: lambda f: (
        ("an earlier look" if f.kept else "the interval")
        + " excludes 1, "
        + ("they differ, but neither direction of this metric" if f.better == "neither" else f"and {f.better}")
        + (" is better; all rounds together would not show it any more" if f.kept else " is better")
    ),
    answers.NotEverywhere: Nested(_not_everywhere),
    answers.NotSteady: _not_steady,
    answers.NotSteadyRuns: Nested(
        lambda f, say: " ".join(f"{name}: {say(why)}" for name, why in f.runs) + " Nothing is judged by it." * f.alone
    ),
    answers.Gated: Nested(_gated),
    findings.GateOnVerdict: Nested(_gate_on_verdict),
    answers.GateWithoutDirection: (
        "Neither direction of {metric} is better, so nothing can be {word}: ask for differs."
    ),
    findings.GateUnpaired: "It is undecided what {a} is against {b}: {why:say}.",
    answers.ClaimAnswer: _claim,
    answers.ClaimRange: Nested(_claim_range),
    answers.ClaimUnanswered: lambda f: (
        f"This run has no {' and no '.join(f.absent)}." if f.absent else _UNANSWERED[f.why]
    ),
    answers.ClaimContradicted: "Combinations differ: contradicted in {combinations:,}.",
    answers.LostRounds: "{rounds:#round} without a value might have changed the answer.",
    answers.NotIndependent: lambda f: (
        f"in fewer than {f.need} rounds nobody can tell whether one tells of the next"
        if f.need
        else "one round tells of the next"
    ),
    answers.KneeFound: lambda f: (
        "Throughput ÷ latency is largest there."
        + (" The rounds allow for a knee at an end of the range, or beyond." if f.may_be_end else "")
    ),
    answers.NoKnee: _no_knee,
    answers.ObjectiveEnds: Nested(_objectives),
    answers.EffectsDoubt: _effects_doubt,
    answers.Aliased: _aliased,
    answers.NotExamined: _not_examined,
}
