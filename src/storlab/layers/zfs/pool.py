"""Layer ``zpool``: a storage pool of ZFS, see zpool-create(8) and zpoolconcepts(7).

Given ``/dev/vdb``, ``zpool create`` makes a partition table and waits until udev has linked its first partition. Guests
run no udev, so that it fails there after half a minute. A device node of another name it does not take for a whole disk
(``efi_get_info`` in OpenZFS's lib/libefi/rdwr_efi.c), and so puts its labels on the disk itself.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import TrialError
from storlab.base.reach import Choice, KernelSetting, OwnName
from storlab.base.units import Size, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.identity import Fingerprint, own_signatures, refuse_another
from storlab.layers.block.loop import signatures
from storlab.layers.fs.files import remove_file
from storlab.layers.resources import Dir, Disk, File, Pool
from storlab.layers.zfs.module import (
    PROPERTIES_HELP,
    ZFS_NEEDS,
    Property,
    Value,
    allocator_facts,
    arguments,
    forget_wanted,
    is_loaded,
    load_zfs,
    module_facts,
    parameter_text,
    parse_properties,
    refuse_out_of_range,
    refuse_unlisted,
    restore_parameter,
    word,
)
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import AbsolutePath, RunName, RunPath, is_there, refuse_foreign_pool, undo, until_free

# Delays of a pool's disks that ZFS itself makes, by zinject(8): ``ZINJECT_DELAYS`` of OpenZFS's tests/perf.
#
# A pool with injections can't be destroyed or exported (``spa_inject_addref`` in module/zfs/spa_misc.c), so they are
# withdrawn first, whatever injected them.

Delay = Annotated[Choice, Field(pattern=r"^[1-9][0-9]{0,5}:[1-9][0-9]{0,3}$")]
"""Milliseconds that a request takes at least, and how many are let through at once."""

DELAY_NEEDS = Needs(programs=("zinject",))
_ROW = re.compile(r"^\s*(\d+)\s+(\S+)\s", re.MULTILINE)


async def delay(node: Node, pool: str, disks: Sequence[str], delays: Sequence[str]) -> None:
    """Delay each of the disks by all of these. Raises ``TrialError`` where ZFS has not taken them all."""
    if not delays:
        return
    for each in delays:
        for disk in disks:
            await node.run(["zinject", "-d", disk, "-D", each, pool])
    wanted, found = len(delays) * len(disks), len(await injections(node, pool))
    if found != wanted:
        raise TrialError(f"node {node.name}: ZFS delays {found} of {wanted} times that were asked for")


async def injections(node: Node, pool: str) -> list[str]:
    listed = await node.run(["zinject"], check=False)
    return numbers_of(listed.stdout.decode(errors="replace"), pool) if listed.ok else []


def numbers_of(listing: str, pool: str) -> list[str]:
    """``zinject`` without arguments: tables of handlers, whose first columns are a number and a pool."""
    return [number for number, name in _ROW.findall(listing) if name == pool]


async def withdraw(node: Node, pool: str) -> None:
    """Take back all that was injected into a pool."""
    for number in await injections(node, pool):
        await node.run(["zinject", "-c", number], check=False)


@undo("zpool.forget", outlives_boot=True)
async def forget_labels(node: Node, device: AbsolutePath, pool: RunName, was: Fingerprint = "") -> str | None:
    """Wipe the labels of a pool of Storlab's, which ``zpool destroy`` only marks, from a device of the user's."""
    refuse_foreign_pool(pool)

    def types_of(listing: bytes) -> list[str]:
        return [_MEMBER] if is_only_member(listing, pool) else []

    found = await own_signatures(node, device, was, f"LABEL={pool}", types_of)
    if found is None:
        return None
    device, types = found
    # Exclusively: it fails, and so stays pending, should the pool still be imported.
    await node.run(["wipefs", "--all", "--quiet", "--types", ",".join(types), device])
    return f"wiped the labels of the pool {pool} from {device}"


@undo("zpool.node", order=5)
async def remove_device_node(node: Node, path: RunPath) -> str | None:
    if not await is_there(node, path):
        return None
    await node.run(["rm", "--force", "--", path])
    await node.run(["rmdir", "--ignore-fail-on-non-empty", "--", path.rpartition("/")[0]], check=False)
    return f"removed the device node {path}"


async def pool_disk(disk: Disk, pool: str, context: LayerContext) -> str:
    """A device node for the disk that is Storlab's own. In ``/dev``: other file systems may be mounted without any."""
    path = f"/dev/{pool}/{disk.name}"
    if not disk.ours:
        await context.register_undo("zpool.forget", device=disk.path, pool=pool, was=disk.fingerprint)
    await context.register_undo("zpool.node", path=path)
    await refuse_another(context.node, disk.path, disk.device)
    major, minor = (await context.node.read_text(f"/sys/class/block/{disk.name}/dev")).strip().split(":")
    await context.node.run(["mkdir", "--parents", "--", path.rpartition("/")[0]])
    await context.node.run(["rm", "--force", "--", path])
    await context.node.run(["mknod", "--mode=0600", path, "b", major, minor])
    return path


def is_only_member(listing: bytes, pool: str) -> bool:
    """Whether all labels of ZFS that ``wipefs --json`` shows, of which there is at least one, are of this pool."""
    names = [row.label for row in signatures(listing) if row.type == _MEMBER]
    return bool(names) and all(name == pool for name in names)


_MEMBER = "zfs_member"
_VDEV = re.compile(r"\t( *)(\S.*)")
_STATE = re.compile(r"(?<=\S)\s+(ONLINE|DEGRADED|FAULTED|OFFLINE|UNAVAIL|REMOVED|AVAIL|INUSE)\b")
_LAYOUT = re.compile(r"stripe|mirror|raidz[123]?|draid[123]?(:\d+[dcs])*")
_FEWEST = {"stripe": 1, "mirror": 2, "raidz": 3, "raidz1": 3, "raidz2": 4, "raidz3": 5}
_SMALLEST = 64 * 1024**2  # SPA_MINDEVSIZE of ZFS


@undo("zpool.destroy", order=2, outlives_boot=True)
async def _destroy(node: Node, pool: RunName) -> str | None:
    refuse_foreign_pool(pool)
    forget_wanted(node, pool)
    pools = await node.output("zpool", "list", "-H", "-o", "name") if await is_loaded(node) else ""
    if pool not in pools.split("\n"):
        return None
    await withdraw(node, pool)
    if await until_free(node, ["zpool", "destroy", "-f", pool]):
        return f"destroyed the pool {pool}"
    await node.run(["zpool", "export", "-f", pool])  # at least nobody stumbles over it any more
    return f"exported the pool {pool}, which could not be destroyed"


class ZpoolLayer(Layer[Disk | File | Dir | None, Pool]):
    """A ZFS pool: on files that it makes, or on the underlying disk or file. Datasets and volumes go above it.

    The kernel module is loaded where it is not, and stays loaded.
    """

    layer: Literal["zpool"] = "zpool"
    layout: Choice = Field(
        "stripe", description="`stripe`, `mirror`, `raidz1` to `raidz3`, or a dRAID such as `draid2:4d:8c:1s`."
    )
    disks: int | None = Field(
        None, ge=1, le=255, description="How many files to make; without it, the fewest that the layout makes sense of."
    )
    vdevs: tuple[OwnName, ...] = Field((), description="Further chains of the node whose disks the pool is made of.")
    log: tuple[OwnName, ...] = Field((), description="Further chains whose disks become its separate log.")
    special: tuple[OwnName, ...] = Field((), description="Further chains whose disks hold metadata and small blocks.")
    size: Size | None = Field(None, description="Size of each of the files, which are sparse; at least 64M.")
    ashift: int | None = Field(None, ge=9, le=16, description="Smallest block, as a power of two: 12 is 4k.")
    properties: dict[Property, Value] = Field({}, description=f"Of the pool (zpool -o). {PROPERTIES_HELP}")
    dataset: dict[Property, Value] = Field(
        {}, description="Properties of its root dataset (zpool -O), which all above inherit."
    )
    delays: tuple[Delay, ...] = Field(
        (),
        max_length=8,
        description='Delays of its disks, by zinject(8): `"10:4"` holds each request for 10 ms, four at a time.',
    )
    module: dict[KernelSetting, Value] = Field(
        {},
        description="Parameters of the kernel module, such as `{ spa_num_allocators = 1 }` (true and false are 1 and "
        "0): set before the pool is made, restored afterwards. They count for all pools of the machine, so pools that "
        "exist at the same time must agree.",
    )

    overwrites: ClassVar = True
    compared: ClassVar = (
        "sources.*",
        "properties.ashift",
        "properties.autotrim",
        "version.*",
        "module.*",
        "allocators.effective",
        "delays",
    )
    flush: ClassVar = ("zpool", "sync")
    drop: ClassVar = ("zinject", "-a")  # the ARC gives the kernel only some of it
    undoes: ClassVar = (_destroy, forget_labels, remove_device_node, restore_parameter, remove_file)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not _LAYOUT.fullmatch(self.layout):
            raise ValueError(
                f"{self.layout} is no layout: stripe, mirror, raidz1, raidz2, raidz3, or a dRAID such as draid1:3d:1s"
            )
        fewest = 2 if self.layout.startswith("draid") else _FEWEST[self.layout] - self.layout.startswith("raidz")
        if self.disks is not None and self.disks < fewest:
            raise ValueError(f"a {self.layout} needs at least {fewest} disks, not {self.disks}")
        if self.layout.startswith("draid") and self.disks is None:
            raise ValueError("a dRAID needs the number of its disks, such as disks = 8")
        if self.size is not None and self.size < _SMALLEST:
            raise ValueError(f"size = {size_text(self.size)}: ZFS needs disks of at least 64M")
        refuse_out_of_range(self.module)
        for key, part in (("module", "module"), ("properties", "pool"), ("dataset", "dataset")):
            refuse_unlisted(part, getattr(self, key), key)
        return self

    def label(self) -> str:
        layout = "" if self.layout == "stripe" else f" {self.layout}"
        return f"zpool{layout}{f' sync={word(sync)}' if (sync := self.dataset.get('sync')) is not None else ''}"

    def needs(self) -> Needs:
        return ZFS_NEEDS | Needs(programs=("truncate", "wipefs")) | (DELAY_NEEDS if self.delays else Needs())

    def space(self) -> int:
        return self._count * self.size if self.size else 0

    @property
    def _count(self) -> int:
        return self.disks or _FEWEST[self.layout]

    def chains(self) -> tuple[str, ...]:
        return (*self.vdevs, *self.log, *self.special)

    def check_above(self, below: Layer | None) -> str | None:
        if self.vdevs:
            if below is not None:
                return f"vdevs name its disks, so it must be the lowest of its stack, but there is layer {below.layer}"
            return "vdevs name its disks, so it takes no size and no disks" if self.size or self.disks else None
        if below is None or issubclass(below.gives, Dir):
            return None if self.size else 'it needs the size of the files that it makes, such as size = "4G"'
        if below.file_format() != "raw":
            return f"ZFS takes a file as it is, and layer {below.layer} gives a {below.file_format()} file"
        if self.size is not None or self.disks is not None or self.layout != "stripe":
            return (
                f"layer {below.layer} gives it its one disk, so it takes no size, disks or layout: leave them out, or "
                "put nothing or an underlying directory"
            )
        return None

    async def set_up(self, below: Disk | File | Dir | None, context: LayerContext) -> Pool:
        pool = f"storlab-{context.run}-{context.owner}-{context.position}-{zlib.crc32(context.scratch.encode()):08x}"
        try:
            await load_zfs(context, pool, {name: parameter_text(value) for name, value in self.module.items()})
            await self._create(pool, below, context)
        except BaseException:
            forget_wanted(context.node, pool)  # it may not have come to where its destruction is journalled
            raise
        return Pool(context.node.name, pool)

    async def _create(self, pool: str, below: Disk | File | Dir | None, context: LayerContext) -> None:
        vdevs = await self._vdevs(below, context, pool)
        await context.register_undo("zpool.destroy", pool=pool)
        own: dict[str, Value] = {"cachefile": "none", **({"ashift": self.ashift} if self.ashift else {})}
        options = {**self.properties, **own}
        # Nothing is mounted for the pool itself; what somebody makes in it would be, in the scratch folder.
        dataset = {**self.dataset, "canmount": "off", "mountpoint": context.path("pool")}
        # What lies on a device of the user's was seen to by the layer ``device``; anything else is Storlab's own.
        force = [] if isinstance(below, Disk) and not below.ours else ["-f"]
        layout = [] if self.layout == "stripe" else [self.layout]
        for kind, names in (("log", self.log), ("special", self.special)):
            if names:
                vdevs += [kind, *await self._further(names, context, pool)]
        argv = ["zpool", "create", *force, *arguments("-o", options), *arguments("-O", dataset), pool]
        await context.node.run([*argv, *layout, *vdevs])
        await delay(context.node, pool, [each for each in vdevs if each not in ("log", "special")], self.delays)

    async def _vdevs(self, below: Disk | File | Dir | None, context: LayerContext, pool: str) -> list[str]:
        if self.vdevs:
            return await self._further(self.vdevs, context, pool)
        if isinstance(below, Disk):
            return [await pool_disk(below, pool, context)]
        if isinstance(below, File):
            return [below.path]
        paths = []
        for number in range(self._count):
            name = f"disk-{number}.img"
            paths.append(f"{below.path}/{context.owner}-{name}" if isinstance(below, Dir) else context.path(name))
            await context.register_undo("file.remove", path=paths[-1])
        await context.node.run(["truncate", "--size", str(self.size), "--", *paths])
        return paths

    async def _further(self, names: Sequence[str], context: LayerContext, pool: str) -> list[str]:
        vdevs = []
        for resource in (resource for name in names for resource in context.others[name]):
            if isinstance(resource, Disk):
                vdevs.append(await pool_disk(resource, pool, context))
            else:
                assert isinstance(resource, File), "checked when the study was loaded"
                vdevs.append(resource.path)
        return vdevs

    async def facts(self, resource: Pool, context: LayerContext) -> dict[str, Any]:
        pool = await context.node.output("zpool", "get", "-Hp", "-o", "property,value,source", "all", resource.name)
        dataset = await context.node.output("zfs", "get", "-Hp", "-o", "property,value,source", "all", resource.name)
        status = await context.node.output("zpool", "status", "-P", resource.name)
        module = await module_facts(context.node)
        return {
            "pool": resource.name,
            "layout": parse_layout(status),
            **parse_properties(pool),
            "dataset": parse_properties(dataset)["properties"],
            **({"delays": list(self.delays)} if self.delays else {}),
            "allocators": await allocator_facts(context.node, module["module"], self.module),
            **module,
        }


def parse_layout(status: str) -> dict[str, Any]:
    """``zpool status -P POOL``: its vdevs; those that hold others are mappings, the rest have a state."""
    lines = status.partition("config:")[2].partition("errors:")[0].split("\n")
    found = (match.groups() for line in lines if (match := _VDEV.fullmatch(line)))
    rows = [(len(blanks), *_name_and_state(rest)) for blanks, rest in found if rest.split()[0] != "NAME"]
    layout: dict[str, Any] = {}
    above = [(-1, layout), (0, layout)]  # indentation, what lies below; the first line is the pool itself
    for (indentation, name, state), following in zip(rows[1:], [*rows[2:], None], strict=False):
        while len(above) > 1 and above[-1][0] >= indentation:
            above.pop()
        if following is not None and following[0] > indentation:
            inner: dict[str, Any] = {}
            above[-1][1][name] = inner
            above.append((indentation, inner))
        else:
            above[-1][1][name] = state
    return layout


def _name_and_state(rest: str) -> tuple[str, str]:
    """Of a line of a vdev; names may have blanks, and groups have no state."""
    found = _STATE.search(rest)
    return (rest[: found.start()], found[1]) if found else (rest.rstrip(), "")
