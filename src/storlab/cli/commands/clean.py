"""``storlab clean``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def clean(
    folder: Annotated[Path | None, typer.Argument(metavar="RUN", help="One run; by default all.")] = None,
) -> None:
    """Take down what runs have left standing.

    Whatever a run's journal says was put up and still stands, and never anything else.
    """
    from storlab.cli.clean import clean as command

    raise typer.Exit(command(folder))
