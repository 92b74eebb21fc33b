"""``storlab noise``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from storlab.cli.options import Json, Quiet, studies


def noise(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY]", help="Its first cell; without, a short fio load.", autocompletion=studies),
    ] = None,
    for_: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, such as 5m.")] = "1m",
    in_: Annotated[Path | None, typer.Option("--in", metavar="DIR", help="Where its files lie.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure the noise of this machine: A against A.

    Says what difference can be seen here, with how many rounds of what length.
    """
    from storlab.cli.noise import noise as command

    raise typer.Exit(command(study, for_, in_, quiet, json))
