"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def studies(incomplete: str) -> list[str]:
    """Names of shipped studies that begin so, for shell completion."""
    folder = Path(__file__).resolve().parent.parent / "studies"
    return [path.stem for path in sorted(folder.glob("*.toml")) if path.stem.startswith(incomplete)]


Study = Annotated[
    str, typer.Argument(metavar="STUDY", help="A shipped study's name, or a study file.", autocompletion=studies)
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a parameter or any key: size=1G, repeat.max=10."),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="FACTOR=LEVEL[,LEVEL]", help="Only these levels of a factor."),
]
Rounds = Annotated[int | None, typer.Option("--rounds", min=1, help="So many rounds, no fewer and no more.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="For the order of trials and random offsets.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")]
