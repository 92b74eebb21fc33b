"""``storlab lab prepare``: this Storlab is brought to another machine."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from storlab.cli.output import show, warn


def prepare(
    hosts: Annotated[list[str], Argument(metavar="HOST...", help="Machines, by their names for ssh.")],
    again: Annotated[bool, Option("--again", help="Even if it is there already.")] = False,
) -> None:
    """Bring this Storlab to other machines, for --on.

    It goes into ~/.local/share/storlab there, with its libraries, and takes neither root nor a download: Python 3.11 or
    newer is all that must be there, or uv here, which can bring one.
    """
    import asyncio

    from storlab.errors import SshError, UserError
    from storlab.remote.prepare import prepare as bring

    for host in hosts:
        try:
            done = asyncio.run(bring(host, warn, again=again))
        except SshError as error:
            raise UserError(str(error)) from None
        show(f"{host}: {done.place} {'is there' if done.was_ready else f'is ready, with {done.python}'}")
