"""What a run would do, as a document and as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from storlab.analysis.claims import fewest_rounds_of_values
from storlab.base.amounts import plural
from storlab.base.text import few, grouped
from storlab.base.units import size_text
from storlab.cli.console import show_document
from storlab.cli.options import print_json
from storlab.cli.output import show_json
from storlab.cli.plan.tables import (
    cells_table,
    cells_text,
    levels_as_data,
    levels_table,
    memory_text,
    needs_list,
    node_lines,
    nodes_as_data,
    stacks_table,
)
from storlab.report.document import FIRST, Block, Code, Document, Fact, Facts, Section, Table, said
from storlab.report.language import methods
from storlab.report.language.format import duration, quantity
from storlab.report.language.say import say
from storlab.report.language.words import listed
from storlab.run.planning.design import claims_of, design_of, pairs_left, rule_of
from storlab.run.planning.estimates import RoundTime, Speed, foresight_of, round_time
from storlab.study.questions import Compare

if TYPE_CHECKING:
    from storlab.analysis.foresight import Foresight
    from storlab.run.permissions import Permissions, Want
    from storlab.run.planning.plan import Plan


def time_text(made: Plan) -> str:
    """``about 2 min to 5 min``, with what it rests on where loads don't say it themselves."""
    expected = round_time(made)
    unknown = [load.name in expected.unknown for cell in made.supported for load in cell.loads]
    if expected.unknown and not expected.by_work and all(unknown):
        return f"unknown before the first round: {_unknown(expected)}"
    least, most = (duration(round(expected.seconds * rounds)) for rounds in made.rounds)
    about = f"about {least}" if least == most else f"about {least} to {most}"
    if expected.last_run is not None:
        return f"{about}, if trials take as long as in its last run, {expected.last_run}"
    parts = []
    if expected.by_work and expected.speed is not None:
        parts.append(f"{listed(expected.by_work)} by the amount of work at {_speed(expected.speed)}")
    if expected.unknown:
        parts.append(_unknown(expected))
    if made.emulated:
        parts.append("virtual machines are emulated, and may take several times as long")
    if expected.unknown or made.emulated:
        about = about.replace("about", "at least", 1)
    return f"{about}: {'; '.join(parts)}" if parts else about


def _unknown(expected: RoundTime) -> str:
    return f"it is not known how long {listed(expected.unknown)} will run"


def _speed(speed: Speed) -> str:
    rate, bandwidth = f"{speed.rate:,.0f} operations/s that wait for storage", quantity(speed.bandwidth, "B/s")
    if speed.measured:
        return f"{rate}, as `storlab noise` measured on {speed.measured}, and {bandwidth}, which is assumed"
    return f"{rate} and {bandwidth}, which is assumed (`storlab noise` measures this machine)"


def time_as_data(made: Plan) -> dict[str, object]:
    """For programs; ``from``: the last run, the loads' own words, or their amount of work."""
    expected = round_time(made)
    source = "last run" if expected.last_run else "amount of work" if expected.by_work else "loads"
    return {
        "from": source,
        "run": str(expected.last_run) if expected.last_run else None,
        "by_work": list(expected.by_work),
        "unknown": list(expected.unknown),
        "seconds_per_round": None if expected.unknown else expected.seconds,
    }


def wants_as_data(wants: Sequence[Want]) -> list[dict[str, Any]]:
    return [
        {"word": want.word, "value": want.value, "key": ".".join(map(str, want.key)), "on": want.on, "does": want.does}
        for want in wants
    ]


def wants_table(wants: Sequence[Want], permissions: Permissions) -> Table:
    permitted = ("" if permissions.permit(want.word, want.value) else " (not allowed)" for want in wants)
    rows = (
        (want.word, want.value, ".".join(map(str, want.key)), f"{want.does}{may}")
        for want, may in zip(wants, permitted, strict=True)
    )
    columns = ("word", "value", "named by", "which")
    return Table("What it wants beyond its own scratch", columns, tuple(rows), labels=4)


def show_wants(wants: Sequence[Want], permissions: Permissions, *, as_json: bool) -> None:
    """All, and the options that would permit what this command line does not."""
    if as_json:
        print_json(wants_as_data(wants))
        return
    missing = [want.option for want in wants if not permissions.permit(want.word, want.value)]
    allow = (Code(" ".join(missing), "To allow that"),) if missing else ()
    title = "What the study wants" if wants else "The study wants nothing beyond its own scratch."
    table = (wants_table(wants, permissions),) if wants else ()
    show_document(Document(title, sections=(Section("wants", "", (*table, *allow), FIRST, titled=False),)))


_MOST_COMMANDS = 12
_MOST_SENTENCES = 10  # of a kind
_MOST_IN_A_ROW = 50


def show_plan_as_json(made: Plan, seed: int | None) -> None:
    show_json(json.dumps(_as_dict(made, seed), indent=2))


def _as_dict(made: Plan, seed: int | None) -> dict[str, object]:
    order = {str(number): [trial.cell for trial in made.order(number)] for number in range(1, made.rounds[1] + 1)}
    return {
        "title": made.study.model.title,
        **made.as_dict(),
        "rounds": {"min": made.rounds[0], "max": made.rounds[1]},
        "seed": seed,
        "order": order if seed is not None else None,
        "levels": levels_as_data(made.study.cells),
        "space": asdict(made.space),
        "files_of_loads": {path: asdict(room) for path, room in made.laid_out.items()},
        "nodes": nodes_as_data(made),
        "memory": {"needed": made.memory.needed, "available": made.memory.free},
        "root_needed_for": list(made.root_needed_for),
        "wants": wants_as_data(made.wants),
        "commands": [list(argv) for argv in dict.fromkeys(argv for cell in made.study.cells for argv in cell.commands)],
        "seconds_per_round": time_as_data(made)["seconds_per_round"],
        "time": time_as_data(made),
        "power_cuts": next((cell.crash.moments for cell in made.study.cells if cell.crash is not None), 0),
        "foresight": _foresight_as_data(made),
        "notes": list(made.notes),
        "cautions": list(made.cautions),
    }


def show_plan(made: Plan, seed: int | None) -> None:
    study, foresight = made.study, foresight_of(made)
    listed = needs_list(study.cells)
    unsupported = grouped((reason, number) for number, why in sorted(made.unsupported.items()) for reason in why)
    lacking = []
    for reason, numbers in unsupported.items():
        which = f"Cell {numbers[0]} is" if len(numbers) == 1 else f"Cells {cells_text(numbers, 0)} are"
        lacking.append(f"{which} unsupported here: {reason}")
    warning = "" if foresight is None else methods.too_few(foresight)
    facts = tuple(Fact(label, text) for label, text in _facts(made, seed, foresight))
    blocks: tuple[Block, ...] = (
        cells_table(made, with_stacks=not listed),
        *([stacks_table(study.cells)] if listed else []),
        *levels_table(study.cells),
        *said(*lacking, tone="missing"),
        *([wants_table(made.wants, made.permissions)] if made.wants else []),
        Facts("", (("", facts),)),
        *said(f"Warning: {warning}" if warning else "", tone="strong"),
        *said(*_first("Caution", made.cautions), *_first("Note", made.notes), tone="missing"),
    )
    section = Section("plan", "", blocks, FIRST, titled=False)
    show_document(Document(study.model.title, said(study.model.description, tone="soft"), (section,)))


def _first(kind: str, sentences: Sequence[str]) -> Iterator[str]:
    """Those that are read; of thousands, nobody reads more."""
    yield from (f"{kind}: {sentence}" for sentence in sentences[:_MOST_SENTENCES])
    if (more := len(sentences) - _MOST_SENTENCES) > 0:
        yield f"{kind}: and {more:,} more: --json has all"


def _facts(made: Plan, seed: int | None, foresight: Foresight | None) -> list[tuple[str, str]]:
    least, most = made.rounds
    cells = len(made.supported)
    rounds = f"{least}" if least == most else f"{least} to {most}"
    trials = f"{cells * least}" if least == most else f"{cells * least} to {cells * most}"
    of_cells = f"{cells} cell" if cells == 1 else f"{cells} cells"
    facts = [
        ("Trials", f"{trials} ({of_cells}, {rounds} {'round' if rounds == '1' else 'rounds'})"),
        ("Time", time_text(made)),
    ]
    cuts = next((cell.crash for cell in made.study.cells if cell.crash is not None), None)
    if cuts is not None:
        each = f"{cells} set-up" if cells == 1 else f"{cells} set-ups"
        text = f"after the rounds, and not in their time: {each} once more, with {cuts.moments} cuts of each"
        facts.append(("Power cuts", text))
    if foresight is not None:
        facts += [("Verdicts", methods.earliest(foresight)), ("Expected", methods.forecast(foresight))]
    if seed is None:
        facts.append(("Order", "each round in a random order of its own; --seed N shows and fixes it"))
    else:
        shown = few([str(trial.cell) for trial in made.order(1)], _MOST_IN_A_ROW)
        facts.append(("Order", f"seed {seed}; cells of round 1: {shown}"))
    facts.append(("Disk space", _space(made)))
    facts += [("Memory", text) for text in [memory_text(made)] if text]
    facts += zip(_once("Nodes"), node_lines(made), strict=False)
    needed = ", ".join([*made.root_needed_for, *(["power cuts"] if cuts is not None else [])])
    facts.append(("Privileges", f"root, for {needed}" if needed else "none"))
    facts += zip(_once("Commands"), _commands(made), strict=False)
    facts.append(("Probes", ", ".join(_probes(made)) or "none"))
    facts += zip(_once("Question"), _questions(made), strict=False)
    return facts


def _commands(made: Plan) -> Iterator[str]:
    """What of the study's own words is executed, for whoever runs it to read first."""
    found = dict.fromkeys(shlex.join(argv) for cell in made.study.cells for argv in cell.commands)
    for number, line in enumerate(found):
        if number == _MOST_COMMANDS:
            yield f"and {len(found) - number} more: --json has all"
            return
        yield line


def _space(made: Plan) -> str:
    free, scratch = f"{(made.space.free or 0) // 1024**3}G free", made.study.model.scratch
    laid_out = {path: each for path, each in made.laid_out.items() if each.needed}
    own = laid_out.pop(scratch, None)
    parts = [
        f"{size_text(each.needed)} of {(each.free or 0) // 1024**3}G free in {path}, for files of the loads"
        for path, each in laid_out.items()
    ]
    if own is not None and made.space.needed:
        together, files = size_text(made.space.needed + own.needed), size_text(own.needed)
        return "; ".join([f"{together} of {free} in {scratch}, {files} of it for files of the loads", *parts])
    if own is not None:
        return "; ".join([f"{size_text(own.needed)} of {free} in {scratch}, for files of the loads", *parts])
    if made.space.needed:
        return "; ".join([f"{size_text(made.space.needed)} of {free} in {scratch}", *parts])
    layers = (layer for cell in made.supported for chain in cell.chains for layer in chain.layers)
    sparse = max((layer.overcommitted() for layer in layers), default=0)
    if sparse:
        parts.append(f"what is written to sparse files of {size_text(sparse)} ({free} in {scratch})")
    return "; ".join(parts) or f"none ({free} in {scratch})"


def _probes(made: Plan) -> list[str]:
    """Those that have something to see: where there are no guests, one that watches them is not worth a word."""
    from storlab.run.trial.subjects import watched_groups

    cell = made.study.cells[0]
    return [name for name, probe in cell.probes.items() if watched_groups(probe, cell)]


def _once(label: str) -> Iterator[str]:
    """The label, then nothing: for facts of several lines."""
    return chain([label], repeat(""))


def _foresight_as_data(made: Plan) -> dict[str, object] | None:
    foresight = foresight_of(made)
    if foresight is None:
        return None
    return {
        "comparisons": foresight.comparisons,
        "fewest_rounds": foresight.fewest,
        "fewest_rounds_alone": foresight.alone,
        "noise": {"sd": foresight.noise.sd, "source": foresight.noise.source},
        "expected": [{"difference": by, "rounds": rounds} for by, rounds in foresight.rounds],
        "found_in_four_of_five": foresight.finds,
        "warning": methods.too_few(foresight) or None,
    }


def _questions(made: Plan) -> Iterator[str]:
    compared = [asked for asked in made.study.model.compare if made.study.compared_factor(asked) is not None]
    if not made.study.factors and claims_of(made.study):
        pass
    elif not made.study.factors:
        yield "none: without factors there is nothing to compare"
    elif not made.study.model.compare:
        why = "nothing is asked about what --only leaves" if made.study.only else "compare = [] compares nothing"
        yield f"none: {why}"
    else:
        yield from (_question(made, compare) for compare in compared)
    yield from _curves(made)
    design = design_of(made.study)
    fewest = fewest_rounds_of_values(design)
    for claim in design.claims:
        if claim.absent:
            yield f"claim, not answered: {claim.name}: {say(claim.absent)}"
        elif claim.right:
            yield f"claim: {claim.name}"
        else:
            few = f", and {plural(made.rounds[1], 'round')} are all that it allows" if made.rounds[1] < fewest else ""
            yield f"claim: {claim.name} (answered after {fewest} rounds at the earliest{few})"


def _curves(made: Plan) -> Iterator[str]:
    """What is swept, and when enough is known of it."""
    from storlab.report.language.of_runs import STEADY

    study = made.study
    for factor in study.factors:
        if factor.name in study.sweeps:
            lowest, highest = factor.levels[0].label, factor.levels[-1].label
            steps = f"{len(factor.levels)} steps, {lowest} to {highest}"
            yield f"curve of {study.model.primary} over {factor.name} ({steps})"
    for asked in design_of(study).objectives:
        yield f"up to which {asked.factor} is {asked.metric} {('above', 'below')[asked.below]} {asked.limit}?"
    rule = rule_of(study, made.rounds)
    if rule.until == "steady":
        yield f"enough is known once every point of {study.model.primary} is in steady state: {STEADY}"
    if rule.until == "points":
        slo = ", and each slo is settled between two steps" if study.model.slo else ""
        yield f"enough is known once the interval of every point is within ±{rule.precision:.0%} of its mean{slo}"


def _question(made: Plan, compare: Compare) -> str:
    from storlab.cli.run_events import levels_text

    factors = {factor.name: factor for factor in made.study.factors}
    factor = factors[made.study.compared_factor(compare) or next(iter(factors))]
    metrics = ", ".join(compare.metrics or (made.study.model.primary,))
    others = [name for name, other in factors.items() if name != factor.name and len(other.levels) > 1]
    default = compare.pooled and "within" not in compare.model_fields_set
    pooled = [name for name in others if not compare.within or (default and name in made.study.sweeps)]
    fixed = [name for name in others if name not in pooled]
    parts = (
        f", with {levels_text(dict.fromkeys(fixed, 'fixed'))}" if fixed else "",
        f", over all levels of {', '.join(pooled)}" if pooled else "",
    )
    rest = "".join(parts)
    if compare.pairs is None and len(factor.levels) == 1:
        return f"nothing of {factor.name}, which has one level"
    if compare.pairs is None:
        levels = few([level.label for level in factor.levels], _MOST_IN_A_ROW)
        return f"{metrics} between the levels of {factor.name} ({levels}){rest}"
    left = pairs_left(compare.pairs, [level.label for level in factor.levels]) or ()
    if not left:
        return f"nothing of {factor.name}: each pair has a level that is left out"
    return f"{metrics}: {few([f'{a} against {b}' for a, b in left], _MOST_IN_A_ROW)}{rest}"
