"""Where nodes with ``placement = "auto"`` are: this machine, or nodes of their kind.

The same for all cells: a comparison between a disk that was made here and one that was made in a guest would tell the
places apart, not the disks. What is made in a guest reaches the others over NBD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storlab.nodes.needs import Lack, Needs, lacks, together
from storlab.nodes.node import Node
from storlab.study.cells import HOST, Cell
from storlab.study.chains import ChainError
from storlab.study.schema import NodeGroup, default_groups
from storlab.study.study import Study


async def place(study: Study, host: Node) -> Study:
    """The study with every node's place decided, and in its notes what was decided, and why.

    Raises ``StudyError`` where a chain can't be on this machine.
    """
    names = dict.fromkeys(
        name for cell in study.cells for name, group in cell.nodes.items() if group.placement == "auto"
    )
    try:
        missing = {name: _telling(await lacks(host, _needs(study.cells, name))) for name in names}
        here = {name for name, reasons in missing.items() if not reasons}
        cells = tuple(cell.with_groups(_moved(cell, here)) for cell in study.cells)
        for cell in cells:
            assert cell.all_chains is not None  # what can't be is found now
    except ChainError as error:
        raise study.problem(error.origin, str(error)) from None
    notes = (_note(name, reasons) for name, reasons in missing.items())
    return replace(study, cells=cells, notes=(*notes, *study.notes))


def _moved(cell: Cell, here: set[str]) -> dict[str, NodeGroup]:
    local = type(default_groups()[HOST])
    common = NodeGroup.model_fields.keys() - {"kind"}
    return {
        name: local.model_construct(kind="local", **{key: getattr(group, key) for key in common})
        for name, group in cell.groups.items()
        if name in here
    }


def _needs(cells: Sequence[Cell], name: str) -> Needs:
    """All that the layers need which would stand here, in any cell. What is moved crosses to nobody."""
    moved = (cell.with_groups(_moved(cell, {name})) for cell in cells if name in cell.nodes)
    return together(layer.needs() for cell in moved for layer in cell.layers_on(name))


def _telling(found: Sequence[Lack]) -> list[str]:
    """What is missing, in words; where the kernel lacks something, all else is beside the point."""
    return [lack.what for lack in found if "kernel" in lack.what] or [lack.what for lack in found]


def _note(name: str, missing: Sequence[str]) -> str:
    if not missing:
        return f"{name}: the disks are made on this machine, which has all that they need"
    return f"{name}: the disks are made on a virtual machine and served over NBD, since {'; '.join(missing)}"
