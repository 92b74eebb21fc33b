"""``storlab doctor``: what this machine can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from storlab.cli.options import Json, print_json

if TYPE_CHECKING:
    from storlab.cli.console import Console
    from storlab.doctor.machine import Check

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "missing": ("✗", "red")}
_STUDY = "quick"
_NAME_WIDTH = 20


def doctor(json: Json = False) -> None:
    """Say what this machine can do, and how to fix the rest."""
    from storlab.doctor import examine
    from storlab.doctor.machine import Machine

    found = examine(Machine())
    if json:
        print_json([asdict(check) for check in found])
    else:
        from storlab.cli.console import Console

        show(found, Console())


def show(found: Sequence[Check], console: Console) -> None:
    """A table a group; below what is missing, the command that fixes it. Closes with whether ``quick`` can run."""
    from rich.table import Table
    from rich.text import Text

    for group, checks in groupby(found, key=lambda check: check.group):
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(width=1)
        table.add_column(width=_NAME_WIDTH)
        table.add_column(overflow="fold")
        for check in checks:
            mark, colour = _MARKS[check.status]
            says = Text(check.says)
            if check.remedy:
                says.append(f"\n→ {check.remedy}", style="cyan")
            table.add_row(Text(mark, style=colour), Text(check.name, overflow="fold"), says)
        console.print(Text(group, style="bold"))
        console.print(table)
        console.print()
    console.print(Text(verdict(found)), soft_wrap=True)


def verdict(found: Sequence[Check]) -> str:
    """One sentence: whether the shipped study ``quick`` can run here, and if not, why."""
    study = next((check for check in found if check.group == "Shipped studies" and check.name == _STUDY), None)
    if study is None or study.status == "ok":
        return f"`storlab run {_STUDY}` can run here."
    if study.status == "warn":
        return f"`storlab run {_STUDY}` can run here in part: {study.says}."
    return f"`storlab run {_STUDY}` can't run here: {study.says}."
