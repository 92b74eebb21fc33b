"""The options of ``storlab plan``, and the look at this machine that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from storlab.cli.options import Allow, Json, LabPath, Only, Rounds, Seed, Set, StudyName, StudyOptions
from storlab.cli.output import waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storlab.run.permissions import Permissions, Want
    from storlab.study.study import Study


def plan(
    study: StudyName,
    set_: Set = None,
    rounds: Rounds = None,
    seed: Seed = None,
    only: Only = None,
    lab: LabPath = None,
    allow: Allow = None,
    wants: Annotated[
        bool, Option("--wants", help="Only what it wants beyond its scratch, and what permits that.")
    ] = False,
    write: Annotated[
        Path | None,
        Option("--write", metavar="DIR", help="Also into a new folder, so that machines can share its rounds."),
    ] = None,
    json: Json = False,
) -> None:
    """Say what a study would do and what it needs.

    Its cells, their stacks, what is unsupported here and why, disk space, privileges and time. Runs nothing.
    With --write, others can do its rounds: run --rounds A-B --of DIR.
    """
    options = StudyOptions(study, set_ or [], only or [], rounds, seed, lab, tuple(allow or ()))
    loaded = options.load()

    # Slow to load, so only once there is a study to plan.
    import asyncio
    import random

    from storlab.cli.plan.view import show_plan, show_plan_as_json, show_wants
    from storlab.records.held import new_run_folder
    from storlab.run.beginning import begin_run, new_manifest, new_run_id
    from storlab.run.merging import refuse_unassignable
    from storlab.run.planning.plan import Plan, make_plan
    from storlab.run.session import open_session

    permissions = options.permissions(loaded)
    drawn = random.SystemRandom().randrange(2**32) if write is not None and seed is None else seed

    if wants:
        show_wants(asyncio.run(_wants(loaded, permissions)), permissions, as_json=json)
        return

    async def look() -> Plan:
        run = new_run_id()
        async with open_session(run, permissions=permissions) as session:
            made = await make_plan(loaded, session, drawn or 0, options.rounds_of(loaded), without_image=True)
            if write is not None:
                refuse_unassignable(loaded)
                manifest = await new_manifest(run, session, made)
                with new_run_folder(write) as holding:
                    begin_run(holding, manifest)
            return made

    with waiting(f"looking what {len(loaded.cells):,} cells take"):
        (show_plan_as_json if json else show_plan)(asyncio.run(look()), drawn)


async def _wants(study: Study, permissions: Permissions) -> Sequence[Want]:
    """What a study wants of this machine, of which nothing is run for that."""
    from storlab.run.beginning import new_run_id
    from storlab.run.planning.checks import place
    from storlab.run.planning.metrics import narrowed
    from storlab.run.planning.wants import wants_of
    from storlab.run.session import open_session

    async with open_session(new_run_id()) as session:
        return wants_of(await place(narrowed(study), session.host), permissions.beside)
