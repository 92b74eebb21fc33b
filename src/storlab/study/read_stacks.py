"""Reading a cell's stacks: of each node group, and of the disks of virtual machines, which cross from node to node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from storlab.layers.attachment import AttachmentLayer
from storlab.layers.base import Layer
from storlab.layers.file import FileLayer
from storlab.layers.registry import layer_types
from storlab.layers.resources import Dir, Resource
from storlab.layers.stack import type_errors
from storlab.study.cells import HOST, Disk, Load
from storlab.study.messages import nearest
from storlab.study.positions import Path
from storlab.study.schema import NodeGroup
from storlab.study.substitution import Substitution
from storlab.units import shown, size_text


class Reader(Protocol):
    """What reading stacks needs of the reader of the cell."""

    substitution: Substitution

    def problem(self, path: Path, message: str) -> None:
        """Report a problem at its place."""

    def model(self, cls: type[BaseModel], tree: Any, path: Path) -> Any:
        """Read a tree by its model; ``None`` where that failed, and was reported."""


@dataclass
class Stacks:
    """By node group: the layers on its nodes, where each was written, and its disk."""

    layers: dict[str, tuple[Layer, ...]] = field(default_factory=dict)
    origins: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)


@dataclass
class StackReader:
    """Reads all stacks of one cell."""

    cell: Reader
    raw: Mapping[str, Any]
    groups: Mapping[str, NodeGroup]
    _stacks: Stacks = field(default_factory=Stacks)

    def read(self, accepted: Mapping[str, Sequence[tuple[type[Resource], ...]]], loads: Sequence[Load]) -> Stacks:
        """``accepted``: the resources that each workload on a group can use."""
        working = {name for load in loads for name in load.on} or set(self.groups)  # none: its mistake is told already
        for name, group in self.groups.items():
            if group.disk is not None:
                self.disk(name, group)
            path = self.path_of(name)
            layers = self.layers(path) if self.has_stack(name, group, name in working) else ()
            if layers is not None:
                self._stacks.layers[name] = layers
                at = self.cell.substitution.origin_of
                self._stacks.origins[name] = tuple(at((*path, index)) for index in range(len(layers)))
        for name in self._stacks.layers:  # once all are read: they stand on each other
            self.check_types(name, accepted[name] if name in working else ())
        self.room(loads)
        return self._stacks

    def path_of(self, name: str) -> Path:
        """Where the stack of a group's nodes is written."""
        return ("stack",) if self.groups[name].stack is None else ("nodes", name, "stack")

    def has_stack(self, name: str, group: NodeGroup, works: bool) -> bool:
        """Whether a group's nodes have a stack: one of their own, or the study's where they have a load."""
        if group.stack is not None or not works:
            return group.stack is not None
        written = self.raw.get("stack") is not None
        if not written and group.kind != "local" and group.disk is None:
            self.cell.problem(("nodes", name), "there is nothing for the load to run on: it needs a stack or a disk")
            return False
        return written or group.disk is None

    def disk(self, name: str, group: NodeGroup) -> None:
        """Read the disk of a group of virtual machines, and add how it is attached where that is not written."""
        path: Path = ("nodes", name, "disk")
        on = group.disk_on or HOST
        if on != HOST and on not in self.groups:
            has = nearest(on, self.groups) or f"; there are: {', '.join([HOST, *self.groups])}"
            return self.cell.problem(("nodes", name, "disk_on"), f"there are no nodes {on!r}{has}")
        if on in self.groups and self.groups[on].count != 1:
            return self.cell.problem(("nodes", name, "disk_on"), f"{on} are several nodes; a disk is made on one")
        if self.goes_in_circles(name):
            return self.cell.problem(("nodes", name, "disk_on"), "these disks are made on each other, in a circle")
        layers = self.layers(path)
        if layers is None:
            return None
        origins = [self.cell.substitution.origin_of((*path, index)) for index in range(len(layers))]
        if not isinstance(layers[-1], AttachmentLayer):
            layers = (*layers, layer_types()["virtio-blk"]())  # type: ignore[call-arg]
            origins.append(origins[-1])
        self._stacks.disks[name] = Disk(on, layers, tuple(origins))
        return None

    def goes_in_circles(self, name: str) -> bool:
        """Whether a group's disk is made, in the end, on the group itself."""
        seen = [name]
        while (on := self.groups[seen[-1]].disk_on) in self.groups and on is not None:
            if on in seen:
                return True
            seen.append(on)
        return False

    def check_types(self, name: str, accepted: Sequence[tuple[type[Resource], ...]]) -> None:
        """Whether a group's whole stack fits together, from the lowest layer on another node to the top."""
        chain: list[tuple[Layer, Path]] = []
        group: str | None = name
        while group is not None and group in self.groups:
            own = self._stacks.layers.get(group)
            disk = self._stacks.disks.get(group)
            if own is None or (disk is None and self.groups[group].disk is not None):
                return  # it could not be read, which is told already
            chain = [(layer, (*self.path_of(group), index)) for index, layer in enumerate(own)] + chain
            if disk is not None:
                chain = [(layer, ("nodes", group, "disk", i)) for i, layer in enumerate(disk.layers)] + chain
            group = disk.on if disk is not None else None
        if not chain:  # nothing runs here, or what is missing is told already
            return
        wanted = set(accepted[0]).intersection(*accepted[1:]) if accepted else {Resource}
        layers = [layer for layer, _ in chain]
        for position, message in type_errors(layers, sorted(wanted, key=lambda kind: kind.kind))[:1]:
            self.cell.problem(chain[position][1], message)
        inside = [layer for layer in self._stacks.layers.get(name, ()) if isinstance(layer, AttachmentLayer)]
        if inside:
            self.cell.problem(
                self.path_of(name),
                f"layer {inside[0].layer} attaches a disk to a virtual machine: it belongs into disk",
            )
        return

    def room(self, loads: Sequence[Load]) -> None:
        """Refuse a load that can't fit on its stack, where the study itself says how large both are."""
        for name, layers in self._stacks.layers.items():
            disk = self._stacks.disks.get(name)
            whole = (*(disk.layers if disk else ()), *layers)
            sizes = [size for layer in whole if isinstance(size := getattr(layer, "size", None), int)]
            fits = whole and (isinstance(whole[0], FileLayer) or disk is not None)
            if not fits or not sizes or not issubclass(whole[-1].gives, Dir):
                continue
            left = sizes[-1]
            for load in loads:
                needed = load.workload.space() if name in load.on else 0
                if needed > left:
                    told = f"takes up {size_text(needed)}, but the stack has {size_text(left)}"
                    self.cell.problem(
                        ("workload", load.name), f"this {told} for it: make one smaller or the other larger"
                    )
                    break
                left -= needed

    def layers(self, path: Path) -> tuple[Layer, ...] | None:
        """Read the stack that is written at ``path``; ``None`` where that failed, and was reported."""
        written: Any = self.raw
        for part in path:
            written = written.get(part)
        if written is None:
            self.cell.problem(path, 'there is no stack: write stack = [{ layer = "directory" }], or other layers')
            return None
        tree = self.cell.substitution.apply(written, path)
        if isinstance(tree, dict):  # one layer needs no list
            self.cell.substitution.origins[(*path, 0)] = self.cell.substitution.origin_of(path)
            tree = [tree]
        if not isinstance(tree, list) or not tree:
            self.cell.problem(path, f"{shown(tree)} is no stack: it is a list of one or more layers, lowest first")
            return None
        layers = [self.layer(item, (*path, index)) for index, item in enumerate(tree)]
        return None if None in layers else tuple(layer for layer in layers if layer is not None)

    def layer(self, tree: Any, path: Path) -> Layer | None:
        """Read one layer."""
        kinds = layer_types()
        known = f"there are: {', '.join(kinds)}"
        if not isinstance(tree, dict) or "layer" not in tree:
            self.cell.problem(path, f'{shown(tree)} is no layer: write {{ layer = "…" }}; {known}')
            return None
        kind = tree["layer"]
        if not isinstance(kind, str) or kind not in kinds:
            hint = nearest(kind, kinds) if isinstance(kind, str) else ""
            self.cell.problem((*path, "layer"), f"there is no layer {shown(kind)}{hint or f'; {known}'}")
            return None
        layer: Layer | None = self.cell.model(kinds[kind], tree, path)
        return layer
