"""One cell of a study put up for a user to look around in, as a trial would find it; nothing is measured."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from storlab.layers.stack import StandingStack
from storlab.nodes.node import Node
from storlab.nodes.waiting import all_of, to_its_end
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


@dataclass
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
    interrupts = Interrupts(observer.told)
    with interrupts.listening():
        async with open_session(run, wanted_nodes(study.cells), observer.told) as session:
            plan = await make_plan(study, session, 0, (1, 1))
            plan.refuse_empty()
            with new_run_folder(folder) as records:
                begin_manifest(folder, run, session, plan)
                remember_run(run, folder)
                standing = Standing(plan.supported[0], session.nodes, {})
                with Journal(records.journal) as journal:
                    session.announce(journal)
                    try:
                        standing.stacks = await _put_up(plan, session, records, journal)
                        yield standing
                    finally:
                        interrupts.stage = "teardown"
                        if await to_its_end(_take_down(session, journal)):
                            forget_run(run)


async def _put_up(plan: Plan, session: Session, records: RunFolder, journal: Journal) -> dict[str, StandingStack]:
    root = plan.study.model.scratch
    scratch = {name: await make_scratch(node, root, session.run, journal) for name, node in session.nodes.items()}
    return await Stacks(session, scratch, root, journal, records.path).put_up(plan.supported[0], records.path)


async def _take_down(session: Session, journal: Journal) -> bool:
    """Whether all is down; what is not stays in the journal."""
    await all_of(*(session.end_guest(name) for name in list(session.hypervisor.guests)))
    return not (await take_down(journal, session)).failed
