"""``storlab run``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from storlab.cli.options import Json, Only, Quiet, Rounds, Seed, Set, Study


def run(
    study: Study,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A new folder for this run.")] = None,
    set_: Set = None,
    rounds: Rounds = None,
    seed: Seed = None,
    only: Only = None,
    build: Annotated[bool, typer.Option("--build", help="Build the guest images that it needs, where absent.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study, from declaration to report."""
    from storlab.cli.run import run as command

    raise typer.Exit(command(study, out, set_ or [], only or [], rounds, seed, build, quiet, json))
