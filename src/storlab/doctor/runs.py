"""Runs: what those left that did not end properly, and whether the shipped studies could run here."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from storlab.analysis.wording import plural
from storlab.doctor.machine import Check, missing, ok, warn
from storlab.errors import MissingImage, RecordsError, StorlabError
from storlab.run.beginning import new_run_id
from storlab.run.planning.plan import Plan, make_plan
from storlab.run.recovery.journal import read_pending
from storlab.run.recovery.orphans import Orphan, by_hand, orphans
from storlab.run.recovery.state import foreign_state
from storlab.run.recovery.temporary import remembered_runs
from storlab.run.session import open_session
from storlab.study.study import Study, load_study, shipped_studies

GROUP = "Runs"
STUDIES = "Shipped studies"
_AT_ONCE = 4
_CLEAN = "storlab clean"  # which shows what it would tear down, and asks
_PLAN = "storlab plan STUDY, which says of each cell what it lacks"
_COMMAND = re.compile("`(storlab image [^`]+)`")
_ROOT = re.compile(r"no root privileges, needed for (?P<what>.+?) \(run it as root, or with sudo\)")


def checks() -> list[Check]:
    """One line a run that did not end properly, or one that says that there is none."""
    runs = remembered_runs()
    found = [*leftovers(runs), *without_journal(orphans(gone=without_folder(runs)))]
    found += [warn("state", GROUP, said, "XDG_STATE_HOME=FOLDER storlab …") for said in foreign_state()]
    return found or [ok("leftovers", GROUP, "no run has left anything")]


def without_journal(found: Sequence[Orphan]) -> list[Check]:
    """One line a dead run that left something on this machine."""
    lines = []
    for run in dict.fromkeys(orphan.run for orphan in found):
        mine = [orphan for orphan in found if orphan.run == run]
        left = ", ".join(f"{orphan.undo} {orphan}" for orphan in mine)
        if all(orphan.elsewhere for orphan in mine):
            commands = "; ".join(command for orphan in mine if (command := by_hand(orphan)) is not None)
            says = f"only this is left of it here, and it may be alive in another container: {left}"
            lines.append(warn(run, GROUP, says, f"if it is not alive: {commands}"))
            continue
        says = f"it was killed, and this is still set up and in no journal: {left}"
        lines.append(warn(run, GROUP, says, _CLEAN))
    return lines


def without_folder(runs: Mapping[str, Path]) -> set[str]:
    """Those of ``runs``, run → folder, whose folder is gone."""
    return {run for run, folder in runs.items() if not folder.is_dir()}


def leftovers(runs: Mapping[str, Path]) -> list[Check]:
    """One line for each of ``runs``: run → folder."""
    return [_judge(name, folder) for name, folder in runs.items()]


def _judge(name: str, folder: Path) -> Check:
    if not folder.is_dir():
        return warn(name, GROUP, f"{folder} is gone, and its journal with it", _CLEAN)
    command = f"storlab clean {shlex.quote(str(folder))}"
    try:
        pending = read_pending(folder / "journal.jsonl")
    except (OSError, RecordsError) as error:
        return missing(name, GROUP, str(error), command)
    if not pending:
        return warn(name, GROUP, f"{folder}: the run did not end, and left nothing set up", command)
    kinds = ", ".join(dict.fromkeys(entry.undo for entry in pending))
    says = f"{folder}: still running, or it left {plural(len(pending), 'thing')} set up ({kinds})"
    return warn(name, GROUP, says, command)


def shipped() -> list[Check]:
    """One line a study, planned a few at once."""
    return asyncio.run(_studies(sorted(shipped_studies())))


async def _studies(names: Sequence[str]) -> list[Check]:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> Check:
        async with limit:
            return await study(name)

    return await asyncio.gather(*map(one, names))


async def study(name: str) -> Check:
    """Load it, ask the nodes, run nothing."""
    try:
        loaded = load_study(shipped_studies()[name])
        return judge(name, await _plan(loaded))
    except MissingImage as error:
        told = str(error).splitlines()[0]
        command = _COMMAND.search(told)
        says = f"{told.partition(' in /')[0].removeprefix('there is ')}"
        return missing(name, STUDIES, says, command[1] if command else "")
    except (StorlabError, OSError) as error:
        return missing(name, STUDIES, str(error).splitlines()[0])


async def _plan(loaded: Study) -> Plan:
    async with open_session(new_run_id()) as session:
        repeat = loaded.model.repeat
        return await make_plan(loaded, session, 0, (repeat.min, repeat.max))


def in_one_line(reasons: Iterable[str]) -> str:
    """Reasons why cells cannot run; what root alone may do is said once for all."""
    every = list(reasons)
    roots = [found["what"] for reason in every if (found := _ROOT.fullmatch(reason))]
    rest = [reason for reason in every if not _ROOT.fullmatch(reason)]
    return "; ".join([*([f"takes root, for {' and '.join(roots)}"] if roots else []), *rest])


def judge(name: str, plan: Plan) -> Check:
    """A plan in one line."""
    cells = len(plan.study.cells)
    if not plan.unsupported:
        return ok(name, STUDIES, f"all {cells} cells can run")
    reasons = in_one_line(dict.fromkeys(reason for each in plan.unsupported.values() for reason in each))
    if plan.supported:
        return warn(name, STUDIES, f"{len(plan.supported)} of {cells} cells can run: {reasons}", _PLAN)
    return missing(name, STUDIES, reasons, _PLAN)
