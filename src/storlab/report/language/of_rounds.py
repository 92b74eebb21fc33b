"""What findings say that are about rounds, sides and other findings."""

from __future__ import annotations

from storlab import findings
from storlab.base.amounts import numbered, plural
from storlab.base.text import ranges
from storlab.findings import Finding, rounds
from storlab.report.language.phrases import FEW, Nested, Say, Words, lowered, stop, times, times_alone


def _in_trials(finding: findings.InTrials, say: Say) -> str:
    text, numbers = say(finding.finding), finding.trials
    if len(numbers) == 1:
        return f"trial {numbers[0]}: {text.replace('trials/…/', f'trials/{numbers[0]:04d}/')}"
    return f"trials {ranges(sorted(numbers))}: {text}"


def _about(finding: findings.About, say: Say) -> str:
    lead = {"side": "{}: ", "combinations": "In {}: ", "left out": "Not over {}: "}[finding.of]
    joint = "; " if finding.of == "left out" else " and "
    late = finding.of == "left out" and isinstance(finding.finding, rounds.NoTrial)
    return f"{lead.format(joint.join(finding.names))}{(lowered if late else str)(say(finding.finding))}"


def _outliers(finding: rounds.Outliers) -> str:
    if not finding.rounds:
        return f"Some of its {finding.noun}s are outliers (modified z-score above 3.5)."
    verb = "is an outlier" if len(finding.rounds) == 1 else "are outliers"
    return f"{numbered(finding.noun, finding.rounds).capitalize()} {verb} (modified z-score above 3.5)."


_TOO_FEW = {
    "estimate": "Only {0} of at least {1} rounds.",
    "verdict": "{2} done on both sides: a verdict needs at least {1}.",
    "claim": "{2} of at least {1}.",
    "shares": "Only {2}: shares of fewer than {1} rounds vary much by chance.",
}
_LEFT_OUT = {
    "not done": "Left out: {rounds}, done for {other} but not for {side}.",
    "incomplete": "Left out: {rounds}, not done in every combination.",
    "failed trials": "Left out: {trials} of {side} that failed.",
    "one side": "Left out: {trials} of runs that have only one of the two.",
    "one side or order": "Left out: {trials} of runs that have only one of the two, or both in one order.",
    "one combination": "Left out: {combinations} that only one side has.",
    "not finite": "No finite value in {counted}: left out.",
    "no request": "No {side} request in {counted} of {of}: left out.",
}


def _left_out(finding: rounds.LeftOut) -> str:
    if finding.why == "failed":
        count = "it counts" if len(finding.rounds) == 1 else "they count"
        named = numbered("round", finding.rounds)
        return f"Left out: {named}, in which only {finding.side} failed; {count} against it."
    if finding.why == "incomplete" and finding.side:
        return f"{finding.side}: left out {numbered('round', finding.rounds)}, not done in every combination."
    nouns = ("trial", "combination", "round")
    trials, combinations, counted = (plural(finding.count, noun) for noun in nouns)
    return _LEFT_OUT[finding.why].format(
        rounds=numbered("round", finding.rounds) if finding.rounds else "", trials=trials, combinations=combinations,
        counted=counted, of=finding.of, side=finding.side, other=finding.other,
    )  # fmt: skip


def _parts_differ(finding: rounds.PartsDiffer) -> str:
    what, where = {"combinations": ("Combinations", "in"), "machines": ("Machines", "on")}[finding.parts]
    each = [f"{times_alone(ratio)} {where} {name}" for name, ratio in finding.ratios]
    more = f" and {len(each) - FEW} more" if len(each) > FEW else ""
    return f"{what} differ: the ratio is {', '.join(each[:FEW])}{more}."


def _no_logarithm(finding: rounds.NoLogarithm) -> str:
    if finding.why == "lacking":
        return f"{finding.side} lacks the metric in {numbered('round', finding.rounds)}"
    if finding.why == "always zero":
        return f"{finding.side} is 0 in every round"
    what = "0" if finding.why == "zero" else "0 or negative"
    return f"{finding.side} is {what} in {numbered('round', finding.rounds)}"


def _no_trial(finding: rounds.NoTrial) -> str:
    if not finding.sides:
        return "It has no completed trial."
    late = f"There is no completed trial of {' or of '.join(finding.sides)}."
    return " ".join((late, *(stop(f"{name} failed: {why}") for name, why in finding.failed)))


def _unsupported(finding: rounds.Unsupported) -> str:
    if not finding.levels[0][0]:
        return stop(f"Unsupported: {'; '.join(why for _, why in finding.levels)}")
    return " ".join(stop(f"{name} is unsupported: {why}") for name, why in finding.levels)


def _no_metric(finding: rounds.NoMetric) -> str:
    if finding.other:
        of = f"{finding.metric} of {finding.source}"
        return f"{finding.sides[0]} has no {of}, which {finding.other} has: nothing to compare it with."
    if finding.done:
        return f"No completed trial has {finding.metric}."
    if not finding.sides:
        return f"It has no {finding.metric}."
    return f"no trial of {' or '.join(finding.sides)} has {finding.metric}."


_NOT_PAIRED = {
    "no starts": "when their trials started is not recorded",
    "boots": "they did not run in one boot of one machine",
    "overlap": "their trials overlap in time",
    "no turns": "their trials do not alternate in time",
    "no machines": "on which machine they ran is not recorded",
    "no ends": "how long their trials ran is not recorded",
    "failed": "some of their trials failed",
    "one side": "one side has no trial",
    "runs without machines": "on which machines these runs were measured is not recorded",
}


def _not_paired(finding: rounds.NotPaired) -> str:
    if finding.why == "order":
        often = "always" if finding.always else "mostly"
        return f"their trials alternate in time, but {often} in the same order"
    return _NOT_PAIRED[finding.why]


def _ran_first(finding: rounds.RanFirst) -> str:
    return (
        f"{finding.first} {'always' if finding.always else 'mostly'} ran before {finding.second}, in {finding.rounds} "
        f"of {plural(finding.of, 'round')}: whatever favours the one that runs second would look like a difference"
    )


def _other_machines(finding: rounds.OtherMachines) -> str:
    names = [", ".join(each or "one that is not recorded" for each in machines) for machines in finding.machines]
    if finding.sides:
        there = " and ".join(f"{side} on {name}" for side, name in zip(finding.sides, names, strict=True))
        return f"they ran on different machines, {there}"
    return (
        f"their rounds are of different machines ({'; '.join(names)}), which are judged one by one and never together"
    )


def _not_interleaved(finding: findings.NotInterleaved, say: Say) -> str:
    counts = f"{finding.rounds[0]} and {plural(finding.rounds[1], 'round')}"
    span = times(finding.low, finding.ratio, finding.high)
    seen = f"is {span}, and {counts} allow no interval" if finding.low is None else f"is {span} over {counts}"
    why = say(finding.why)
    return f"{finding.a} ÷ {finding.b} {seen}; not interleaved ({why}), so it is described and not judged."


_DRIFTING = {"ratio": "The ratio", "value": "The value", "metric": "the metric", "speed": "The load's speed"}
_CONSTANT = {
    "ratio": "The ratio is the same in every round",
    "value": "The same value in every round",
    "sides": "Neither side varies over its rounds",
}
WORDS: dict[type[Finding], Words] = {
    findings.Reported: "{text}",
    findings.Together: Nested(lambda finding, say: " ".join(map(say, finding.each))),
    findings.OnNode: "{source} on {node}: {finding:say}",
    findings.About: Nested(_about),
    findings.InTrials: Nested(_in_trials),
    findings.NoRatio: "{why:say}, so there is no ratio of {metric} to base a verdict on; its values are in the tables.",
    findings.NotInterleaved: Nested(_not_interleaved),
    rounds.TooFewRounds: lambda f: _TOO_FEW[f.what].format(f.have, f.need, plural(f.have, "round")),
    rounds.Outliers: _outliers,
    rounds.Drift: lambda f: (
        f"{_DRIFTING[f.of]} {'rises' if f.rising else 'falls'} over the {f.noun}s: they are not repeats of one steady "
        "state."
    ),
    rounds.Constant: lambda f: f"{_CONSTANT[f.of]}: the interval is a point, right for counts only.",
    rounds.LeftOut: _left_out,
    rounds.ZeroRounds: (
        "{side} is 0 in {rounds:rounds}: a ratio with 0 counts as beyond all others, that of 0 and 0 as 1, and neither "
        "as evidence of equivalence."
    ),
    rounds.CountsShifted: lambda f: (
        "The ratio is of counts with ½ added to each, so that 0 has one, too."
        + (" In some rounds a count is 0: such counts may differ, and are never equivalent." if f.zeros else "")
    ),
    rounds.PartsDiffer: _parts_differ,
    rounds.SomeRounds: "A value in {have} of {of:#round} only: the mean is of these.",
    rounds.PairedByTime: (
        "Paired by time, as trials of the runs alternate; that their order was drawn at random is not known."
    ),
    rounds.NoLogarithm: _no_logarithm,
    rounds.NoRound: lambda f: (
        f"No round was done for both {f.a} and {f.b}."
        if f.b
        else f"{f.a} has no round in which every combination was done"
    ),
    rounds.NoTrial: _no_trial,
    rounds.Unsupported: _unsupported,
    rounds.Excluded: "the study has one of the two alone there.",
    rounds.NoMetric: _no_metric,
    rounds.OneSided: lambda f: f"{f.within or 'The cell'} is in {f.has} and not in {f.lacks}.",
    rounds.NotPaired: _not_paired,
    rounds.RanFirst: _ran_first,
    rounds.OtherMachines: _other_machines,
    rounds.LevelsOnMachines: (
        "Described, not judged: {a} ran on {on_a} and {b} on {on_b}, and whatever else differs between these machines "
        "looks like an effect. For a verdict, let each machine run both: the change is one factor, the machine another."
    ),
    rounds.Emulated: "Described, not judged: guests are emulated, and rates there are the emulator's.",
}
