"""Layer ``md``: disks joined by the kernel's software RAID (drivers/md of Linux), see mdadm(8).

An array is known by the UUID in its members' superblocks, which run and nonce make, as that of a file system. Devices
are numbered, for mdadm leaves links of other names behind where no udev takes them away. New members need no resync:
their contents are nobody's, and the parity of what is then written is right (``--assume-clean``). An array that is to
be rebuilt begins without its last disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.reach import OwnName
from storlab.base.text import number_or_text
from storlab.base.units import Size, power_of_two, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import mapper
from storlab.layers.block.identity import refuse_another
from storlab.layers.block.queue import put, queue_facts, sysfs
from storlab.layers.block.use import stopped
from storlab.layers.fs.mkfs import filesystem_uuid, forget_filesystem
from storlab.layers.resources import Disk
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import Nonce, RunId, undo

Level = Literal["0", "1", "4", "5", "6", "10"]
_FEWEST = {"0": 1, "1": 2, "4": 3, "5": 3, "6": 4, "10": 2}
_MODULES = {"0": "raid0", "1": "raid1", "10": "raid10", "4": "raid456", "5": "raid456", "6": "raid456"}
_PARITY = ("4", "5", "6")
_LOCK = "md"
_STOP = r"""
for each in /sys/block/md*; do
    device=/dev/${each##*/}
    [ -d "$each/md" ] || continue
    { mdadm --detail --export "$device"; for one in "$each"/md/dev-*; do
        [ -e "$one" ] && mdadm --examine --export "/dev/${one##*/dev-}"; done; } 2> /dev/null |
        grep -qx "MD_UUID=$1" || continue
    tries=100
    while [ -d "$each/md" ]; do  # it goes a while after it was stopped
        mdadm --stop --config=none "$device" > /dev/null 2>&1
        [ $((tries -= 1)) -gt 0 ] || exit 1
        sleep 0.1
    done
    echo stopped
done
exit 0
"""


@undo("md.stop", proof="itself")
async def stop_array(node: Node, run: RunId, nonce: Nonce) -> str | None:
    """Stop the array that Storlab made: by its UUID, or not at all."""
    return await stopped(node, _STOP, "array", _array_uuid(run, nonce))


def _array_uuid(run: str, nonce: str) -> str:
    """As mdadm writes it: ``01234567:01234567:01234567:01234567``."""
    digits = filesystem_uuid(run, nonce).replace("-", "")
    return ":".join(digits[at : at + 8] for at in range(0, 32, 8))


class MdLayer(Layer[None, Disk]):
    """An array of the disks of further chains, by the kernel's software RAID."""

    layer: Literal["md"] = "md"
    level: Level = Field(description="RAID level.")
    disks: tuple[OwnName, ...] = Field(min_length=1, description="Further chains of the node whose disks it joins.")
    chunk: Annotated[Size, power_of_two("chunk", 4096, 64 * 1024**2)] | None = Field(
        None, description="What lies on one disk before the next; mdadm's default is 512k. Level 1 has none."
    )
    layout: Literal["near", "far", "offset"] | None = Field(
        None, description="Level 10: where the two copies lie; mdadm's default is near."
    )
    bitmap: Literal["none", "internal"] = Field("none", description="Where it notes what may have to be resynced.")
    consistency: Literal["ppl"] | None = Field(None, description="Level 5: `ppl` closes the write hole by a log.")
    journal: OwnName | None = Field(
        None, description="Levels 4 to 6: a further chain, to whose one disk everything is written first."
    )
    write_mostly: int = Field(0, ge=0, le=32, description="Level 1: so many of its last disks are read from last.")
    stripe_cache: int | None = Field(
        None, ge=17, le=32768, description="Levels 4 to 6: stripes that are cached; the kernel's default is 256."
    )
    state: Literal["clean", "degraded", "rebuilding"] = Field(
        "clean", description="`degraded`: without its last disk. `rebuilding`: that is added when it is set up."
    )

    further: ClassVar = (Disk,)
    overwrites: ClassVar = True
    compared: ClassVar = ("level", "chunk_size", "layout", "raid_disks", "consistency_policy", "stripe_cache_size")
    undoes: ClassVar = (stop_array, forget_filesystem)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        only = {
            "layout": (self.layout is not None, ("10",)),
            "consistency": (self.consistency is not None, ("5",)),
            "journal": (self.journal is not None, _PARITY),
            "write_mostly": (self.write_mostly > 0, ("1",)),
            "stripe_cache": (self.stripe_cache is not None, _PARITY),
            "chunk": (self.chunk is not None, ("0", "4", "5", "6", "10")),
            "state": (self.state != "clean", ("1", "4", "5", "6", "10")),
            "bitmap": (self.bitmap != "none", ("1", "4", "5", "6", "10")),
        }
        for key, (given, levels) in only.items():
            if given and self.level not in levels:
                raise ValueError(f"{key} is for level {' or '.join(levels)}, not for {self.level}")
        if sum((self.consistency is not None, self.journal is not None, self.bitmap != "none")) > 1:
            raise ValueError("bitmap, journal and consistency = ppl take each other's place: leave all but one out")
        return self

    def label(self) -> str:
        return f"md {self.level}{'' if self.state == 'clean' else f' {self.state}'}"

    def needs(self) -> Needs:
        programs = ("mdadm", "modprobe", "wipefs", "blkid")
        return Needs(programs=programs, modules=(_MODULES[self.level],), root="arrays of disks")

    def chains(self) -> tuple[str, ...]:
        return (*self.disks, *self._journals)

    @property
    def _journals(self) -> tuple[OwnName, ...]:
        return () if self.journal is None else (self.journal,)

    def check_further(self, count: int) -> str | None:
        fewest = max(_FEWEST[self.level], self.write_mostly + 1) + len(self._journals)
        return f"takes at least {fewest} disks, and its chains have {count}" if count < fewest else None

    def check_sizes(self, below: Sequence[int | None], others: Mapping[str, Sequence[int | None]]) -> str | None:
        disks = [size for name in self._journals for size in others[name]]
        return f"its journal is on one disk, and the chain {self.journal} has {len(disks)}" if len(disks) > 1 else None

    async def set_up(self, below: None, context: LayerContext) -> Disk:
        disks, journals = (
            [each for name in names for each in context.others[name] if isinstance(each, Disk)]
            for names in (self.disks, self._journals)
        )
        node, nonce = context.node, secrets.token_hex(16)
        for disk in (*disks, *journals):
            await refuse_another(node, disk.path, disk.device)
            if not disk.ours:
                forget = {"device": disk.path, "run": context.run, "nonce": nonce, "was": disk.fingerprint}
                await context.register_undo("mkfs.forget", **forget)
        await context.register_undo("md.stop", run=context.run, nonce=nonce)
        await load_modules(node, _MODULES[self.level])
        async with node.lock(_LOCK):  # the first number that is free is free for one
            numbers = (await node.output("ls", "/sys/block")).split()
            array = next(f"md{number}" for number in range(len(numbers) + 1) if f"md{number}" not in numbers)
            uuid = _array_uuid(context.run, nonce)
            paths = ([disk.path for disk in those] for those in (disks, journals))
            await node.run(self._creating(f"/dev/{array}", uuid, *paths))
        if self.stripe_cache is not None:
            await put(node, _folder(array), {"stripe_cache_size": str(self.stripe_cache)})
        if self.state == "rebuilding":
            await node.run(["mdadm", "--quiet", "--add", f"/dev/{array}", disks[-1].path])
        return Disk(
            node.name,
            f"/dev/{array}",
            await mapper.size_of(node, array),
            ours=all(disk.ours for disk in (*disks, *journals)),
        )

    def _creating(self, array: str, uuid: str, disks: Sequence[str], journals: Sequence[str]) -> list[str]:
        members = [*disks[:-1], "missing"] if self.state != "clean" else [*disks]
        if self.write_mostly:
            first = len(members) - self.write_mostly
            members = [*members[:first], "--write-mostly", *members[first:]]
        options = {
            "--chunk": None if self.chunk is None else size_text(self.chunk).upper(),
            "--layout": None if self.layout is None else f"{self.layout[0]}2",
            "--consistency-policy": self.consistency,
            # A bitmap that mdadm adds by itself to large arrays would make two sizes two set-ups.
            "--bitmap": self.bitmap if self.level != "0" and not self.consistency and not journals else None,
            "--write-journal": next(iter(journals), None),
        }
        chosen = [f"{option}={value}" for option, value in options.items() if value is not None]
        clean = ["--assume-clean"] if self.level != "0" else []
        head = ["mdadm", "--create", array, "--run", "--quiet", "--config=none", "--homehost=any", "--metadata=1.2"]
        own = ["--name=storlab", f"--uuid={uuid}", f"--level={self.level}", f"--raid-devices={len(disks)}"]
        return [*head, *own, *chosen, *clean, *members]

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        said = await context.node.texts(*(f"{_folder(resource.name)}/{name}" for name in _SHOWN))
        found = {name: number_or_text(value) for name, value in zip(_SHOWN, said, strict=True) if value}
        return {**found, **await queue_facts(context.node, resource)}


_SHOWN = (
    "level", "raid_disks", "chunk_size", "layout", "consistency_policy", "array_state", "sync_action", "degraded",
    "stripe_cache_size", "journal_mode", "metadata_version",
)  # fmt: skip


def _folder(array: str) -> str:
    return f"{sysfs(array)}/md"
