"""Whether what a study sets up has room: on disks and in memory, and no device in two places at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from storlab.errors import UserError
from storlab.layers.block.identity import DeviceIdentity
from storlab.nodes.accounts import refuse_replaceable
from storlab.nodes.node import Node
from storlab.run.session import Session
from storlab.study.cells import HOST, Cell
from storlab.study.chains import node_specs
from storlab.study.layout import Unit
from storlab.study.study import Study
from storlab.units import size_text


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


def _units_here(cell: Cell) -> list[Unit]:
    return [unit for unit in cell.units if unit.links and cell.is_here(unit.on)]


def stacks_space(cells: Iterable[Cell], side_by_side: bool = False) -> int:
    """Bytes on this machine's scratch file system at the worst moment: a trial's own, and all that is kept then.

    ``side_by_side``: the cells of a round are set up at the same time.
    """
    kept: dict[str, int] = {}
    largest, every = 0, 0
    for cell in cells:
        passing = 0
        for unit in _units_here(cell):
            if unit.keep == "run":
                kept[unit.identity] = unit.space
            else:
                passing += unit.space
        largest, every = max(largest, passing), every + passing
    return (every if side_by_side else largest) + sum(kept.values())


async def refuse_elsewhere(study: Study, cells: Sequence[Cell], session: Session, side_by_side: bool) -> None:
    """Raise ``StudyError`` where another machine that is there for the run has no room for what is set up on it."""
    kept: dict[str, dict[str, int]] = {}
    free: dict[str, int] = {}
    passing: dict[str, int] = {}
    for cell in cells:
        own: dict[str, int] = {}
        for unit in cell.units:
            group = cell.nodes.get(unit.on)
            if not unit.links or group is None or group.here or not group.session:
                continue
            node = await session.stand_in(unit.node, node_specs(unit.on, group)[unit.node])
            assert node is not None, "it is there for the run"
            if unit.node not in free:
                try:
                    free[unit.node] = await free_space(node, node.scratch or study.model.scratch)
                except UserError as error:
                    key = ("scratch",) if node.scratch is None else ("nodes", unit.on, "scratch")
                    raise study.problem(key, str(error)) from None
            if unit.keep == "run":
                kept.setdefault(unit.node, {})[unit.identity] = unit.space
            else:
                own[unit.node] = own.get(unit.node, 0) + unit.space
            before = passing.get(unit.node, 0) if side_by_side else 0
            needed = before + own.get(unit.node, 0) + sum(kept.get(unit.node, {}).values())
            if needed > free[unit.node]:
                origin = max(((link.layer.space(), link.origin) for link in unit.links), key=lambda each: each[0])[1]
                there = f"{node.scratch or study.model.scratch} there has only {free[unit.node] // 1024**2}M free"
                remedy = "make them smaller, or set scratch to a larger file system"
                message = f"the stacks take up {size_text(needed)} on node {unit.node}, but {there}: {remedy}"
                raise study.problem((*origin, "size"), message)
        for name, size in own.items():
            passing[name] = passing.get(name, 0) + size


def refuse_stacks_too_large(study: Study, cells: Sequence[Cell], needed: int, free: int) -> None:
    """Raise ``StudyError``, at the largest layer, where this machine has less ``free`` than is ``needed``."""
    if needed > free:
        links = (link for cell in cells for unit in _units_here(cell) for link in unit.links)
        sizes = ((link.layer.space(), link.origin) for link in links)
        origin = max(sizes, key=lambda entry: entry[0], default=(0, ("stack",)))[1]
        there = f"{study.model.scratch} has only {free // 1024**2}M free"
        remedy = "make them smaller, or set scratch to a larger file system"
        message = f"the stacks take up {size_text(needed)} on node {HOST}, but {there}: {remedy}"
        raise study.problem((*origin, "size"), message)


async def loads_space(study: Study, cells: Sequence[Cell], session: Session) -> dict[str, Room]:
    """By existing directory. Raises ``StudyError`` where the loads write more there than there is room for."""
    found: dict[str, Room] = {}
    known: dict[str, int] = {}
    for cell in cells:
        for unit in _units_here(cell):
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
                owner = unit.identity if outlives else f"{cell.number} {unit.identity}"
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


def refuse_guests_too_large(study: Study, cells: Sequence[Cell], meminfo: str, side_by_side: bool = False) -> Room:
    """Raise ``UserError`` where the nodes that are there at the same time want more memory than this machine has."""
    available = available_memory(meminfo)
    kept: dict[str, int] = {}
    most, every = 0, 0
    for cell in cells:
        passing = 0
        for unit in (unit for unit in cell.units if unit.kind == "node" and unit.on in cell.nodes):
            needed = cell.nodes[unit.on].memory_needed()
            if unit.keep == "run":
                kept[unit.identity] = needed
            else:
                passing += needed
        every += passing
        most = max(most, (every if side_by_side else passing) + sum(kept.values()))
        if available is not None and most > available:
            groups = {name: group for name, group in cell.nodes.items() if group.memory_needed()}
            guests = ", ".join(f"{name}: {group.count} × {group.describe()}" for name, group in groups.items())
            raise study.problem(
                ("nodes", next(iter(groups)), "memory"),
                f"the virtual machines ({guests}, and QEMU's own) take up {size_text(most // 1024**2 * 1024**2)}, "
                f"but this machine has only {available // 1024**2}M left: make them smaller or fewer",
            )
    return Room(most, available)


def available_memory(meminfo: str) -> int | None:
    """Bytes that programs can still have, by ``/proc/meminfo``; ``None`` where that does not say."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
