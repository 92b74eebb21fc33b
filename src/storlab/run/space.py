"""Whether what a study puts on disks has room there, found out before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from storlab.errors import UserError
from storlab.layers.directory import DirectoryLayer
from storlab.nodes.node import Node
from storlab.run.assembly import shared_layers
from storlab.run.placement import on_storage
from storlab.run.session import Session
from storlab.study.cells import HOST, Cell
from storlab.study.study import Study
from storlab.units import size_text


async def free_space(node: Node, path: str) -> int:
    """Bytes that this user may still write on the file system of a directory. Raises ``UserError`` for what is none."""
    if not (await node.run(["test", "-d", path], check=False)).ok:
        raise UserError(f"node {node.name}: there is no directory {path} for scratch files; set scratch in the study")
    return int((await node.output("df", "--output=avail", "-B1", path)).split()[-1])


def stacks_space(cells: Sequence[Cell], session: Session) -> dict[str, int]:
    """Bytes on the scratch file system at the worst moment, by node: one trial's stacks, or all kept ones together.

    Nodes of one machine share its disk.
    """
    kept: dict[str, dict[str, int]] = {}
    largest: dict[str, int] = {}
    for cell in cells:
        mine: dict[str, int] = {}
        for machine, key, size in _stack_sizes(cell, session):
            mine[machine] = mine.get(machine, 0) + size
            if cell.trial.keep_stacks:
                kept.setdefault(machine, {})[key] = size
        for machine, size in mine.items():
            largest[machine] = max(largest.get(machine, 0), size)
    at_worst = {m: max(size, sum(kept.get(m, {}).values())) for m, size in largest.items()}
    return {name: at_worst.get(machine, 0) for name, machine in session.machines.items()}


def _stack_sizes(cell: Cell, session: Session) -> Iterator[tuple[str, str, int]]:
    """Machine, a key, and bytes, of every stack of a cell on this machine, those of guests' disks among them."""
    for name, group in cell.nodes.items():
        if group.kind == "local":
            for node in session.group(name, group):
                size = sum(layer.space() for layer in cell.stacks[name])
                yield session.machines[node.name], f"{node.name}{cell.stacks[name]!r}", size
    for name, disk in cell.disks.items():
        if disk.on == HOST:
            layers = on_storage(disk)
            split = shared_layers(layers)
            own = sum(layer.space() for layer in layers[split:]) * cell.nodes[name].count
            shared = sum(layer.space() for layer in layers[:split])
            yield session.machines[HOST], f"{name}{layers!r}", shared + own


def refuse_stacks_too_large(
    study: Study, cells: Sequence[Cell], space: Mapping[str, int], free: Mapping[str, int]
) -> None:
    """Raise ``StudyError``, at the largest layer, where a node has less ``free`` than the ``space`` that is needed."""
    for name, needed in space.items():
        if needed > free[name]:
            raise study.problem(
                _largest_layer(cells),
                f"the stacks take up {size_text(needed)} on node {name}, but {study.model.scratch} has only "
                f"{free[name] // 1024**2}M free: make them smaller, or set scratch to a larger file system",
            )


def _largest_layer(cells: Sequence[Cell]) -> tuple[str | int, ...]:
    sizes = (
        (layer.space(), (*origin, "size"))
        for cell in cells
        for layers, origins in [
            *((cell.stacks[name], cell.origins[name]) for name in cell.stacks),
            *((on_storage(disk), disk.origins) for disk in cell.disks.values()),
        ]
        for layer, origin in zip(layers, origins, strict=False)
    )
    return max(sizes, key=lambda entry: entry[0], default=(0, ("stack",)))[1]


async def refuse_loads_too_large(study: Study, cells: Sequence[Cell], session: Session) -> None:
    """Raise ``StudyError`` where the loads write more into an existing directory than there is room for."""
    free: dict[tuple[str, str], int] = {}
    for cell in cells:
        for name, group in cell.nodes.items():
            bottom = next(iter(cell.stacks[name]), None)
            if not isinstance(bottom, DirectoryLayer) or group.kind != "local":
                continue
            path = bottom.path or study.model.scratch
            loads = [load for load in cell.loads if name in load.on]
            needed = sum(load.workload.space() for load in loads) * group.count
            node = session.group(name, group)[0]
            if (node.name, path) not in free:
                free[node.name, path] = await free_space(node, path)
            if needed > free[node.name, path]:
                raise study.problem(
                    ("workload", loads[0].name),
                    f"the load writes {size_text(needed)}, but {path} has only "
                    f"{free[node.name, path] // 1024**2}M free: make its size smaller, or name another directory",
                )
