"""``storlab new --list`` and ``--from``: whole studies to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path

from storlab.cli.new.writing import refuse_existing, target_of, write_new
from storlab.cli.options import print_json
from storlab.cli.output import show
from storlab.errors import UserError


def show_all(json: bool) -> None:
    """The presets, a line each."""
    from storlab.study.study import load_study, preset_studies

    found = {name: load_study(path) for name, path in preset_studies().items()}
    if json:
        print_json({name: {"title": study.model.title, "file": study.file} for name, study in found.items()})
        return
    from rich.table import Table

    from storlab.cli.console import Console

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, study in found.items():
        table.add_row(name, study.model.title)
    console = Console()
    console.print(table)
    console.print(
        "\n`storlab new --from PRESET` writes one out to edit, `storlab run PRESET` runs it as it is.", soft_wrap=True
    )
    console.print("The studies that `storlab list` shows can be written out as well.", soft_wrap=True)


def write(preset: str, name: str | None, force: bool) -> None:
    """Write a preset or a shipped study out, as it is. Raises ``UserError``."""
    from storlab.study.messages import nearest
    from storlab.study.study import load_study, named_studies

    studies = named_studies()
    if preset not in studies:
        raise UserError(f"unknown preset {preset!r}: {', '.join(studies)}{nearest(preset, studies)}")
    file = target_of(name or preset)
    refuse_existing(file, force)
    write_new(file, _renamed(studies[preset].read_text("utf-8"), preset, file), force)
    show(f"Wrote {file}: {load_study(file).model.title}")
    show(f"Next: `storlab plan {shlex.quote(str(file))}`")


def _renamed(text: str, preset: str, file: Path) -> str:
    """With commands in comments that name the new file."""
    lines = text.splitlines(keepends=True)
    new = shlex.quote(str(file))
    comments = (f"storlab {command} {preset}" for command in ("run", "plan"))
    for old in comments:
        said = old.rpartition(" ")[0]
        lines = [line.replace(old, f"{said} {new}") if line.startswith("#") else line for line in lines]
    return "".join(lines)
