"""What a volume of LVM can have: pools, caches, snapshots; and LVM's commands, see lvmthin(7), lvmcache(7), lvs(8)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import AfterValidator, Field, model_validator

from storlab.base.errors import CommandFailed, Unsupported
from storlab.base.reach import OwnName
from storlab.base.text import number_or_text
from storlab.base.units import Duration, Size, power_of_two, size_text
from storlab.model import Model
from storlab.nodes.node import Node

DATA, POOL, FAST, SNAPSHOT = "data", "pool", "fast", "taken"
"""The volume that is measured, its pool, its cache, and what the names of its snapshots begin with."""

_KIB, _GIB = 1024, 1024**3
_CONFIG = """
devices {{ use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source="none" hints="none" scan_lvs=1
 multipath_component_detection=0 md_component_detection=0 types=["zvol",16] global_filter=[{filters}"r|.*|"] }}
activation {{ udev_sync=0 udev_rules=0 monitoring=0 }}
backup {{ backup=0 archive=0 }}
global {{ event_activation=0 use_lvmpolld=0 notify_dbus=0 }}
allocation {{ {allocation} }}
"""
_LACKING = ("not detected in kernel", "Required device-mapper target", "module not found", "Unrecognised segment type")
_SHOWN: Mapping[str, str] = {
    "segtype": "type", "lv_size": "size", "stripes": "stripes", "stripe_size": "stripe_size", "data_copies": "copies",
    "chunk_size": "chunk_size", "zero": "zero", "discards": "discards", "cache_mode": "cache_mode",
    "kernel_cache_policy": "cache_policy", "kernel_cache_settings": "cache_settings", "sync_percent": "synchronised",
    "data_percent": "data_percent", "metadata_percent": "metadata_percent", "lv_health_status": "health",
    "vdo_compression": "compression", "vdo_deduplication": "deduplication", "origin": "origin",
}  # fmt: skip
"""Columns of lvs(8), and what facts call them."""
_NONE = (None, "", "0", "unknown")


def multiple_of(what: str, step: int, most: int) -> AfterValidator:
    def checked(size: int | None) -> int | None:
        if size is not None and (size % step or not step <= size <= most):
            raise ValueError(f"{size} is no {what}: a multiple of {size_text(step)} up to {size_text(most)}")
        return size

    return AfterValidator(checked)


def chosen(options: Mapping[str, object]) -> Iterator[str]:
    """The words of those options that have a value; sizes and numbers as LVM takes them."""
    for option, value in options.items():
        if value is not None:
            yield from (option, f"{value}b" if option in _SIZES else str(value))


_SIZES = {"--stripesize", "--chunksize", "--poolmetadatasize", "--size", "--physicalextentsize"}


class Thin(Model):
    """The pool of a thin volume."""

    chunk: Annotated[Size, multiple_of("chunk", 64 * _KIB, _GIB)] | None = Field(
        None, description="What room is given out in, a multiple of 64k; LVM's default is 64k or what 128M of metadata "
        "can tell apart."
    )  # fmt: skip
    zero: bool = Field(True, description="Write zeros to a chunk before it is first written to in part.")
    discards: Literal["passdown", "nopassdown", "ignore"] = Field(
        "passdown", description="Whether what is discarded becomes free, and is discarded on the disks, too."
    )
    size: Size | None = Field(None, gt=0, description="Of the pool; by default all that is free.")
    metadata: Size | None = Field(None, ge=2 * 1024**2, le=16 * _GIB, description="What its metadata have.")

    def command(self, group: str, disks: Sequence[str]) -> list[str]:
        room = ("--size", f"{self.size}b") if self.size is not None else ("--extents", "100%FREE")
        keys = {"--chunksize": self.chunk, "--poolmetadatasize": self.metadata, "--discards": self.discards}
        zero = ("--zero", "y" if self.zero else "n")
        return ["lvcreate", "--name", POOL, "--type", "thin-pool", *room, *zero, *chosen(keys), group, *disks]


class Vdo(Model):
    """The pool of a volume that finds duplicates and compresses."""

    compression: bool = Field(True, description="Compress blocks.")
    deduplication: bool = Field(True, description="Find blocks that are there already.")
    slab: Annotated[Size, power_of_two("slab", 128 * 1024**2, 32 * _GIB)] | None = Field(
        None, description="What the pool grows by; LVM's default is 2G, for which a disk needs 5G, and of 128M 3G."
    )

    def command(self, group: str, size: int, disks: Sequence[str]) -> list[str]:
        flags = {"--compression": self.compression, "--deduplication": self.deduplication}
        chosen_flags = [word for flag, on in flags.items() for word in (flag, "y" if on else "n")]
        room = ("--extents", "100%FREE", "--virtualsize", f"{size}b")
        return ["lvcreate", "--name", DATA, "--type", "vdo", "--vdopool", POOL, *room, *chosen_flags, group, *disks]

    def allocation(self) -> str:
        return "" if self.slab is None else f"vdo_slab_size_mb={self.slab // 1024**2}"


class Cache(Model):
    """A cache of the volume on other disks."""

    disks: tuple[OwnName, ...] = Field(min_length=1, description="Further chains of the node that the cache lies on.")
    kind: Literal["cachevol", "cachepool", "writecache"] = Field(
        "cachevol",
        description="`cachevol`: data and metadata in one volume (dm-cache); `cachepool`: in two; `writecache`: writes "
        "alone (dm-writecache).",
    )
    mode: Literal["writethrough", "writeback", "passthrough"] | None = Field(
        None, description="When a write is done; LVM's default is `writethrough`. Not for `writecache`."
    )
    chunk: Annotated[Size, multiple_of("chunk", 32 * _KIB, _GIB)] | None = Field(
        None, description="What is cached at once, a multiple of 32k; LVM's default is 64k. Not for `writecache`."
    )
    policy: Literal["smq", "cleaner"] | None = Field(None, description="What is cached. Not for `writecache`.")
    block_size: Literal["512", "4k"] | None = Field(None, description="`writecache`: what it writes at once.")
    settings: dict[
        Literal["migration_threshold", "high_watermark", "low_watermark", "writeback_jobs", "autocommit_blocks"], int
    ] = Field({}, description="Further numbers of the kernel's: see lvmcache(7).")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        late = self.kind == "writecache"
        for key in ("mode", "chunk", "policy", "block_size"):
            if getattr(self, key) is not None and (key != "block_size") == late:
                raise ValueError(f"cache.{key} is not for kind {self.kind}")
        for key in self.settings:
            if (key != "migration_threshold") != late:
                raise ValueError(f"cache.settings: {key} is not for kind {self.kind}")
        return self

    def label(self) -> str:
        return self.kind if self.mode is None else f"{self.kind} {self.mode}"

    def modules(self) -> tuple[str, ...]:
        return ("dm_writecache",) if self.kind == "writecache" else ("dm_cache", "dm_cache_smq")

    def commands(self, group: str, disks: Sequence[str]) -> Iterator[list[str]]:
        type_ = ["--type", "cache-pool"] if self.kind == "cachepool" else []
        room = ["--extents", "100%PVS"] if self.kind != "cachepool" else ["--extents", "90%PVS"]
        yield ["lvcreate", "--name", FAST, *type_, *room, group, *disks]
        settings = " ".join(f"{key}={value}" for key, value in sorted(self.settings.items()))
        if self.kind == "writecache":
            yield ["lvchange", "--activate", "n", f"{group}/{FAST}"]
            settings = " ".join(
                [settings, *(() if self.block_size is None else (f"block_size={_BLOCK[self.block_size]}",))]
            )
        keys = {"--cachemode": self.mode, "--chunksize": self.chunk, "--cachepolicy": self.policy}
        more = [*chosen(keys), *(("--cachesettings", settings.strip()) if settings.strip() else ())]
        how = ["--type", "cache", "--cachepool"] if self.kind == "cachepool" else ["--type", "cache", "--cachevol"]
        if self.kind == "writecache":
            how[1] = "writecache"
        yield ["lvconvert", *how, FAST, *more, f"{group}/{DATA}"]


_BLOCK = {"512": 512, "4k": 4096}


class Snapshots(Model):
    """Snapshots of the volume."""

    count: int = Field(1, ge=1, le=32, description="How many, all at the same time.")
    after: Duration = Field(0.0, ge=0, description="How long after the load began; 0: right before it.")
    size: Size | None = Field(None, gt=0, description="What each can hold of what changes. Not of a thin volume.")
    chunk: Annotated[Size, power_of_two("chunk", 4 * _KIB, 512 * _KIB)] | None = Field(
        None, description="What is copied before it is first changed; LVM's default is 4k. Not of a thin volume."
    )

    def commands(self, group: str) -> Iterator[list[str]]:
        keys = list(chosen({"--size": self.size, "--chunksize": self.chunk}))
        for number in range(self.count):
            name = f"{SNAPSHOT}{number}"
            yield ["lvcreate", "--yes", "--quiet", "--snapshot", "--name", name, *keys, f"{group}/{DATA}"]

    def label(self) -> str:
        when = f"after {self.after:g}s" if self.after else "before"
        return f"{self.count} snapshot{'s' if self.count > 1 else ''} {when}"


@dataclass(frozen=True)
class Lvm:
    """Commands of LVM's that see these disks of a node and no other."""

    node: Node
    disks: Sequence[str]
    allocation: str = ""

    def words(self, command: str, *words: str) -> list[str]:
        filters = "".join(f'"a|^{disk}$|",' for disk in self.disks)
        config = _CONFIG.format(filters=filters, allocation=self.allocation).replace("\n", "")
        # Nothing of the machine's own configuration, which an empty name of its folder leaves unread.
        environment = ("LVM_SYSTEM_DIR=", "LVM_SUPPRESS_FD_WARNINGS=1", "DM_DISABLE_UDEV=1", "LC_ALL=C")
        return ["env", *environment, "lvm", command, "--config", config, *words]

    async def run(self, command: str, *words: str) -> None:
        try:
            await self.node.run(self.words(command, "--yes", "--quiet", *words))
        except CommandFailed as error:
            if any(said in error.detail for said in _LACKING):
                raise Unsupported(f"no such volume here: {error}") from None
            raise

    async def volumes(self, group: str) -> dict[str, dict[str, Any]]:
        columns = ",".join(["lv_name", *_SHOWN])
        options = ("--all", "--reportformat", "json", "--units", "b", "--nosuffix", "--options", columns)
        return parse_lvs(await self.node.output(*self.words("lvs", *options, group)))

    async def until_synchronised(self, group: str) -> None:
        while (await self.volumes(group))[DATA].get("synchronised") != "100.00":  # noqa: ASYNC110 - LVM tells nobody
            await asyncio.sleep(_LOOK)


_LOOK = 0.5  # s


def parse_lvs(text: str) -> dict[str, dict[str, Any]]:
    """``lvs --reportformat json``: by the volume's name, without the brackets of one that is part of another."""
    try:
        (report,) = orjson.loads(text)["report"]
        rows = {str(row["lv_name"]).strip("[]"): row for row in report["lv"]}
        return {
            name: {own: number_or_text(row[at]) for at, own in _SHOWN.items() if row.get(at) not in _NONE}
            for name, row in rows.items()
        }
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"lvs printed no report: {error}") from None
