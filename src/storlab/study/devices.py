"""Whether a machine of each group has room for the disks and shares that its study plugs into it."""

from __future__ import annotations

from collections.abc import Sequence

from storlab.study.cells import Cell
from storlab.study.read_cells import Report


def check_devices(cells: Sequence[Cell], report: Report) -> None:
    """Report groups whose nodes get more devices than their kind takes."""
    for cell in cells:
        for name, group in cell.nodes.items():
            crossings = [(chain.crossing, chain.count) for chain in cell.chains if chain.group == name]
            disks = sum(count for each, count in crossings if each is not None and each.transport == "hypervisor")
            count, most = disks + cell.networked(name), group.most_devices
            if most is not None and count > most:
                card = " and its network card" if cell.networked(name) else ""
                report(
                    ("nodes", name),
                    f"{disks} disks and shares{card} are more than the {most} devices that a virtual machine takes: "
                    "write a smaller count",
                )
