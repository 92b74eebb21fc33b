"""``storlab shell``: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from storlab.cli.options import Only, Set, Study


def shell(
    study: Study,
    node: Annotated[str | None, typer.Argument(metavar="NODE", help="By default the first with a load.")] = None,
    set_: Set = None,
    only: Only = None,
    build: Annotated[bool, typer.Option("--build", help="Build the guest images that it needs, where absent.")] = False,
) -> None:
    """Put up one cell of a study and open a shell on one of its nodes.

    The first cell of those that --only leaves. All is taken down when the shell ends.
    """
    from storlab.cli.shell import shell as command

    raise typer.Exit(command(study, node, set_ or [], only or [], build))
