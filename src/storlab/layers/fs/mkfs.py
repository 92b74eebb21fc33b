"""Layer ``mkfs``: a file system on a disk. Options by the field's names, the rest through ``args``."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import UUID, uuid5

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from storlab.base.allowed import NotAllowed, allowed, option_and_value, tables_of, together
from storlab.base.errors import CommandFailed, Unsupported
from storlab.base.reach import options_of
from storlab.base.units import Size, size_text
from storlab.layers.base import LayerContext
from storlab.layers.block.identity import Fingerprint, own_signatures, refuse_another
from storlab.layers.block.loop import signatures
from storlab.layers.resources import Disk
from storlab.layers.stack import Plan, PlannedLayer
from storlab.nodes.agent.steps import Done
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.privileges import TOOLS, on_device
from storlab.nodes.undo import AbsolutePath, Nonce, RunId, undo

# Options of mounts and arguments of mkfs as studies write them: those that ``storlab.base.allowed`` lists.

_Options = tuple[Annotated[str, options_of("mount")], ...]


def _only(*parts: str) -> Callable[[_Options], _Options]:
    def check(options: _Options) -> _Options:
        words = tuple(word for option in options for word in option.split(",") if word)
        if (wrong := wrong_mount_option(words, *parts)) is not None:
            raise ValueError(wrong)
        return words

    return check


_SPLIT = BeforeValidator(
    lambda value: tuple(part for part in value.split(",") if part) if isinstance(value, str) else value,
    json_schema_input_type=str | tuple[str, ...],
)

# One string as mount(8) takes it, or a list.
OfDisks = Annotated[_Options, _SPLIT, AfterValidator(_only("ext4", "xfs", "btrfs", "dax"))]
OfNfs = Annotated[_Options, _SPLIT, AfterValidator(_only("nfs"))]
OfSmb = Annotated[_Options, _SPLIT, AfterValidator(_only("smb"))]
OfSshfs = Annotated[_Options, _SPLIT, AfterValidator(_only("sshfs"))]
Of9p = Annotated[_Options, _SPLIT, AfterValidator(_only("9p"))]
OfVirtiofs = Annotated[_Options, _SPLIT, AfterValidator(_only("virtiofs"))]


def wrong_mount_option(words: Sequence[str], *parts: str) -> str | None:
    """What is wrong with the first of these options that none of the parts lists, which every mount has as well."""
    table = together(*(allowed("mount", part) for part in (*parts, "mount")))
    found = table.first_problem(option_and_value(word) for word in words)
    return None if found is None else found[1]


def of_another(words: Sequence[str], filesystem: str) -> str | None:
    return wrong_mount_option(words, filesystem, "dax")


def arguments_of(filesystem: str, words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """The options among these words for mkfs. Raises ``NotAllowed``."""
    table, left = allowed("mkfs", filesystem), [*enumerate(words)]
    while left:
        number, word = left.pop(0)
        name, value = option_and_value(word) if word.startswith("--") else (word, None)
        rule = table.rule_of(name)
        if rule is not None and rule.takes_value and value is None and left:
            value = left.pop(0)[1]
        wrong = table.problem(name, value) or _wrong_within(f"{filesystem} {name}", value)
        if wrong is not None:
            apart = "" if name.startswith("--") or len(name) == 2 else "; an option is one word, its value the next"
            raise NotAllowed(wrong + apart, number)
        yield name, value


def _wrong_within(part: str, value: str | None) -> str | None:
    if part not in tables_of("mkfs"):
        return None
    found = allowed("mkfs", part).first_problem(option_and_value(word) for word in (value or "").split(","))
    return None if found is None else found[1]


def words_of(name: str, value: str | None) -> list[str]:
    if value is None:
        return [name]
    return [f"{name}={value}"] if name.startswith("--") else [name, value]


def check_arguments(filesystem: str, words: Sequence[str]) -> None:
    for _ in arguments_of(filesystem, words):
        pass


def check_features(filesystem: str, features: Sequence[str]) -> None:
    for number, feature in enumerate(features):
        for word in feature.split(","):
            wrong = allowed("mkfs", f"{filesystem} features").problem(word.removeprefix("^"))
            if wrong is not None:
                raise NotAllowed(wrong, number)


Filesystem = Literal["ext4", "xfs", "btrfs"]

_TELLING = {"ext4": ("dumpe2fs", "-h"), "xfs": ("xfs_info",), "btrfs": ("btrfs", "inspect-internal", "dump-super")}
_STORLAB = UUID("5b1ab000-7f0e-4c4e-9a35-5d0c7a1e5b1a")  # the namespace of these UUIDs: any, but always the same
_BIG_METADATA = 0x20  # btrfs_tree.h
_NO_KERNEL_SUPPORT = re.compile(r"too big for system|not supported by (this|the) kernel", re.IGNORECASE)


@undo("mkfs.forget", outlives_boot=True, proof="itself")
async def forget_filesystem(
    node: Node, device: AbsolutePath, run: RunId, nonce: Nonce, was: Fingerprint = ""
) -> str | None:
    """Wipe the signature of a file system that Storlab made on a device of the user's: by its UUID, or not at all."""
    uuid = filesystem_uuid(run, nonce)
    found = await own_signatures(node, device, was, f"UUID={uuid}", lambda listing: own_types(listing, uuid))
    if found is None:
        return None
    device, types = found
    await node.run(["wipefs", "--all", "--quiet", "--types", ",".join(types), device])
    return f"wiped the signature of Storlab's own file system from {device}"


def filesystem_uuid(run: str, nonce: str) -> str:
    """The UUID of a file system that a run makes. It proves whose it is.

    It is the name-based one of run and nonce (RFC 9562, version 5): no journal can name a run and a nonce that come to
    the UUID of a file system that Storlab didn't make, which would take some 2^122 attempts.
    """
    return str(uuid5(_STORLAB, f"{run} {nonce}"))


def own_types(listing: bytes, uuid: str) -> list[str]:
    """Types of the signatures (``wipefs --json``) that are all of the file system with this UUID, and no one else's."""
    rows = signatures(listing)
    foreign = {row.type for row in rows if row.uuid != uuid}
    return sorted({row.type for row in rows if row.uuid == uuid} - foreign)


async def _explained(error: CommandFailed, done: Sequence[Done]) -> Exception:
    return Unsupported(str(error)) if _NO_KERNEL_SUPPORT.search(error.detail) else error


class MkfsLayer(PlannedLayer[Disk, Disk]):
    """Makes a file system on the underlying disk."""

    layer: Literal["mkfs"] = "mkfs"
    type: Filesystem = Field(description="The file system; see mkfs(8).")
    block_size: Size | None = Field(None, description="ext4 -b, xfs -b size=, btrfs --sectorsize")
    sector_size: Size | None = Field(None, description="xfs only: -s size=")
    cluster_size: Size | None = Field(None, description="ext4 only: bigalloc with this cluster size")
    node_size: Size | None = Field(None, description="btrfs only: --nodesize")
    reflink: bool | None = Field(None, description="xfs only: -m reflink=")
    journal: bool | None = Field(None, description="ext4 only: false makes a file system without journal")
    features: tuple[Annotated[str, options_of("mkfs")], ...] = Field(
        (), description="ext4 -O, btrfs -O: a leading ^ switches a feature off"
    )
    args: tuple[Annotated[str, options_of("mkfs")], ...] = Field(
        (), description='Further [arguments](options.md): `["-i", "16384"]`. With them, it can open no other device.'
    )

    compared: ClassVar = (
        "Filesystem features", "Block size", "Block count", "Reserved block count", "Inode size", "Inode count",
        "Flex block group size", "meta-data.*", "data.*", "naming.*", "log.*", "realtime.*",
        "total_bytes", "sectorsize", "nodesize", "csum_type", "chosen_flags", "num_devices",
    )  # fmt: skip
    undoes: ClassVar = (forget_filesystem,)

    @model_validator(mode="after")
    def _options_of_this_type(self) -> Self:
        owners = {
            "sector_size": ("xfs",), "reflink": ("xfs",), "cluster_size": ("ext4",), "journal": ("ext4",),
            "node_size": ("btrfs",), "features": ("ext4", "btrfs"),
        }  # fmt: skip
        for name, types in owners.items():
            if getattr(self, name) not in (None, ()) and self.type not in types:
                raise ValueError(f"{name} is an option of {' and '.join(types)}, not of {self.type}")
        for key, check in (("features", check_features), ("args", check_arguments)):
            try:
                check(self.type, getattr(self, key))
            except NotAllowed as error:
                raise NotAllowed(str(error), key, *error.path) from None
        return self

    def label(self) -> str:
        return f"mkfs {self.type}"

    def needs(self) -> Needs:
        return Needs(
            (f"mkfs.{self.type}", "blkid", "wipefs", _TELLING[self.type][0]), (self.type,), root="file systems"
        )

    def plan(self, below: Disk, context: LayerContext) -> Plan:
        nonce = secrets.token_hex(16)
        forget = {"device": below.path, "run": context.run, "nonce": nonce, "was": below.fingerprint}
        argv = [f"mkfs.{self.type}", *self.arguments(filesystem_uuid(context.run, nonce)), below.path]
        return Plan(
            replace(below, filesystem=self.type),
            # Some only warn that this kernel won't mount what they make, and go by less than it: mounting tells.
            (on_device(context.node, below.path, TOOLS["mkfs"]).command(argv),),
            () if below.ours else (("mkfs.forget", forget),),
            None if below.device is None else partial(refuse_another, context.node, below.path, below.device),
            _explained,
        )

    def arguments(self, identity: str) -> list[str]:
        """The command's arguments without the device; ``identity`` is the file system's UUID."""
        given = [*arguments_of(self.type, self.args)]
        extended = [value for name, value in given if name == "-E" and value]  # which only ext4 has
        further = [word for name, value in given if name != "-E" for word in words_of(name, value)]
        own = self._ext4(identity, extended) if self.type == "ext4" else getattr(self, f"_{self.type}")(identity)
        return [*further, *own]  # of an option that is there twice, the last counts

    def _ext4(self, identity: str, extended: Sequence[str]) -> list[str]:
        features = list(self.features)
        if self.cluster_size:
            features.append("bigalloc")
        if self.journal is False:
            features.append("^has_journal")
        return [
            "-q",
            "-F",  # on a whole disk without asking; a mounted one is refused all the same
            *("-U", identity),
            *(("-b", str(self.block_size)) if self.block_size else ()),
            *(("-C", str(self.cluster_size)) if self.cluster_size else ()),
            *(("-O", ",".join(features)) if features else ()),
            # Lazy initialisation would go on writing underneath the load that is being measured.
            *("-E", ",".join([*extended, "lazy_itable_init=0", "lazy_journal_init=0"])),
        ]

    def _xfs(self, identity: str) -> list[str]:
        reflink = "" if self.reflink is None else f",reflink={int(self.reflink)}"
        return [
            *("-q", "-f"),
            *("-m", f"uuid={identity}{reflink}"),
            *(("-b", f"size={size_text(self.block_size)}") if self.block_size else ()),
            *(("-s", f"size={size_text(self.sector_size)}") if self.sector_size else ()),
        ]

    def _btrfs(self, identity: str) -> list[str]:
        return [
            *("-q", "-f"),
            *("-U", identity),
            *(("--sectorsize", str(self.block_size)) if self.block_size else ()),
            *(("--nodesize", str(self.node_size)) if self.node_size else ()),
            *(("-O", ",".join(self.features)) if self.features else ()),
        ]

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        argv = [*_TELLING[self.type], resource.path]
        text = await on_device(context.node, resource.path).output(*argv)
        parse = {"ext4": parse_dumpe2fs, "xfs": parse_xfs_info, "btrfs": parse_dump_super}[self.type]
        return {"command": " ".join(argv), **parse(text)}


def parse_dumpe2fs(text: str) -> dict[str, Any]:
    """``dumpe2fs -h``: lines ``Block size:               4096``."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, separator, value in pairs if separator and value.strip()}


def parse_xfs_info(text: str) -> dict[str, Any]:
    """``xfs_info``: sections ``data     =       bsize=4096   blocks=65536``; a line may continue its section."""
    facts: dict[str, Any] = {}
    section = ""
    for line in text.splitlines():
        head, separator, rest = line.partition("=")
        if not separator:
            continue
        section = head.strip().split(" ")[0] or section
        for word in f"{head.partition(' ')[2]} {rest}".replace(",", " ").split():
            name, _, value = word.partition("=")
            if value:
                facts[f"{section}.{name}"] = value
    return facts


def parse_dump_super(text: str) -> dict[str, Any]:
    """``btrfs inspect-internal dump-super``: lines ``nodesize\\t\\t16384``.

    ``chosen_flags`` are those that mkfs.btrfs set: at the first mount the kernel adds BIG_METADATA for nodes that
    exceed a page (btrfs_check_features), and on the disk it is there only from the next commit on.
    """
    facts: dict[str, Any] = {}
    for line in text.splitlines():
        words = line.split(None, 1)
        if len(words) == 2 and re.fullmatch(r"[a-z_.]+", words[0]):
            facts[words[0]] = words[1].strip()
    flags = str(facts.get("incompat_flags", ""))
    if re.fullmatch(r"0x[0-9a-f]{1,16}", flags):
        facts["chosen_flags"] = hex(int(flags, 16) & ~_BIG_METADATA)
    return facts
