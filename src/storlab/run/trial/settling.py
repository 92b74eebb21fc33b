"""What is done on a node right before the measured phase: written back, caches emptied, a rest."""

from __future__ import annotations

import asyncio

from storlab.errors import CommandFailed
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.run.setup.build import Built
from storlab.study.schema import Settle

_CACHES = "/proc/sys/vm/drop_caches"


async def settle(asked: Settle, node: Node, built: Built, as_root: bool) -> list[str]:
    """Settle one node. Returns warnings: of caches that were to be emptied, and were not."""
    await node.carry_out(*[steps.sync()] * asked.sync, *[steps.write(_CACHES, "3\n")] * (asked.drop_caches and as_root))
    warnings = []
    if asked.drop_caches and not as_root:
        warnings.append("caches were not dropped before measuring: that needs root")
    elif asked.drop_caches:
        for command in sorted(_of_own_caches(node, built)):
            try:
                await node.run(command)
            except CommandFailed as error:
                warnings.append(f"not all caches were dropped before measuring: {error}")
    if asked.wait:
        await asyncio.sleep(asked.wait)
    return warnings


def _of_own_caches(node: Node, built: Built) -> set[tuple[str, ...]]:
    """What empties the caches of layers that stand on the node: of each kind once."""
    stacks = (part.stack for part in built.parts.values() if part.node is node)
    return {layer.drop for stack in stacks for layer, _ in stack.layers if layer.drop}
