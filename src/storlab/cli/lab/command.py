"""``storlab lab``: the machines that one has, listed, prepared, tidied up and reserved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer import Argument, Option

from storlab.base.errors import SshError, StorlabError, UserError
from storlab.cli.lab.check import check
from storlab.cli.options import ChosenHosts, Json, LabPath, lab_of, print_json
from storlab.cli.output import show, warn
from storlab.cli.status import COMPLETE, USERS_MISTAKE

if TYPE_CHECKING:
    from storlab.lab import Lab
    from storlab.remote.host import Known
    from storlab.ssh.machine import Machine
    from storlab.study.machines import Machines


_NONE = "–"


def listing(which: ChosenHosts = None, lab: LabPath = None, json: Json = False) -> None:
    """Show hosts, their groups, and the disk that each has for tests. Asks no host."""
    found = lab_of(lab)
    names = found.chosen(which or [])
    if json:
        print_json({"hosts": [_row(name, found.machines) for name in names]})
        return

    from rich.table import Table
    from rich.text import Text

    from storlab.cli.console import Console

    table = Table(box=None, pad_edge=False)
    for heading in ("host", "ssh", "groups", "disk", "scratch", "address"):
        table.add_column(heading, overflow="fold")
    for row in (_row(name, found.machines) for name in names):
        disk = f"{row['disk']}{' (may be wiped)' if row['wipe'] else ''}" if row["disk"] else None
        shown = {**row, "groups": ", ".join(row["groups"]), "disk": disk}
        table.add_row(*(Text(shown[column.header] or _NONE) for column in table.columns))  # type: ignore[index]
    Console().print(table)


def _row(name: str, machines: Machines) -> dict[str, Any]:
    host = machines.hosts[name]
    groups = [group for group, names in machines.groups.items() if name in names]
    own = host.model_dump(include={"disk", "wipe", "scratch", "address"})
    return {"host": name, "ssh": machines.destination(name), "groups": groups, **own}


# ``storlab lab prepare``: this Storlab is brought to another machine.


def prepare(
    hosts: Annotated[list[str], Argument(metavar="HOST...", help="Machines, by their names for ssh.")],
    again: Annotated[bool, Option("--again", help="Even if it is there already.")] = False,
) -> None:
    """Bring this Storlab to other machines, for --on.

    It goes into ~/.local/share/storlab there, with its libraries, and takes neither root nor a download: Python 3.11 or
    newer is all that must be there, or uv here, which can bring one.
    """
    import asyncio

    from storlab.base.errors import SshError, UserError
    from storlab.remote.prepare import prepare as bring

    for host in hosts:
        try:
            done = asyncio.run(bring(host, warn, again=again))
        except SshError as error:
            raise UserError(str(error)) from None
        show(f"{host}: {done.place} {'is there' if done.was_ready else f'is ready, with {done.python}'}")


# ``storlab lab forget``: runs that were fetched are removed from the machine that ran them.


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


# ``storlab lab lock`` and ``unlock``: machines for oneself, by a file there, and by the lab's own commands.

T = TypeVar("T")
Which = Annotated[list[str], Argument(metavar="HOST|GROUP...", help="Hosts and groups of the lab.")]


def lock(
    which: Which,
    lab: LabPath = None,
    why: Annotated[str, Option("--why", metavar="TEXT", help="What for, as others see it.")] = "",
) -> None:
    """Reserve hosts: others' runs are refused there until `storlab lab unlock`.

    The lab's command `reserve` comes first. All of the hosts, or none.
    """
    found = lab_of(lab)
    names = found.chosen(which)
    done: list[str] = []
    try:
        for name in names:
            if _lock(found, name, why):
                done.append(name)
            show(f"{name}: reserved for you")
    except BaseException:
        for name in reversed(done):
            warn(f"storlab: {name}: given back, since not all could be had")
            _unlock(found, name, force=False)
        raise


def unlock(
    which: Which,
    lab: LabPath = None,
    force: Annotated[bool, Option("--force", help="Also where somebody else has reserved it.")] = False,
) -> None:
    """Give hosts back; the lab's command `release` comes last."""
    found = lab_of(lab)
    wrong = COMPLETE
    for name in found.chosen(which):
        try:
            show(f"{name}: {_unlock(found, name, force)}")
        except StorlabError as error:  # the others are given back all the same
            warn(f"storlab: {error}")
            wrong = USERS_MISTAKE
    if wrong:
        raise typer.Exit(wrong)


def _lock(lab: Lab, name: str, why: str) -> bool:
    """Whether it was not reserved for this user before. Raises ``UserError`` where somebody else has it."""
    from storlab.ssh.reservation import refuse_reserved, take

    if lab.reserve is not None:
        _by_command(lab, "reserve", name)
    try:
        taken = _on(lab, name, lambda machine: take(machine, why))
        if not taken.ours:
            refuse_reserved(name, taken.before)
    except BaseException:
        if lab.release is not None:
            _by_command(lab, "release", name)
        raise
    return taken.before is None


def _unlock(lab: Lab, name: str, force: bool) -> str:
    from storlab.ssh.reservation import give_back

    was = _on(lab, name, lambda machine: give_back(machine, also_of_others=force))
    if lab.release is not None:
        _by_command(lab, "release", name)
    if was is not None:
        return f"given back, was reserved by {was}"
    return "given back" if lab.release is not None else "was not reserved"


def _on(lab: Lab, name: str, action: Callable[[Machine], Awaitable[T]]) -> T:
    """What an action gives on a host. Raises ``UserError`` where that can't be reached."""
    import asyncio

    from storlab.ssh.machine import connected

    async def act() -> T:
        async with connected(lab.machines.destination(name)) as machine:
            return await action(machine)

    try:
        return asyncio.run(act())
    except SshError as error:
        raise UserError(str(error)) from None


def _by_command(lab: Lab, key: str, name: str) -> None:
    from storlab.lab import for_host, printed

    argv = lab.reserve if key == "reserve" else lab.release
    assert argv is not None
    words = for_host(argv, {"host": name, "ssh": lab.machines.destination(name)})
    printed(words, lab.folder, f"{lab.file}: {key} of {name}")


lab = typer.Typer(
    name="lab",
    no_args_is_help=True,
    help="Check, prepare and reserve the machines of a lab.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
lab.command("list")(listing)
lab.command()(check)
lab.command()(prepare)
lab.command()(forget)
lab.command()(lock)
lab.command()(unlock)
