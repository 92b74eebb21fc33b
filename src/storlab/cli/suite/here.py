"""``--here``: a suite on this machine in place of guests, and what of this machine it may use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from typer import Option

from storlab.cli.options import Strings
from storlab.errors import UserError

if TYPE_CHECKING:
    from storlab.suites.records.here import Here

HereName = Annotated[
    str,
    Option(
        "--here", metavar="NAME", help="Run on this machine, called NAME, not in guests; everything on it may be lost."
    ),
]
Disks = Annotated[
    Strings, Option("--disk", metavar="PATH", help="With --here: an empty disk for tests; by default loop devices.")
]
Wipe = Annotated[Strings, Option("--wipe", metavar="PATH", help="With --here: a disk whose data may be lost.")]


def here_of(name: str, disks: Strings, wipe: Strings, guests: int, files: str = "") -> Here | None:
    """What was asked for of this machine, with what the shell's variables say; ``None`` for guests.

    ``DISKS``, ``FILEDIR`` and ``KEEP`` mean what they do for ``zfs-tests.sh``. Raises ``UserError``.
    """
    from storlab.suites.records.here import FILES, Here

    if not name:
        if disks or wipe:
            raise UserError("--disk and --wipe: guests have disks of their own; these are for --here")
        return None
    if guests > 1:
        raise UserError("--here: there is one machine, so leave out --guests")
    named = [f"/dev/{each.removeprefix('/dev/')}" for each in os.environ.get("DISKS", "").split()]
    chosen = tuple(os.path.abspath(each) for each in disks or named)  # noqa: PTH100 - a link may be the stable name
    allowed = tuple(os.path.abspath(each) for each in wipe or ())  # noqa: PTH100 - as above
    if strange := next((each for each in allowed if each not in chosen), None):
        raise UserError(f"--wipe {strange}: it is none of the disks that tests get: name it with --disk, too")
    if twice := next((each for each in chosen if chosen.count(each) > 1), None):
        raise UserError(f"--disk {twice}: it is named twice")
    folder = os.path.abspath(files or os.environ.get("FILEDIR", "") or FILES)  # noqa: PTH100 - it need not be there
    user = os.environ.get("SUDO_USER", "") or "root"
    return Here(name, folder, chosen, allowed, tuple(os.environ.get("KEEP", "").split()), user)
