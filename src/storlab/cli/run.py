"""``storlab run``: a study, from declaration to report; ``storlab resume``: the rest of one that was interrupted."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from storlab.cli.options import (
    AllowCode,
    AllowUndecided,
    FailOn,
    Json,
    Only,
    Optional,
    Quiet,
    Rounds,
    RunPath,
    Seed,
    Set,
    String,
    StudyName,
    StudyOptions,
)
from storlab.cli.output import show_json, until_closed, warn
from storlab.cli.power_cuts import cut_power, refuse_unchecked
from storlab.cli.status import (
    GATE_HIT,
    GATE_MISSING,
    INTERRUPTED,
    LEFT_BEHIND,
    NODE_UNREACHABLE,
    NOTHING_MEASURED,
    TRIALS_FAILED,
    Status,
    of_gates,
)
from storlab.cli.streams import NAMES
from storlab.errors import UserError
from storlab.limits import ROUNDS
from storlab.run.limits import Limits, parse_extent
from storlab.run.permissions import Permissions

if TYPE_CHECKING:
    from storlab.run.executor import Outcome
    from storlab.study.study import Study


_MOST_ADDED = 30  # rounds that are suggested: more are better asked for after another look


@dataclass(frozen=True, kw_only=True)
class RunOptions(StudyOptions):
    """What ``storlab run`` was asked for."""

    out: Path | None
    build: bool
    permissions: Permissions
    limits: Limits
    allow_undecided: bool
    optional: list[str]
    quiet: bool
    json: bool


def run(
    study: StudyName,
    out: Annotated[Path | None, Option("--out", metavar="DIR", help="A new folder for this run.")] = None,
    set_: Set = None,
    rounds: Rounds = None,
    seed: Seed = None,
    only: Only = None,
    build: Annotated[bool, Option("--build", help="Build the guest images that it needs, where absent.")] = False,
    allow_code: AllowCode = None,
    unconfined: Annotated[bool, Option("--unconfined", help="Let loads write wherever you may write.")] = False,
    fail_on: FailOn = None,
    allow_undecided: AllowUndecided = False,
    optional: Optional = None,
    budget: Annotated[
        float | None, Option("--budget", metavar="MINUTES", min=0.1, help="Start no round that would exceed this time.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study, from declaration to report.

    With --fail-on, rounds are run until every gate is answered, and the status is 4 unless all are passed.
    """
    _check_gates(fail_on)
    options = RunOptions(
        *(study, set_ or [], only or [], rounds, seed),
        out=out,
        build=build,
        permissions=Permissions(unconfined, tuple(allow_code or ())),
        limits=Limits(tuple(fail_on or ()), budget),
        allow_undecided=allow_undecided,
        optional=optional or [],
        quiet=quiet,
        json=json,
    )
    raise typer.Exit(_run(options))


def _check_gates(gates: list[str] | None) -> None:
    """Before anything is run. Raises ``UserError``."""
    if gates:
        from storlab.analysis.gates import parse_gate

        for text in gates:
            parse_gate(text)


def _run(options: RunOptions) -> int:
    import asyncio
    import random

    from storlab.cli.image import build_images
    from storlab.cli.progress import observer
    from storlab.run.executor import run_study

    study = options.load()
    limits = _limits(options, study)
    if options.build and (status := build_images(study, options.quiet or options.json)):
        return status
    refuse_unchecked(study)
    folder = options.out or new_folder(Path(study.file).stem)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    with observer(options.quiet or options.json) as watching:
        try:
            outcome = asyncio.run(
                run_study(study, folder, seed, _rounds(options, study), watching, options.permissions, limits)
            )
        except asyncio.CancelledError:
            warn("storlab: interrupted before anything was set up; nothing is left of it")
            return INTERRUPTED
    cut_power(outcome, quiet=options.quiet or options.json)
    return finish(outcome, options.json, options.allow_undecided)


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
    """At least and at most; where a budget is to end the run, as many as it takes."""
    least, most = options.rounds_of(study)
    return (least, ROUNDS) if options.limits.minutes is not None and options.rounds is None else (least, most)


def new_folder(study: str) -> Path:
    """``runs/NAME-TIME`` in the current folder."""
    name = f"{study}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path("runs") / name
    number = 2
    while folder.exists():
        folder = Path("runs") / f"{name}-{number}"
        number += 1
    return folder


def finish(outcome: Outcome, json: bool, allow_undecided: bool = False) -> Status:
    """Report on a run that ended; returns the exit status."""
    try:
        with until_closed():
            _show(outcome, json)
        with contextlib.suppress(OSError):
            _say_how_it_ended(outcome, allow_undecided)
    except KeyboardInterrupt:
        folder = outcome.folder.path
        warn(f"storlab: interrupted; all is recorded, and `storlab report {folder}` shows it")
        return INTERRUPTED
    except OSError as error:
        if error.filename == NAMES[1]:
            warn(f"storlab: all is recorded, and `storlab report {outcome.folder.path}` shows it")
        raise
    if outcome.ending == "interrupted":
        return INTERRUPTED
    if outcome.ending == "unreachable":
        return NODE_UNREACHABLE
    if outcome.left_behind:
        return LEFT_BEHIND
    comparisons = outcome.summary.comparisons
    status = of_gates((result for c in comparisons for result in c.gates), allow_undecided=allow_undecided)
    if status is GATE_HIT:
        return status
    if outcome.ending == "failures":
        return TRIALS_FAILED
    unanswered = outcome.folder.manifest.gates and not any(c.gates or c.optional for c in comparisons)
    if unanswered or status is GATE_MISSING:
        return GATE_MISSING
    return NOTHING_MEASURED if outcome.ending == "nothing measured" else status


def _show(outcome: Outcome, json: bool) -> None:
    from storlab.cli.reporting import report_input, show_and_write, write_html

    given = report_input(outcome.folder, outcome.tables, outcome.summary)
    if json:
        import orjson

        from storlab.analysis.summary import to_json

        write_html(outcome.folder, given)
        summary = orjson.loads(to_json(outcome.summary))
        answer = {"run": str(outcome.folder.path), "ending": outcome.ending, "summary": summary}
        show_json(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
    else:
        console = show_and_write(outcome.folder, given)
        if (more := _more_rounds(outcome)) is not None:
            added = f"`storlab resume {outcome.folder.path} --rounds +{more}`"
            console.print(f"More rounds may decide what is open: {added}", soft_wrap=True, markup=False)


def _say_how_it_ended(outcome: Outcome, allow_undecided: bool) -> None:
    """On standard error."""
    from storlab.report.model.gates import gates_together
    from storlab.report.model.words import missing

    if outcome.folder.manifest.gates:
        failed = sum(cell.failed for cell in outcome.summary.cells)
        gates = [c.gates for c in outcome.summary.comparisons if c.gates or c.optional]
        lacks = any(cell.status == "unsupported" for cell in outcome.summary.cells)
        warn(gates_together(gates, allow_undecided=allow_undecided, failed=failed, unsupported=lacks))
    if outcome.ending == "nothing measured":
        warn("storlab: nothing that was asked for was measured; the report says why")
    elif outcome.ending != "interrupted" and (said := missing(outcome.summary)):
        warn(f"storlab: {said}; the report says why")
    if outcome.summary.unsteady:
        warn(f"storlab: nothing is judged: {outcome.summary.unsteady}")
    for what in outcome.left_behind:
        warn(f"storlab: could not be torn down: {what}")
    if outcome.left_behind:
        warn(f"storlab: `storlab clean {outcome.folder.path}` tries again")
    if outcome.ending == "interrupted":
        warn(f"storlab: interrupted; `storlab resume {outcome.folder.path}` resumes it")
    if outcome.ending == "unreachable":
        warn(f"storlab: {outcome.folder.manifest.stopped}")


def _more_rounds(outcome: Outcome) -> int | None:
    """How many to add where a run ended with open comparisons: as many as are expected to be needed, where known."""
    unsettled = (c for c in outcome.summary.comparisons if c.verdict == "undecided" and not c.settled)
    left = [c for c in unsettled if c.rests_after is None]
    if outcome.ending != "complete" or not left:
        return None
    known = [c.rounds_to_decide for c in left if c.rounds_to_decide is not None]
    return min(max(known, default=10), _MOST_ADDED)


def resume(
    folder: RunPath,
    rounds: Annotated[
        String, Option("--rounds", metavar="[+]N", help="N rounds in total, or +N for N more rounds.")
    ] = None,
    until: Annotated[
        String,
        Option("--until", metavar="decided|±5%|max", help="A different stopping rule; --rounds is then the maximum."),
    ] = None,
    allow_undecided: AllowUndecided = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Resume an interrupted run, or add rounds to a run.

    Finished trials are kept; the rest run in the planned order. Verdicts stay sound whichever rule is
    chosen, and whatever results were seen before.
    """
    import asyncio

    from storlab.cli.progress import observer
    from storlab.run.executor import resume_run

    with observer(quiet or json) as watching:
        try:
            outcome = asyncio.run(resume_run(folder, watching, parse_extent(rounds, until)))
        except asyncio.CancelledError:
            warn(f"storlab: interrupted; `storlab resume {folder}` resumes it")
            raise typer.Exit(INTERRUPTED) from None
    cut_power(outcome, quiet=quiet or json)
    raise typer.Exit(finish(outcome, json, allow_undecided))
