"""How a trial gets a data set without copying it: from a master in the same file system, unpacked once for all trials.

The master lies in what is set up below, and so goes away with it. What a trial gets of it is the trial's own.
"""

from __future__ import annotations

from storlab.errors import Unsupported
from storlab.images.cache import Part
from storlab.layers.database.data_set import unpack
from storlab.layers.resources import Dir
from storlab.layers.server.base import ServerContext
from storlab.nodes.accounts import hand_over
from storlab.nodes.agent import steps

_WHOLE = "whole"
"""Of a dataset's snapshot, which is there once all of the data set is."""


async def share_extents(server: ServerContext[Dir], part: Part) -> None:
    """Fill ``server.data`` by reflinks. Raises ``Unsupported`` on file systems that have none."""
    assert server.data is not None
    node, master = server.node, f"{server.below.path}/data-set-{part.name}"
    async with node.lock(master):
        (there,) = await node.carry_out(steps.look(master), go_on=True)
        if there.result.kind != "directory":
            half = f"{master}.half"
            await node.run(["rm", "--recursive", "--force", "--", half])  # of one that was stopped
            await node.carry_out(steps.make_directory(half, 0o700))
            await _fill(server, part, half)
            await node.run(["mv", "--", half, master])
            await node.carry_out(steps.sync(master))
    copied = await server.confined.run(
        [*server.as_user(), "cp", "--archive", "--reflink=always", "--", f"{master}/.", server.data], check=False
    )
    if not copied.ok:
        said = copied.stderr.decode(errors="replace").splitlines()
        why = said[0].rpartition(": ")[2] if said else copied.describe()
        raise Unsupported(f'node {node.name}: this file system does not share extents ({why}): write clone = "copy"')


async def clone_dataset(server: ServerContext[Dir], part: Part) -> None:
    """Mount on ``server.data``, which is empty, a clone of a dataset that holds the data set."""
    assert server.data is not None
    node, context, name = server.node, server.context, f"data-set-{part.name}"
    parent = (await node.output("zfs", "list", "-H", "-o", "name", server.below.path)).strip()
    master, path = f"{parent}/{name}", f"{server.below.path}/{name}"
    async with node.lock(path):
        if not (await node.run(["zfs", "list", "-H", "-o", "name", f"{master}@{_WHOLE}"], check=False)).ok:
            await node.run(["zfs", "destroy", "-r", master], check=False)  # of one that was stopped
            await node.run(["zfs", "create", "-o", f"mountpoint={path}", master])
            await node.run(["chmod", "0700", "--", path])
            await _fill(server, part, path)
            await node.run(["zfs", "snapshot", f"{master}@{_WHOLE}"])
    own = f"{parent}/{context.owner}-{context.position}-data"
    await context.register_undo("zfs.destroy", dataset=own, path=server.data)
    await node.run(["zfs", "clone", "-o", f"mountpoint={server.data}", f"{master}@{_WHOLE}", own])


async def _fill(server: ServerContext[Dir], part: Part, master: str) -> None:
    """Unpack a data set into a folder, which is then the server's user's."""
    node = server.node
    if server.account is not None:
        await hand_over(node, server.account, [master])
    await unpack(node, part, master, server.as_user())
