"""The options of ``storlab plan``, and the look at this machine that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from storlab.cli.options import AllowCode, Json, LabPath, Only, Rounds, Seed, Set, StudyName, StudyOptions
from storlab.cli.waiting import waiting


def plan(
    study: StudyName,
    set_: Set = None,
    rounds: Rounds = None,
    seed: Seed = None,
    only: Only = None,
    lab: LabPath = None,
    allow_code: AllowCode = None,
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
    options = StudyOptions(study, set_ or [], only or [], rounds, seed, lab)
    loaded = options.load()

    # Slow to load, so only once there is a study to plan.
    import asyncio
    import random

    from storlab.cli.plan.view import print_json, print_text
    from storlab.records.run_folder import new_run_folder
    from storlab.run.assignment import refuse_unassignable
    from storlab.run.beginning import begin_run, new_manifest, new_run_id
    from storlab.run.permissions import Permissions
    from storlab.run.planning.plan import Plan, make_plan
    from storlab.run.session import open_session

    drawn = random.SystemRandom().randrange(2**32) if write is not None and seed is None else seed

    async def look() -> Plan:
        run = new_run_id()
        async with open_session(run, permissions=Permissions(code=tuple(allow_code or ()))) as session:
            made = await make_plan(loaded, session, drawn or 0, options.rounds_of(loaded), without_image=True)
            if write is not None:
                refuse_unassignable(loaded)
                manifest = await new_manifest(run, session, made)
                with new_run_folder(write):
                    begin_run(write, manifest)
            return made

    with waiting(f"looking what {len(loaded.cells):,} cells take"):
        (print_json if json else print_text)(asyncio.run(look()), drawn)
