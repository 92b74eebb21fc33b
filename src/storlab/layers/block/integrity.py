"""Layers that check what they read. ``integrity``: a disk with a checksum of each sector, by dm-integrity of the
kernel's device mapper; ``verity``: a disk that is only read, and each block of it checked; see veritysetup(8).

The kernel formats a disk whose superblock is zero when it is first mapped, which integritysetup(8) leaves to it as
well. It does so by a mapping of another name, which a kill would leave; here all is done by one of the run's own.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta
from pydantic import Field, model_validator

from storlab.base.errors import StorlabError, TrialError, UserError
from storlab.base.reach import OwnName
from storlab.base.text import number_or_text
from storlab.base.units import Size, power_of_two, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import mapper
from storlab.layers.block.identity import Fingerprint, devices_with, identify, refuse_another
from storlab.layers.block.queue import queue_facts
from storlab.layers.fs.mkfs import filesystem_uuid, forget_filesystem
from storlab.layers.resources import Disk
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import AbsolutePath, undo

_BLOCK = 4096
_ROOT = re.compile(r"^Root hash:\s+([0-9a-f]{16,128})$", re.MULTILINE)
_SHOWN = ("status", "hash type", "data block", "hash block", "hash name", "size", "mode", "flags")


class VerityLayer(Layer[Disk, Disk]):
    """Hashes what is on the underlying disk, and gives it to be read: each block is checked by a tree of hashes."""

    layer: Literal["verity"] = "verity"
    hashes: OwnName | None = Field(
        None, description="Further chain whose disk has the hashes; by default they lie behind the data."
    )
    data: Annotated[Size, Field(multiple_of=_BLOCK, gt=0)] | None = Field(
        None, description="How much of the disk is hashed, from its beginning, and can be read; by default all of it."
    )
    algorithm: Literal["sha256", "sha1", "sha512"] = Field("sha256", description="Of the hashes.")
    check_once: bool = Field(False, description="Check only the first read of a block: --check-at-most-once.")

    further: ClassVar = (Disk,)
    read_only: ClassVar = True
    compared: ClassVar = ("hash name", "hash type", "data block", "hash block", "size", "flags")
    undoes: ClassVar = (mapper.remove, forget_filesystem)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.data is None and self.hashes is None:
            raise ValueError(
                'it needs room for its hashes: write how much is hashed, such as data = "64M", and they lie behind '
                "that, or hashes, a further chain"
            )
        return self

    def needs(self) -> Needs:
        return mapper.needs("dm_verity", programs=("veritysetup", "wipefs", "blkid"))

    def chains(self) -> tuple[str, ...]:
        return () if self.hashes is None else (self.hashes,)

    def check_further(self, count: int) -> str | None:
        return None if self.hashes is None or count == 1 else f"has its hashes on one disk, and its chain has {count}"

    def check_above(self, below: Layer | None) -> str | None:
        if below is not None and below.layer == "mkfs":
            return "it gives a disk to be read as it is: put a layer fill, or nothing, in place of mkfs"
        return None

    async def set_up(self, below: Disk, context: LayerContext) -> Disk:
        node, name, nonce = context.node, mapper.name_of(context), secrets.token_hex(16)
        further = [each for chain in self.chains() for each in context.others[chain] if isinstance(each, Disk)]
        size = self.data or below.size // _BLOCK * _BLOCK
        if size > below.size:
            what = f"verity: {below.path} has only {size_text(below.size)}, and data = {size_text(size)} of it is to"
            raise TrialError(f"{what} be hashed: write less")
        hashes = further[0] if further else below
        for disk in (below, *further):
            await refuse_another(node, disk.path, disk.device)
        if further and not hashes.ours:
            was = hashes.fingerprint
            await context.register_undo("mkfs.forget", device=hashes.path, run=context.run, nonce=nonce, was=was)
        await mapper.announce(context, name, "dm_verity")
        offset = () if further else ("--hash-offset", str(size))
        identity = ("--salt", "-", "--uuid", filesystem_uuid(context.run, nonce), "--hash", self.algorithm)
        blocks = ("--data-blocks", str(size // _BLOCK))
        form = ["veritysetup", "format", *identity, *blocks, *offset, "--", below.path, hashes.path]
        root = _ROOT.search((await node.run([*mapper.WITHOUT_UDEV, *form])).stdout.decode())
        if root is None:
            raise TrialError(f"node {node.name}: veritysetup has not said the root hash of {below.path}")
        once = ("--check-at-most-once",) if self.check_once else ()
        opening = ["veritysetup", "open", *offset, *once, "--", below.path, name, hashes.path, root[1]]
        await node.run([*mapper.WITHOUT_UDEV, *opening])
        made = await mapper.kernels_name(node, name)
        return Disk(node.name, f"/dev/{made}", size, all(disk.ours for disk in (below, *further)))

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        status = await context.node.output("veritysetup", "status", mapper.name_of(context))
        return {**mapper.parse_status(status, _SHOWN), **await queue_facts(context.node, resource)}


_SIGNATURE = "DM_integrity"
_TAGS = {"crc32c": 4, "crc32": 4, "xxhash64": 8, "sha1": 20, "sha256": 32}  # bytes
_MODES = {"journal": "J", "bitmap": "B", "direct": "D"}
_POLL = 0.1  # s
_FORMAT = r"""
set -e
dd if=/dev/zero of="$3" bs=4k count=1 oflag=direct status=none
dmsetup create "$1" --table "$2"
set -- "$1" $(dmsetup status "$1")
dmsetup remove --retry "$1"
echo "$6"
"""
_Boot = Annotated[str, Meta(pattern=r"^[\x21-\x7e]{0,200}$")]


@undo("integrity.forget", outlives_boot=True, proof="note")
async def forget_superblock(node: Node, device: AbsolutePath, was: Fingerprint, boot: _Boot) -> str | None:
    """Wipe the superblock from a device of the user's. It has no mark of the run's: only that device will do."""
    signed = await devices_with(node, f"TYPE={_SIGNATURE}")
    for path in sorted(signed, key=lambda path: path != device):
        try:
            now = await identify(node, path)
        except UserError:
            continue
        if now.fingerprint == was and (now.marks or now.boot == boot):
            await node.run(["wipefs", "--all", "--quiet", "--types", _SIGNATURE, path])
            return f"wiped the superblock of dm-integrity from {path}"
    if device in signed:
        what = f"node {node.name}: {device} may be another device than the run's by now"
        raise StorlabError(f"{what}: its superblock of dm-integrity is left alone; if it is Storlab's, wipe it by hand")
    return None


class IntegrityLayer(Layer[Disk, Disk]):
    """The underlying disk with a checksum of each sector: what was changed underneath can't be read."""

    layer: Literal["integrity"] = "integrity"
    mode: Literal["journal", "bitmap", "direct"] = Field(
        "journal",
        description="How data and checksum stay consistent over a crash: both are written twice; a bitmap notes what "
        "is to be checked again; not at all.",
    )
    checksum: Literal["crc32c", "crc32", "xxhash64", "sha1", "sha256"] = Field("crc32c", description="Of each sector.")
    sector_size: Annotated[Size, power_of_two("sector size", 512, 4096)] = Field(
        512, description="What has a checksum: 512 to 4k. The disk above has sectors of this size."
    )
    metadata: OwnName | None = Field(
        None, description="Further chain whose disk has checksums and journal; by default they lie among the data."
    )
    state: Literal["recalculated", "wiped", "recalculating"] = Field(
        "recalculated",
        description="How unwritten sectors get checksums: what is there is read; all is written with zeros, as by "
        "integritysetup; it is read while the load runs.",
    )

    further: ClassVar = (Disk,)
    overwrites: ClassVar = True
    compared: ClassVar = ("mode", "tag_size", "internal_hash", "block_size", "journal_sectors", "interleave_sectors")
    undoes: ClassVar = (mapper.remove, forget_superblock)

    def label(self) -> str:
        return f"integrity {self.mode}"

    def needs(self) -> Needs:
        return mapper.needs("dm_integrity", programs=("blkdiscard", "blkid", "dd", "wipefs"))

    def chains(self) -> tuple[str, ...]:
        return () if self.metadata is None else (self.metadata,)

    def check_further(self, count: int) -> str | None:
        if self.metadata is None or count == 1:
            return None
        return f"has its checksums on one disk, and its chain has {count}"

    async def set_up(self, below: Disk, context: LayerContext) -> Disk:
        node, name = context.node, mapper.name_of(context)
        further = [each for chain in self.chains() for each in context.others[chain] if isinstance(each, Disk)]
        for disk in (below, *further):
            await refuse_another(node, disk.path, disk.device)
        marked = further[0] if further else below  # where the superblock is
        if not marked.ours:
            forget = {"device": marked.path, "was": marked.fingerprint, "boot": node.machine}
            await context.register_undo("integrity.forget", **forget)
        await mapper.announce(context, name, "dm_integrity")
        own = () if not further else (f"meta_device:{further[0].path}",)
        form = [*mapper.WITHOUT_UDEV, "sh", "-c", _FORMAT, "format", name, self._table(8, below, "D", *own)]
        sectors = int((await node.run([*form, marked.path])).stdout)
        if self.state == "wiped":
            made = await mapper.make(node, name, self._table(sectors, below, "D", *own))
            await node.run(["blkdiscard", "--force", "--zeroout", f"/dev/{made}"])
            await node.run([*mapper.WITHOUT_UDEV, "dmsetup", "remove", "--retry", name])
        else:
            own = (*own, "recalculate")
        made = await mapper.make(node, name, self._table(sectors, below, _MODES[self.mode], *own))
        while self.state == "recalculated":
            found = parse_status(await node.output("dmsetup", "status", name))
            if found.get("recalculated") == found.get("size"):
                break
            await asyncio.sleep(_POLL)
        return Disk(node.name, f"/dev/{made}", sectors * mapper.SECTOR, all(disk.ours for disk in (below, *further)))

    def _table(self, sectors: int, below: Disk, mode: str, *more: str) -> str:
        options = (f"internal_hash:{self.checksum}", f"block_size:{self.sector_size}", "fix_padding", *more)
        head = f"0 {sectors} integrity {below.path} 0 {_TAGS[self.checksum]} {mode}"
        return f"{head} {len(options)} {' '.join(options)}"

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        name, node = mapper.name_of(context), context.node
        table, status = await node.output("dmsetup", "table", name), await node.output("dmsetup", "status", name)
        return {**parse_table(table), **parse_status(status), **await queue_facts(node, resource)}


_TABLE = re.compile(r"\d+ \d+ integrity \S+ \d+ (\d+) ([JBD]) \d+ (.*)")
_STATUS = re.compile(r"\d+ \d+ integrity (\d+) (\d+) (\d+|-)")


def parse_table(text: str) -> dict[str, Any]:
    """``dmsetup table``: ``0 2048 integrity 7:0 0 4 J 8 journal_sectors:880 fix_padding internal_hash:crc32c``."""
    found = _TABLE.fullmatch(text.strip())
    if found is None:
        return {}
    options = (word.partition(":") for word in found[3].split())
    shown = {name: number_or_text(value) for name, _, value in options if value and name != "meta_device"}
    mode = next(mode for mode, letter in _MODES.items() if letter == found[2])
    return {"mode": mode, "tag_size": int(found[1]), **shown}


def parse_status(text: str) -> dict[str, Any]:
    """``dmsetup status``: ``0 2048 integrity 0 2048 1024``: mismatches found, sectors, those that were recalculated."""
    found = _STATUS.fullmatch(text.strip())
    if found is None:
        return {}
    recalculated = {} if found[3] == "-" else {"recalculated": int(found[3])}
    return {"mismatches": int(found[1]), "size": int(found[2]), **recalculated}
