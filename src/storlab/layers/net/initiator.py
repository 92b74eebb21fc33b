"""What all initiators have in common: one set of keys, one set of defaults, and the proof that a disk is alive.

Kernels give the disks of each protocol other defaults: read-ahead, scheduler, requests in flight, largest request,
whether the disk counts as rotating, and whether it has a write cache. Any of these would decide a comparison of
protocols, so all are set to one value unless the study says otherwise, and read back; see
Documentation/ABI/stable/sysfs-block in the kernel's sources.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import TrialError, Unsupported
from storlab.base.units import Duration, Size, size_text
from storlab.layers.base import Crossing, Layer, LayerContext
from storlab.layers.block.queue import put, queue_facts, sysfs
from storlab.layers.net.connect import mismatch, title
from storlab.layers.resources import Disk, Export, Protocol
from storlab.layers.server.running import Reachable
from storlab.nodes.agent import steps
from storlab.nodes.demands import Demands
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.settings import in_use

_SECTOR = 512
_BLOCK = 4096  # bytes, for the read that proves that a disk is alive
_LEAST = 3.0  # s; answers of emulated guests may be late by some
_BEYOND = 10.0  # s: kernels take some more than give_up until a request fails
UNTIL_THERE = 30.0  # s, for a disk to appear; guests without hardware virtualisation need some
LOOK = 0.05  # s
_DEPTHS = (1024, 512, 256, 255, 128, 127, 64, 63, 32, 31)  # of drivers' queues: powers of two, some less one
_OWN_KEYS = {
    "scheduler": "scheduler",
    "max_sectors": "max_sectors",
    "read_ahead": "read_ahead",
    "nr_requests": "queue_depth",
}
"""Settings of a queue that have keys, and defaults, with all initiators."""


def host_uuid(context: LayerContext) -> uuid.UUID:
    """The node's own among all of a run, whatever the image says: guests of one image have one DMI UUID."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"storlab:{context.run}/{context.node.instance}")


def host_word(context: LayerContext) -> str:
    """Run and node, as names of initiators may have them (RFC 3720, 3.2.6)."""
    return f"storlab-{context.run}:{re.sub('[^a-z0-9.-]', '-', context.node.instance.lower())}"


class InitiatorLayer(Crossing[Export, Disk]):
    """A disk of the kernel's own client of some protocol."""

    scheduler: Literal["none", "mq-deadline", "kyber", "bfq"] = Field("none", description="The kernel's I/O scheduler.")
    max_sectors: Size = Field(
        1024**2, ge=4096, multiple_of=1024, description="The largest request. The default is less where the disk's is."
    )
    read_ahead: Size = Field(128 * 1024, ge=0, multiple_of=4096, description="How far buffered reads look ahead.")
    queue_depth: int = Field(64, ge=4, le=1024, description="Requests that may be in flight at once.")
    queues: int = Field(1, ge=1, le=64, description="Connections, each with a queue of its own.")
    give_up: Duration = Field(10.0, ge=1, description="About how long a request waits for a server that is silent.")

    compared: ClassVar = (
        "protocol", "queues", "sessions", "payload", "driver.*", "session.recovery_tmo", "session.first_burst_len",
        "session.max_burst_len", "session.immediate_data", "session.initial_r2t", "session.queue_depth",
        "session.sqsize", "session.queue_count", "session.kato",
    )  # fmt: skip
    transport: ClassVar = "network"

    protocol: ClassVar[Protocol]
    flushes: ClassVar[bool] = True
    """Whether the protocol can tell the server to write down what is in its cache."""
    one_queue: ClassVar[str] = ""
    """Why there can be no more than one queue; empty where there can."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.one_queue and self.queues > 1:
            raise ValueError(f"queues = {self.queues}: {self.one_queue}")
        for key, own in _OWN_KEYS.items():
            if self.queue is not None and getattr(self.queue, key) is not None:
                raise ValueError(f"queue.{key}: write it as {own}, a key of this layer")
        return self

    def check_above(self, below: Layer | None) -> str | None:
        return mismatch(self.protocol, below)

    def demands(self, below: Export, slot: str) -> Demands:
        return Demands(network=True)

    def needs(self) -> Needs:
        return Reachable.needs | Needs(root="network block devices")

    @abstractmethod
    async def connect(self, below: Export, context: LayerContext) -> str:
        """Connect, and give the name of the kernel's disk, ``sda``, which may not be ``complete`` yet."""

    async def session_facts(self, disk: str, context: LayerContext) -> dict[str, Any]:
        """What the protocol's own settings came to."""
        return {}

    def timeouts(self) -> dict[str, str]:
        """Files below the disk's folder in sysfs, and what makes a request give up in time."""
        return {}

    async def remember_cache(self, name: str, cache: str, context: LayerContext) -> None:
        """Journal what ``write_cache`` of a device was before it is changed, if the device outlives its connection."""

    async def set_up(self, below: Export, context: LayerContext) -> Disk:
        node = context.node
        if below.protocol != self.protocol:
            wrong = f"{below.export} of {below.node} is served by {title(below.protocol)}, not {title(self.protocol)}"
            raise TrialError(f"layer {self.layer}: {wrong}")
        if below.server["type"] == "unix":
            raise TrialError(f"the export {below.export} of {below.node} listens on no network")
        await Reachable.watch(below, context, max(self.give_up / 2, _LEAST))  # before requests fail of it
        name = await self.connect(below, context)
        size = await complete(node, name)
        await self._tune(name, below, context)
        await self._prove_alive(node, name, below)
        return Disk(node.name, f"/dev/{name}", size, ours=True)

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        return {
            "device": resource.path,
            "size": resource.size,
            "protocol": self.protocol,
            "queues": self.queues,
            **await self.session_facts(resource.name, context),
            "queue": await queue_facts(context.node, resource),
        }

    async def _tune(self, name: str, below: Export, context: LayerContext) -> None:
        node, queue = context.node, f"{sysfs(name)}/queue"
        # What counts as rotating has another limit for writing back, which -1 resets. Some devices stay (``nbd0``).
        first = {"rotational": "0", "wbt_lat_usec": "-1", "scheduler": "none", "rq_affinity": "1", "nomerges": "0"}
        largest, cache = await put(node, queue, first, read=("max_hw_sectors_kb", "write_cache"))
        most = {"queue_depth": await _deepest(node, queue, self.queue_depth), "max_sectors": int(largest) * 1024}
        # Before the read-ahead: changing these limits resets it.
        wanted, limits = "write back" if below.write_cache else "write through", {}
        if cache != wanted:
            await self.remember_cache(name, cache, context)
            limits["write_cache"] = wanted
        # A default is less if the disk can't do as much; what a study says never is.
        usual = {key: getattr(self, key) for key in most}
        own = {key: value if key in self.model_fields_set else min(value, most[key]) for key, value in usual.items()}
        settings = {
            "scheduler": ("scheduler", self.scheduler),
            "queue_depth": ("nr_requests", str(own["queue_depth"])),
            "max_sectors": ("max_sectors_kb", str(own["max_sectors"] // 1024)),
            "read_ahead": ("read_ahead_kb", str(self.read_ahead // 1024)),
        }
        limits |= dict(settings.values())
        *got, cache = await put(node, queue, limits, read=(*(file for file, _ in settings.values()), "write_cache"))
        for (key, (_, value)), there in zip(settings.items(), map(in_use, got), strict=True):
            if there != value:
                raise Unsupported(await self._refused(node, queue, name, key, there, most))
        if cache != wanted:
            has = "has a write cache, which nothing flushes" if below.write_cache else "has none"
            differs = f"node {node.name}: {name} says that its cache is {cache!r}, but what {below.node} serves {has}"
            if self.flushes:
                raise Unsupported(differs)
            context.warn(differs)
        await put(node, sysfs(name), self.timeouts())

    async def _refused(self, node: Node, queue: str, name: str, key: str, there: str, most: dict[str, int]) -> str:
        """That the kernel does not take a setting, and what it would take."""
        asked: Any = getattr(self, key)
        match key:
            case "scheduler":
                offered = (await node.read_text(f"{queue}/scheduler")).replace("[", "").replace("]", "").split()
                can = f"the kernel offers {', '.join(offered)}"
            case "queue_depth":
                can = f"the driver takes at most {most['queue_depth']} requests"
            case "max_sectors":
                can = f"its requests are at most {size_text(most['max_sectors'])}"
                asked = size_text(asked)
            case _:
                can = f"the kernel made it {there}k"
                asked = size_text(asked)
        return f"node {node.name}: layer {self.layer}: {key} = {asked} does not do for {name}: {can}"

    async def _prove_alive(self, node: Node, name: str, below: Export) -> None:
        """Connected is not alive: a block must come back in time."""
        patience = self.give_up + _BEYOND
        read = ["dd", f"if=/dev/{name}", "of=/dev/null", f"bs={_BLOCK}", "count=1", "iflag=direct", "status=none"]
        ended = await node.run(read, check=False, timeout=patience)
        if ended.ok:
            return
        reason = f"no answer in {patience:g} s" if ended.timed_out else ended.stderr.decode(errors="replace").strip()
        raise TrialError(
            f"node {node.name}: {name} is connected to {below.export} of {below.node}, but cannot be read: {reason}"
        )


async def _deepest(node: Node, queue: str, enough: int) -> int:
    """The requests that the driver takes at once, if these are not ``enough``: without a scheduler the kernel refuses
    more.

    What is there may be less, as the disk of a device that stays (``nbd0``) keeps what it was given last.
    """
    deepest = 0
    for more in (enough, *_DEPTHS):
        if more <= deepest:
            break
        there = int((await put(node, queue, {"nr_requests": str(more)}, read=("nr_requests",)))[0])
        if there == more:
            return more
        deepest = there
    return deepest


async def appears(node: Node, path: str, patience: float = UNTIL_THERE) -> bool:
    """Wait until a file is there, such as the folder of a disk in sysfs."""
    deadline = asyncio.get_running_loop().time() + patience
    while not (await node.carry_out(steps.look(path), go_on=True))[0].there:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(LOOK)
    return True


async def complete(node: Node, name: str, patience: float = UNTIL_THERE) -> int:
    """Bytes of a disk, once the kernel has added all of it: its queue comes to sysfs after its folder (device_add_disk
    in block/genhd.c). Raises ``TrialError``, also for one that has no size: it is not connected any more.
    """
    deadline = asyncio.get_running_loop().time() + patience
    file = steps.look(f"/dev/{name}")
    while True:
        size, largest = await node.texts(f"{sysfs(name)}/size", f"{sysfs(name)}/queue/max_hw_sectors_kb")
        (device,) = await node.carry_out(file, go_on=True)
        there = {"size": int(size or 0), "queue in sysfs": largest is not None, f"file /dev/{name}": device.there}
        if all(there.values()):
            return there["size"] * _SECTOR
        if asyncio.get_running_loop().time() > deadline:
            lacks = " and ".join(f"no {what}" for what, is_there in there.items() if not is_there)
            raise TrialError(f"node {node.name}: the disk {name} is connected, but {patience:g} s later it has {lacks}")
        await asyncio.sleep(LOOK)
