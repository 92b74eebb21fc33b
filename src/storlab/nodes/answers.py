"""What a node printed is read in many places; where it makes no sense, that is its doing and not an internal error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from storlab.base.errors import NodeError, TrialError
from storlab.nodes.agent import steps
from storlab.nodes.node import Exit, Node


@contextmanager
def understood(node: str, what: str) -> Iterator[None]:
    """Raise ``TrialError`` with the node's name where its text is not the number, name or list that it has to be.

    ``what``: what was being done, as in "while ...". A guest's root may let any program there print anything.
    """
    try:
        yield
    except (ValueError, LookupError) as error:
        reason = str(error).replace("\n", " ")[:200]
        raise TrialError(f"node {node}: an answer makes no sense while {what}: {reason}") from error


# The regular files in a folder of a node and in all below it, with their sizes.

_ENTRY = re.compile(r"(\d{1,18}) (.+)", re.DOTALL)
_TOO_MUCH = ("EFBIG", "ENAMETOOLONG")  # for one answer of the agent's: find(1) has no such bounds


async def files_below(node: Node, folder: str) -> list[tuple[str, int]]:
    """Each with its path from the folder on, and bytes. Raises ``NodeError`` where the listing is none.

    Names are the node's own words: whoever makes files of them checks them first.
    """
    (done,) = await node.carry_out(steps.files(folder), go_on=True)
    if done.result.errno in _TOO_MUCH:
        listing = await node.output("find", folder, "-type", "f", "-printf", "%s %P\\0")
        entries = listing.split("\0")[:-1]
    else:
        entries = done.check(node.name).entries
    return [_entry(node, folder, each) for each in entries]


def _entry(node: Node, folder: str, entry: str) -> tuple[str, int]:
    parts = _ENTRY.fullmatch(entry)
    if parts is None:
        raise NodeError(f"node {node.name}: it says that {folder} holds {entry[:80]!r}, which can be no file there")
    return parts[2], int(parts[1])


# Modules of a node's kernel: loaded where they are not there yet, which takes no program to find out.


async def load_modules(node: Node, *modules: str) -> Exit | None:
    """Load those that are not; how modprobe(8) ended, ``None`` where it was not needed.

    A driver that is built in, and has no parameters, can't be seen: modprobe knows of it.
    """
    paths = [f"/sys/module/{module.replace('-', '_')}" for module in modules]
    looked = await node.carry_out(*(steps.look(path) for path in paths), go_on=True)
    missing = [module for module, each in zip(modules, looked, strict=True) if not each.there]
    return await node.run(["modprobe", "--all", *missing], check=False) if missing else None
