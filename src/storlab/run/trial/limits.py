"""The limits of a trial's loads, each on the cgroup of its own processes, before these begin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from storlab.base.errors import Unsupported
from storlab.layers.block.queue import sysfs
from storlab.layers.resources import Dir, Disk, Resource, Swap
from storlab.nodes.node import Node
from storlab.run.trial.measure import Limiting
from storlab.run.trial.subjects import disks_beneath
from storlab.study.cells import Load
from storlab.workloads.base import RunContext
from storlab.workloads.limits import Limits, limit

Facts = dict[str, list[dict[str, Any]]]
"""By node, as a trial has them."""


async def limiting(places: Sequence[tuple[Load, RunContext]], facts: Facts) -> dict[int, Limiting]:
    """What limits each load that is to be limited, by its number. What its cgroup says then is added to ``facts``.

    Raises ``Unsupported`` if there is no disk to limit.
    """
    found: dict[int, Limiting] = {}
    for number, (load, place) in enumerate(places):
        if load.limits is not None:
            disks = await _disks(place.node, place.target) if load.limits.of_disks else []
            found[number] = partial(_limit, load.limits, load.name, place.node, disks, facts)
    return found


async def _limit(limits: Limits, load: str, node: Node, disks: Sequence[str], facts: Facts, cgroup: str | None) -> None:
    found = await limit(node, cgroup, await limits.files(node, disks))
    facts.setdefault(node.name, []).append({"layer": "limits", "load": load, **found})


async def _disks(node: Node, target: Resource) -> list[str]:
    """Folders in sysfs of the disks that a load is on: of partitions, those of the whole."""
    names: tuple[str, ...] = (target.name,) if isinstance(target, Disk | Swap) else ()
    if isinstance(target, Dir):
        names = target.disks or await disks_beneath(node, target.path) or ()
    if not names:
        raise Unsupported(f"node {node.name}: limits: it is not known which disk the load is on")
    parts = await node.texts(*(f"{sysfs(name)}/partition" for name in names))
    return [f"{sysfs(name)}{'' if part is None else '/..'}" for name, part in zip(names, parts, strict=True)]
