"""``storlab report``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from storlab.cli.options import Run
from storlab.cli.threads import one_for_algebra


def _formats(incomplete: str) -> list[str]:
    return [
        name for name in ("text", "md", "html", "csv", "json", "adoc", "virtiofs-tests") if name.startswith(incomplete)
    ]


def report(
    folder: Run,
    format_: Annotated[
        str,
        typer.Option("--format", "-f", metavar="text|md|html|csv|json|adoc", autocompletion=_formats, help="Format."),
    ] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Report on a run, new or old, from its records."""
    one_for_algebra()
    from storlab.cli.report import report as command

    command(folder, format_, output)
