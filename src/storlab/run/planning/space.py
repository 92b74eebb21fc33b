"""Whether what a study sets up has room: on disks and in memory, and no device in two places at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from storlab.base.errors import UserError
from storlab.base.units import size_text
from storlab.layers.block.identity import DeviceIdentity
from storlab.nodes.accounts import refuse_replaceable
from storlab.nodes.node import Node
from storlab.run.session import Session
from storlab.study.cells import HOST, Cell
from storlab.study.chains import node_specs
from storlab.study.layout import Unit
from storlab.study.study import Study


@dataclass(frozen=True)
class Room:
    """Bytes that are needed at the worst moment, and those that are free; ``None`` if the kernel doesn't tell."""

    needed: int
    free: int | None


async def free_space(node: Node, path: str) -> int:
    """Bytes that this user may still write on the file system of a directory. Raises ``UserError`` for what is none."""
    if not (await node.run(["test", "-d", path], check=False)).ok:
        raise UserError(f"node {node.name}: there is no directory {path} for scratch files; set scratch in the study")
    await refuse_replaceable(node, path)
    return int((await node.output("df", "--output=avail", "-B1", path)).split()[-1])


def _at_worst(sizes: Iterable[Iterable[tuple[Unit, int]]], side_by_side: bool) -> int:
    """Of the sizes of each cell's units: a trial's own at the worst moment, and all that is kept for the run then.

    ``side_by_side``: the cells of a round are set up at the same time.
    """
    kept: dict[str, int] = {}
    passing = [0]
    for of_cell in sizes:
        passing.append(0)
        for unit, size in of_cell:
            if unit.keep == "run":
                kept[unit.identity] = size
            else:
                passing[-1] += size
    return (sum(passing) if side_by_side else max(passing)) + sum(kept.values())


def _layers_here(cell: Cell) -> list[Unit]:
    return [unit for unit in cell.units if unit.links and cell.is_here(unit.on)]


async def stacks_room(study: Study, cells: Sequence[Cell], session: Session, side_by_side: bool) -> Room:
    """The scratch of this machine. Raises ``StudyError`` if this or another machine that is there for the run has none
    for what is set up on it.
    """

    def needed_on(name: str, units: Sequence[Sequence[Unit]], free: int, where: str) -> int:
        needed = _at_worst(([(unit, unit.space) for unit in of_cell] for of_cell in units), side_by_side)
        if needed > free:
            links = (link for of_cell in units for unit in of_cell for link in unit.links)
            origin = max(links, key=lambda link: link.layer.space()).origin
            remedy = "make them smaller, or set scratch to a larger file system"
            message = (
                f"the stacks take up {size_text(needed)} on node {name}, but {where} has only {free // 1024**2}M free"
            )
            raise study.problem((*origin, "size"), f"{message}: {remedy}")
        return needed

    scratch = study.model.scratch
    free = await free_space(session.host, scratch)
    room = Room(needed_on(HOST, [_layers_here(cell) for cell in cells], free, scratch), free)
    layers = [(cell.nodes.get(unit.on), unit) for cell in cells for unit in cell.units if unit.links]
    far = {unit.node: (unit.on, group) for group, unit in layers if group and group.session and not group.here}
    for name, (on, group) in far.items():
        node = await session.stand_in(name, node_specs(on, group)[name])
        assert node is not None, "it is there for the run"
        try:
            free = await free_space(node, node.scratch or scratch)
        except UserError as error:
            raise study.problem(("nodes", on, "scratch") if node.scratch else ("scratch",), str(error)) from None
        there = [[unit for unit in cell.units if unit.node == name and not cell.is_here(unit.on)] for cell in cells]
        needed_on(name, there, free, f"{node.scratch or scratch} there")
    return room


async def loads_space(study: Study, cells: Sequence[Cell], session: Session) -> dict[str, Room]:
    """By existing directory. Raises ``StudyError`` if the loads write more there than there is room for."""
    found: dict[str, Room] = {}
    known: dict[str, int] = {}
    for cell in cells:
        for unit in _layers_here(cell):
            path = unit.links[0].layer.existing_directory(study.model.scratch)
            if path is None or (unit.below is not None and unit.below.links):
                continue
            loads = [load for load in cell.loads if unit.on in load.groups]
            count = cell.nodes[unit.on].count if unit.on in cell.nodes else 1
            needed = sum(load.workload.space() for load in loads) * count
            free = known[path] = known[path] if path in known else await free_space(session.host, path)
            if needed > free:
                wrong = f"the load writes {size_text(needed)}, but {path} has only {free // 1024**2}M free"
                remedy = "make its size smaller, or name another directory"
                raise study.problem(("workload", loads[0].name), f"{wrong}: {remedy}")
            found[path] = Room(max(needed, found[path].needed if path in found else 0), free)
    return found


Device = tuple[str, DeviceIdentity]
"""A device that the study names, after the id of its machine."""


@dataclass(frozen=True)
class _Claim:
    path: str
    owner: str
    device: Device | None  # not known of a node that doesn't run yet

    def conflicts(self, other: _Claim) -> bool:
        """Two names of one device are one device, and so are a disk and its partition."""
        if self.owner == other.owner:
            return False
        if self.device is None or other.device is None:
            return self.device is other.device and self.path == other.path
        return self.device[0] == other.device[0] and self.device[1].overlaps(other.device[1])


def refuse_double_claims(
    study: Study, cells: Sequence[Cell], known: Mapping[tuple[str, str], Device], side_by_side: bool = False
) -> None:
    """A device can't be in two stacks that are set up at the same time, on several nodes or because one is kept.

    ``known``: node, path → the device that it is.
    """
    kept: list[_Claim] = []
    for cell in cells:
        claims = list(kept)
        for unit in cell.units:
            for link in unit.links:
                path = link.layer.claims()
                if path is None or not (cell.is_here(unit.on) or (unit.node, path) in known):
                    continue
                outlives = link.keep == "run" or (side_by_side and link.keep == "round")
                owner = f"{unit.identity} {_uses(unit, cell)}" if outlives else f"{cell.number} {unit.identity}"
                claim = _Claim(path, owner, known.get((unit.node, path)))
                other = next((other for other in claims if claim.conflicts(other)), None)
                if other is not None:
                    remedy = (
                        ", or leave out " + ("[trial] slices" if side_by_side else "keep")
                        if outlives or other in kept
                        else ""
                    )
                    same = "" if other.path == path else f" (there as {other.path})"
                    reason = f"several stacks that are set up at the same time{same}: take a device for each{remedy}"
                    raise study.problem(link.origin, f"{path} is in {reason}")
                claims.append(claim)
                if link.keep == "run" or side_by_side:
                    kept.append(claim)


def _uses(unit: Unit, cell: Cell) -> str:
    """What has the device of a claim for itself: a unit of the device alone is the same for all that stand on it."""
    return "" if len(unit.links) > 1 else " ".join(each.identity for each in cell.units if unit in each.stands_on)


def guests_memory(study: Study, cells: Sequence[Cell], meminfo: str, side_by_side: bool = False) -> Room:
    """Raise ``StudyError`` if the nodes that are there at the same time want more memory than this machine has."""

    def sizes(cell: Cell) -> list[tuple[Unit, int]]:
        nodes = (unit for unit in cell.units if unit.kind == "node" and unit.on in cell.nodes)
        return [(unit, cell.nodes[unit.on].memory_needed()) for unit in nodes]

    room = Room(_at_worst(map(sizes, cells), side_by_side), available_memory(meminfo))
    if room.free is not None and room.needed > room.free:
        largest = max(cells, key=lambda cell: sum(size for _, size in sizes(cell)))
        groups = {name: group for name, group in largest.nodes.items() if group.memory_needed()}
        guests = ", ".join(f"{name}: {group.count} × {group.describe()}" for name, group in groups.items())
        raise study.problem(
            ("nodes", next(iter(groups)), "memory"),
            f"the virtual machines ({guests}, and QEMU's own) take up {size_text(room.needed // 1024**2 * 1024**2)}, "
            f"but this machine has only {room.free // 1024**2}M left: make them smaller or fewer",
        )
    return room


def available_memory(meminfo: str) -> int | None:
    """Bytes that programs can still have, by ``/proc/meminfo``; ``None`` if that does not say."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
