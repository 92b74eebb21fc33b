"""What a plan says of nodes: stacks that begin on one and end on another, and what the virtual machines are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from storlab.study.cells import HOST, Cell
from storlab.study.schema import NodeGroup
from storlab.units import size_text

if TYPE_CHECKING:
    from storlab.run.plan import Plan

INSIDE = " │ "
"""Between what QEMU opens and what is in the virtual machine."""


def cells_text(numbers: Sequence[int], of: int) -> str:
    """``1–3, 7``; ``all`` where these are as many as there are."""
    if len(numbers) == of:
        return "all"
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in ranges)


def stack_text(cell: Cell, group: str) -> str:
    """A group's stack from the lowest layer, wherever that stands; empty where there is none."""
    inside = _layers(cell.stacks.get(group, ()))
    disk = cell.disks.get(group)
    if disk is None:
        return inside
    where = f"on {disk.on}: " if disk.on != HOST else ""
    return f"{where}{_layers(disk.layers)}{INSIDE if inside else ''}{inside}"


def _layers(layers: Iterable[Any]) -> str:
    return " → ".join(layer.label() for layer in layers)


def needs_list(cells: Sequence[Cell]) -> bool:
    """Whether stacks are too much for a column beside the cells: several nodes have one, or it crosses nodes."""
    return any(cell.disks or sum(map(bool, cell.stacks.values())) > 1 for cell in cells)


def stack_rows(cells: Sequence[Cell]) -> list[tuple[str, str, str]]:
    """Cells, nodes and stack, each stack once. Nodes with a load come before those that serve them."""
    found: dict[tuple[str, str], list[int]] = {}
    for group in groups_in_order(cells):
        for cell in cells:
            if group in cell.nodes and (text := stack_text(cell, group)):
                found.setdefault((nodes_text(group, cell.nodes[group]), text), []).append(cell.number)
    return [(cells_text(numbers, len(cells)), nodes, text) for (nodes, text), numbers in found.items()]


def groups_in_order(cells: Sequence[Cell]) -> list[str]:
    """Every group of nodes; those that only serve others come last."""
    names = dict.fromkeys(name for cell in cells for name in cell.nodes)
    return sorted(names, key=lambda name: not any(cell.working(name) for cell in cells if name in cell.nodes))


def nodes_text(name: str, group: NodeGroup) -> str:
    """``vm ×4``."""
    return f"{name} ×{group.count}" if group.count > 1 else name


def guest_lines(made: Plan) -> list[str]:
    """What the virtual machines are, and what they run with; empty where there are none."""
    groups: dict[str, dict[str, None]] = {}
    for name in groups_in_order(made.study.cells):
        for group in (cell.nodes[name] for cell in made.study.cells if name in cell.nodes):
            if group.kind == "vm":
                groups.setdefault(name, {})[machine_text(group)] = None
    lines = [f"{name}: {' or '.join(machines)}" for name, machines in groups.items()]
    images = dict.fromkeys(image.name for image in made.guests.images.values())
    if images:
        lines.append(f"image {', '.join(images)}")
    return [*lines, *dict.fromkeys(acceleration_text(made, name) for name in groups)]


def machine_text(group: NodeGroup) -> str:
    """``4 × 512M, 1 CPU, pinned to CPUs 0-1``."""
    memory = size_text(group.memory)
    return ", ".join(
        filter(
            None,
            [
                f"{group.count} × {memory}" if group.count > 1 else memory,
                f"{group.cpus} CPU{'s' if group.cpus > 1 else ''}",
                group.machine if group.machine != "q35" else "",
                f"pinned to CPUs {group.pin}" if group.pin else "",
                f"on NUMA node {group.numa}" if group.numa else "",
                "booted anew each time" if group.start == "cold" else "",
            ],
        )
    )


def acceleration_text(made: Plan, name: str) -> str:
    """With KVM, or emulated and why."""
    found = made.guests.accelerations[name]
    if found.accelerator == "kvm":
        return "with KVM, in which a guest was booted"
    return f"emulated: good for counts and for relations, not for absolute speeds ({found.reason})"


def memory_text(made: Plan) -> str:
    """``4.6G of 21.9G available, QEMU's own included``; empty where nothing needs any."""
    if not made.memory.needed:
        return ""
    available = made.memory.available
    rest = f" of {_gibibytes(available)} available" if available is not None else ""
    return f"{_gibibytes(made.memory.needed)}{rest}, QEMU's own included"


def _gibibytes(size: int) -> str:
    return f"{size / 1024**3:.1f}G"


def guests_as_data(made: Plan) -> dict[str, dict[str, Any]]:
    """By node group, for programs: what its virtual machines run with, and their number in each cell."""
    return {
        name: {
            "image": made.guests.images[name].name,
            "accelerator": found.accelerator,
            "reason": found.reason,
            "machines": {
                str(cell.number): cell.nodes[name].model_dump(mode="json", exclude={"stack", "disk"}, exclude_none=True)
                for cell in made.study.cells
                if name in cell.nodes
            },
        }
        for name, found in made.guests.accelerations.items()
    }
