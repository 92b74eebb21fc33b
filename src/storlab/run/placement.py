"""Where the disks of virtual machines are made: on this machine, or on a guest that serves as storage host.

Nodes of kind ``auto`` become one or the other here, the same for all cells: a comparison between a disk that was made
here and one that was made in a guest would tell the places apart, not the disks. What is made in a guest reaches the
others over NBD.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from storlab.layers.attachment import AttachmentLayer
from storlab.layers.base import Layer
from storlab.layers.loop import LoopLayer
from storlab.layers.nbd_export import NbdExportLayer
from storlab.layers.resources import File
from storlab.layers.stack import stack_needs
from storlab.nodes.needs import Lack, Needs, lacks, together
from storlab.nodes.node import Node
from storlab.study.cells import Cell, Disk
from storlab.study.study import Study


@dataclass(frozen=True)
class Placed:
    """The study with every node's place decided. ``notes`` say what was decided, and why."""

    study: Study
    notes: tuple[str, ...] = ()


async def place(study: Study, host: Node) -> Placed:
    """Decide for each group of kind ``auto``; ``study`` itself where there is none and no disk crosses guests."""
    names = dict.fromkeys(name for cell in study.cells for name, group in cell.nodes.items() if group.kind == "auto")
    missing = {name: _telling(await lacks(host, serving_needs(study.cells, name))) for name in names}
    cells = tuple(_placed(cell, missing) for cell in study.cells)
    return Placed(replace(study, cells=cells), tuple(_note(name, reasons) for name, reasons in missing.items()))


def serving_needs(cells: Iterable[Cell], name: str) -> Needs:
    """All that the layers need which stand on a group's node: its own, and the disks that are made on it."""
    needs = Needs()
    for cell in cells:
        needs |= stack_needs(cell.stacks.get(name, ()))
        needs |= together(stack_needs(on_storage(disk)) for disk in cell.disks.values() if disk.on == name)
    return needs


def on_storage(disk: Disk) -> tuple[Layer, ...]:
    """The layers of a disk that stand on the node where it is made: all but the one that attaches it."""
    return disk.layers[:-1]


def _telling(found: Sequence[Lack]) -> list[str]:
    """What is missing, in words; where the kernel lacks something, all else is beside the point."""
    return [lack.what for lack in found if "kernel" in lack.what] or [lack.what for lack in found]


def _note(name: str, missing: list[str]) -> str:
    if not missing:
        return f"{name}: the disks are made on this machine, which has all that they need"
    return f"{name}: the disks are made on a virtual machine and served over NBD, since {'; '.join(missing)}"


def _placed(cell: Cell, missing: Mapping[str, list[str]]) -> Cell:
    nodes, stacks, origins, disks = dict(cell.nodes), dict(cell.stacks), dict(cell.origins), dict(cell.disks)
    for name, reasons in missing.items():
        if name not in nodes:
            continue
        if reasons:
            nodes[name] = nodes[name].model_copy(update={"kind": "vm"})
            continue
        nodes[name] = nodes[name].model_copy(update={"kind": "local"})
        disk = disks.pop(name, None)
        if disk is not None:
            layers = on_storage(disk)
            loop = (LoopLayer(),) if issubclass(layers[-1].gives, File) else ()
            stacks[name] = (*layers, *loop, *stacks[name])
            origins[name] = (*disk.origins[:-1], *(disk.origins[-1:] * len(loop)), *origins[name])
    for name, disk in disks.items():
        if disk.on in nodes and nodes[disk.on].kind == "vm":
            disks[name] = exported(disk)
    return replace(cell, nodes=nodes, stacks=stacks, origins=origins, disks=disks)


def exported(disk: Disk) -> Disk:
    """The disk served over NBD before it is attached, with the caching that its attachment asks for."""
    *below, attachment = disk.layers
    if below and isinstance(below[-1], NbdExportLayer):
        return disk
    assert isinstance(attachment, AttachmentLayer)
    export = NbdExportLayer(cache=attachment.cache, aio=attachment.aio, discard=attachment.discard)
    return replace(disk, layers=(*below, export, attachment), origins=(*disk.origins, disk.origins[-1]))
