"""``storlab image``: the options of its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from storlab.cli.options import Json, Quiet

image = typer.Typer(name="image", help="Build, list and remove what guests boot.", no_args_is_help=True)


@image.command("build")
def image_build(
    with_: Annotated[
        list[str] | None, typer.Option("--with", metavar="EXTRA", help="What it shall have besides: zfs.")
    ] = None,
    mirror: Annotated[
        str, typer.Option("--mirror", metavar="URL", help="A mirror of Debian.")
    ] = "http://deb.debian.org/debian",
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Only if there is none yet; then no mirror is asked.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Build a guest image, or what is missing of it.

    A Debian with the newest 6.12 kernel of its backports. Finished parts are used again.
    """
    from storlab.cli.image import build as command

    raise typer.Exit(command(with_ or [], mirror, if_missing, quiet))


@image.command("list")
def image_list(json: Json = False) -> None:
    """List the guest images in the cache."""
    from storlab.cli.image import listing as command

    command(json)


@image.command("remove")
def image_remove(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="An image, as the list names it.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All images, and all that was downloaded for them.")] = False,
) -> None:
    """Remove a guest image, or all."""
    from storlab.cli.image import remove as command

    command(name, all_)
