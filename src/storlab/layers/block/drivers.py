"""Layers ``zram``, ``null-blk`` and ``scsi-debug``: disks that drivers of the kernel make of memory or of nothing.

Their drivers are loaded without a disk, and stay loaded, but for scsi_debug, which is its own disk. A disk of null_blk
bears the run's name; one of zram can't, and is known by its number and the kernel's sequence number of disks; that of
scsi_debug by the product that it says it is.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta
from pydantic import Field, model_validator

from storlab.base.errors import CommandFailed, StorlabError, TrialError, Unsupported, UserError
from storlab.base.text import number_or_text
from storlab.base.units import Duration, Size, power_of_two, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.identity import identify
from storlab.layers.block.queue import queue_facts, sysfs
from storlab.layers.block.use import user_of
from storlab.layers.fs.mkfs import filesystem_uuid
from storlab.layers.net.configfs import CONFIGFS, configure, mount_configfs, settings
from storlab.layers.resources import Disk
from storlab.model import Model
from storlab.nodes.agent import steps
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.settings import in_use
from storlab.nodes.undo import Nonce, RunId, RunName, undo

_MIB = 1024**2
_NANOSECONDS = 1e9
_ZONES = ("zoned", "chunk_sectors", "nr_zones", "max_open_zones", "max_active_zones")
WholeMiB = Annotated[Size, Field(ge=_MIB, multiple_of=_MIB)]
_Sector = Annotated[Size, power_of_two("sector size", 512, 4096)]
_Small = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Zones(Model):
    """The zones of a disk that is written to in order, as shingled disks and ZNS are."""

    size: Annotated[WholeMiB, power_of_two("zone", _MIB, 2**40)] = Field(description="Of each: a power of two.")
    conventional: int = Field(0, ge=0, le=65536, description="How many, the first, may be written to anywhere.")
    max_open: int = Field(0, ge=0, le=65536, description="How many can be open at a time; 0: all.")


class _DriverLayer(Layer[None, Disk]):
    size: WholeMiB = Field(description="Size of the disk, in whole M.")
    sector_size: _Sector = Field(512, description="Logical sector size: a power of two from 512 to 4k.")
    latency: Duration = Field(0.0, ge=0, le=60, description="How long each request takes at least.")
    zones: Zones | None = Field(None, description='Make it a zoned disk: `{ size = "16M", conventional = 4 }`.')

    compared: ClassVar = ("driver.*", "zones.*")

    @model_validator(mode="after")
    def _zones_fit(self) -> Self:
        if self.zones is not None and self.size < self.zones.size * (self.zones.conventional + 1):
            raise ValueError(f"zones: {size_text(self.size)} has no room for one zone that is written to in order")
        return self

    def capacity(self) -> int | None:
        return self.size

    async def _disk(self, node: Node, path: str) -> Disk:
        sectors = int(await node.read_text(f"{sysfs(path.removeprefix('/dev/'))}/size"))
        return Disk(node.name, path, sectors * 512, ours=True)

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        folder = f"{sysfs(resource.name)}/queue"
        said = zip(_ZONES, await context.node.texts(*(f"{folder}/{name}" for name in _ZONES)), strict=True)
        zones = {name: number_or_text(value) for name, value in said if value}
        driver = await self._driver(resource, context.node)
        found = {"driver": driver, **({"zones": zones} if zones.get("zoned") not in (None, "none") else {})}
        return {**found, **await queue_facts(context.node, resource)}

    @abstractmethod
    async def _driver(self, resource: Disk, node: Node) -> dict[str, Any]:
        """What the driver itself says of the disk."""


# null_blk: Documentation/block/null_blk.rst in the kernel's sources.

_NULL_BLK = f"{CONFIGFS}/nullb"
_MOST = 256  # disks of a run: more would take a name that the kernel cuts off (DISK_NAME_LEN)


@undo("null-blk.remove")
async def remove_null_blk(node: Node, name: RunName) -> str | None:
    """Remove a disk of null_blk, which would also vanish under those who use it."""
    folder = f"{_NULL_BLK}/{name}"
    (there,) = await node.carry_out(steps.look(folder), go_on=True)
    if not there.there:
        return None
    try:
        user = await user_of(node, await identify(node, f"/dev/{name}"))
    except UserError:
        user = None  # it was never switched on
    if user is not None:
        raise StorlabError(f"node {node.name}: {user}: the disk {name} stays")
    await configure(node, *settings(folder, {"power": 0}), steps.remove_directory(folder))
    return f"removed {name}"


class NullBlkLayer(_DriverLayer):
    """A disk without a medium: it answers at once, or after a set time, and keeps what is written in memory, or not."""

    layer: Literal["null-blk"] = "null-blk"
    memory: bool = Field(True, description="Keep what is written; false: forget it, and read zeros.")
    queue_mode: Literal["bio", "multi-queue"] = Field(
        "multi-queue", description="`bio`: past the kernel's queues, without a scheduler."
    )
    queues: int = Field(1, ge=1, le=64, description="Queues that requests are submitted to.")
    depth: int = Field(64, ge=1, le=4096, description="Requests in flight in each queue.")
    bandwidth: WholeMiB | None = Field(None, description="Bytes a second at most, in whole M.")
    cache: WholeMiB | None = Field(None, description="Have a volatile write cache of this size, which flushes empty.")

    undoes: ClassVar = (remove_null_blk,)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.cache and not self.memory:
            raise ValueError("cache keeps what is written until it is flushed: leave out memory = false")
        if self.zones and self.queue_mode == "bio":
            raise ValueError("zones take queue_mode = multi-queue")
        return self

    def label(self) -> str:
        kind = ("memory" if self.memory else "") + (" zoned" if self.zones else "")
        return f"null-blk {kind}".strip()

    def needs(self) -> Needs:
        return Needs(("modprobe", "mount"), modules=("null_blk",), root="disks of the kernel's own")

    async def set_up(self, below: None, context: LayerContext) -> Disk:
        node = context.node
        (loaded,) = await node.carry_out(steps.look("/sys/module/null_blk"), go_on=True)
        if not loaded.there:
            await node.run(["modprobe", "null_blk", "nr_devices=0"])
        await mount_configfs(node, "nullb")
        async with node.lock("null_blk"):
            (made,) = await node.carry_out(steps.names(_NULL_BLK))
            free = (f"storlab-{context.run}-{number:x}" for number in range(_MOST))
            name = next((each for each in free if each not in made.entries), None)
            if name is None:
                raise TrialError(f"node {node.name}: a run can have {_MOST} disks of null_blk, and has them")
            await context.register_undo("null-blk.remove", name=name)
            await node.carry_out(steps.make_directory(f"{_NULL_BLK}/{name}"))
        wanted = self._settings()
        try:
            await configure(node, *settings(f"{_NULL_BLK}/{name}", wanted | {"power": 1}))
        except CommandFailed as error:
            raise Unsupported(f"null_blk does not take it: {error}") from None
        disk = await self._disk(node, f"/dev/{name}")
        found = await self._driver(disk, node)
        if differs := [
            f"{key} is {found.get(key)}, not {value}" for key, value in wanted.items() if found.get(key) != value
        ]:
            raise Unsupported(f"null_blk does not take it: {', '.join(differs)}")
        return disk

    def _settings(self) -> dict[str, int]:
        zones = self.zones
        zoned = {} if zones is None else {
            "zoned": 1, "zone_size": zones.size // _MIB, "zone_nr_conv": zones.conventional,
            "zone_max_open": zones.max_open,
        }  # fmt: skip
        late = {"irqmode": 2, "completion_nsec": round(self.latency * _NANOSECONDS)} if self.latency else {"irqmode": 0}
        return {
            "size": self.size // _MIB, "blocksize": self.sector_size, "memory_backed": int(self.memory),
            "queue_mode": 0 if self.queue_mode == "bio" else 2, "submit_queues": self.queues,
            "hw_queue_depth": self.depth, "discard": int(self.memory and zones is None), **late, **zoned,
            **({"mbps": self.bandwidth // _MIB} if self.bandwidth else {}),
            **({"cache_size": self.cache // _MIB} if self.cache else {}),
        }  # fmt: skip

    async def _driver(self, resource: Disk, node: Node) -> dict[str, Any]:
        names = tuple(self._settings())
        said = await node.texts(*(f"{_NULL_BLK}/{resource.name}/{name}" for name in names))
        return {name: number_or_text(value) for name, value in zip(names, said, strict=True) if value is not None}


# scsi_debug: drivers/scsi/scsi_debug.c. Its parameters are the module's, so a machine has one such disk at a time.

_SCSI_DEBUG = "/sys/module/scsi_debug"
_PRODUCT = f"{_SCSI_DEBUG}/parameters/inq_product"
_APPEARS = 10.0  # s


def _product(run: str, nonce: str) -> str:
    """What the disk says it is, in the 16 bytes of SCSI's INQUIRY."""
    return f"sl{filesystem_uuid(run, nonce).replace('-', '')[:14]}"


@undo("scsi-debug.unload", proof="itself")
async def unload_scsi_debug(node: Node, run: RunId, nonce: Nonce) -> str | None:
    """Unload the driver, if it is the one that Storlab loaded."""
    (product,) = await node.texts(_PRODUCT)
    if (product or "").strip() != _product(run, nonce):
        return None
    await node.run(["modprobe", "--remove", "scsi_debug"])
    return "unloaded scsi_debug"


class ScsiDebugLayer(_DriverLayer):
    """A SCSI disk in memory. A machine has one at a time, for its driver has one set of parameters."""

    layer: Literal["scsi-debug"] = "scsi-debug"
    atomic_writes: bool = Field(False, description="Write whole or not at all, as Linux knows it from 6.11 on.")
    discard: bool = Field(False, description="Allow discards: thin provisioning.")

    undoes: ClassVar = (unload_scsi_debug,)

    def label(self) -> str:
        return "scsi-debug zoned" if self.zones else "scsi-debug"

    def needs(self) -> Needs:
        return Needs(("modprobe",), modules=("sd_mod", "scsi_debug"), root="disks of the kernel's own")

    async def set_up(self, below: None, context: LayerContext) -> Disk:
        node, nonce = context.node, secrets.token_hex(16)
        await load_modules(node, "sd_mod")
        product = _product(context.run, nonce)
        async with node.lock("scsi_debug"):
            (loaded,) = await node.carry_out(steps.look(_SCSI_DEBUG), go_on=True)
            if loaded.there:
                raise Unsupported(
                    "scsi_debug is loaded already, with parameters that may be somebody else's, and there is one such "
                    "disk at a time: `modprobe -r scsi_debug`, if nobody uses it"
                )
            await context.register_undo("scsi-debug.unload", run=context.run, nonce=nonce)
            given = self._parameters() | {"inq_product": product}
            await node.run(["modprobe", "scsi_debug", *(f"{name}={value}" for name, value in given.items())])
        disk = await self._disk(node, f"/dev/{await _of_product(node, product)}")
        if self.atomic_writes:
            (most,) = await node.texts(f"{sysfs(disk.name)}/queue/atomic_write_unit_max_bytes")
            if (most or "0").strip() == "0":
                raise Unsupported("this kernel's scsi_debug has no atomic writes, which takes Linux 6.11")
        return disk

    def _parameters(self) -> dict[str, int | str]:
        zones = self.zones
        zoned: dict[str, int | str] = {} if zones is None else {
            "zbc": "managed", "zone_size_mb": zones.size // _MIB, "zone_nr_conv": zones.conventional,
            "zone_max_open": zones.max_open,
        }  # fmt: skip
        late = {"ndelay": round(self.latency * _NANOSECONDS)} if self.latency else {"delay": 0}
        more = {"atomic_wr": self.atomic_writes, "lbpu": self.discard}
        given = {"dev_size_mb": self.size // _MIB, "sector_size": self.sector_size, **late, **zoned}
        return given | {name: 1 for name, wanted in more.items() if wanted}

    async def _driver(self, resource: Disk, node: Node) -> dict[str, Any]:
        names = tuple(self._parameters())
        said = await node.texts(*(f"{_SCSI_DEBUG}/parameters/{name}" for name in names))
        return {name: number_or_text(value) for name, value in zip(names, said, strict=True) if value is not None}


async def _of_product(node: Node, product: str) -> str:
    deadline = asyncio.get_running_loop().time() + _APPEARS
    while asyncio.get_running_loop().time() < deadline:
        (listed,) = await node.carry_out(steps.names("/sys/block"))
        disks = [name for name in listed.entries if name.startswith("sd")]
        models = await node.texts(*(f"/sys/block/{name}/device/model" for name in disks))
        for name, model in zip(disks, models, strict=True):
            if (model or "").strip() == product:
                (there,) = await node.carry_out(steps.look(f"/dev/{name}"), go_on=True)
                if there.there:
                    return name
        await asyncio.sleep(0.1)
    raise TrialError(f"node {node.name}: scsi_debug was loaded, and gives no disk within {_APPEARS:g} s")


# zram: Documentation/admin-guide/blockdev/zram.rst.

_CONTROL = "/sys/class/zram-control"
_REMOVE = r"""
disk=/sys/block/zram$1
[ "$(cat "$disk/diskseq" 2> /dev/null)" = "$2" ] || exit 0
[ "$3" = no ] || [ "$(cat "$disk/initstate")" = 0 ] || exit 0
echo "$1" > /sys/class/zram-control/hot_remove && echo removed
"""


@undo("zram.remove")
async def remove_zram(node: Node, number: _Small, sequence: _Small, unused: bool) -> str | None:
    """Remove a disk of zram, if it is still the same one. ``unused``: only while it has no size yet."""
    words = (str(number), str(sequence), "yes" if unused else "no")
    return f"removed zram{number}" if await node.output("sh", "-c", _REMOVE, "remove", *words) else None


class ZramLayer(Layer[None, Disk]):
    """A disk in memory that compresses what is written."""

    layer: Literal["zram"] = "zram"
    size: WholeMiB = Field(description="Size of the disk, of what is not compressed yet, in whole M.")
    algorithm: Literal["lzo", "lzo-rle", "lz4", "lz4hc", "zstd", "deflate", "842"] | None = Field(
        None, description="How it compresses; by default as the kernel does."
    )
    memory_limit: WholeMiB | None = Field(None, description="Memory that it takes at most; then writes fail.")

    compared: ClassVar = ("algorithm", "disksize", "memory_limit")
    undoes: ClassVar = (remove_zram,)

    def label(self) -> str:
        return f"zram {self.algorithm}" if self.algorithm else "zram"

    def needs(self) -> Needs:
        return Needs(("modprobe",), modules=("zram",), root="disks of the kernel's own")

    def capacity(self) -> int | None:
        return self.size

    async def set_up(self, below: None, context: LayerContext) -> Disk:
        node = context.node
        (loaded,) = await node.carry_out(steps.look(_CONTROL), go_on=True)
        if not loaded.there:
            await node.run(["modprobe", "zram", "num_devices=0"])
        async with node.lock("zram"):
            number = await _added(context)
        folder = f"/sys/block/zram{number}"
        (has,) = await node.texts(f"{folder}/comp_algorithm")
        if self.algorithm is not None and self.algorithm not in (has or "").replace("[", "").replace("]", "").split():
            raise Unsupported(f"this kernel's zram has no {self.algorithm}, but {' '.join((has or '').split())}")
        wanted: dict[str, object] = {} if self.algorithm is None else {"comp_algorithm": self.algorithm}
        wanted["disksize"] = self.size
        if self.memory_limit is not None:
            wanted["mem_limit"] = self.memory_limit
        await configure(node, *settings(folder, wanted))
        return Disk(node.name, f"/dev/zram{number}", self.size, ours=True)

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        folder = sysfs(resource.name)
        names = ("comp_algorithm", "disksize", "mm_stat")
        algorithm, size, memory = await context.node.texts(*(f"{folder}/{name}" for name in names))
        limit = (memory or "").split()[3:4]
        return {
            "algorithm": in_use(algorithm or ""),
            "disksize": number_or_text((size or "").strip()),
            **({"memory_limit": number_or_text(limit[0])} if limit else {}),
            **await queue_facts(context.node, resource),
        }


async def _added(context: LayerContext) -> int:
    """The number of a new disk. What the kernel will give it is foretold, and journalled, before it is asked for."""
    node = context.node
    (listed,) = await node.carry_out(steps.names("/sys/block"))
    sequences = await node.texts(*(f"/sys/block/{name}/diskseq" for name in listed.entries))
    following = 1 + max(int(each) for each in sequences if each)
    free = next(number for number in range(len(listed.entries) + 1) if f"zram{number}" not in listed.entries)
    await context.register_undo("zram.remove", number=free, sequence=following, unused=True)
    number = int(await node.read_text(f"{_CONTROL}/hot_add"))
    sequence = int(await node.read_text(f"/sys/block/zram{number}/diskseq"))
    await context.register_undo("zram.remove", number=number, sequence=sequence, unused=False)
    return number
