"""Several disks of the kernel's that are one at the server, joined by device mapper (drivers/md/dm-mpath.c of Linux).

Requests go to them in turn. One whose path fails is left out from then on, and with none left they fail: nobody queues
them, and no daemon tries again.
"""

from __future__ import annotations

from collections.abc import Sequence

from storlab.layers.base import LayerContext
from storlab.layers.block import mapper

_MODULES = ("dm_multipath", "dm_round_robin")
NEEDS = mapper.needs(*_MODULES)


async def joined(disks: Sequence[str], context: LayerContext) -> str:
    sectors = await mapper.sectors_of(context.node, disks[0])
    paths = " ".join([f"/dev/{disk} 1" for disk in disks])
    table = f"0 {sectors} multipath 0 0 1 1 round-robin 0 {len(disks)} 1 {paths}"  # no features, one group, 1 argument
    return await mapper.create(context, f"storlab-{context.run}-{context.slot}", table, *_MODULES)
