"""Layer ``lvm``: a volume group on one disk or several, and the volume in it that is measured, see lvm(8).

Each command sees the group's disks and no other (``global_filter``), reads no configuration of the machine's, and
waits for no udev. A group's name bears the run's id, a physical volume has a UUID that run and nonce make. Undoing
needs no command of LVM's, which would look at disks that may be gone: what device mapper has of the group is removed.
"""

from __future__ import annotations

import secrets
import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import StorlabError
from storlab.base.reach import OwnName
from storlab.base.units import Size, power_of_two, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import mapper
from storlab.layers.block.identity import Fingerprint, refuse_another
from storlab.layers.block.lvm_parts import DATA, POOL, SNAPSHOT, Cache, Lvm, Snapshots, Thin, Vdo, chosen
from storlab.layers.block.queue import queue_facts
from storlab.layers.fs.mkfs import filesystem_uuid, forget_signature
from storlab.layers.resources import Disk
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import AbsolutePath, Nonce, RunId, RunName, undo

Type = Literal["linear", "striped", "mirror", "raid0", "raid1", "raid4", "raid5", "raid6", "raid10", "thin", "vdo"]
_STRIPED = ("striped", "raid0", "raid4", "raid5", "raid6", "raid10")
_MIRRORED = ("mirror", "raid1", "raid10")
_PARITY = {"raid4": 1, "raid5": 1, "raid6": 2}
_FEWEST_STRIPES = {"raid4": 2, "raid5": 2, "raid6": 3}
_MODULES: Mapping[str, tuple[str, ...]] = {
    "mirror": ("dm_mirror",), "thin": ("dm_thin_pool",), "vdo": ("dm_vdo",),
    **dict.fromkeys(("raid0", "raid1", "raid4", "raid5", "raid6", "raid10"), ("dm_raid",)),
}  # fmt: skip
_REMOVE = r"""
prefix=$(printf %s "$1" | sed 's/-/--/g')-
left() {
    dmsetup info --columns --noheadings --separator ' ' --options open,name 2> /dev/null | grep "^[0-9]* $prefix"
}
export DM_DISABLE_UDEV=1
[ -n "$(left)" ] || [ -e "/dev/$1" ] || exit 0
tries=50
while [ -n "$(left)" ] && [ "$tries" -gt 0 ]; do  # those go first that nothing stands on
    for name in $(left | sed -n 's/^0 //p'); do dmsetup remove --retry "$name" > /dev/null && continue 2; done
    tries=$((tries - 1))
    sleep 0.1
done
for name in $(left | cut -d ' ' -f 2); do dmsetup remove --force "$name"; done > /dev/null 2>&1
rm -rf -- "/dev/$1"
[ -z "$(left)" ] && echo gone
"""

_RESUME = r"""
prefix=$(printf %s "$1" | sed 's/-/--/g')-
dmsetup info --columns --noheadings --separator ' ' --options suspended,name 2> /dev/null |
    sed -n "s/^Suspended \($prefix\)/\1/p" | while read -r name; do
    DM_DISABLE_UDEV=1 dmsetup resume "$name" && echo resumed
done
"""


@undo("lvm.remove")
async def remove_group(node: Node, name: RunName) -> str | None:
    """Remove all disks of device mapper that are volumes of the group. What still waits for them fails."""
    ended = await node.run(["sh", "-c", _REMOVE, "remove", name], check=False)
    if not ended.ok:
        raise StorlabError(f"node {node.name}: volumes of {name} are still in use, and were not removed")
    return f"removed the volumes of {name}" if ended.stdout.strip() else None


@undo("lvm.resume")
async def resume_group(node: Node, name: RunName) -> str | None:
    """Let a volume go on that was suspended to take a snapshot of it, which may be half made."""
    return f"resumed volumes of {name}" if await node.output("sh", "-c", _RESUME, "resume", name) else None


@undo("lvm.forget", outlives_boot=True, proof="itself")
async def forget_member(
    node: Node, device: AbsolutePath, run: RunId, nonce: Nonce, was: Fingerprint = ""
) -> str | None:
    """Wipe the mark of a physical volume that Storlab made on a device of the user's: by its UUID, or not at all."""
    return await forget_signature(node, device, was, member_uuid(run, nonce), "physical volume")


def member_uuid(run: str, nonce: str) -> str:
    """As LVM writes it: ``012345-6789-abcd-ef01-2345-6789-abcdef``."""
    digits = filesystem_uuid(run, nonce).replace("-", "")
    ends = (0, 6, 10, 14, 18, 22, 26, 32)
    return "-".join(digits[begin:end] for begin, end in pairwise(ends))


@dataclass(frozen=True)
class Volume(Disk):
    """A disk that is a volume. ``members``: paths of all disks of its group."""

    members: tuple[str, ...] = ()


class LvmLayer(Layer[Disk | None, Disk]):
    """A logical volume, in a group of the underlying disk and those of further chains."""

    layer: Literal["lvm"] = "lvm"
    type: Type = Field(
        "linear",
        description="How the volume lies on the disks; `thin`: in a pool that gives it room when it is written.",
    )
    disks: tuple[OwnName, ...] = Field((), description="Further chains of the node whose disks are in the group.")
    size: Size | None = Field(
        None, gt=0, description="Of the volume; by default all that is free. `thin`, `vdo`: what it seems to have."
    )
    stripes: int | None = Field(
        None, ge=1, le=64, description="Disks that data are spread over; by default as many as there are."
    )
    stripe_size: Annotated[Size, power_of_two("stripe_size", 4096, 512 * 1024**2)] | None = Field(
        None, description="What lies on one disk before the next; LVM's default is 64k."
    )
    mirrors: int | None = Field(None, ge=1, le=8, description="Further copies; LVM's default is 1.")
    extent: Annotated[Size, power_of_two("extent", 4096, 1024**3)] | None = Field(
        None, description="What room is given out in; LVM's default is 4M."
    )
    thin: Thin | None = Field(None, description="The pool of a `thin` volume.")
    vdo: Vdo | None = Field(None, description="The pool of a `vdo` volume.")
    cache: Cache | None = Field(None, description="A cache of the volume on faster disks.")
    snapshots: Snapshots | None = Field(
        None, description="Snapshots of the volume that are taken right before the load or while it runs."
    )

    further: ClassVar = (Disk,)
    overwrites: ClassVar = True
    compared: ClassVar = tuple(
        f"volumes.*.{name}"
        for name in ("type", "stripes", "stripe_size", "chunk_size", "discards", "zero", "cache_mode", "cache_policy")
    )
    undoes: ClassVar = (remove_group, resume_group, forget_member)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        only = {
            "stripes": (self.stripes is not None, _STRIPED),
            "stripe_size": (self.stripe_size is not None, _STRIPED),
            "mirrors": (self.mirrors is not None, _MIRRORED),
            "thin": (self.thin is not None, ("thin",)),
            "vdo": (self.vdo is not None, ("vdo",)),
        }
        for key, (given, types) in only.items():
            if given and self.type not in types:
                raise ValueError(f"{key} is for type {' or '.join(types)}, not for {self.type}")
        if self.stripes is not None and self.stripes < _FEWEST_STRIPES.get(self.type, 1):
            raise ValueError(f"type {self.type} has at least {_FEWEST_STRIPES[self.type]} stripes, not {self.stripes}")
        if self.type == "raid10" and self.mirrors not in (None, 1):
            raise ValueError("type raid10 has two copies: write mirrors = 1, or leave it out")
        if self.type == "vdo" and self.size is None:
            raise ValueError('type vdo needs a size that the volume seems to have, such as size = "10G"')
        if self.type in ("thin", "vdo") and self.cache is not None:
            raise ValueError(f"cache is not for type {self.type}")
        if self.snapshots is not None:
            self._check_snapshots(self.snapshots)
        return self

    def _check_snapshots(self, snapshots: Snapshots) -> None:
        if self.type == "thin":
            if snapshots.size is not None or snapshots.chunk is not None:
                raise ValueError(
                    "snapshots of a thin volume lie in its pool and have its chunks: leave out size, chunk"
                )
        elif self.type == "vdo" or self.cache is not None:
            raise ValueError("snapshots are not for a vdo volume or one with a cache")
        elif snapshots.size is None or self.size is None:
            raise ValueError(
                "snapshots that are not thin need room beside the volume: write size of the volume and snapshots.size, "
                "how much of it may change"
            )

    def label(self) -> str:
        parts = {"cache": self.cache, "snapshots": self.snapshots}
        return " ".join(["lvm", self.type, *(each.label() for each in parts.values() if each is not None)])

    def needs(self) -> Needs:
        return mapper.needs(*self._modules(), programs=("lvm", "wipefs", "blkid"))

    def _modules(self) -> tuple[str, ...]:
        cache = () if self.cache is None else self.cache.modules()
        old = () if self.snapshots is None or self.type == "thin" else ("dm_snapshot",)
        return (*_MODULES.get(self.type, ("dm_mod",)), *cache, *old)

    def capacity(self) -> int | None:
        return self.size

    def chains(self) -> tuple[str, ...]:
        return (*self.disks, *(self.cache.disks if self.cache is not None else ()))

    def check_sizes(self, below: Sequence[int | None], others: Mapping[str, Sequence[int | None]]) -> str | None:
        sizes = [*below, *(size for name in self.disks for size in others[name])]
        fewest = max(1, self._legs(self.stripes or _FEWEST_STRIPES.get(self.type, 2)))
        if len(sizes) < fewest:
            return f"type {self.type} takes at least {fewest} disks, and has {len(sizes)}"
        known = [size for size in sizes if size is not None]
        if self.type in ("thin", "vdo") or self.size is None or len(known) < len(sizes):
            return None
        stripes = self._stripes(len(sizes))
        kept = 0 if self.snapshots is None else self.snapshots.count * (self.snapshots.size or 0)
        needed = self.size * self._legs(stripes) // (stripes if self.type in _STRIPED else 1) + kept
        if needed > sum(known):
            return f"it takes up {size_text(needed)}, and its disks have {size_text(sum(known))}"
        return None

    def _stripes(self, disks: int) -> int:
        if self.stripes is not None or self.type not in _STRIPED:
            return self.stripes or 1
        return disks // 2 if self.type == "raid10" else disks - _PARITY.get(self.type, 0)

    def _legs(self, stripes: int) -> int:
        """How many disks a volume with so many stripes takes at least."""
        copies = 1 + (self.mirrors or 1) if self.type in _MIRRORED else 1
        return (stripes if self.type in _STRIPED else 1) * copies + _PARITY.get(self.type, 0)

    async def set_up(self, below: Disk | None, context: LayerContext) -> Disk:
        node, name = context.node, group_of(context)
        members = self._members(below, context)
        fast = self._disks(self.cache.disks if self.cache is not None else (), context)
        disks = members[: len(members) - len(fast)]
        nonces = {disk.path: secrets.token_hex(16) for disk in members}
        for disk in members:
            await refuse_another(node, disk.path, disk.device)
            if not disk.ours:
                forget = {"device": disk.path, "run": context.run, "nonce": nonces[disk.path], "was": disk.fingerprint}
                await context.register_undo("lvm.forget", **forget)
        await context.register_undo("lvm.remove", name=name)
        await load_modules(node, "dm_mod", *self._modules())
        lvm = Lvm(node, [*nonces], self.vdo.allocation() if self.vdo is not None else "")
        for path, nonce in nonces.items():
            await lvm.run("pvcreate", "-ff", "--norestorefile", "--uuid", member_uuid(context.run, nonce), path)
        # No host's udev is to activate what a run left behind.
        extent = chosen({"--physicalextentsize": self.extent})
        await lvm.run("vgcreate", "--setautoactivation", "n", "--addtag", "storlab", *extent, name, *nonces)
        await self._create(lvm, name, [disk.path for disk in disks])
        if self.cache is not None:
            for words in self.cache.commands(name, [disk.path for disk in fast]):
                await lvm.run(*words)
        data = await mapper.kernels_name(node, f"{name.replace('-', '--')}-{DATA}")
        ours = all(disk.ours for disk in members)
        size = await mapper.size_of(node, data)
        return Volume(node.name, f"/dev/{data}", size, ours=ours, members=tuple(nonces))

    def _members(self, below: Disk | None, context: LayerContext) -> list[Disk]:
        """All disks of its group, those of the cache last."""
        return [*([] if below is None else [below]), *self._disks(self.chains(), context)]

    @staticmethod
    def _disks(chains: Sequence[str], context: LayerContext) -> list[Disk]:
        return [each for name in chains for each in context.others[name] if isinstance(each, Disk)]

    async def _create(self, lvm: Lvm, group: str, disks: Sequence[str]) -> None:
        room = ("--size", f"{self.size}b") if self.size is not None else ("--extents", "100%PVS")
        head = ("lvcreate", "--name", DATA)
        if self.type == "thin":
            thin = self.thin or Thin()
            await lvm.run(*thin.command(group, disks))
            size = self.size or (await lvm.volumes(group))[POOL]["size"]
            await lvm.run(*head, "--type", "thin", "--virtualsize", f"{size}b", "--thinpool", POOL, group)
            return
        if self.type == "vdo":
            await lvm.run(*(self.vdo or Vdo()).command(group, self.size or 0, disks))
            return
        stripes = self._stripes(len(disks)) if self.type in _STRIPED else None
        shape = chosen({"--stripes": stripes, "--stripesize": self.stripe_size, "--mirrors": self._mirrors()})
        # New members need no resync, see md; LVM refuses that for raid6 alone.
        clean = ("--nosync",) if self.type in ("mirror", "raid1", "raid4", "raid5", "raid10") else ()
        await lvm.run(*head, "--type", self.type, *room, *shape, *clean, group, *disks)
        if self.type == "raid6":
            await lvm.until_synchronised(group)

    def _mirrors(self) -> int | None:
        return (self.mirrors or 1) if self.type in _MIRRORED else None

    def moments(self) -> tuple[float, ...]:
        return () if self.snapshots is None else (self.snapshots.after,)

    async def midway(self, below: Disk | None, context: LayerContext) -> Sequence[Sequence[str]]:
        assert self.snapshots is not None, "else there is no such moment"
        group, lvm = group_of(context), Lvm(context.node, [disk.path for disk in self._members(below, context)])
        # Should one be killed while it is taken, the volume would stay suspended, and all that is above it wait.
        await context.register_undo("lvm.resume", name=group)
        for old in await lvm.volumes(group):
            if old.startswith(SNAPSHOT):
                await lvm.run("lvremove", f"{group}/{old}")
        takes = [lvm.words(*words) for words in self.snapshots.commands(group)]
        if self.snapshots.after > 0:
            return [["sh", "-ec", "\n".join(map(shlex.join, takes))]]
        for words in takes:
            await context.node.run(words)
        return [["true"]]  # it is done

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, Volume)
        group = group_of(context)
        volumes = await Lvm(context.node, resource.members).volumes(group)
        return {"volumes": volumes, **await queue_facts(context.node, resource)}


def group_of(context: LayerContext) -> str:
    whose = f"{context.scratch} {context.owner} {context.position}"
    return f"storlab-{context.run}-{zlib.crc32(whose.encode()):08x}"
