"""``storlab run``: a study, from declaration to report; ``storlab resume``: the rest of one that was interrupted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.base.limits import ROUNDS
from storlab.cli.options import (
    Allow,
    AllowUndecided,
    FailOn,
    Json,
    LabPath,
    Only,
    Optional,
    Quiet,
    RunPath,
    Seed,
    Set,
    Shared,
    String,
    StudyOptions,
    Turn,
    Wait,
    new_folder,
    studies,
)
from storlab.cli.output import warn
from storlab.cli.status import INTERRUPTED
from storlab.run.limits import Assignment, Limits, parse_extent, parse_rounds
from storlab.run.permissions import Permissions, parse_allowed

if TYPE_CHECKING:
    from storlab.run.executor import Outcome
    from storlab.study.study import Study


@dataclass(frozen=True, kw_only=True)
class RunOptions(StudyOptions):
    """What ``storlab run`` was asked for."""

    of: Path | None
    assignment: Assignment | None
    out: Path | None
    build: bool
    unconfined: bool
    limits: Limits
    allow_undecided: bool
    optional: list[str]
    turn: Turn
    quiet: bool
    json: bool


def run(
    study: Annotated[
        str, Argument(metavar="STUDY", help="A shipped study's name, or a study file.", autocompletion=studies)
    ] = "",
    out: Annotated[Path | None, Option("--out", metavar="DIR", help="A new folder for this run.")] = None,
    set_: Set = None,
    rounds: Annotated[
        String,
        Option("--rounds", metavar="N|A-B", help="Exactly N rounds; A-B: only these of a run that machines share."),
    ] = None,
    of: Annotated[
        Path | None, Option("--of", metavar="RUN", help="The run, or plan (plan --write), whose rounds A-B these are.")
    ] = None,
    seed: Seed = None,
    only: Only = None,
    lab: LabPath = None,
    build: Annotated[bool, Option("--build", help="Build the guest images that it needs, where absent.")] = False,
    allow: Allow = None,
    unconfined: Annotated[bool, Option("--unconfined", help="Let loads write wherever you may write.")] = False,
    fail_on: FailOn = None,
    allow_undecided: AllowUndecided = False,
    optional: Optional = None,
    budget: Annotated[
        float | None, Option("--budget", metavar="MINUTES", min=0.1, help="Start no round that would exceed this time.")
    ] = None,
    wait: Wait = False,
    shared: Shared = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study, from declaration to report.

    With --fail-on, rounds are run until every gate is answered, and the status is 4 unless all are passed.
    With --rounds A-B, `storlab merge` puts what several machines did together.
    """
    _check_gates(fail_on)
    asked = None if rounds is None else parse_rounds(rounds)
    assignment = asked if isinstance(asked, Assignment) else None
    options = RunOptions(
        *(study, set_ or [], only or [], asked if isinstance(asked, int) else None, seed, lab),
        of=of,
        assignment=assignment,
        out=out,
        build=build,
        allow=tuple(allow or ()),
        unconfined=unconfined,
        limits=Limits(tuple(fail_on or ()), budget),
        allow_undecided=allow_undecided,
        optional=optional or [],
        turn=Turn(wait, shared),
        quiet=quiet,
        json=json,
    )
    _refuse_conflicts(options)
    raise typer.Exit(_run(options))


def _refuse_conflicts(options: RunOptions) -> None:
    """Raise ``UserError`` for options that say nothing together."""
    if not options.name and options.of is None:
        raise UserError("name a study: `storlab list` shows those that ship with Storlab")
    if options.of is not None and options.assignment is None:
        raise UserError(f"--of {options.of}: say which of its rounds, --rounds 5-8; `storlab resume` does all the rest")
    if options.assignment is None:
        return
    first, last = options.assignment.first, options.assignment.last
    given = {"--seed": options.seed, "--set": options.overrides, "--only": options.only}
    if options.of is not None and (told := [name for name, value in given.items() if value not in (None, [])]):
        raise UserError(f"{told[0]} is that of {options.of}, whose rounds these are: leave it out")
    if options.of is None and options.seed is None:
        raise UserError(
            f"--rounds {first}-{last} are rounds of a run that several machines do: give all of them the same --seed, "
            "or --of RUN"
        )
    if options.limits.gates or options.limits.minutes is not None:
        name = "--fail-on" if options.limits.gates else "--budget"
        raise UserError(
            f"{name}: rounds {first} to {last} are done whatever they say, as the others are not known here. Merge "
            "them, and ask what came of all: `storlab compare RUN --by FACTOR --fail-on …`"
        )


def _check_gates(gates: list[str] | None) -> None:
    if gates:
        from storlab.analysis.judging import parse_gate

        for text in gates:
            parse_gate(text)


def _run(options: RunOptions) -> int:
    from storlab.cli.reporting import finish

    outcome = run_of(options)
    return outcome if isinstance(outcome, int) else finish(outcome, options.json, options.allow_undecided)


def run_of(options: RunOptions) -> Outcome | int:
    """Run it; an exit status if nothing was run."""
    import asyncio

    from storlab.cli.image import build_images
    from storlab.cli.progress import observer
    from storlab.cli.reporting import cut_power, refuse_unchecked
    from storlab.run.executor import run_study

    study, seed, rounds, assignment = _asked(options)
    permissions = options.permissions(study, unconfined=options.unconfined)
    if options.of is not None:
        permissions = replace(permissions, beside=None)  # whatever folder a manifest names
    limits = _limits(options, study)
    if options.build and (status := build_images(study, options.quiet or options.json)):
        return status
    refuse_unchecked(study)
    part = f"-{assignment.first}-{assignment.last}" if assignment is not None else ""
    folder = options.out or new_folder(f"{Path(study.file).stem}{part}")
    with options.turn.on_machine(folder):
        with observer(options.quiet or options.json) as watching:
            try:
                running = run_study(study, folder, seed, rounds, watching, permissions, limits, assignment)
                outcome = asyncio.run(running)
            except asyncio.CancelledError:
                warn("storlab: interrupted before anything was set up; nothing is left of it")
                return INTERRUPTED
        if assignment is None:
            cut_power(outcome, permissions, quiet=options.quiet or options.json)
    return outcome


def _asked(options: RunOptions) -> tuple[Study, int, tuple[int, int], Assignment | None]:
    """The study with its seed and its rounds, and which of these are done here. Raises ``UserError``."""
    import random

    from storlab.run.merging import difference_from, refuse_unassignable

    if options.of is None or options.assignment is None:
        study = options.load()
        if options.assignment is not None:
            refuse_unassignable(study)
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
        return study, seed, _rounds(options, study), options.assignment
    from storlab.records.run_folder import RunFolder

    manifest = RunFolder.open(options.of).manifest
    if manifest.assigned is not None:
        raise UserError(f"--of {options.of}: it is itself an assignment; name the run or the plan that it is of")
    study = manifest.study()
    refuse_unassignable(study)
    if options.name and (differs := difference_from(manifest, options.load())):
        raise UserError(
            f"{options.name} is not the study of {options.of} any more: {differs}. Leave it out, and the study is that "
            "of the run"
        )
    assignment = replace(options.assignment, rests=manifest.rests, order=manifest.order)
    return study, manifest.seed, manifest.rounds, assignment


def _limits(options: RunOptions, study: Study) -> Limits:
    """With the levels that may be absent. Raises ``UserError`` where there are none such, or nothing for a gate."""
    from storlab.run.planning.design import compares
    from storlab.run.planning.metrics import narrowed
    from storlab.study.overrides import chosen_levels

    if options.limits.gates and not compares(narrowed(study)):
        left = " of what --only leaves" if options.only else ""
        raise UserError(
            f"--fail-on {options.limits.gates[0]!r}: the study compares nothing{left}, so no gate can be answered"
        )
    whole = replace(options, only=[]).load() if options.only and options.optional else study
    by_name = {factor.name: [level.label for level in factor.levels] for factor in whole.factors}
    chosen = chosen_levels("--optional", options.optional, by_name)
    return replace(options.limits, optional={name: tuple(levels) for name, levels in chosen.items()})


def _rounds(options: RunOptions, study: Study) -> tuple[int, int]:
    least, most = options.rounds_of(study)
    return (least, ROUNDS) if options.limits.minutes is not None and options.rounds is None else (least, most)


def resume(
    folder: RunPath,
    rounds: Annotated[
        String, Option("--rounds", metavar="[+]N", help="N rounds in total, or +N for N more rounds.")
    ] = None,
    until: Annotated[
        String,
        Option("--until", metavar="decided|±5%|max", help="A different stopping rule; --rounds is then the maximum."),
    ] = None,
    allow: Allow = None,
    unconfined: Annotated[bool, Option("--unconfined", help="Let loads write wherever you may write.")] = False,
    allow_undecided: AllowUndecided = False,
    wait: Wait = False,
    shared: Shared = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Resume an interrupted run, or add rounds to a run.

    Finished trials are kept; the rest run in the planned order. Verdicts stay sound whichever rule is
    chosen, and whatever results were seen before. What it was allowed must be allowed again.
    """
    import asyncio

    from storlab.cli.progress import observer
    from storlab.cli.reporting import cut_power, finish
    from storlab.run.executor import resume_run

    permissions = Permissions(unconfined, parse_allowed(allow or ()))
    with Turn(wait, shared).on_machine(folder):
        with observer(quiet or json) as watching:
            try:
                outcome = asyncio.run(resume_run(folder, watching, parse_extent(rounds, until), permissions))
            except asyncio.CancelledError:
                warn(f"storlab: interrupted; `storlab resume {folder}` resumes it")
                raise typer.Exit(INTERRUPTED) from None
        cut_power(outcome, permissions, quiet=quiet or json)
    raise typer.Exit(finish(outcome, json, allow_undecided))
