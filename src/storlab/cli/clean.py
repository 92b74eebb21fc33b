"""``storlab clean``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from storlab.cli.failure import OWN_FAULT
from storlab.errors import RecordsError
from storlab.records.run_folder import RunFolder
from storlab.run import temporary
from storlab.run.journal import Journal, read_pending
from storlab.run.registry_of_runs import forget_run, remembered_runs
from storlab.run.session import open_session
from storlab.run.teardown import Teardown, take_down_rest
from storlab.study.cells import HOST


def clean(folder: Path | None) -> int:
    """Take down one run's remains, or those of all remembered runs and folders; returns the exit status."""
    if folder is not None:
        return _report(folder, _clean(RunFolder.open(folder)))
    status = 0
    runs = remembered_runs()
    for name, path in runs.items():
        try:
            status = max(status, _report(path, _clean(RunFolder.open(path))))
        except RecordsError as error:
            if path.exists():
                print(error)
                continue
            print(f"{path}: the run's folder is gone, and its journal with it; it is forgotten")
            forget_run(name)
    links = temporary.links()
    if not runs and not links:
        print("No run is known that could have left anything.")
    return max([status, *(_remove_folder(link) for link in links)])


def _remove_folder(link: Path) -> int:
    """Remove a folder in which a process worked that was killed. What may stand was taken down before."""
    folder = link.readlink()
    try:
        found = temporary.remove_dead(folder)
    except FileNotFoundError:
        found = "foreign"
    except OSError as error:
        print(f"{folder}: can't be removed: {error.strerror}")
        return OWN_FAULT
    if found == "removed":
        print(f"{folder}: removed, for the process that worked in it is gone")
    if found == "standing":
        print(f"{folder}: left as it is, for not everything in it could be taken down")
        return OWN_FAULT
    if found != "alive":
        temporary.forget(link)
    return 0


def _clean(run: RunFolder) -> Teardown:
    identity = run.manifest.run
    with run.lock():
        if not read_pending(run.journal):
            forget_run(identity)
            return Teardown()
        result = asyncio.run(_take_down(run, identity))
    if not result.failed:
        forget_run(identity)
    return result


async def _take_down(run: RunFolder, identity: str) -> Teardown:
    async with open_session(identity, [HOST]) as session:
        with Journal(run.journal) as journal:
            return await take_down_rest(journal, session)


def _report(folder: Path, result: Teardown) -> int:
    for did in result.did:
        print(f"{folder}: {did}")
    for failed in result.failed:
        print(f"{folder}: could not be taken down: {failed}")
    if not result.did and not result.failed:
        print(f"{folder}: nothing stands any more")
    return OWN_FAULT if result.failed else 0
