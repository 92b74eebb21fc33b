"""Layer ``verity``: a disk that is only read, and each block of it checked, by dm-verity; see veritysetup(8)."""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import TrialError
from storlab.base.reach import OwnName
from storlab.base.units import Size, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import mapper
from storlab.layers.block.identity import refuse_another
from storlab.layers.block.queue import queue_facts
from storlab.layers.fs.mkfs import filesystem_uuid, forget_filesystem
from storlab.layers.resources import Disk
from storlab.nodes.needs import Needs

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
