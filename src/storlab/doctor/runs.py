"""Runs: what those left that did not end properly, and whether the shipped studies could run here."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from storlab.base.amounts import plural
from storlab.base.errors import MissingImage, RecordsError, StorlabError
from storlab.base.text import grouped
from storlab.doctor.checks import Found, missing, ok, warn
from storlab.doctor.machine import Check, Status
from storlab.run.beginning import new_run_id
from storlab.run.planning.plan import Plan, make_plan
from storlab.run.recovery.journal import read_pending
from storlab.run.recovery.orphans import Orphan, by_hand, orphans
from storlab.run.recovery.state import foreign_state
from storlab.run.recovery.temporary import remembered_runs
from storlab.run.session import open_session
from storlab.study.study import load_study, shipped_studies

_RUNS, _STUDIES = "Runs", "Shipped studies"
_AT_ONCE = 4
_CLEAN = "storlab clean"  # which shows what it would tear down, and asks
_PLAN = "storlab plan STUDY, which says of each cell what it lacks"
_COMMAND = re.compile("`(storlab image [^`]+)`")
_ROOT = re.compile(r"no root privileges, needed for (?P<what>.+?) \(run it as root, or with sudo\)")


def _run(name: str, status: Status, says: str, remedy: str) -> Check:
    return Check(name, _RUNS, status, says, remedy)


def left_by_runs() -> list[Check]:
    """One line a run that did not end properly, or one that says that there is none."""
    runs = remembered_runs()
    found = [*leftovers(runs), *without_journal(orphans(gone=without_folder(runs)))]
    found += [_run("state", "warn", said, "XDG_STATE_HOME=FOLDER storlab …") for said in foreign_state()]
    return found or [_run("leftovers", "ok", "no run has left anything", "")]


def without_journal(found: Sequence[Orphan]) -> list[Check]:
    """One line a dead run that left something on this machine."""
    lines = []
    for run, mine in grouped((orphan.run, orphan) for orphan in found).items():
        left = ", ".join(f"{orphan.undo} {orphan}" for orphan in mine)
        if all(orphan.elsewhere for orphan in mine):
            commands = "; ".join(command for orphan in mine if (command := by_hand(orphan)) is not None)
            says = f"only this is left of it here, and it may be alive in another container: {left}"
            lines.append(_run(run, "warn", says, f"if it is not alive: {commands}"))
        else:
            says = f"it was killed, and this is still set up and in no journal: {left}"
            lines.append(_run(run, "warn", says, _CLEAN))
    return lines


def without_folder(runs: Mapping[str, Path]) -> set[str]:
    """Those of ``runs``, run → folder, whose folder is gone."""
    return {run for run, folder in runs.items() if not folder.is_dir()}


def leftovers(runs: Mapping[str, Path]) -> Iterator[Check]:
    for name, folder in runs.items():
        command = f"storlab clean {shlex.quote(str(folder))}"
        if not folder.is_dir():
            yield _run(name, "warn", f"{folder} is gone, and its journal with it", _CLEAN)
            continue
        try:
            pending = read_pending(folder / "journal.jsonl")
        except (OSError, RecordsError) as error:
            yield _run(name, "missing", str(error), command)
            continue
        says = f"{folder}: the run did not end, and left nothing set up"
        if pending:
            kinds = ", ".join(dict.fromkeys(entry.undo for entry in pending))
            says = f"{folder}: still running, or it left {plural(len(pending), 'thing')} set up ({kinds})"
        yield _run(name, "warn", says, command)


def shipped_studies_here() -> list[Check]:
    """One line a study, planned a few at once: nothing is run."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str, file: Path) -> Check:
        async with limit:
            return Check(name, _STUDIES, *await _study(file))

    async def each() -> list[Check]:
        return await asyncio.gather(*(one(*study) for study in sorted(shipped_studies().items())))

    return asyncio.run(each())


async def _study(file: Path) -> Found:
    try:
        loaded = load_study(file)
        async with open_session(new_run_id()) as session:
            repeat = loaded.model.repeat
            return judge(await make_plan(loaded, session, 0, (repeat.min, repeat.max)))
    except MissingImage as error:
        told = str(error).splitlines()[0]
        command = _COMMAND.search(told)
        return missing(told.partition(" in /")[0].removeprefix("there is "), command[1] if command else "")
    except (StorlabError, OSError) as error:
        return missing(str(error).splitlines()[0])


def in_one_line(reasons: Iterable[str]) -> str:
    """Reasons why cells cannot run; what root alone may do is said once for all."""
    every = list(reasons)
    roots = [found["what"] for reason in every if (found := _ROOT.fullmatch(reason))]
    rest = [reason for reason in every if not _ROOT.fullmatch(reason)]
    return "; ".join([*([f"takes root, for {' and '.join(roots)}"] if roots else []), *rest])


def judge(plan: Plan) -> Found:
    cells = len(plan.study.cells)
    if not plan.unsupported:
        return ok(f"all {cells} cells can run")
    reasons = in_one_line(dict.fromkeys(reason for each in plan.unsupported.values() for reason in each))
    if plan.supported:
        return warn(f"{len(plan.supported)} of {cells} cells can run: {reasons}", _PLAN)
    return missing(reasons, _PLAN)
