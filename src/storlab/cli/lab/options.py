"""What the commands of ``storlab lab`` share: which lab, and which of its hosts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from storlab.errors import UserError

if TYPE_CHECKING:
    from storlab.lab.file import Lab

Chosen = Annotated[
    list[str] | None, Argument(metavar="[HOST|GROUP]...", help="Hosts and groups of the lab; by default all.")
]


def lab_path(given: Path | None) -> str | None:
    from storlab.lab.file import VARIABLE

    return str(given) if given is not None else os.environ.get(VARIABLE) or None


def lab_of(given: Path | None) -> Lab:
    """The lab of a command that can't do without. Raises ``UserError``."""
    from storlab.lab.file import VARIABLE, read_lab

    path = lab_path(given)
    if path is None:
        raise UserError(f"which lab? Write --lab FILE, or set {VARIABLE}: a lab.toml or an Ansible inventory")
    return read_lab(path)
