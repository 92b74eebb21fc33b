"""What a trial's commands and loads change beyond what is theirs: settings of kernels and of disks' queues. That is
told and put back, so that no trial is measured under what another one has set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from storlab.base.text import grouped
from storlab.base.waiting import all_of
from storlab.layers.base import Layer
from storlab.layers.block.queue import queue_folder, queue_of, sysfs
from storlab.layers.block.queue_files import TUNED
from storlab.layers.resources import Dir, Disk, Server
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.nodes.settings import (
    KERNEL_FILES,
    also_changed,
    files_of,
    journalled,
    put_back,
    read_settings,
    restore,
    set_all,
)
from storlab.records.run_folder import ChangedSetting
from storlab.run.build import Built
from storlab.run.recovery.journal import Journal, Pending
from storlab.run.session import Session
from storlab.run.trial.subjects import disks_beneath

_PATIENCE = 30.0  # s; reading a setting hangs only with its machine
_MOST = 64  # disks under a node's folder


@dataclass
class _Seen:
    """A setting as it was before the first of the trials that run now. ``ours``: of a disk that a stack has."""

    name: str
    value: str
    ours: bool
    users: int = 0


@dataclass
class _Machine:
    """Nodes on one machine have the same settings, and one of them is asked. ``seen``: by file."""

    node: Node
    seen: dict[str, _Seen] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)  # files that the study's nodes set, or change by that
    entries: list[Pending] = field(default_factory=list)


Files = dict[str, list[str]]
"""Machine → the files that are watched there for one trial."""


@dataclass
class Watch:
    """Over the trials of a run, which may run side by side. ``permitted``: the study's commands may write anywhere, so
    that the kernel's settings may be their doing, too.
    """

    journal: Journal
    permitted: bool
    _machines: dict[str, _Machine] = field(default_factory=dict)

    async def begin(self, built: Built, session: Session, files: Files) -> None:
        """Look at what is watched where a cell is set up, and journal it where commands may change it.

        ``files`` gets what ``end`` is to be told.
        """
        parts = [part for part in built.parts.values() if part.node is not None and part.stack.resources]
        parts.sort(
            key=lambda part: (part.depth, part.node.name if part.node is not None else "")
        )  # as set up: by chance
        working = [part.node for part in parts if part.node is not None]
        nodes = {node.instance: node for node in (*working, *built.nodes.values())}
        machines = grouped(
            (node.instance if node.identity.volatile else node.machine or node.instance, node)
            for node in nodes.values()
        )
        await all_of(*(self._look(name, mine, built, session, files) for name, mine in machines.items()))

    async def _look(self, machine: str, nodes: Sequence[Node], built: Built, session: Session, watched: Files) -> None:
        known = self._machines.setdefault(machine, _Machine(nodes[0]))
        if not known.seen:
            known.node = nodes[0]  # an earlier one may be gone
        files = {path: (_kernel_name(path), False) for path in KERNEL_FILES}
        for node in nodes:
            queues = {folder: (name, False) for name, folder in await _beneath(node, built, session)}
            disks = _disks_of(node, built)
            queues |= {queue_of(disk): (layer.layer, True) for disk, layer in disks}
            # What happens to a layer midway may change what its disk takes: a snapshot's origin discards nothing.
            for folder in {queue_of(disk) for disk, layer in disks if layer.moments()}:
                del queues[folder]
            for folder, (name, ours) in queues.items():
                files |= {f"{folder}/{setting}": (f"{setting} of {name}", ours) for setting in TUNED}
        settings = {key: value for node in nodes for key, value in built.settings_of(node).items()}
        asked = await files_of(known.node, settings)
        files |= {path: (name, False) for path, (name, _) in asked.items() if path not in files}
        new = await read_settings(known.node, (path for path in files if path not in known.seen))
        changing = {*asked, *also_changed(settings)}
        known.asked |= changing
        were = {path: value for path, value in new.items() if self.permitted or path in changing}
        if were and not known.node.identity.volatile:
            arguments = await journalled(known.node, were)
            known.entries.append(self.journal.register(known.node.identity, restore.name, arguments))
        for path, value in new.items():
            known.seen.setdefault(path, _Seen(files[path][0], value, files[path][1]))
        watched[machine] = [path for path in files if path in known.seen]
        for path in watched[machine]:
            known.seen[path].users += 1
        if asked:
            await set_all(known.node, asked)

    async def now(self, files: Files) -> dict[str, dict[str, str]]:
        """By node what the settings are now that no stack's own disk has: those are among the facts of its layer."""
        found = {}
        for name, paths in files.items():
            known = self._machines[name]
            said = await read_settings(known.node, (path for path in paths if not known.seen[path].ours))
            found[known.node.name] = {known.seen[path].name: value for path, value in said.items()}
        return found

    async def end(self, files: Files) -> list[ChangedSetting]:
        """What has changed since, put back where it may be the study's doing, unless other trials still run there."""
        return [each for name, paths in files.items() for each in await self._end(self._machines[name], paths)]

    async def _end(self, known: _Machine, paths: Sequence[str]) -> list[ChangedSetting]:
        done: dict[str, _Seen] = {}
        for path in paths:
            known.seen[path].users -= 1
            if not known.seen[path].users:
                done[path] = known.seen.pop(path)
        if known.node.lost is not None:
            return []
        async with asyncio.timeout(_PATIENCE):
            now = await read_settings(known.node, done)
            changed = {path: value for path, value in now.items() if value != done[path].value}
            mine = self.permitted
            back = {path: done[path].value for path in changed if done[path].ours or mine or path in known.asked}
            left = {**changed, **await put_back(known.node, back)}
        if not known.seen:
            for entry in known.entries:
                self.journal.undone(entry, None)
            known.entries.clear()
        return [
            ChangedSetting(known.node.name, done[path].name, done[path].value, value, left[path])
            for path, value in changed.items()
            if path not in known.asked or left[path] != done[path].value
        ]


def _kernel_name(path: str) -> str:
    """As sysctl(8) has it, or the last two parts of what is in /sys."""
    if path.startswith("/proc/sys/"):
        return path.removeprefix("/proc/sys/").replace("/", ".")
    return "/".join(path.split("/")[-2:])


def _disks_of(node: Node, built: Built) -> list[tuple[Disk, Layer]]:
    """The disks that layers give on a node, each with its layer, the lowest of several last."""
    parts = sorted(built.parts.values(), key=lambda part: part.depth)
    stacks = [part.stack for part in parts if part.node is node]
    pairs = [each for stack in stacks for each in zip(stack.resources, stack.layers, strict=False)]
    return [(resource, layer) for resource, (layer, _) in reversed(pairs) if isinstance(resource, Disk)]


async def _beneath(node: Node, built: Built, session: Session) -> list[tuple[str, str]]:
    """Name and queue of the disks that the lowest layers on a node lie on."""
    resources = [each for part in built.parts.values() if part.node is node for each in part.stack.resources]
    named = {name for each in resources if isinstance(each, Dir | Server) for name in each.disks}
    known = f"queues below {' '.join(sorted(named))}"
    if known not in node.known:
        found = [*named, *(await disks_beneath(node, await session.scratch_on(node)) or ())]
        for disk in found:  # which grows meanwhile, by the disks that a mapping is over
            (members,) = await node.carry_out(steps.names(f"{sysfs(disk)}/slaves"), go_on=True)
            found += [each for each in members.entries if each not in found and len(found) < _MOST]
        looks = (steps.look(f"{sysfs(disk)}/partition") for disk in found)
        parts = await node.carry_out(*looks, go_on=True) if found else []
        queues = (queue_folder(disk, partition=part.there) for disk, part in zip(found, parts, strict=True))
        node.known[known] = "\n".join(f"{disk} {queue}" for disk, queue in zip(found, queues, strict=True))
    rows = (line.split(" ", 1) for line in node.known[known].splitlines())
    return [(disk, queue) for disk, queue in rows]
