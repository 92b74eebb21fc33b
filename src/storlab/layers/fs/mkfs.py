"""Layer ``mkfs``: a file system on a disk or on several. Options by the field's names, the rest through ``args``."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import UUID, uuid5

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from storlab.base.allowed import NotAllowed, allowed, option_and_value, tables_of, together
from storlab.base.errors import CommandFailed, Unsupported
from storlab.base.reach import OwnName, options_of
from storlab.base.units import Size, shown, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.identity import Fingerprint, own_signatures, refuse_another
from storlab.layers.block.loop import signatures
from storlab.layers.fs.superblocks import TELLING, Profile, facts_of
from storlab.layers.resources import Disk
from storlab.layers.stack import Plan, PlannedLayer
from storlab.nodes.agent.steps import Done
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.privileges import TOOLS, on_device
from storlab.nodes.undo import AbsolutePath, Entry, Nonce, RunId, undo

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

_MIB = 1024**2
_SMALLEST = {"xfs": 300 * _MIB, "btrfs": 109 * _MIB}
_LOGS = {"ext4": (4 * _MIB, 10_240_000 * 4096), "xfs": (64 * _MIB, 2038 * _MIB)}  # XFS_MAX_LOG_BYTES, in whole MiB
"""What a journal on a disk of its own takes at least and at most."""
_BLOCK = 4096  # of ext4 with such a journal: mke2fs chooses by size, and both must have the same
_FEWEST = {"raid1": 2, "raid1c3": 3, "raid1c4": 4, "raid10": 2, "raid5": 2, "raid6": 3}  # btrfs_raid_array, devs_min
_XFS_LOG = "xfs_external_log"
_LOG_UUID = ("blkid", "--probe", "--match-tag", "LOGUUID", "--output", "value")
_STORLAB = UUID("5b1ab000-7f0e-4c4e-9a35-5d0c7a1e5b1a")  # the namespace of these UUIDs: any, but always the same
_NO_KERNEL_SUPPORT = re.compile(r"too big for system|not supported by (this|the) kernel", re.IGNORECASE)


@undo("mkfs.forget", outlives_boot=True, proof="itself")
async def forget_filesystem(
    node: Node, device: AbsolutePath, run: RunId, nonce: Nonce, was: Fingerprint = ""
) -> str | None:
    """Wipe the signature of a file system that Storlab made on a device of the user's: by its UUID, or not at all."""
    return await forget_signature(node, device, was, filesystem_uuid(run, nonce), "file system")


async def forget_signature(node: Node, device: str, was: str, uuid: str, what: str) -> str | None:
    """Wipe what marks the device as ``what``, if it has this UUID, wherever the device is by now."""
    found = await own_signatures(node, device, was, f"UUID={uuid}", lambda listing: own_types(listing, uuid))
    if found is None:
        return None
    device, types = found
    await node.run(["wipefs", "--all", "--quiet", "--types", ",".join(types), device])
    return f"wiped the signature of Storlab's own {what} from {device}"


@undo("mkfs.forget-log", outlives_boot=True, proof="itself")
async def forget_log(node: Node, device: AbsolutePath, run: RunId, nonce: Nonce, was: Fingerprint = "") -> str | None:
    """The same of a disk that has the log of such an XFS: its records bear the file system's UUID."""
    uuid = filesystem_uuid(run, nonce)

    def types_of(said: bytes) -> list[str]:
        return [_XFS_LOG] if said.decode(errors="replace").strip() == uuid else []

    found = await own_signatures(node, device, was, f"LOGUUID={uuid}", types_of, _LOG_UUID)
    if found is None:
        return None
    await node.run(["wipefs", "--all", "--quiet", "--types", _XFS_LOG, found[0]])
    return f"wiped the log of Storlab's own file system from {found[0]}"


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


class MkfsLayer(PlannedLayer[Disk | None, Disk]):
    """Makes a file system on the underlying disk, or on several: those of further chains."""

    layer: Literal["mkfs"] = "mkfs"
    type: Filesystem = Field(description="The file system; see mkfs(8).")
    block_size: Size | None = Field(None, description="ext4 -b, xfs -b size=, btrfs --sectorsize")
    sector_size: Size | None = Field(None, description="xfs only: -s size=")
    cluster_size: Size | None = Field(None, description="ext4 only: bigalloc with this cluster size")
    node_size: Size | None = Field(None, description="btrfs only: --nodesize")
    reflink: bool | None = Field(None, description="xfs only: -m reflink=")
    journal: bool | None = Field(None, description="ext4 only: false makes a file system without journal")
    disks: tuple[OwnName, ...] = Field(
        (), description="btrfs only: further chains of the node whose disks it is on, in place of one below it"
    )
    data: Profile | None = Field(None, description="btrfs only: --data, how data lie on its disks")
    metadata: Profile | None = Field(
        None, description="btrfs only: --metadata; by default raid1 on several disks, dup on one"
    )
    log: OwnName | None = Field(None, description="ext4, xfs: a further chain whose disk has all of its journal")
    realtime: OwnName | None = Field(
        None, description="xfs only: a further chain whose disk has the data of its files (-r rtdev=, -d rtinherit=1)"
    )
    features: tuple[Annotated[str, options_of("mkfs")], ...] = Field(
        (), description="ext4 -O, btrfs -O: a leading ^ switches a feature off"
    )
    args: tuple[Annotated[str, options_of("mkfs")], ...] = Field(
        (), description='Further [arguments](options.md): `["-i", "16384"]`. With them, it can open no other device.'
    )

    overwrites: ClassVar = True
    compared: ClassVar = (
        "Filesystem features", "Block size", "Block count", "Reserved block count", "Inode size", "Inode count",
        "Flex block group size", "meta-data.*", "data.*", "naming.*", "log.*", "realtime.*",
        "total_bytes", "sectorsize", "nodesize", "csum_type", "chosen_flags", "num_devices", "profiles.*",
    )  # fmt: skip
    further: ClassVar = (Disk,)
    undoes: ClassVar = (forget_filesystem, forget_log)

    @model_validator(mode="after")
    def _options_of_this_type(self) -> Self:
        owners = {
            "sector_size": ("xfs",), "reflink": ("xfs",), "cluster_size": ("ext4",), "journal": ("ext4",),
            "node_size": ("btrfs",), "features": ("ext4", "btrfs"), "disks": ("btrfs",), "data": ("btrfs",),
            "metadata": ("btrfs",), "log": ("ext4", "xfs"), "realtime": ("xfs",),
        }  # fmt: skip
        for name, types in owners.items():
            if getattr(self, name) not in (None, ()) and self.type not in types:
                raise ValueError(f"{name} is an option of {' and '.join(types)}, not of {self.type}")
        for key, check in (("features", check_features), ("args", check_arguments)):
            try:
                check(self.type, getattr(self, key))
            except NotAllowed as error:
                raise NotAllowed(str(error), key, *error.path) from None
        if self.log and (self.journal is False or "-J" in self.args):
            raise ValueError("log puts all of its journal on a disk of its own: leave out journal and -J")
        return self

    def label(self) -> str:
        further = [self.data, "log" if self.log else None, "realtime" if self.realtime else None]
        return " ".join(["mkfs", self.type, *(each for each in further if each)])

    def needs(self) -> Needs:
        return Needs((f"mkfs.{self.type}", "blkid", "wipefs", TELLING[self.type][0]), (self.type,), root="file systems")

    def chains(self) -> tuple[str, ...]:
        return (*self.disks, *self._beside)

    @property
    def _beside(self) -> tuple[str, ...]:
        return tuple(name for name in (self.log, self.realtime) if name is not None)

    def check_above(self, below: Layer | None) -> str | None:
        if below is None:
            return None if self.disks else "takes a Disk and can't be the lowest of a stack"
        if self.disks:
            return f"disks names all that it is on, so it must be the lowest of its stack, but there is {below.layer}"
        if getattr(below, "zones", None) is not None and self.type != "btrfs":
            return f"{self.type} writes where it likes, and the disk below has zones: take btrfs, or leave out zones"
        return self._too_few(1)

    def check_further(self, count: int) -> str | None:
        if not self._beside:
            return self._too_few(count) if self.disks else None
        named = " and ".join(key for key in ("log", "realtime") if getattr(self, key))
        return None if count == len(self._beside) else f"takes one disk as its {named}, and there are {count}"

    def _too_few(self, count: int) -> str | None:
        wanted = (("metadata", self.metadata), ("data", self.data))
        for key, profile in wanted:
            if (fewest := _FEWEST.get(profile or "", 0)) > count:
                return f"takes at least {fewest} disks for {key} = {shown(profile)}, and has {count}"
        return None

    def check_sizes(self, below: Sequence[int | None], others: Mapping[str, Sequence[int | None]]) -> str | None:
        smallest = 0 if {"-M", "--mixed"} & {*self.args} else _SMALLEST.get(self.type, 0)
        least = dict.fromkeys(self.disks or ("",), smallest) | {
            self.log or "": _LOGS[self.type][0] if self.log else smallest
        }
        for name, size in ((name, size) for name, sizes in {"": below, **others}.items() for size in sizes):
            if size is not None and size < least.get(name, 0):
                what = "a log" if name == self.log else self.type
                where = f"the chain {shown(name)}" if name else "the disk below"
                return f"{what} takes at least {size_text(least[name])}, and {where} has {size_text(size)}"
        return None

    def plan(self, below: Disk | None, context: LayerContext) -> Plan:
        def of(name: str) -> list[Disk]:
            return [each for each in context.others[name] if isinstance(each, Disk)]

        disks = [below] if below is not None else [disk for name in self.disks for disk in of(name)]
        log, realtime = (of(name)[0] if name else None for name in (self.log, self.realtime))
        nonce, apart = secrets.token_hex(16), secrets.token_hex(16)  # the journal of ext4 has a UUID of its own
        undo: list[Entry] = []
        for disk in (*disks, *((log,) if log else ())):
            forget = {"device": disk.path, "run": context.run, "nonce": nonce, "was": disk.fingerprint}
            if disk.ours:
                continue
            if disk is log and self.type == "xfs":
                undo.append(("mkfs.forget-log", forget))
            else:
                undo.append(("mkfs.forget", {**forget, "nonce": apart if disk is log else nonce}))
        beside = {
            "device": [disk.path for disk in disks[1:]],
            "journal_path" if self.type == "ext4" else "logdev": [log.path] if log else [],
            "rtdev": [realtime.path] if realtime else [],
        }
        everything = [*disks, *(each for each in (log, realtime) if each)]
        node = on_device(context.node, *(disk.path for disk in everything), privileges=TOOLS["mkfs"])
        argv = [f"mkfs.{self.type}", *self.arguments(filesystem_uuid(context.run, nonce), log, realtime)]
        commands = [[*argv, *(disk.path for disk in disks)]]
        if log and self.type == "ext4":
            journal = f"-q -F -O journal_dev -b {self.block_size or _BLOCK} -U {filesystem_uuid(context.run, apart)}"
            commands.insert(0, ["mkfs.ext4", *journal.split(), log.path])

        async def unchanged() -> None:
            for disk in everything:
                await refuse_another(context.node, disk.path, disk.device)

        return Plan(
            replace(
                disks[0],
                filesystem=self.type,
                ours=all(disk.ours for disk in everything),
                beside=tuple((option, path) for option, paths in beside.items() for path in paths),
            ),
            # Some only warn that this kernel won't mount what they make, and go by less than it: mounting tells.
            tuple(node.command(command) for command in commands),
            tuple(undo),
            unchanged if any(disk.device for disk in everything) else None,
            _explained,
        )

    def arguments(self, identity: str, log: Disk | None = None, realtime: Disk | None = None) -> list[str]:
        """The command's arguments without the device; ``identity`` is the file system's UUID."""
        given = [*arguments_of(self.type, self.args)]
        extended = [value for name, value in given if name == "-E" and value]  # which only ext4 has
        further = [word for name, value in given if name != "-E" for word in words_of(name, value)]
        if self.type == "ext4":
            own = [*self._ext4(identity, extended, bool(log)), *(("-J", f"device={log.path}") if log else ())]
        elif self.type == "xfs":
            own = [*self._xfs(identity), *self._xfs_beside(log, realtime, [value or "" for _, value in given])]
        else:
            own = self._btrfs(identity)
        return [*further, *own]  # of an option that is there twice, the last counts

    def _ext4(self, identity: str, extended: Sequence[str], journal_apart: bool) -> list[str]:
        block_size = self.block_size or (_BLOCK if journal_apart else None)
        features = list(self.features)
        if self.cluster_size:
            features.append("bigalloc")
        if self.journal is False:
            features.append("^has_journal")
        return [
            "-q",
            "-F",  # on a whole disk without asking; a mounted one is refused all the same
            *("-U", identity),
            *(("-b", str(block_size)) if block_size else ()),
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

    def _xfs_beside(self, log: Disk | None, realtime: Disk | None, given: Sequence[str]) -> list[str]:
        words: list[str] = []
        if log:  # by default, all of its disk, and an error where that is more than a log can have
            sized = any(
                re.search(r"(^|,)size=", value)
                for name, value in arguments_of("xfs", self.args)
                if name == "-l" and value
            )
            size = "" if sized else f",size={min(log.size, _LOGS['xfs'][1]) // _MIB}m"
            words += ["-l", f"logdev={log.path}{size}"]
        if realtime:
            words += ["-r", f"rtdev={realtime.path}"]
            words += [] if any("rtinherit=" in value for value in given) else ["-d", "rtinherit=1"]
        return words

    def _btrfs(self, identity: str) -> list[str]:
        return [
            *("-q", "-f"),
            *("-U", identity),
            *(("--data", self.data) if self.data else ()),
            *(("--metadata", self.metadata) if self.metadata else ()),
            *(("--sectorsize", str(self.block_size)) if self.block_size else ()),
            *(("--nodesize", str(self.node_size)) if self.node_size else ()),
            *(("-O", ",".join(self.features)) if self.features else ()),
        ]

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        return await facts_of(context.node, self.type, resource.path)
