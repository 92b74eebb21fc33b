"""What a study wants beyond its own scratch, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from storlab.cli.console import Console
from storlab.cli.options import print_json

if TYPE_CHECKING:
    from storlab.run.gate import Want
    from storlab.run.permissions import Permissions

_NOTHING = "The study wants nothing beyond its own scratch."


def wants_as_data(wants: Sequence[Want]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {"word": want.word, "value": want.value, "key": ".".join(map(str, want.key)), "on": want.on, "does": want.does}
        for want in wants
    ]


def wants_table(wants: Sequence[Want], permissions: Permissions) -> Table:
    """For people."""
    table = Table(title="What it wants beyond its own scratch", title_justify="left", box=None, pad_edge=False)
    table.add_column("word", style="cyan")
    table.add_column("value", overflow="fold")
    table.add_column("named by", overflow="fold")
    table.add_column("which")
    for want in wants:
        permitted = "" if permissions.permit(want.word, want.value) else " (not allowed)"
        cells = (want.word, want.value, ".".join(map(str, want.key)), f"{want.does}{permitted}")
        table.add_row(*map(Text, cells))
    return table


def show_wants(wants: Sequence[Want], permissions: Permissions, *, as_json: bool) -> None:
    """All, and the options that would permit what this command line does not."""
    if as_json:
        print_json(wants_as_data(wants))
        return
    console = Console()
    console.print(wants_table(wants, permissions) if wants else Text(_NOTHING))
    missing = [want.option for want in wants if not permissions.permit(want.word, want.value)]
    if missing:
        console.print()
        console.print(Text(f"To allow that: {' '.join(missing)}"), soft_wrap=True)
