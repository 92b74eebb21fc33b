"""``--shell-on-failure`` and ``--debug``: a look at the guest of a test that fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Option

from storlab.errors import UserError

if TYPE_CHECKING:
    from storlab.suites.run.asked import Asked

ShellOnFailure = Annotated[
    bool,
    Option("--shell-on-failure", help="When a test fails, open a shell in its guest before anything is cleaned up."),
]


def held(asked: Asked, *, shell: bool, debug: bool) -> Asked:
    option = "--debug" if debug else "--shell-on-failure"
    if not (shell or debug):
        return asked
    if asked.guests > 1:
        raise UserError(f"{option}: there is one terminal for shells, so leave out --guests")
    if debug and asked.here is not None:
        raise UserError("--debug: a debugger attaches to a guest's kernel, and not to this machine's: leave out --here")
    return replace(asked, hold=True, debug=debug)
