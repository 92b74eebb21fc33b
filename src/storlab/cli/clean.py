"""``storlab clean``: what runs have left behind is torn down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from storlab.base.errors import RecordsError, UserError
from storlab.cli.options import Allow
from storlab.cli.output import confirmed, show
from storlab.cli.status import COMPLETE, LEFT_BEHIND

if TYPE_CHECKING:
    from storlab.records.run_folder import RunFolder
    from storlab.run.recovery.orphans import Orphan
    from storlab.run.recovery.reclaim import Teardown


def clean(
    folder: Annotated[Path | None, Argument(metavar="RUN", help="One run; by default all.")] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Without RUN: do not ask.")] = False,
    allow: Allow = None,
) -> None:
    """Tear down what runs have left behind.

    Whatever a run's journal says was set up and is still there; without RUN, also what bears the mark of a run of yours
    that is dead for a minute or more, and is in no journal. Never anything else. Without RUN, it first shows what that
    is, and asks.
    """
    from storlab.run.recovery.state import foreign_state

    if folder is not None:
        raise typer.Exit(_clean(folder, tuple(allow or ())))
    for said in foreign_state():
        show(said)
    found = _all_left()
    if not found:
        show("No run is known that could have left anything.")
    elif yes or _agreed(found):
        raise typer.Exit(clean_all())


def _all_left() -> list[str]:
    """What there is to look at, a line each. Changes nothing."""
    from storlab.doctor.runs import leftovers, without_folder, without_journal
    from storlab.run.recovery import temporary
    from storlab.run.recovery.orphans import orphans
    from storlab.run.recovery.temporary import remembered_runs

    runs = remembered_runs()
    checks = [*(leftovers(runs) if runs else ()), *without_journal(orphans(gone=without_folder(runs)))]
    folders = [f"{link.readlink()}: the folder of a process, to be removed if it is gone" for link in temporary.links()]
    return [*(f"{check.name}: {check.says}" for check in checks), *folders]


def _agreed(found: list[str]) -> bool:
    """Show it and ask. Raises ``UserError`` where nobody is there to answer."""
    show("This would be torn down, unless it belongs to a run that is still going on:")
    for line in found:
        show(f"  {line}")
    agreed = confirmed("Tear it down?")
    if agreed is None:
        raise UserError("nothing was torn down: `storlab clean --yes` does it all, `storlab clean RUN` one run alone")
    return agreed


def clean_all() -> int:
    """Tear down what any run has left, and say so; an exit status."""
    from storlab.run.recovery import temporary
    from storlab.run.recovery.orphans import orphans
    from storlab.run.recovery.temporary import remembered_runs

    status = 0
    runs = remembered_runs()
    gone = {}
    for name, path in runs.items():
        try:
            status = max(status, _clean(path))
        except RecordsError as error:
            if path.exists():
                show(str(error))
            else:
                gone[name] = path
    links = temporary.links()
    status = max([status, *(_remove_folder(link) for link in links)])
    found = orphans(gone=gone)
    if not runs and not links and not found:
        show("No run is known that could have left anything.")
    status = max(status, _remove_orphans(found)) if found else status
    _forget(gone)
    return status


def _forget(gone: dict[str, Path]) -> None:
    """Forget runs whose folder was removed by hand, and with it the journal, unless something of them is left."""
    from storlab.run.recovery.orphans import living, orphans
    from storlab.run.recovery.temporary import forget_run

    alive = living() if gone else set()
    left = {orphan.run for orphan in orphans(gone=gone)} if gone else set()
    for name, path in gone.items():
        if name in alive:
            show(f"{path}: the run's folder is gone, but the run is still going on: left alone")
        elif name not in left:
            show(f"{path}: the run's folder is gone, and its journal with it; it is forgotten")
            forget_run(name)


def _remove_orphans(found: list[Orphan]) -> int:
    import asyncio

    did, failed = asyncio.run(_undo(found))
    for each in did:
        show(f"Left by a run that was killed: {each}")
    for each in failed:
        show(f"Left by a run that was killed: could not be torn down: {each}")
    return LEFT_BEHIND if failed else COMPLETE


async def _undo(found: list[Orphan]) -> tuple[list[str], list[str]]:
    from storlab.run.beginning import new_run_id
    from storlab.run.recovery.orphans import remove
    from storlab.run.session import open_session

    async with open_session(new_run_id()) as session:
        return await remove(found, session)


def _remove_folder(link: Path) -> int:
    """Remove a folder in which a process worked that was killed. What may stand was torn down before."""
    from storlab.run.recovery import temporary

    folder = link.readlink()
    try:
        found = temporary.remove_dead(folder, link.name)
    except FileNotFoundError:
        found = "foreign"
    except OSError as error:
        show(f"{folder}: can't be removed: {error.strerror}")
        return LEFT_BEHIND
    if found == "removed":
        show(f"{folder}: removed, because the process that worked in it is gone")
    if found == "standing":
        show(f"{folder}: left as it is, because not everything in it could be torn down")
        return LEFT_BEHIND
    if found != "alive":
        temporary.forget(link)
    return 0


def _clean(folder: Path, allow: tuple[str, ...] = ()) -> int:
    import asyncio

    from storlab.run.permissions import Permissions, parse_allowed
    from storlab.run.recovery.journal import read_pending
    from storlab.run.recovery.orphans import left_of
    from storlab.run.recovery.reclaim import taken
    from storlab.run.recovery.temporary import forget_run

    with taken(folder, Permissions(allowed=parse_allowed(allow))) as holding:
        run = holding.run
        identity = run.manifest.run
        pending = read_pending(run.journal) or left_of(identity)
        result = asyncio.run(_tear_down(run, identity)) if pending else None
        if result is None or not result.failed:
            forget_run(identity)
    for did in result.did if result else ():
        show(f"{folder}: {did}")
    for failed in result.failed if result else ():
        show(f"{folder}: could not be torn down: {failed}")
    if result is None or not (result.did or result.failed):
        show(f"{folder}: nothing is left to tear down")
    return LEFT_BEHIND if result and result.failed else COMPLETE


async def _tear_down(run: RunFolder, identity: str) -> Teardown:
    from storlab.run.recovery.journal import Journal
    from storlab.run.recovery.reclaim import tear_down_rest
    from storlab.run.session import open_session

    async with open_session(identity) as session:
        with Journal(run.journal) as journal:
            return await tear_down_rest(journal, session)
