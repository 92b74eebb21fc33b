"""``storlab lab forget``: runs that were fetched are removed from the machine that ran them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument

from storlab.cli.output import show
from storlab.errors import SshError, UserError

if TYPE_CHECKING:
    from storlab.remote.host import Known


def forget(host: Annotated[str, Argument(metavar="HOST", help="A machine that was named with --on.")]) -> None:
    """Remove runs from a machine that have ended there and were fetched.

    Their records stay here. They can't be resumed or extended any more.
    """
    import asyncio

    try:
        gone, kept = asyncio.run(_forget(host))
    except SshError as error:
        raise UserError(str(error)) from None
    for job in gone:
        show(f"{host}: removed {' '.join(job.results) or job.job}")
    for job in kept:
        why = "it is running" if job.alive else f"it was not fetched: `storlab attach {host} {job.results[0]}`"
        show(f"{host}: kept {job.results[0]}: {why}")
    if not gone and not kept:
        show(f"{host}: there is nothing")


async def _forget(host: str) -> tuple[list[Known], list[Known]]:
    """Jobs that continue another go first: it has the directory."""
    from storlab.remote.host import Host
    from storlab.ssh.machine import connected

    async with connected(host) as machine:
        there = Host(host, machine)
        jobs = await there.jobs()
        wanted = {job.work or job.job for job in jobs if job.alive or (job.results and not job.fetched)}
        gone = [job for job in jobs if (job.work or job.job) not in wanted]
        for job in sorted(gone, key=lambda each: each.work is None):
            await there.remove(job.job)
        return gone, [job for job in jobs if job.results and (job.alive or not job.fetched)]
