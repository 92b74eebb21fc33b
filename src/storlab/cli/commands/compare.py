"""``storlab compare``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from storlab.cli.threads import one_for_algebra


def _compare_formats(incomplete: str) -> list[str]:
    return [name for name in ("text", "markdown", "json", "junit") if name.startswith(incomplete)]


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs; the first is the baseline.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="FACTOR", help="Levels of this factor, rather than runs.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", metavar="NAME", help="Instead of the primary metric.")
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on", metavar="GATE", help="End with status 4: worse, 'worse>3%', better, differs, missing."
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format", "-f", metavar="text|markdown|json|junit", autocompletion=_compare_formats, help="Format."
        ),
    ] = "text",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Compare runs with each other, or levels of a factor over runs.

    Trials that were interleaved get verdicts; differences between runs that were not are described.
    """
    one_for_algebra()
    from storlab.cli.compare import compare as command

    raise typer.Exit(command(runs, by, metric or [], fail_on or [], format_, out))
