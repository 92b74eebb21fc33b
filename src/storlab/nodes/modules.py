"""Modules of a node's kernel: loaded where they are not there yet, which takes no program to find out."""

from __future__ import annotations

from storlab.nodes.agent import steps
from storlab.nodes.node import Exit, Node


async def load_modules(node: Node, *modules: str) -> Exit | None:
    """Load those that are not; how modprobe(8) ended, ``None`` where it was not needed.

    A driver that is built in, and has no parameters, can't be seen: modprobe knows of it.
    """
    paths = [f"/sys/module/{module.replace('-', '_')}" for module in modules]
    looked = await node.carry_out(*(steps.look(path) for path in paths), go_on=True)
    missing = [module for module, each in zip(modules, looked, strict=True) if not each.there]
    return await node.run(["modprobe", "--all", *missing], check=False) if missing else None
