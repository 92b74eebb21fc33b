"""What findings say that are about whole runs: how they ended, their records, their series, and how they differ."""

from __future__ import annotations

from storlab import findings
from storlab.base.amounts import percent, plural
from storlab.base.text import ranges
from storlab.findings import Finding, runs
from storlab.report.language.format import quantity
from storlab.report.language.phrases import Nested, Say, Words, first_of, time_words
from storlab.timeseries.steady import SNIA_RANGE, SNIA_SLOPE, SNIA_WINDOW

STEADY = f"over {SNIA_WINDOW} rounds, range ≤ {percent(SNIA_RANGE)} and slope ≤ {percent(SNIA_SLOPE)} of the mean"
"""SNIA's rule in a clause."""
_TOLD = 3  # trials up to here are told one by one
_SETTINGS = 6  # of one sentence


def _rounds_done(f: runs.RoundsDone) -> str:
    if f.least:
        return f"{f.done} of at least {plural(f.of, 'round')} done."
    if f.done < f.of:
        return f"{f.done} of {plural(f.of, 'planned round')} done."
    return "The one planned round is done." if f.of == 1 else f"All {f.of} planned rounds are done."


def _stopped(f: findings.Stopped, say: Say) -> str:
    lead = f"Stopped after {plural(f.rounds, 'round')}"
    goal = say(f.goal) if f.goal is not None else ""
    return {
        "reached": f"{lead}: {goal}.",
        "most": f"{lead}, the most that the study allows: {goal}.",
        "nothing to compare": f"{lead}: there is nothing to compare.",
        "resting": f"{lead}: all cells rest.",
        "budget": f"{lead}: one more would exceed the budget of {f.limit:g} minutes.",
        "hopeless": f"{lead}: no trial of the last {f.limit:g} rounds succeeded.",
    }[f.why]


def _not_yet(f: findings.NotYet, say: Say) -> str:
    lead = f"After {plural(f.rounds, 'round')}: {say(f.lacks)}"
    if f.expected is None:
        return f"{lead}; the number of rounds still needed is not yet estimable." if f.forecast else f"{lead}."
    allowed = f", of which the study allows {f.allowed}" if f.expected > f.allowed else ""
    return f"{lead}; about {plural(f.expected, 'more round')} expected{allowed}."


def _answered(f: runs.Answered) -> str:
    if f.until == "gates":
        more = f", {f.never} that no rounds can answer" if f.never else ""
        return f"every gate is answered for {plural(f.count, 'comparison')}{more}"
    if f.until != "decided":
        return f"{plural(f.count, 'comparison')} known to ±{percent(f.precision)} or better"
    never = f", {f.never} that no rounds can decide" if f.never else ""
    compared = f"{plural(f.count, 'comparison')} decided{never}" if f.count or never or not f.claims else ""
    return " and ".join(filter(None, (compared, f"{plural(f.claims, 'claim')} settled" if f.claims else "")))


def _unanswered(f: runs.Unanswered) -> str:
    verb = "is" if f.open == 1 else "are"
    lack = f"{verb} not yet known to ±{percent(f.precision)}"
    if f.until == "decided":
        lack = f"{verb} undecided"
    elif f.until == "gates":
        lack = "have a gate without an answer" if f.open > 1 else "has a gate without an answer"
    compared = f"{f.open} of {plural(f.of, 'comparison')} {lack}" if f.open or not f.claims else ""
    claims = f"{plural(f.claims, 'claim')} not settled yet" if f.claims else ""
    return " and ".join(filter(None, (compared, claims)))


def _points_open(f: runs.PointsOpen) -> str:
    objectives = plural(f.objectives, "objective")
    return ", ".join(
        filter(
            None,
            (
                f"{f.open} of {plural(f.of, 'point')} not yet known to ±{percent(f.precision)}" if f.open else "",
                f"{f.unsettled} of {objectives} not settled between two steps" if f.unsettled else "",
            ),
        )
    )


def rested(f: runs.Rested, *, several: bool = False) -> str:
    """Why one cell, or ``several``, were not run again."""
    its = "their" if several else "its"
    if f.why == "no answer":
        return f"none of {its} comparisons can have an answer"
    if f.why == "gates":
        return f"every gate on {its} comparisons was answered"
    which = f"all {its} comparisons{' with an answer' if f.with_answer else ''}"
    return (
        f"{which} were known to ±{percent(f.precision)} or better" if f.why == "precision" else f"{which} were decided"
    )


def _assigned(f: runs.RoundsAssigned) -> str:
    which = f"Round {f.first}" if f.first == f.last else f"Rounds {f.first} to {f.last}"
    return f"{which} of the run, as assigned; `storlab merge` puts them together with the others."


def _merged(f: runs.MergedRuns) -> str:
    done = f"Merged from {f.runs} runs: " if f.runs > 1 else ""
    return f"{done}{'round' if len(f.rounds) == 1 else 'rounds'} {ranges(f.rounds)}."


def _missing(f: runs.TrialsMissing) -> str:
    names = [str(number) for number in f.trials]
    which = f"trial {names[0]} is" if len(names) == 1 else f"trials {', '.join(names)} are"
    return f"{which} missing from the run's folder: import the files again"


def _in_memory(f: runs.InMemory) -> str:
    where = f" ({' and '.join(f.cells)})" if f.cells else "" if f.count == f.of else f" in {f.count} of {f.of} cells"
    low, high = (f"{100 * value:.2g} %" for value in (f.least, f.most))
    share = low if low == high else f"{low} to {high}"
    if f.way == "write":
        return (
            f"When the load ended, only {share} of what was written{where} had reached the disk: its rates are those "
            "of memory, unless the rest was compressed away. What is written again before it was written back never "
            "reaches the disk, whatever waits at the end: to measure the disk, give fio direct = 1 or fsync = 1, and "
            "the workload files fsync"
        )
    return (
        f"Of what was read{where}, only {share} came from the disk: its rates are those of memory. fio reads from the "
        "disk with direct = 1, and mostly where a file is much larger than memory"
    )


_ENDED = {
    "put back": "was put back",
    "left": "was left so, as commands of the study can't do it",
    "stuck": "can't be put back",
}


def _settings_changed(f: runs.SettingsChanged) -> str:
    each = [
        f"{name} from {before} to {after}{'' if alike else ' (not in all alike)'}"
        for name, before, after, alike in f.settings
    ]
    more = f" and {len(each) - _SETTINGS} more settings" if len(each) > _SETTINGS else ""
    return (
        f"{f.levels}: {plural(f.trials, 'trial')} changed {', '.join(each[:_SETTINGS])}{more}, which {_ENDED[f.ended]}"
    )


def _runs_differ(f: runs.RunsDiffer) -> str:
    if not f.values:
        return "The runs differ in the study itself: its text, or a file that it names."
    each = "; ".join(f"{name}: {value or 'none recorded'}" for name, value in f.values)
    return f"The runs differ in {f.what} ({each})."


def _of(place: runs.Place) -> str:
    """ "fio, iops in trials 3 and 4 of 12:"."""
    name = f"{place.source}, {place.metric}{f' ({place.levels})' if place.levels else ''}"
    count = len(place.trials)
    if place.of == 1:
        return f"{name}:"
    if count == place.of:
        return f"{name} in both trials:" if count == 2 else f"{name} in all {count} trials:"
    if count > _TOLD:
        return f"{name} in {count} of {place.of} trials:"
    numbers = [f"{trial} ({levels})" if levels else str(trial) for trial, levels in place.trials]
    listed = " and ".join(filter(None, [", ".join(numbers[:-1]), numbers[-1]]))
    if max(trial for trial, _ in place.trials) > place.of:  # they aren't all trials: "trial 91 of 7" says nothing
        return f"{name} in {count} of {place.of} trials ({listed}):"
    return f"{name} in {'trial' if count == 1 else 'trials'} {listed} of {place.of}:"


def _up_to(place: runs.Place) -> str:
    return "" if len(place.trials) == 1 else "up to "


def _warm_up(f: runs.WarmUp) -> str:
    return (
        f"{_of(f.series)} the first {_span(time_words(f.shortest), time_words(f.longest))} look like warm-up (MSER-5), "
        f"without which the mean is {_up_to(f.series)}{_size(f.effect)} {'higher' if f.effect > 0 else 'lower'}"
    )


def _drift(f: runs.SeriesDrift) -> str:
    way = "rises" if f.least > 0 else "falls" if f.most < 0 else "rises or falls"
    size = f"{_up_to(f.series)}{_size(max(f.least, f.most, key=abs))}"
    if f.steps:
        how = f"it {way} by {size} from start to end, in steps rather than gradually"
    else:
        how = f"it {way} by {size} over the trial (Mann-Kendall)"
    return f"{_of(f.series)} {how}, so its mean depends on how long it ran"


def _level_changes(f: runs.LevelChanges) -> str:
    if len(f.each) > _TOLD:
        counts = [each.count for each in f.each]
        often = _span(*("once" if count == 1 else f"{count} times" for count in (min(counts), max(counts))))
        return f"{_of(f.series)} the level changes within the trial, {often}"
    return f"{_of(f.series)} the level {', and '.join(map(_level_change, f.each))}"


def _level_change(change: runs.LevelChange) -> str:
    rises, at = change.step > 0, time_words(change.at)
    if change.count == 1:
        return f"{'rises' if rises else 'falls'} by {_size(change.step)} at {at}{_between(change)}"
    side = "higher" if change.ends > 0 else "lower"
    ends = f", and it ends {_size(change.ends)} {side} than it began" if change.ends else ""
    most = f"the most by {_size(change.step)} {'up' if rises else 'down'} at {at}{_between(change)}"
    return f"changes {change.count} times, {most}{ends}"


def _between(change: runs.LevelChange) -> str:
    """ " (800 to 160 IOPS, after 400 MiB)" """
    if not change.unit:
        return ""
    before, after = (quantity(level, change.unit) for level in change.levels)
    moved = f", after {quantity(change.moved, 'B')}" if change.moved is not None else ""
    return f" ({before} to {after}{moved})"


def _alike(f: runs.AlikeNeighbours) -> str:
    worth, of = (_span(*(f"{value:.0f}" for value in values)) for values in (f.worth, f.samples))
    return (
        f"{_of(f.series)} neighbours are alike, so {of} samples are worth {worth}: they give a trial's own mean to "
        f"±{_size(f.error)} only"
    )


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _size(share: float) -> str:
    size = 100 * abs(share)
    return f"{size:.1f} %" if size < 9.95 else f"{size:.0f} %"


WORDS: dict[type[Finding], Words] = {
    runs.RoundsDone: _rounds_done,
    findings.Stopped: Nested(_stopped),
    findings.NotYet: Nested(_not_yet),
    runs.Answered: _answered,
    runs.Unanswered: _unanswered,
    runs.PointsKnown: lambda f: (
        f"{plural(f.points, 'point')} of {f.metric} known to ±{percent(f.precision)} or better"
        if f.points
        else "no point to know"
    ),
    runs.PointsOpen: _points_open,
    runs.PointsSteady: lambda f: (
        f"{plural(f.points, 'point')} of {f.metric} in steady state ({STEADY}), reported from round {f.since} on"
        if f.points
        else "no point could be measured"
    ),
    runs.PointsMoving: lambda f: f"{f.moving} of {plural(f.of, 'point')} of {f.metric} not in steady state ({STEADY})",
    runs.Rested: rested,
    runs.Interrupted: lambda f: (
        "The run has not ended yet."
        if f.how == "goes on"
        else f"The run {'was interrupted' if f.how == 'interrupted' else 'broke off'}; `storlab resume` resumes it."
    ),
    runs.Unreachable: lambda f: (
        f"The run stopped, for {', '.join(f.machines)} can't be reached: {'; '.join(f.why)}. `storlab resume` "
        "resumes it."
    ),
    runs.RoundsAssigned: _assigned,
    runs.MergedRuns: _merged,
    runs.WasImported: "It was imported: it holds what the files hold, and no rounds can be added.",
    runs.RawUnreadable: "raw records cannot be read: {why}",
    runs.ProbeUnreadable: "probe {probe} on {node}: {why}",
    runs.TrialsMissing: _missing,
    runs.NotMerged: (
        "{source}: percentiles of several nodes can't be merged, as not all of them have a histogram of latencies"
    ),
    runs.TooFewSamples: lambda f: f"{f.probe}: too few samples{f' of {f.of}' if f.of else ''} in the measured phase",
    runs.NoCheckpoint: "{database}: no checkpoint began while the load ran, so there is no dip of one",
    runs.BegunAgain: lambda f: (
        "transactions that were restarted after a deadlock or a conflict, as every client has to do: "
        + first_of([f"{count} of {of}" for count, of in f.counts])
    ),
    runs.InMemory: _in_memory,
    runs.SettingsChanged: _settings_changed,
    runs.RunsNotInterleaved: (
        "Not everything here was interleaved. Runs that follow each other differ also by the hour, by the state of the "
        "machine and by versions: such differences are described and never judged, and nothing shows their cause."
    ),
    runs.MachinesApart: (
        "The runs are not all of the same machines: each machine is shown by itself, and nothing is judged by rounds "
        "of different machines, as no number of rounds tells what differs between these from what is compared."
    ),
    runs.SidesDiffer: lambda f: (
        f"The sides differ in {f.factor} as well ({'; '.join(f'{side}: {level}' for side, level in f.levels)})."
    ),
    runs.WhiskersDiffer: lambda f: (
        "The runs count outliers from different whiskers on "
        f"({'; '.join(f'{name}: {whiskers:g}' for name, whiskers in f.runs)})."
    ),
    runs.RunsDiffer: _runs_differ,
    runs.RoundsNotFixed: (
        "{run} could stop depending on what it had measured (after {least} to {most} rounds). Intervals of runs that "
        "were not interleaved assume a number of rounds fixed in advance: `storlab run --rounds N`."
    ),
    runs.WarmUp: _warm_up,
    runs.SeriesDrift: _drift,
    runs.LevelChanges: _level_changes,
    runs.Stall: lambda f: (
        f"{_of(f.series)} it stands still for {_up_to(f.series)}{time_words(f.seconds)}: at most 1 % of its median"
    ),
    runs.NeverSteady: lambda f: (
        f"{_of(f.series)} it is not steady by SNIA's rule, or not to its end: five rounds in a row within 20 % of each "
        "other, rising or falling by at most 10 %"
    ),
    runs.AlikeNeighbours: _alike,
}
