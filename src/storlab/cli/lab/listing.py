"""``storlab lab list``: the hosts and groups of a lab as its file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storlab.cli.lab.options import Chosen, lab_of
from storlab.cli.options import Json, LabPath, print_json

if TYPE_CHECKING:
    from storlab.study.machines import Machines

_NONE = "–"


def listing(which: Chosen = None, lab: LabPath = None, json: Json = False) -> None:
    """Show hosts, their groups, and the disk that each has for tests. Asks no host."""
    found = lab_of(lab)
    names = found.chosen(which or [])
    if json:
        print_json({"hosts": [_row(name, found.machines) for name in names]})
        return

    from rich.table import Table
    from rich.text import Text

    from storlab.cli.console import Console

    table = Table(box=None, pad_edge=False)
    for heading in ("host", "ssh", "groups", "disk", "scratch", "address"):
        table.add_column(heading, overflow="fold")
    for row in (_row(name, found.machines) for name in names):
        shown = {**row, "groups": ", ".join(row["groups"]), "disk": _disk(row)}
        table.add_row(*(Text(shown[column.header] or _NONE) for column in table.columns))  # type: ignore[index]
    Console().print(table)


def _row(name: str, machines: Machines) -> dict[str, Any]:
    host = machines.hosts[name]
    groups = [group for group, names in machines.groups.items() if name in names]
    own = host.model_dump(include={"disk", "wipe", "scratch", "address"})
    return {"host": name, "ssh": machines.destination(name), "groups": groups, **own}


def _disk(row: dict[str, Any]) -> str | None:
    wiped = " (may be wiped)" if row["wipe"] else ""
    return f"{row['disk']}{wiped}" if row["disk"] else None
