"""``storlab resume``: the rest of a run that was interrupted."""

from __future__ import annotations

import sys

import typer

from storlab.cli.failure import INTERRUPTED
from storlab.cli.options import Json, Quiet, RunPath
from storlab.cli.run import finish


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
