"""The options of ``storlab plan``, and the look at this machine that it takes."""

from __future__ import annotations

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
    json: Json = False,
) -> None:
    """Say what a study would do and what it needs.

    Its cells, their stacks, what is unsupported here and why, disk space, privileges and time. Runs nothing.
    """
    options = StudyOptions(study, set_ or [], only or [], rounds, seed, lab)
    loaded = options.load()

    # Slow to load, so only once there is a study to plan.
    import asyncio

    from storlab.cli.plan.view import print_json, print_text
    from storlab.run.executor import new_run_id
    from storlab.run.permissions import Permissions
    from storlab.run.planning.plan import Plan, make_plan
    from storlab.run.session import open_session

    async def look() -> Plan:
        async with open_session(new_run_id(), permissions=Permissions(code=tuple(allow_code or ()))) as session:
            return await make_plan(loaded, session, seed or 0, options.rounds_of(loaded), without_image=True)

    with waiting(f"looking what {len(loaded.cells):,} cells take"):
        (print_json if json else print_text)(asyncio.run(look()), seed)
