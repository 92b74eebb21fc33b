"""A guest with ZFS and a spare disk, on which layers are set up, and of which nothing may be left afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from storlab.layers.attach.attachment import AttachmentLayer
from storlab.layers.resources import File
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Node

from .guests import guest, image_with
from .sites import RUN, Ground, parse

SCRATCH = f"/var/tmp/storlab-{RUN}/storage-0123456789ab"

Check = Callable[[Ground], Awaitable[None]]


@dataclass
class Storage:
    """A guest with ZFS and a spare disk, in an event loop of its own that goes on between tests."""

    loop: asyncio.AbstractEventLoop
    node: Node

    def run(self, check: Check) -> None:
        """A check on a fresh scratch folder, of which nothing may be left afterwards, nor of any pool."""
        self.loop.run_until_complete(self._run(check))

    async def _run(self, check: Check) -> None:
        await self.node.run(["mkdir", "--parents", SCRATCH])
        ground = Ground(self.node, SCRATCH)
        try:
            await check(ground)
        finally:
            await ground.tear_down()
        assert await self.node.output("zpool", "list", "-H") == ""
        assert await self.node.output("find", SCRATCH, "-mindepth", "1") == ""
        assert await self.node.output("find", "/dev", "-name", "storlab*", "-path", f"*{RUN}*") == ""
        assert "zfs" not in [line.split()[2] for line in (await self.node.read_text("/proc/mounts")).splitlines()]


@contextmanager
def running() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


@asynccontextmanager
async def storage_guest(folder: Path) -> AsyncIterator[Node]:
    image = image_with("zfs")
    spare = folder / "spare.img"
    with spare.open("wb") as file:
        file.truncate(256 * 1024**2)
    (layer,) = parse([{"layer": "virtio-blk"}])
    assert isinstance(layer, AttachmentLayer)
    disk = layer.demands(File("host", str(spare), 256 * 1024**2), "disk0").devices
    async with local_node("host") as host, guest(host, image, "storage", [disk]) as running_guest:
        await running_guest.node.run(["modprobe", "zfs"])
        yield running_guest.node


@contextmanager
def standing_storage(folder: Path) -> Iterator[Storage]:
    """The guest, for as long as the context lasts."""
    with running() as loop:
        context = storage_guest(folder)
        node = loop.run_until_complete(context.__aenter__())
        try:
            yield Storage(loop, node)
        finally:
            loop.run_until_complete(context.__aexit__(None, None, None))
