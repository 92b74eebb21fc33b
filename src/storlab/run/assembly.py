"""What is put up together and comes down together: the nodes of a group, their disks, and the stacks on them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from storlab.layers import stack
from storlab.layers.attachment import AttachmentLayer
from storlab.layers.base import Layer, Site, WillUndo
from storlab.layers.resources import Dir, Pool, Resource
from storlab.layers.shared import Shared
from storlab.layers.stack import StandingStack
from storlab.nodes.node import Node
from storlab.nodes.vm.devices import Devices
from storlab.nodes.waiting import all_of
from storlab.run.journal import Journal, Pending
from storlab.run.placement import on_storage
from storlab.run.scratch import make_scratch
from storlab.run.session import Session, node_names
from storlab.run.teardown import Teardown, take_down
from storlab.study.cells import HOST, Cell


@dataclass
class Assembly:
    """Puts up node groups of one cell. ``consoles``: where guests' consoles are kept; ``scratch`` by node.

    ``standing``: the stack of each node. On failure, what is up stays up until ``take_down``.
    """

    session: Session
    scratch: dict[str, str]
    root: str  # the study's scratch folder
    journal: Journal
    consoles: Path
    standing: dict[str, StandingStack] = field(default_factory=dict)
    guests: list[str] = field(default_factory=list)
    _common: list[tuple[str, StandingStack]] = field(default_factory=list)
    _entries: list[Pending] = field(default_factory=list)

    async def put_up(self, cell: Cell, name: str, foundation: StandingStack | None) -> None:
        """Put up a group's nodes and stacks; ``foundation`` is the stack that their disk is made on."""
        group = cell.nodes[name]
        if group.kind == "local":
            nodes = self.session.group(name, group)
            await all_of(*(self._local(node, cell.stacks[name]) for node in nodes))
            return
        base, split, shared = await self._foundation(cell, name, foundation)
        await all_of(*(self._guest(cell, name, node, base, split, shared) for node in node_names(name, group)))

    @property
    def common_facts(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """What the layers got that several nodes' disks stand on together, by the node that they are on."""
        return [(on, stack.facts) for on, stack in self._common]

    @property
    def alive(self) -> bool:
        """Whether every node that it started still answers."""
        return all(name in self.session.nodes and not self.session.nodes[name].lost for name in self.guests)

    async def take_down(self) -> Teardown:
        """End the guests and undo what stands elsewhere, newest first. What stood in a guest went with it."""
        await self.end_guests()
        mine = {entry.number for entry in self._entries}
        self._entries.clear()
        self.standing.clear()
        self._common.clear()
        return await take_down(self.journal, self.session, lambda entry: entry.number in mine)

    async def end_guests(self) -> None:
        """End the guests at once."""
        ended, self.guests = self.guests, []
        await all_of(*(self.session.end_guest(name) for name in ended))

    async def _local(self, node: Node, layers: Sequence[Layer]) -> None:
        folder = await self._folder(node, node.name, layers)
        self.standing[node.name] = await stack.put_up(layers, lambda position: self._site(node, folder, position))

    async def _foundation(
        self, cell: Cell, name: str, foundation: StandingStack | None
    ) -> tuple[Resource | None, int, Shared]:
        """Put up what the disks of all nodes of a group stand on together; how many layers that is."""
        below = None if foundation is None else foundation.resource
        disk = cell.disks.get(name)
        if disk is None:
            return below, 0, Shared()
        layers = on_storage(disk)
        split = shared_layers(layers)
        node = self.session.nodes[disk.on]
        shared = Shared(will_undo=self._will(node))
        folder = await self._folder(node, name, layers[:split])
        put_up = await stack.put_up(
            layers[:split], lambda at: self._site(node, folder, at, owner=name, shared=shared), below
        )
        self._common.append((disk.on, put_up))
        return put_up.resource if split else below, split, shared

    async def _guest(
        self, cell: Cell, group: str, name: str, below: Resource | None, split: int, shared: Shared
    ) -> None:
        facts: list[dict[str, Any]] = []
        devices = Devices()
        disk = cell.disks.get(group)
        resource: Resource | None = None
        if disk is not None:
            node = self.session.nodes[disk.on]
            layers = on_storage(disk)
            folder = await self._folder(node, name, layers)
            own = await stack.put_up(
                layers[split:], lambda at: self._site(node, folder, split + at, owner=name, shared=shared), below
            )
            facts += [{**fact, "on": disk.on} for fact in own.facts]
            resource = own.resource
            attachment = disk.layers[-1]
            assert isinstance(attachment, AttachmentLayer) and resource is not None
            attached = attachment.attachment(resource)
            devices = Devices(attached.objects, attached.blockdevs, devices=attached.devices)
        guest = await self._start(cell, group, name, devices)
        above = (*(disk.layers[-1:] if disk is not None else ()), *cell.stacks[group])
        self.scratch[name] = await make_scratch(guest, self.root, self.session.run, self.journal)
        folder_there = await self._folder(guest, name, above)
        inside = await stack.put_up(above, lambda at: self._site(guest, folder_there, at), resource)
        self.standing[name] = StandingStack(inside.resource, [*facts, *inside.facts])

    async def _start(self, cell: Cell, group: str, name: str, devices: Devices) -> Node:
        self.guests.append(name)
        disk = cell.disks.get(group)
        networked = disk is not None and disk.on != HOST and cell.nodes[disk.on].kind == "vm"
        serves = any(other.on == group for other in cell.disks.values())
        console = self.consoles / name / "console.log"
        return await self.session.start_guest(
            name, group, cell.nodes[group], devices, console, networked=networked, serves=serves
        )

    async def _folder(self, node: Node, owner: str, layers: Sequence[Layer]) -> str:
        folder = f"{self.scratch[node.name]}/{owner}-{fingerprint(layers)}"
        await node.run(["mkdir", "--parents", "--", folder])
        return folder

    def _site(self, node: Node, folder: str, position: int, owner: str = "", shared: Shared | None = None) -> Site:
        will = self._will(node)
        return Site(node, folder, position, self.session.run, will, owner, shared or Shared(will_undo=will))

    def _will(self, node: Node) -> WillUndo:
        async def will_undo(undo: str, arguments: Mapping[str, Any]) -> None:
            guest = node.kind == "vm"
            self._entries.append(self.journal.will(node.name, undo, arguments, guest=guest))

        return will_undo


def shared_layers(layers: Sequence[Layer]) -> int:
    """How many of a disk's layers stand once for all nodes: up to the last pool or directory, which hold many."""
    holds = [index for index, layer in enumerate(layers) if issubclass(layer.gives, Pool | Dir)]
    return holds[-1] + 1 if holds else 0


def fingerprint(layers: Sequence[Layer]) -> str:
    """Names a stack by what it consists of."""
    described = orjson.dumps([layer.model_dump(mode="json") for layer in layers])
    return hashlib.sha256(described).hexdigest()[:12]
