"""``storlab doctor``: its options."""

from __future__ import annotations

from storlab.cli.options import Json


def doctor(json: Json = False) -> None:
    """Say what this machine can do, and how to mend the rest."""
    from storlab.cli.doctor import doctor as command

    command(json)
