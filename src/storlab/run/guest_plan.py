"""What a study's virtual machines need of their image and of this machine, found out before any of them runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from storlab.errors import MissingImage, MissingTool, UserError
from storlab.images.image import Image
from storlab.layers.stack import stack_needs
from storlab.nodes import binding
from storlab.nodes.needs import Needs, together
from storlab.nodes.vm import network
from storlab.nodes.vm.accelerator import Acceleration
from storlab.nodes.vm.command import QEMU
from storlab.run.hypervisor import Boot
from storlab.run.placement import on_storage
from storlab.run.session import Session
from storlab.study.cells import HOST, Cell
from storlab.study.schema import NodeGroup
from storlab.study.study import Study
from storlab.units import size_text

_EXTRAS = {"zfs": "zfs"}  # kernel module → the part of the image that has it
_OWN_MEMORY = 200 * 1024**2  # bytes of QEMU itself for each guest, emulated: mostly translated code


@dataclass(frozen=True)
class Guests:
    """``images`` and ``accelerations`` by node group. ``cautions``: what a reader of the results must know first."""

    images: Mapping[str, Image] = field(default_factory=dict)
    accelerations: Mapping[str, Acceleration] = field(default_factory=dict)
    cautions: tuple[str, ...] = ()

    def lacks(self, group: str, needs: Needs) -> list[str]:
        """What a group's image lacks of ``needs``, in words."""
        image = self.images[group]
        absent = [f"{program} is not in it" for program in needs.programs if program not in image.programs]
        if image.modules:  # of a user's own kernel without modules, what is built in is not known: a trial will tell
            absent += [f"its kernel has no {name}" for name in needs.filesystems if name not in image.filesystems]
            absent += [f"its kernel has no module {n}" for n in needs.modules if _module(n) not in image.modules]
        return [f"the guest image {image.name} can't do this: {what}" for what in absent]


def _module(name: str) -> str:
    return name.replace("-", "_")


async def look_at_guests(study: Study, session: Session) -> Guests:
    """Find the image of each group, and how it can be run. Raises ``MissingImage`` with the command that makes it."""
    images: dict[str, Image] = {}
    accelerations: dict[str, Acceleration] = {}
    reasons: dict[str, None] = {}
    for cell in study.cells:
        for name, group in cell.nodes.items():
            if group.kind != "vm":
                continue
            session.extras[name] = extras_of(study.cells, name)
            boot = await _boot_of(study, name, group, session)
            images[name], accelerations[name] = boot.image, boot.acceleration
            if boot.acceleration.accelerator == "tcg":
                reasons[boot.acceleration.reason] = None
    caution = "The virtual machines ran emulated: good for counts and for relations, not for absolute speeds"
    return Guests(images, accelerations, tuple(f"{caution} ({reason})." for reason in reasons))


async def _boot_of(study: Study, name: str, group: NodeGroup, session: Session) -> Boot:
    """What a group boots with; where that can't be, an error with its place in the study."""
    try:
        return await session.hypervisor.boot_of(group, session.extras[name])
    except (MissingImage, MissingTool):
        raise
    except UserError as error:
        key = error.key or (("kernel",) if group.kernel is not None else ())
        raise study.problem(("nodes", name, *key), str(error)) from None


def extras_of(cells: Iterable[Cell], group: str) -> frozenset[str]:
    """What a group's image must have besides, in any cell: its guests are then the same in all of them."""
    modules = {module for cell in cells if group in cell.nodes for module in group_needs(cell, group).modules}
    return frozenset(_EXTRAS[module] for module in modules if module in _EXTRAS)


def group_needs(cell: Cell, name: str) -> Needs:
    """All that a cell needs of the nodes of one group."""
    workloads = [load.workload for load in cell.loads if name in load.on]
    if cell.precondition is not None and name not in cell.serving:
        workloads.append(cell.precondition)
    disk = cell.disks.get(name)
    return together(
        [
            stack_needs(cell.stacks.get(name, ())),
            stack_needs(disk.layers[-1:] if disk is not None else ()),
            *(stack_needs(on_storage(other)) for other in cell.disks.values() if other.on == name),
            *(workload.needs() for workload in workloads),
            *(probe.needs() for probe in cell.probes.values() if probe.place() != "host"),
        ]
    )


def needs_on_host(cell: Cell) -> list[Needs]:
    """What this machine itself must have for a cell, beyond what its nodes here need."""
    needs = [probe.needs() for probe in cell.probes.values() if probe.place() != "nodes"]
    for name, group in cell.nodes.items():
        if group.kind == "vm":
            needs.append(Needs(programs=(QEMU, *binding.programs(group.pin, group.numa))))
        else:
            needs.append(group_needs(cell, name))
    for disk in cell.disks.values():
        if disk.on == HOST:
            needs.append(stack_needs(on_storage(disk)))
        elif cell.nodes[disk.on].kind == "vm":
            needs.append(network.NEEDS)
    return needs


@dataclass(frozen=True)
class Memory:
    """Bytes of this machine's memory: what the virtual machines of one trial take up at most, and what is available.

    ``available`` is ``None`` where the kernel doesn't tell.
    """

    needed: int
    available: int | None


def guest_memory(cell: Cell) -> int:
    """Bytes that the virtual machines of a cell take up, and QEMU itself."""
    groups = (group for group in cell.nodes.values() if group.kind == "vm")
    return sum(group.count * (group.memory + _OWN_MEMORY) for group in groups)


def refuse_guests_too_large(study: Study, cells: Sequence[Cell], meminfo: str) -> Memory:
    """Raise ``UserError`` where the virtual machines of one trial want more memory than this machine has to give."""
    available = _available(meminfo)
    for cell in cells:
        groups = {name: group for name, group in cell.nodes.items() if group.kind == "vm"}
        wanted = guest_memory(cell)
        if available is not None and wanted > available:
            guests = ", ".join(f"{group.count} × {size_text(group.memory)}" for group in groups.values())
            raise study.problem(
                ("nodes", next(iter(groups)), "memory"),
                f"the virtual machines ({guests}, and QEMU's own) take up {size_text(wanted // 1024**2 * 1024**2)}, "
                f"but this machine has only {available // 1024**2}M left: make them smaller or fewer",
            )
    return Memory(max((guest_memory(cell) for cell in cells), default=0), available)


def _available(meminfo: str) -> int | None:
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
