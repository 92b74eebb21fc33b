"""``storlab list``: its options."""

from __future__ import annotations

from storlab.cli.options import Json


def listing(json: Json = False) -> None:
    """List the shipped studies and what studies are made of."""
    from storlab.cli.listing import listing as command

    command(json)
