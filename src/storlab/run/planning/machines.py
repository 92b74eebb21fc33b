"""The machines of a study's nodes, opened while planning: each is one, and none is this one under another name."""

from __future__ import annotations

from collections.abc import Sequence

from storlab.errors import NodeError
from storlab.nodes.identity import Machine
from storlab.nodes.kind import NodeKind
from storlab.nodes.node import Node
from storlab.run.session import Session
from storlab.study.cells import HOST, Cell
from storlab.study.chains import node_specs
from storlab.study.study import Study
from storlab.waiting import all_of


async def open_machines(study: Study, session: Session) -> None:
    """Open the nodes on other machines that are there for the whole run, all at once.

    Raises ``StudyError`` where two of a cell, or one and this machine, are the same machine.
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
