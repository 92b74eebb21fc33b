"""``storlab run`` and ``storlab resume``."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import orjson
from rich.console import Console

from storlab.analysis.summary import to_json
from storlab.cli.failure import INTERRUPTED, OWN_FAULT, TRIALS_FAILED
from storlab.cli.images_of_study import build_images
from storlab.cli.progress import observer
from storlab.cli.reporting import report_input, write_html
from storlab.run.executor import Outcome, resume_run, run_study
from storlab.study.study import Study, find_study, load_study


def run(
    name: str,
    out: Path | None,
    overrides: Sequence[str],
    only: Sequence[str],
    rounds: int | None,
    seed: int | None,
    build: bool,
    quiet: bool,
    json: bool,
) -> int:
    """Run a study; returns the exit status."""
    study = load_study(find_study(name), overrides, only)
    if build and (status := build_images(study, quiet or json)):
        return status
    folder = out if out is not None else _new_folder(study)
    chosen = seed if seed is not None else random.SystemRandom().randrange(2**32)
    with observer(quiet or json) as watching:
        try:
            outcome = asyncio.run(run_study(study, folder, chosen, rounds_of(study, rounds), watching))
        except asyncio.CancelledError:
            print("storlab: interrupted before anything was put up; nothing is left of it", file=sys.stderr)
            return INTERRUPTED
    return _finish(outcome, json)


def resume(folder: Path, quiet: bool, json: bool) -> int:
    """Go on with a run; returns the exit status."""
    with observer(quiet or json) as watching:
        try:
            outcome = asyncio.run(resume_run(folder, watching))
        except asyncio.CancelledError:
            print(f"storlab: interrupted; `storlab resume {folder}` goes on", file=sys.stderr)
            return INTERRUPTED
    return _finish(outcome, json)


def rounds_of(study: Study, rounds: int | None) -> tuple[int, int]:
    """Rounds at least and at most: ``--rounds`` means exactly so many."""
    repeat = study.model.repeat
    return (repeat.min, repeat.max) if rounds is None else (rounds, rounds)


def _new_folder(study: Study) -> Path:
    """``runs/NAME-TIME`` in the current folder."""
    name = f"{Path(study.file).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path("runs") / name
    number = 2
    while folder.exists():
        folder = Path("runs") / f"{name}-{number}"
        number += 1
    return folder


def _finish(outcome: Outcome, json: bool) -> int:
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
    given = report_input(outcome.folder, outcome.tables, outcome.summary)
    page = write_html(outcome.folder, given)
    if json:
        summary = orjson.loads(to_json(outcome.summary))
        answer = {"run": str(outcome.folder.path), "ending": outcome.ending, "summary": summary}
        sys.stdout.buffer.write(orjson.dumps(answer, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        from storlab.report.text import TerminalReport

        console = Console(highlight=False)
        console.print(TerminalReport(given))
        console.print(f"\nRun:    {outcome.folder.path}\nReport: {page}", soft_wrap=True, markup=False)
    for what in outcome.left_behind:
        print(f"storlab: could not be taken down: {what}", file=sys.stderr)
    if outcome.left_behind:
        print(f"storlab: `storlab clean {outcome.folder.path}` tries again", file=sys.stderr)
    if outcome.ending == "interrupted":
        print(f"storlab: interrupted; `storlab resume {outcome.folder.path}` goes on", file=sys.stderr)
