"""Where nodes are: on machines that are opened while planning, or on this one, if ``placement = "auto"`` allows it.

A place is the same for all cells: a comparison between a disk that was made here and one that was made in a guest would
tell the places apart, not the disks. What is made in a guest reaches the others over NBD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storlab.errors import NodeError
from storlab.nodes.identity import Machine
from storlab.nodes.kind import NodeKind
from storlab.nodes.needs import Lack, Needs, lacks, together
from storlab.nodes.node import Node
from storlab.run.session import Session
from storlab.study.cells import HOST, Cell
from storlab.study.chains import ChainError, node_specs
from storlab.study.schema import NodeGroup, default_groups
from storlab.study.study import Study
from storlab.waiting import all_of


async def open_machines(study: Study, session: Session) -> None:
    """Open the nodes on other machines that are there for the whole run, all at once.

    Raises ``StudyError`` if two of a cell, or one and this machine, are the same machine.
    """
    specs = {
        (name, spec.model_dump_json()): (group, name, spec)
        for cell in study.cells
        for group, of_group in cell.nodes.items()
        if of_group.session and not of_group.here
        for name, spec in node_specs(group, of_group).items()
    }
    opened = await all_of(*(_opened(study, session, *each) for each in specs.values()))
    nodes = dict(zip(specs, opened, strict=True))
    for cell in study.cells:
        _refuse_same(study, cell, nodes, session.host.identity.machine)


async def _opened(study: Study, session: Session, group: str, name: str, spec: NodeKind) -> Node | None:
    try:
        return await session.stand_in(name, spec)
    except NodeError as error:
        raise study.problem(("nodes", group), str(error)) from None


def _refuse_same(study: Study, cell: Cell, nodes: dict[tuple[str, str], Node | None], here: Machine) -> None:
    known: list[tuple[str, Machine]] = [(HOST, here)]
    for group, of_group in cell.nodes.items():
        for number, (name, spec) in enumerate(node_specs(group, of_group).items()):
            node = nodes.get((name, spec.model_dump_json()))
            if node is None:
                continue
            mine = node.identity.machine
            for other, machine in known:
                if why := _same(mine, machine):
                    first = "this machine" if other == HOST else f"node {other}"
                    at: Sequence[str | int] = ("nodes", group, *(("hosts", number) if "hosts" in spec.__dict__ else ()))
                    raise study.problem(tuple(at), f"node {name} ({spec.describe()}) {why.format(first)}")
            known.append((name, mine))


def _same(one: Machine, other: Machine) -> str:
    """How two machines are one, in words; empty where they are two. Copies of one image may share a machine id."""
    if one.boot == other.boot:
        return "is {} under another name, by its boot id: name each machine once"
    if one.id and one.id == other.id:
        return (
            "has the machine id of {}, so the two can't be told apart later: if it is a copy, give it another by "
            "`rm /etc/machine-id /var/lib/dbus/machine-id; systemd-machine-id-setup` there"
        )
    return ""


async def place(study: Study, host: Node) -> Study:
    """The study with every node's place decided, and in its notes what was decided, and why.

    Raises ``StudyError`` if a chain can't be on this machine.
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
