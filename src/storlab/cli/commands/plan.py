"""``storlab plan``: its options."""

from __future__ import annotations

from storlab.cli.options import Json, Only, Rounds, Seed, Set, Study


def plan(
    study: Study, set_: Set = None, rounds: Rounds = None, seed: Seed = None, only: Only = None, json: Json = False
) -> None:
    """Say what a study would do and what it needs.

    Its cells, their stacks, what is unsupported here and why, disk space, privileges and time. Runs nothing.
    """
    from storlab.cli.plan import plan as command

    command(study, set_ or [], only or [], rounds, seed, json)
