"""Whether the shipped studies could run here, as ``storlab plan`` would say."""

from __future__ import annotations

import asyncio

from storlab.doctor.check import Check, missing, ok, warn
from storlab.errors import StorlabError
from storlab.run.executor import new_run_id
from storlab.run.plan import Plan, make_plan
from storlab.run.session import open_session, wanted_nodes
from storlab.study.study import Study, load_study, shipped_studies

GROUP = "Shipped studies"


def checks() -> list[Check]:
    """One line a study."""
    return [study(name) for name in sorted(shipped_studies())]


def study(name: str) -> Check:
    """Load it, ask the nodes, run nothing."""
    try:
        loaded = load_study(shipped_studies()[name])
        return judge(name, asyncio.run(_plan(loaded)))
    except (StorlabError, OSError) as error:
        return missing(name, GROUP, str(error).splitlines()[0])


async def _plan(loaded: Study) -> Plan:
    async with open_session(new_run_id(), wanted_nodes(loaded.cells)) as session:
        repeat = loaded.model.repeat
        return await make_plan(loaded, session, 0, (repeat.min, repeat.max))


def judge(name: str, plan: Plan) -> Check:
    """A plan in one line."""
    cells = len(plan.study.cells)
    if not plan.unsupported:
        return ok(name, GROUP, f"all {cells} cells can run")
    reasons = "; ".join(dict.fromkeys(reason for each in plan.unsupported.values() for reason in each))
    if plan.supported:
        return warn(name, GROUP, f"{len(plan.supported)} of {cells} cells can run: {reasons}", f"storlab plan {name}")
    return missing(name, GROUP, reasons, f"storlab plan {name}")
