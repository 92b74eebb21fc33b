"""``storlab resume``: its options."""

from __future__ import annotations

import typer

from storlab.cli.options import Json, Quiet, Run


def resume(folder: Run, quiet: Quiet = False, json: Json = False) -> None:
    """Go on with a run that was interrupted.

    Finished trials are kept, only the rest runs, in the order that was planned.
    """
    from storlab.cli.run import resume as command

    raise typer.Exit(command(folder, quiet, json))
