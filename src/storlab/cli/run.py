"""``storlab run``: a study, from declaration to report; ``storlab resume``: the rest of one that was interrupted."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from storlab.cli.failure import INTERRUPTED, OWN_FAULT, TRIALS_FAILED
from storlab.cli.options import Json, Only, Quiet, Rounds, RunPath, Seed, Set, StudyName, StudyOptions

if TYPE_CHECKING:
    from storlab.run.executor import Outcome


@dataclass(frozen=True, kw_only=True)
class RunOptions(StudyOptions):
    """What ``storlab run`` was asked for."""

    out: Path | None
    build: bool
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
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study, from declaration to report."""
    options = RunOptions(study, set_ or [], only or [], rounds, seed, out=out, build=build, quiet=quiet, json=json)
    raise typer.Exit(_run(options))


def _run(options: RunOptions) -> int:
    import asyncio
    import random

    from storlab.cli.image import build_images
    from storlab.cli.progress import observer
    from storlab.run.executor import run_study

    study = options.load()
    if options.build and (status := build_images(study, options.quiet or options.json)):
        return status
    folder = options.out or _new_folder(Path(study.file).stem)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    with observer(options.quiet or options.json) as watching:
        try:
            outcome = asyncio.run(run_study(study, folder, seed, options.rounds_of(study), watching))
        except asyncio.CancelledError:
            print("storlab: interrupted before anything was set up; nothing is left of it", file=sys.stderr)
            return INTERRUPTED
    return finish(outcome, options.json)


def _new_folder(study: str) -> Path:
    """``runs/NAME-TIME`` in the current folder."""
    name = f"{study}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path("runs") / name
    number = 2
    while folder.exists():
        folder = Path("runs") / f"{name}-{number}"
        number += 1
    return folder


def finish(outcome: Outcome, json: bool) -> int:
    """Report on a run that ended; returns the exit status."""
    try:
        _show(outcome, json)
    except KeyboardInterrupt:
        folder = outcome.folder.path
        print(f"storlab: interrupted; all is recorded, and `storlab report {folder}` shows it", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the terminal is gone
    if outcome.ending == "interrupted":
        return INTERRUPTED
    if outcome.left_behind:
        return OWN_FAULT
    return TRIALS_FAILED if outcome.ending == "failures" else 0


def _show(outcome: Outcome, json: bool) -> None:
    from storlab.cli.reporting import report_input, write_html

    given = report_input(outcome.folder, outcome.tables, outcome.summary)
    page = write_html(outcome.folder, given)
    if json:
        import orjson

        from storlab.analysis.summary import to_json

        summary = orjson.loads(to_json(outcome.summary))
        answer = {"run": str(outcome.folder.path), "ending": outcome.ending, "summary": summary}
        sys.stdout.buffer.write(orjson.dumps(answer, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        from rich.console import Console

        from storlab.report.terminal import TerminalReport

        console = Console(highlight=False)
        console.print(TerminalReport(given))
        console.print(f"\nRun:    {outcome.folder.path}\nReport: {page}", soft_wrap=True, markup=False)
    for what in outcome.left_behind:
        print(f"storlab: could not be torn down: {what}", file=sys.stderr)
    if outcome.left_behind:
        print(f"storlab: `storlab clean {outcome.folder.path}` tries again", file=sys.stderr)
    if outcome.ending == "interrupted":
        print(f"storlab: interrupted; `storlab resume {outcome.folder.path}` goes on", file=sys.stderr)


def resume(folder: RunPath, quiet: Quiet = False, json: Json = False) -> None:
    """Go on with a run that was interrupted.

    Finished trials are kept, only the rest runs, in the order that was planned.
    """
    import asyncio

    from storlab.cli.progress import observer
    from storlab.run.executor import resume_run

    with observer(quiet or json) as watching:
        try:
            outcome = asyncio.run(resume_run(folder, watching))
        except asyncio.CancelledError:
            print(f"storlab: interrupted; `storlab resume {folder}` goes on", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(finish(outcome, json))
