"""The kernel module of ZFS: loading it, and its parameters, see zfs(4)."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta
from pydantic import Field, model_validator

from storlab.base.allowed import NotAllowed, allowed
from storlab.base.errors import CommandFailed, NodeError, StorlabError, TrialError, Unsupported
from storlab.base.reach import Choice, options_of
from storlab.base.text import is_whole, number_or_text
from storlab.layers.base import Below, Gives, Layer, LayerContext
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunId, undo

# Properties of pools, datasets and volumes as studies give them and as ZFS prints them: zfsprops(7), zpoolprops(7).

Property = Annotated[str, options_of("ZFS")]
Value = bool | int | Annotated[str, options_of("ZFS")]

PROPERTIES_HELP = "[Those that are listed](options.md), with ZFS's values; true and false are `on` and `off`."


def word(value: Value) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def arguments(option: str, properties: Mapping[str, Value]) -> list[str]:
    return [part for name, value in properties.items() for part in (option, f"{name}={word(value)}")]


def refuse_unlisted(part: str, given: Mapping[str, Value], *key: str) -> None:
    options = ((name, value if part == "module" else word(value)) for name, value in given.items())
    if (found := allowed("zfs", part).first_problem(options)) is not None:
        raise NotAllowed(found[1], *key, found[0])


class PropertiesLayer(Layer[Below, Gives]):
    """What datasets and volumes have in common."""

    sync: Literal["standard", "always", "disabled"] | None = Field(
        None,
        description="`standard`: synchronous writes are synchronous. `disabled`: none are, and a crash loses them.",
    )
    logbias: Literal["latency", "throughput"] | None = Field(
        None, description="Where synchronous writes go first: to the intent log, or straight to their place."
    )
    primarycache: Literal["all", "metadata", "none"] | None = Field(None, description="What the ARC keeps of it.")
    compression: Choice | None = Field(None, description="`off`, `lz4`, `zstd-3` …")
    properties: dict[Property, Value] = Field({}, description=f"Further properties. {PROPERTIES_HELP}")

    own: ClassVar[tuple[str, ...]] = ("sync", "logbias", "primarycache", "compression")
    """Properties that have a key of their own."""
    compared: ClassVar = (
        "sources.*",
        "properties.recordsize", "properties.volblocksize", "properties.compression", "properties.checksum",
        "properties.sync", "properties.logbias", "properties.primarycache", "properties.secondarycache",
        "properties.dedup", "properties.copies", "properties.atime", "properties.xattr", "properties.direct",
        "properties.redundant_metadata", "properties.special_small_blocks",
    )  # fmt: skip

    @model_validator(mode="after")
    def _each_property_once(self) -> Self:
        for name in self.properties:
            if name in self.own:
                raise ValueError(f"properties: {name} has a key of its own: write it there")
        refuse_unlisted("dataset", self.properties, "properties")
        if self.compression is not None:
            refuse_unlisted("dataset", {"compression": self.compression})
        return self

    def options(self) -> dict[str, Value]:
        keys: dict[str, Any] = {name: getattr(self, name) for name in self.own}
        return {name: value for name, value in keys.items() if value is not None} | self.properties


def parse_properties(text: str) -> dict[str, dict[str, Any]]:
    """``get -Hp -o property,value,source all``, as facts: ``properties`` and their ``sources``.

    Numbers as integers; what has no value ("-") is left out of ``properties``. A source is ``-``, ``default``,
    ``local``, or ``inherited``, in place of ``inherited from`` a pool whose name is another in each trial.
    """
    rows = [fields for line in text.split("\n") if len(fields := line.split("\t")) == 3 and fields[0]]
    values = {name: number_or_text(value) for name, value, _ in rows if value != "-"}
    return {"properties": values, "sources": {name: source.partition(" from ")[0] for name, _, source in rows}}


# How many allocators each metaslab group of a pool has: as many as were asked for only where there are CPUs for them.
#
# ``spa_add`` in module/zfs/spa_misc.c of OpenZFS takes, when a pool is made or imported, the smaller of
# ``spa_num_allocators`` and the CPUs that are online divided by ``spa_cpus_per_allocator``, but at least one.
# Versions that lack one of the two have no such limit.

ASKED, DIVISOR = "spa_num_allocators", "spa_cpus_per_allocator"
_ONLINE = "/sys/devices/system/cpu/online"
_RANGES: Mapping[str, tuple[int, int]] = {
    ASKED: (1, 2**31 - 1),
    DIVISOR: (1, 2**31 - 1),
    "zfs_vdev_def_queue_depth": (1, 2**32 - 1),
    "zio_dva_throttle_enabled": (0, 1),
}
"""Of parameters for which the kernel takes other numbers as well, and ZFS then does something else, see zfs(4)."""


def refuse_out_of_range(parameters: Mapping[str, Value]) -> None:
    """Raises ``ValueError`` for a value that ZFS does not mean anything by."""
    for name, value in parameters.items():
        if name not in _RANGES:
            continue
        least, most = _RANGES[name]
        number = int(value) if isinstance(value, int) or is_whole(value, 10) else -1
        if not least <= number <= most:
            raise ValueError(f"module: {name} = {value} is out of range: write a whole number from {least} to {most}")


def effective(asked: int, cpus_each: int, cpus: int) -> int:
    """How many allocators a pool has that is made while ``cpus`` are online."""
    return max(1, min(asked, cpus // max(cpus_each, 1)))


def parse_online(text: str) -> int | None:
    """How many CPUs a list such as ``0-3,6`` has; ``None`` where it is none."""
    count = 0
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if not is_whole(first, 6) or (dash and not is_whole(last, 6)):
            return None
        count += max(int(last or first) - int(first) + 1, 0)
    return count


async def allocator_facts(node: Node, module: Mapping[str, Any], wanted: Mapping[str, Value]) -> dict[str, Any]:
    """``effective`` and ``cpus``; and what was ``asked`` with what it is ``limited_by``, where the study asked.

    Nothing of a ZFS without these parameters. ``module``: all of its parameters; ``wanted``: those of the study.
    """
    number, each = module.get(ASKED), module.get(DIVISOR)
    (online,) = await node.texts(_ONLINE)
    cpus = parse_online(online or "")
    if not isinstance(number, int) or not isinstance(each, int) or not cpus:
        return {}
    found = effective(number, each, cpus)
    asked = {"asked": number} if ASKED in wanted else {}
    return {"effective": found, "cpus": cpus, **asked, **({"limited_by": DIVISOR} if found < number else {})}


ZFS_NEEDS = Needs(programs=("zpool", "zfs", "modprobe"), modules=("zfs",), root="storage pools")

PARAMETER = re.compile(r"[a-z0-9_]+")
_PARAMETERS = "/sys/module/zfs/parameters"
_NOTES = "/run/storlab/zfs"


@dataclass
class _Kernel:
    """What the pools that stand on one kernel want of its module, of which it has only one."""

    wanted: dict[str, Mapping[str, str]] = field(default_factory=dict)  # by pool, also of those that want nothing
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def refuse_differing(self, parameters: Mapping[str, str]) -> None:
        """Raise ``TrialError`` where a pool that stands wants a parameter otherwise, or one wants it and one doesn't.

        Else both would be measured with what was written last, and only one of them as its cell says.
        """
        for other, wanted in self.wanted.items():
            for name in sorted({*wanted, *parameters}):
                mine, theirs = parameters.get(name), wanted.get(name)
                if mine != theirs:
                    raise TrialError(
                        f"ZFS has one {name} for all pools: this pool wants {mine or 'it as it was'}, and {other}, "
                        f'which stands on the same machine, wants {theirs or "it as it was"}: write keep = "trial" '
                        "for the layer zpool, so that they don't stand at the same time, or the same module = { … } "
                        "for both"
                    )


_kernels: defaultdict[str, _Kernel] = defaultdict(_Kernel)  # by boot id: several nodes may share a kernel


def forget_wanted(node: Node, pool: str) -> None:
    """A pool is no more, or doomed: what it wanted of the module counts no longer."""
    _kernels[node.machine].wanted.pop(pool, None)


def _note(run: str, parameter: str) -> str:
    return f"{_NOTES}/{run}.{parameter}"


_Name = Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,100}$")]
_Value = Annotated[str, Meta(max_length=1024)]


@undo("zfs.parameter")
async def restore_parameter(node: Node, parameter: _Name, value: _Value, run: RunId) -> str | None:
    """Give a parameter of the module the value again that it had.

    What that was is also in a note below /run, which only root can write: without that note, nothing was set. Where
    another pool still wants it as it is, that one's own entry will restore it.
    """
    name, before, note = parameter, value, _note(run, parameter)
    if not PARAMETER.fullmatch(name):
        raise StorlabError(f"{name} is no parameter of a kernel module: left alone")
    if any(name in wanted for wanted in _kernels[node.machine].wanted.values()):
        return None
    try:
        noted = await node.read_text(note)
    except FileNotFoundError:
        return None
    if noted != before:
        raise StorlabError(f"the note {note} says that ZFS's {name} was {noted}, and not {before}: left alone")
    try:
        now = (await node.read_text(f"{_PARAMETERS}/{name}")).strip()
    except FileNotFoundError:
        return None  # the module is gone, and the parameter with it
    if now != before:
        await node.write(f"{_PARAMETERS}/{name}", f"{before}\n".encode())
    await node.run(["rm", "--force", "--", note])
    if now == before:
        return None
    return f"set ZFS's {name} back to {before}"


async def is_loaded(node: Node) -> bool:
    """Whether the module is there; without it, no pool is."""
    return (await node.run(["test", "-e", "/sys/module/zfs"], check=False)).ok


def parameter_text(value: Value) -> str:
    """As the kernel takes it: those of ZFS that switch something are numbers."""
    return str(int(value) if isinstance(value, bool) else value)


async def load_zfs(context: LayerContext, pool: str, parameters: Mapping[str, str]) -> None:
    """Load the module, unless it is there, and set the parameters of it that ``pool`` wants.

    Each is restored when the last pool that wants it is torn down; until ``forget_wanted``, no other pool may want
    otherwise. The module stays: others may have come to use it. Raises ``Unsupported``, or ``TrialError`` where pools
    don't agree.
    """
    if not await is_loaded(context.node):
        try:
            await context.node.run(["modprobe", "zfs"])
        except CommandFailed as error:
            raise Unsupported(f"ZFS can't be loaded: {error}") from None
    kernel = _kernels[context.node.machine]
    async with kernel.lock:  # pools of one cell are set up at the same time
        kernel.refuse_differing(parameters)
        kernel.wanted[pool] = parameters
        for name, value in parameters.items():
            await _set_parameter(context, name, value)


async def _set_parameter(context: LayerContext, name: str, value: str) -> None:
    node, path, note = context.node, f"{_PARAMETERS}/{name}", _note(context.run, name)
    try:
        now = (await node.read_text(path)).strip()
    except FileNotFoundError:
        version = parse_version(await node.output("zfs", "version")).get("module", "?")
        raise Unsupported(f"ZFS {version} on node {node.name} has no module parameter {name}") from None
    (noted,) = await node.texts(note)  # what it was before another pool of the run set it
    if noted is None and now == value:
        return
    await context.register_undo("zfs.parameter", parameter=name, value=now if noted is None else noted, run=context.run)
    if noted is None:
        await node.run(["mkdir", "--parents", "--mode=0755", "--", _NOTES.rpartition("/")[0]])
        await node.run(["mkdir", "--parents", "--mode=0755", "--", _NOTES])
        await node.write(note, now.encode())
    try:
        await node.write(path, f"{value}\n".encode())
    except NodeError as error:
        raise Unsupported(
            f"ZFS on node {node.name} does not take {value} for its module parameter {name}, which stays at {now} "
            f"({error})"
        ) from None


async def module_facts(node: Node) -> dict[str, Any]:
    listing = await node.run(["grep", "--recursive", "--with-filename", "", _PARAMETERS], check=False)
    parameters = parse_parameters(listing.stdout.decode(errors="replace"))
    return {"version": parse_version(await node.output("zfs", "version")), "module": parameters}


def parse_parameters(listing: str) -> dict[str, Any]:
    """Lines ``/sys/module/zfs/parameters/NAME:VALUE``."""
    found: dict[str, Any] = {}
    for line in listing.splitlines():
        path, separator, value = line.partition(":")
        if separator and "/parameters/" in path:
            found[path.rpartition("/")[2]] = number_or_text(value)
    return found


def parse_version(text: str) -> dict[str, str]:
    """``zfs version``: ``zfs-2.3.2-2`` of the programs and ``zfs-kmod-2.3.2-2`` of the module."""
    found = {}
    for word in text.split():
        if word.startswith("zfs-kmod-"):
            found["module"] = word.removeprefix("zfs-kmod-")
        elif word.startswith("zfs-"):
            found["programs"] = word.removeprefix("zfs-")
    return found
