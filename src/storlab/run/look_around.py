"""One cell of a study put up for a user to look around in, as a trial would find it; nothing is measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from storlab.errors import UserError
from storlab.layers.stack import StandingStack
from storlab.nodes.node import Node
from storlab.nodes.waiting import to_its_end
from storlab.records.run_folder import RunFolder, new_run_folder
from storlab.run.executor import begin_manifest, new_run_id
from storlab.run.interrupts import Interrupts
from storlab.run.journal import Journal
from storlab.run.observer import Observer
from storlab.run.plan import Plan, make_plan
from storlab.run.registry_of_runs import forget_run, remember_run
from storlab.run.scratch import make_scratch
from storlab.run.session import Session, open_session, wanted_nodes
from storlab.run.stacks import Stacks
from storlab.run.teardown import take_down
from storlab.study.cells import Cell
from storlab.study.study import Study


@dataclass(frozen=True)
class Standing:
    """What is up: the cell, its nodes by name, and each one's stack."""

    cell: Cell
    nodes: dict[str, Node]
    stacks: dict[str, StandingStack]


@asynccontextmanager
async def standing_cell(study: Study, folder: Path, observer: Observer) -> AsyncIterator[Standing]:
    """The study's first cell that can be put up here, for as long as the context lasts.

    ``folder`` holds the journal meanwhile, so that ``storlab clean`` can take everything down should this be killed.
    Raises ``UserError`` where nothing can be put up, ``StorlabError`` where that fails.
    """
    run = new_run_id()
    with Interrupts(observer.told).listening():
        async with open_session(run, wanted_nodes(study.cells), observer.told) as session:
            plan = await make_plan(study, session, 0, (1, 1))
            if not plan.supported:
                reasons = dict.fromkeys(reason for found in plan.unsupported.values() for reason in found)
                raise UserError(f"nothing of this study can be put up here: {'; '.join(reasons)}")
            with new_run_folder(folder) as records:
                begin_manifest(folder, run, session, plan)
                remember_run(run, folder)
                async with _standing(plan, session, records) as standing:
                    yield standing
            forget_run(run)


@asynccontextmanager
async def _standing(plan: Plan, session: Session, records: RunFolder) -> AsyncIterator[Standing]:
    cell, root = plan.supported[0], plan.study.model.scratch
    with Journal(records.journal) as journal:
        session.announce(journal)
        try:
            scratch = {
                name: await make_scratch(node, root, session.run, journal) for name, node in session.nodes.items()
            }
            stacks = Stacks(session, scratch, root, journal, records.path)
            standing = await stacks.put_up(cell, records.path)
            yield Standing(cell, session.nodes, standing)
        finally:
            await to_its_end(_take_down(session, journal))


async def _take_down(session: Session, journal: Journal) -> None:
    await asyncio.gather(*(session.end_guest(name) for name in list(session.hypervisor.guests)))
    await take_down(journal, session)
