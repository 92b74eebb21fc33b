"""``storlab lab lock`` and ``unlock``: machines for oneself, by a file there, and by the lab's own commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from typer import Argument, Option

from storlab.cli.lab.options import lab_of
from storlab.cli.options import LabPath
from storlab.cli.output import show, warn
from storlab.cli.status import COMPLETE, USERS_MISTAKE
from storlab.errors import SshError, StorlabError, UserError

if TYPE_CHECKING:
    from storlab.lab.file import Lab
    from storlab.ssh.machine import Machine

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
    from storlab.lab.commands import for_host, printed

    argv = lab.reserve if key == "reserve" else lab.release
    assert argv is not None
    words = for_host(argv, {"host": name, "ssh": lab.machines.destination(name)})
    printed(words, lab.folder, f"{lab.file}: {key} of {name}")
