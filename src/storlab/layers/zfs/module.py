"""The kernel module of ZFS: loading it, and its parameters, see zfs(4)."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from storlab.errors import CommandFailed, NodeError, StorlabError, TrialError, Unsupported
from storlab.layers.base import LayerContext
from storlab.layers.zfs.properties import Value
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunId, undo
from storlab.text import number_or_text

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
