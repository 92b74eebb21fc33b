"""What is known of a run before it begins, and is written down first: its manifest."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

import msgspec

from storlab.errors import UserError
from storlab.records.held import HeldFolder
from storlab.records.manifest import Manifest, NodeFacts, Planned, PlannedDevice, node_facts, write_manifest
from storlab.run.limits import NO_LIMITS, Limits
from storlab.run.planning.design import rule_of
from storlab.run.planning.plan import Plan
from storlab.run.session import Session
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
