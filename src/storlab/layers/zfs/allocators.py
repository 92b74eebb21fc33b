"""How many allocators each metaslab group of a pool has: as many as were asked for only where there are CPUs for them.

``spa_add`` in module/zfs/spa_misc.c of OpenZFS takes, when a pool is made or imported, the smaller of
``spa_num_allocators`` and the CPUs that are online divided by ``spa_cpus_per_allocator``, but at least one. Versions
that lack one of the two have no such limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storlab.layers.zfs.properties import Value
from storlab.nodes.node import Node
from storlab.text import is_whole

ASKED, DIVISOR = "spa_num_allocators", "spa_cpus_per_allocator"
_ONLINE = "/sys/devices/system/cpu/online"
_RANGES: Mapping[str, tuple[int, int]] = {
    ASKED: (1, 2**31 - 1),
    DIVISOR: (1, 2**31 - 1),
    "zfs_vdev_def_queue_depth": (1, 2**32 - 1),
    "zio_dva_throttle_enabled": (0, 1),
}
"""Of parameters for which the kernel takes other numbers as well, and ZFS then does something else, see zfs(4)."""


def refuse_out_of_range(parameters: Mapping[str, Value]) -> None:
    """Raises ``ValueError`` for a value that ZFS does not mean anything by."""
    for name, value in parameters.items():
        if name not in _RANGES:
            continue
        least, most = _RANGES[name]
        number = int(value) if isinstance(value, int) or is_whole(value, 10) else -1
        if not least <= number <= most:
            raise ValueError(f"module: {name} = {value} is out of range: write a whole number from {least} to {most}")


def effective(asked: int, cpus_each: int, cpus: int) -> int:
    """How many allocators a pool has that is made while ``cpus`` are online."""
    return max(1, min(asked, cpus // max(cpus_each, 1)))


def parse_online(text: str) -> int | None:
    """How many CPUs a list such as ``0-3,6`` has; ``None`` where it is none."""
    count = 0
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if not is_whole(first, 6) or (dash and not is_whole(last, 6)):
            return None
        count += max(int(last or first) - int(first) + 1, 0)
    return count


async def allocator_facts(node: Node, module: Mapping[str, Any], wanted: Mapping[str, Value]) -> dict[str, Any]:
    """``effective`` and ``cpus``; and what was ``asked`` with what it is ``limited_by``, where the study asked.

    Nothing of a ZFS without these parameters. ``module``: all of its parameters; ``wanted``: those of the study.
    """
    number, each = module.get(ASKED), module.get(DIVISOR)
    (online,) = await node.texts(_ONLINE)
    cpus = parse_online(online or "")
    if not isinstance(number, int) or not isinstance(each, int) or not cpus:
        return {}
    found = effective(number, each, cpus)
    asked = {"asked": number} if ASKED in wanted else {}
    return {"effective": found, "cpus": cpus, **asked, **({"limited_by": DIVISOR} if found < number else {})}
