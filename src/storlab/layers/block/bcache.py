"""Layer ``bcache``: a disk with a faster one as its cache (Documentation/admin-guide/bcache.rst of Linux).

A set is known by the UUID in the superblocks of both disks, which run and nonce make, as that of a file system. Disks
are registered by hand, for guests have no udev. What the cache still holds when it is torn down is given up.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from storlab.base.errors import TrialError
from storlab.base.reach import OwnName
from storlab.base.text import number_or_text
from storlab.base.units import Size, power_of_two, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import mapper
from storlab.layers.block.identity import Fingerprint, own_signatures, refuse_another
from storlab.layers.block.queue import put, queue_facts, sysfs
from storlab.layers.block.use import stopped
from storlab.layers.fs.mkfs import filesystem_uuid
from storlab.layers.resources import Disk
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.settings import in_use
from storlab.nodes.undo import AbsolutePath, Nonce, RunId, undo

_SHOW = "bcache-super-show"
_BUCKETS = 513  # at least: cache_alloc() in drivers/md/bcache/super.c
_REGISTER = r"""
set=$1 disk=${3##*/}
shift
for each; do echo "$each" > /sys/fs/bcache/register; done
tries=100
until [ -e "/sys/fs/bcache/$set" ] && [ "$(cat "/sys/class/block/$disk/bcache/state" 2> /dev/null)" != "no cache" ] &&
    made=$(readlink -f "/sys/class/block/$disk/bcache/dev") && [ -b "/dev/${made##*/}" ]; do
    [ $((tries -= 1)) -gt 0 ] || exit 1
    sleep 0.1
done
echo "${made##*/}"
"""
# Backing disks first: of a set that is stopped, they would go on without their cache.
_STOP = r"""
gone() {
    tries=100
    while [ -e "$1" ]; do
        [ $((tries -= 1)) -gt 0 ] || exit 1
        sleep 0.1
    done
    echo stopped
}
for each in /sys/class/block/*/bcache; do
    [ -e "$each/stop" ] || continue
    disk=${each%/bcache}
    bcache-super-show "/dev/${disk##*/}" 2> /dev/null | grep -Eq "^cset.uuid[[:space:]]+$1\$" || continue
    echo 1 > "$each/stop"
    gone "$each"
done
[ ! -e "/sys/fs/bcache/$1" ] || { echo 1 > "/sys/fs/bcache/$1/stop"; gone "/sys/fs/bcache/$1"; }
exit 0
"""


@undo("bcache.stop", proof="itself")
async def stop_set(node: Node, run: RunId, nonce: Nonce) -> str | None:
    """Stop the cache that Storlab made: by its UUID, or not at all."""
    return await stopped(node, _STOP, "cache", filesystem_uuid(run, nonce))


@undo("bcache.forget", outlives_boot=True, proof="itself")
async def forget_superblock(
    node: Node, device: AbsolutePath, run: RunId, nonce: Nonce, was: Fingerprint = ""
) -> str | None:
    """Wipe bcache's superblock from a device of the user's: by the UUID of its set, or not at all."""
    wanted = ["cset.uuid", filesystem_uuid(run, nonce)]

    def types_of(listing: bytes) -> list[str]:
        return ["bcache"] if wanted in [line.split() for line in listing.decode(errors="replace").splitlines()] else []

    found = await own_signatures(node, device, was, "TYPE=bcache", types_of, (_SHOW,))
    if found is None:
        return None
    await node.run(["wipefs", "--all", "--quiet", "--types", "bcache", found[0]])
    return f"wiped bcache's superblock from {found[0]}"


class BcacheLayer(Layer[Disk, Disk]):
    """The underlying disk with the disk of a further chain as its cache."""

    layer: Literal["bcache"] = "bcache"
    cache: OwnName = Field(description="The further chain whose disk is the cache.")
    mode: Literal["writethrough", "writeback", "writearound", "none"] = Field(
        "writethrough", description="What becomes of writes: to both; to the cache first; past it. `none`: no cache."
    )
    sequential_cutoff: Size | Literal[0] = Field(
        4 * 1024**2, description="What is read or written in a row beyond this goes past the cache; 0: nothing does."
    )
    writeback_percent: int = Field(10, ge=0, le=40, description="How much of the cache writeback leaves dirty.")
    bucket: Annotated[Size, power_of_two("bucket", 4096, 16 * 1024**2)] = Field(
        512 * 1024, description="What the cache is filled and emptied by."
    )
    congestion: bool = Field(
        False, description="Let requests go past a cache that is slow to answer, by the kernel's thresholds."
    )

    further: ClassVar = (Disk,)
    overwrites: ClassVar = True
    compared: ClassVar = ("cache_mode", "sequential_cutoff", "writeback_percent", "bucket_size", "block_size")
    undoes: ClassVar = (stop_set, forget_superblock)

    def label(self) -> str:
        return f"bcache {self.mode}"

    def needs(self) -> Needs:
        return Needs(("make-bcache", _SHOW, "modprobe", "wipefs", "blkid"), modules=("bcache",), root="caches of disks")

    def chains(self) -> tuple[str, ...]:
        return (self.cache,)

    def check_further(self, count: int) -> str | None:
        return None if count == 1 else f"takes one disk as its cache, and its chain has {count}"

    async def set_up(self, below: Disk, context: LayerContext) -> Disk:
        node, nonce = context.node, secrets.token_hex(16)
        (cache,) = (each for each in context.others[self.cache] if isinstance(each, Disk))
        if cache.size < _BUCKETS * self.bucket:
            few = f"bcache: the cache {cache.path} has {size_text(cache.size)}, and takes at least {_BUCKETS} buckets"
            raise TrialError(f"{few} of {size_text(self.bucket)}: make it larger, or the buckets smaller")
        for disk in (below, cache):
            await refuse_another(node, disk.path, disk.device)
            if not disk.ours:
                forget = {"device": disk.path, "run": context.run, "nonce": nonce, "was": disk.fingerprint}
                await context.register_undo("bcache.forget", **forget)
        await context.register_undo("bcache.stop", run=context.run, nonce=nonce)
        await load_modules(node, "bcache")
        uuid = filesystem_uuid(context.run, nonce)
        # What lies on a device of the user's was seen to by the layer ``device``; make-bcache refuses any signature.
        await node.run(["wipefs", "--all", "--quiet", below.path, cache.path])
        head = ["make-bcache", "--cset-uuid", uuid, "--bucket", size_text(self.bucket), "--wipe-bcache"]
        await node.run([*head, "-B", below.path, "-C", cache.path])
        made = await node.run(["sh", "-c", _REGISTER, "register", uuid, cache.path, below.path])
        name = made.stdout.decode().split()[-1]
        await put(node, f"{sysfs(name)}/bcache", self._settings())
        if not self.congestion:
            await put(node, f"/sys/fs/bcache/{uuid}", dict.fromkeys(_CONGESTION, "0"))
        return Disk(node.name, f"/dev/{name}", await mapper.size_of(node, name), ours=below.ours and cache.ours)

    def _settings(self) -> dict[str, str]:
        return {
            "cache_mode": self.mode,
            "sequential_cutoff": str(self.sequential_cutoff),
            "writeback_percent": str(self.writeback_percent),
        }

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        folder = f"{sysfs(resource.name)}/bcache"
        said = await context.node.texts(*(f"{folder}/{name}" for name in _SHOWN))
        found = {
            name.rpartition("/")[2]: number_or_text(in_use(value))
            for name, value in zip(_SHOWN, said, strict=True)
            if value
        }
        return {**found, **await queue_facts(context.node, resource)}


_CONGESTION = ("congested_read_threshold_us", "congested_write_threshold_us")
_SHOWN = (
    "cache_mode", "state", "sequential_cutoff", "writeback_percent", "dirty_data", "cache/bucket_size",
    "cache/block_size", "cache/congested_read_threshold_us", "cache/congested_write_threshold_us",
)  # fmt: skip
