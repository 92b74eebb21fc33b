"""What surrounds a load: the study's own commands, what confines them, settling before it, and writing back after it.

A write that only went to a cache succeeds at once, also where the server is full: the error comes when it is written
back, and only the first fsync(2) or syncfs(2) hears of it. A load that asks for neither measured how
fast its own memory is, and what it wrote is lost.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from storlab.base.errors import CommandFailed, DiskFull, TrialError
from storlab.base.waiting import all_of
from storlab.layers.resources import Dir, Disk, Export, Resource, Server, Share
from storlab.layers.stack import BuiltStack
from storlab.nodes.agent import steps
from storlab.nodes.node import Confinement, Exit, Node
from storlab.nodes.privileges import LOADS, NONE, confinement
from storlab.records.run_folder import raw_folder
from storlab.run.build import Built
from storlab.run.trial.fetch import keep_exit
from storlab.study.schema import Settle
from storlab.workloads.base import RunContext

_CACHES = "/proc/sys/vm/drop_caches"
_FULL = ("ENOSPC", "EDQUOT")
TEMPORARY = ".tmp"  # ends the name of a load's own temporary folder, beside its folder
_PRINTED = 1024**2  # bytes of each stream that are kept
_SHOWN = 4096  # bytes of each in a message


async def make_folders(place: RunContext) -> None:
    """A load's own, which are confined to them later."""
    folders = (place.folder, place.folder + TEMPORARY)
    await place.node.carry_out(*(steps.make_directory(folder, parents=True) for folder in folders))


async def make_own(node: Node, path: str) -> None:
    """A node's own folder in a directory that it shares with others; a load of theirs may have made it before.

    Raises ``TrialError`` if that left something else there, such as a link: a load gets what it leads to.
    """
    made = steps.make_directory(path, parents=True)
    _, found = await node.carry_out(made, steps.look(path))
    if found.result.kind != "directory":
        raise TrialError(f"node {node.name}: {path} is no folder: a load that shares the directory has left it there")


async def run_commands(
    commands: Sequence[Sequence[str]],
    phase: str,
    places: Callable[[], Awaitable[Sequence[RunContext]]],
    folder: Path,
) -> None:
    """One after the other, each at all places at once. Below ``folder``, ``NODE/prepare-2`` is of the second.

    Raises ``TrialError`` if one fails.
    """
    for number, argv in enumerate(commands, start=1):
        where = await places()
        await all_of(*(make_folders(place) for place in where))
        filled = [[place.fill(word) for word in argv] for place in where]
        runs = (
            place.node.run(words, check=False, first_output=_PRINTED)
            for place, words in zip(where, filled, strict=True)
        )
        ended = await all_of(*runs)
        for place, each in zip(where, ended, strict=True):
            keep_exit(raw_folder(folder, place.node.name, f"{phase}-{number}"), each)
        for place, each in zip(where, ended, strict=True):
            try:
                each.check(place.node.name)
            except TrialError as error:
                raise type(error)(f"{phase}: {error}", _printed(each)) from None


def _printed(ended: Exit) -> str:
    streams = (each[-_SHOWN:].decode(errors="replace").strip() for each in (ended.stdout, ended.stderr))
    return "\n".join([f"$ {shlex.join(ended.argv)}", *filter(None, streams)])


def reach(
    node: Node, target: Resource, folder: str, kind: str, user: int | None = None, visible: Sequence[str] = ()
) -> Confinement:
    """What confines a load: it writes to its target, its folder and its temporary folder, as this user if it can.

    ``kind``: of workload; "" for a command of the study's. ``visible``: what it sees though it is not everybody's.
    A guest's console is a file of the trial's, and its caches are nobody else's. The workload ``files`` is Storlab's
    own program, and a study has no way to make it write anything but "3" there.
    """
    may = partial(confinement, node, LOADS.get(kind, NONE), user=user, visible=tuple(visible))
    guest = node.identity.volatile
    caches = [_CACHES] if guest or kind == "files" else []
    writable = (folder, folder + TEMPORARY, *caches)
    devices = ("/dev/console",) if guest else ()
    match target:
        case Dir():
            writable = (*writable, target.path)
            return may(writable=writable, devices=(*devices, *target.devices))
        case Disk():
            devices = (*devices, target.path)
            return may(writable=writable, devices=devices, flushed=(target.path,))
        case Server() | Export() | Share():
            words = target.words()
            sockets = (words["socket"].rpartition("/")[0],) if "socket" in words else ()
            network = "host" in words
            return may(writable=writable, devices=devices, visible=(*visible, *sockets), network=network)
        case _:
            return may(writable=writable, devices=devices)


async def settle(asked: Settle, node: Node, built: Built, as_root: bool) -> list[str]:
    """Settle one node. Returns warnings: of caches that were to be emptied, and were not."""
    await node.carry_out(*[steps.sync()] * asked.sync, *[steps.write(_CACHES, "3\n")] * (asked.drop_caches and as_root))
    warnings = []
    if asked.drop_caches and not as_root:
        warnings.append("caches were not dropped before measuring: that needs root")
    elif asked.drop_caches:
        stacks = (part.stack for part in built.parts.values() if part.node is node)
        for command in sorted({layer.drop for stack in stacks for layer, _ in stack.layers if layer.drop}):
            try:
                await node.run(command)
            except CommandFailed as error:
                warnings.append(f"not all caches were dropped before measuring: {error}")
    if asked.wait:
        await asyncio.sleep(asked.wait)
    return warnings


async def prove_written(node: Node, stack: BuiltStack, underlying: BuiltStack | None) -> None:
    """Write back what is left, if a stack is a node's client of what is ``underlying``. Raises ``TrialError``."""
    target, served = stack.resource, None if underlying is None else underlying.resource
    if not isinstance(served, Export | Share) or not isinstance(target, Dir | Disk):
        return
    (done,) = await node.carry_out(steps.sync(target.path), go_on=True)
    if done.ok:
        return
    said = done.result.message or ""
    lost = f"what the load left in its cache could not be written to {target.path}"
    if done.result.errno in _FULL:
        raise DiskFull(f"node {node.name}: target full: {lost}", said)
    number = getattr(errno, done.result.errno or "", None)  # the agent has words of its own for some
    reason = said.rpartition(": ")[2] if number is None else os.strerror(number)
    raise TrialError(f"node {node.name}: {lost}: {reason}", said)
