"""One cell of a study set up for a user to look around in, as a trial would find it; nothing is measured."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from storlab.records.held import new_run_folder
from storlab.run.beginning import begin_run, new_manifest, new_run_id
from storlab.run.build import Built, Setups
from storlab.run.observer import Interrupts, Observer
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.run.planning.plan import make_plan
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.reclaim import tear_down
from storlab.run.recovery.temporary import forget_run, remember_run
from storlab.run.session import Session, open_session
from storlab.study.study import Study
from storlab.waiting import to_its_end


@asynccontextmanager
async def shell_session(
    study: Study, folder: Path, observer: Observer, permissions: Permissions = NO_PERMISSIONS
) -> AsyncIterator[Built]:
    """The study's first cell that can be set up here, for as long as the context lasts.

    ``folder`` holds the journal meanwhile, so that ``storlab clean`` can tear everything down should this be killed.
    Raises ``UserError`` if nothing can be set up, ``StorlabError`` if that fails.
    """
    run = new_run_id()
    interrupts = Interrupts(observer.notify)
    with interrupts.listening():
        async with open_session(run, observer.notify, permissions) as session:
            plan = await make_plan(study, session, 0, (1, 1))
            plan.refuse_empty()
            await session.claim_devices()
            with new_run_folder(folder) as holding:
                begin_run(holding, await new_manifest(run, session, plan))
                remember_run(run, folder)
                with Journal(holding.run.journal) as journal:
                    session.begin(journal, study.model.scratch)
                    setups = Setups(session, journal, folder)
                    built = setups.begin(plan.supported[0])
                    try:
                        await setups.set_up(built, folder)
                        yield built
                    finally:
                        interrupts.stage = "teardown"
                        if await to_its_end(_tear_down(setups, session, journal)):
                            forget_run(run)


async def _tear_down(setups: Setups, session: Session, journal: Journal) -> bool:
    await setups.tear_down_all()
    return not (await tear_down(journal, session)).failed
