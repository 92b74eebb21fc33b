"""``storlab attach``: what runs on another machine, or ended there with nobody watching, is shown here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from storlab.cli.options import Json, Quiet
from storlab.errors import UserError

if TYPE_CHECKING:
    from storlab.remote.host import Host, Known


def attach(
    host: Annotated[str, Argument(metavar="HOST", help="The machine that was named with --on.")],
    folder: Annotated[
        Path | None, Argument(metavar="RUN", help="Which of its runs, by the folder that gets the records.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show what runs on another machine, and fetch its records.

    Or what ended there with nobody watching. It is shown from its beginning; records that are here already are not sent
    again. The exit status is the run's.
    """
    import asyncio

    from storlab.cli.remote.elsewhere import ended
    from storlab.cli.remote.session import Watched, watch

    known = asyncio.run(_jobs(host))
    chosen = choose(host, known, folder)

    async def begin(there: Host) -> str:
        return chosen.job

    watched = Watched(
        host=host,
        command=chosen.command,
        results=places_of(chosen, folder),
        run=next(iter(chosen.results), None),
        tied=False,
        keep=True,
        measures=True,
        quiet=quiet or json,
    )
    undecided = "--allow-undecided" in chosen.words
    raise typer.Exit(ended(watch(watched, begin), watched, json=json, allow_undecided=undecided))


async def _jobs(host: str) -> list[Known]:
    from storlab.errors import SshError
    from storlab.remote.host import Host
    from storlab.ssh.machine import connected

    try:
        async with connected(host) as machine:
            return await Host(host, machine).jobs()
    except SshError as error:
        raise UserError(str(error)) from None


def choose(host: str, jobs: list[Known], folder: Path | None) -> Known:
    """The one that is meant: of several, those that run or were not fetched. Raises ``UserError``."""
    if folder is not None:
        jobs = [job for job in jobs if place_of(job) == folder.absolute() or name_of(job) == str(folder)]
    else:
        jobs = [job for job in jobs if job.alive or not job.fetched]
    if not jobs:
        what = f"no run there belongs to {folder}" if folder is not None else "nothing runs there, and all is fetched"
        raise UserError(f"{host}: {what}")
    if len({name_of(job) for job in jobs}) > 1:
        several = "; ".join(f"{name_of(job)} ({job.command}, since {job.since})" for job in jobs)
        raise UserError(f"{host} has several: {several}. Name one: `storlab attach {host} {name_of(jobs[-1])}`")
    return jobs[-1]


def name_of(job: Known) -> str:
    return next(iter(job.results), job.command)


def place_of(job: Known) -> Path | None:
    """Where its records belong on this machine; ``None`` if another one started it."""
    from storlab.run.noise import this_machine

    return Path(job.here.places[0]) if job.here.machine == this_machine() and job.here.places else None


def places_of(job: Known, folder: Path | None) -> dict[str, Path]:
    """Of all results: where whoever started it wanted them, or else ``folder``, or their names in this directory."""
    place = place_of(job)
    if place is not None:
        return dict(zip(job.results, map(Path, job.here.places), strict=True))
    return {name: (folder or Path(name)).absolute() for name in job.results[:1]}
