"""``storlab doctor``: what this machine can do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from storlab.cli.options import Json, print_json

if TYPE_CHECKING:
    from storlab.cli.console import Console
    from storlab.doctor.machine import Check

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "missing": ("✗", "red")}
_FIRST_STUDIES = ("quick", "quick-directory")
"""What to begin with: the first of them that this machine and user can run."""
_NAME_WIDTH, _MOST_WIDTH = 21, 24
_INSTALL = "apt-get install "
_PACKAGES = re.compile(rf"{_INSTALL}(?P<packages>[\w.+-]+(?: [\w.+-]+)*)", re.ASCII)
"""A remedy that only installs, so that several are one command."""


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
    """A table a group, then each remedy once, with what it fixes. Closes with what to run next."""
    from rich.table import Table
    from rich.text import Text

    longest = max((len(check.name) for check in found), default=0)
    for group, checks in groupby(found, key=lambda check: check.group):
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(width=1)
        table.add_column(width=min(max(_NAME_WIDTH, longest), _MOST_WIDTH))
        table.add_column(overflow="fold")
        for check in checks:
            mark, colour = _MARKS[check.status]
            table.add_row(Text(mark, style=colour), Text(check.name, overflow="fold"), Text(check.says))
        console.print(Text(group, style="bold"))
        console.print(table)
        console.print()
    _show_remedies(remedies(found), console)
    for line in next_step(found):
        console.print(Text(line), soft_wrap=True)


def _show_remedies(fixes: Mapping[str, Sequence[str]], console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if not fixes:
        return
    console.print(Text("What would fix the rest", style="bold"))
    for remedy, names in fixes.items():
        console.print(Text(f"→ {remedy}", style="cyan"), soft_wrap=True)  # a command is copied as one line
        console.print(Padding(Text(f"for {', '.join(names)}"), (0, 0, 0, 4)))
    console.print()


def remedies(found: Sequence[Check]) -> dict[str, list[str]]:
    """Remedy → what it fixes. Packages are one command, which comes first; the others keep their order."""
    packages: dict[str, None] = {}
    installed: list[str] = []
    others: dict[str, list[str]] = {}
    for check in found:
        if plain := _PACKAGES.fullmatch(check.remedy):
            packages |= dict.fromkeys(plain["packages"].split())
            installed.append(check.name)
        elif check.remedy:
            others.setdefault(check.remedy, []).append(check.name)
    return ({_INSTALL + " ".join(packages): installed} if packages else {}) | others


def next_step(found: Sequence[Check]) -> list[str]:
    """What to run now, by this user on this machine; and why not what would come first, where that cannot run."""
    studies = {check.name: check for check in found if check.group == "Shipped studies"}
    against: list[str] = []
    for name in _FIRST_STUDIES:
        study = studies.get(name)
        if study is None or study.status == "ok":
            return [*against, f"Next: `storlab run {name}`"]
        if study.status == "warn":
            return [*against, f"Next: `storlab run {name}` ({study.says})"]
        root = f'; as root: `sudo "$(command -v storlab)" run {name}`' if study.says.startswith("takes root") else ""
        against.append(
            f"`storlab run {name}` cannot run here: it {study.says}{root}."
            if root
            else f"`storlab run {name}` cannot run here: {study.says}."
        )
    return against
