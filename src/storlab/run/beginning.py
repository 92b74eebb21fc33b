"""What begins: a run, with its manifest, which is written down first; or one cell, for a user to look around in."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from storlab.base.errors import UserError
from storlab.base.waiting import to_its_end
from storlab.records.held import HeldFolder, new_run_folder
from storlab.records.manifest import Manifest, NodeFacts, Planned, PlannedDevice, node_facts, write_manifest
from storlab.run.build import Built, Setups
from storlab.run.limits import NO_LIMITS, Limits
from storlab.run.observer import Interrupts, Observer
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.run.planning.design import rule_of
from storlab.run.planning.horizon import horizon_of
from storlab.run.planning.plan import Plan, make_plan
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.reclaim import tear_down
from storlab.run.recovery.temporary import forget_run, remember_run
from storlab.run.session import Session, open_session
from storlab.study.study import Study
from storlab.version import __version__


def new_run_id() -> str:
    """Sorts by time, and is part of every name that the run makes."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


async def new_manifest(run: str, session: Session, plan: Plan, limits: Limits = NO_LIMITS) -> Manifest:
    study = plan.study
    await session.ask_versions()
    return Manifest(
        run=run,
        title=study.model.title,
        description=study.model.description,
        study_file=study.file,
        study_text=study.text,
        overrides=study.overrides,
        only=study.only,
        inputs=dict(study.inputs),
        seed=plan.seed,
        storlab=__version__,
        argv=tuple(sys.argv),
        started=now(),
        rounds=plan.rounds,
        nodes=nodes_of(session),
        devices=tuple(PlannedDevice(*place, device) for place, device in session.devices.items()),
        plan=msgspec.convert(plan.as_dict(), Planned),
        platform_notes=tuple(note for note in plan.notes if note not in study.notes),  # these are read of the study
        cautions=plan.cautions,
        emulated=plan.emulated,
        unconfined=plan.permissions.unconfined,
        allowed=tuple(sorted(want.permission for want in plan.wants)),
        gates=limits.gates,
        optional=dict(limits.optional),
        minutes=limits.minutes,
        order=plan.order_rule,
        horizon=horizon_of(study, plan.rounds, limits),
        rest_from=None if rule_of(study, plan.rounds, limits).until == "rounds" else plan.rounds[0],
    )


def begin_run(folder: HeldFolder, manifest: Manifest) -> None:
    """Write it down. Raises ``UserError`` if the folder can't be used."""
    try:
        write_manifest(folder.run.path, manifest)
    except OSError as error:
        raise UserError(f"{folder.named.path} can't be used for the run: {error.strerror}") from None


def nodes_of(session: Session) -> dict[str, NodeFacts]:
    """What the nodes are that are there for the whole run. Some are opened only once a trial needs them."""
    lasting = {name: node for name, node in session.nodes.items() if not node.identity.volatile}
    return {name: node_facts(node.identity.kind, session.facts[name]) for name, node in lasting.items()}


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


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
