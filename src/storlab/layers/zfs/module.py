"""The kernel module of ZFS: loading it, and its parameters, see zfs(4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from storlab.errors import CommandFailed, NodeError, StorlabError, Unsupported
from storlab.layers.base import LayerContext
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunId, undo
from storlab.text import number_or_text

ZFS_NEEDS = Needs(programs=("zpool", "zfs", "modprobe"), modules=("zfs",), root="storage pools")

PARAMETER = re.compile(r"[a-z0-9_]+")
_PARAMETERS = "/sys/module/zfs/parameters"
_NOTES = "/run/storlab/zfs"


def _note(run: str, parameter: str) -> str:
    return f"{_NOTES}/{run}.{parameter}"


class _Parameter(Struct, frozen=True, forbid_unknown_fields=True):
    parameter: Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,100}$")]
    value: Annotated[str, Meta(max_length=1024)]
    run: RunId


@undo("zfs.parameter", arguments=_Parameter)
async def restore_parameter(node: Node, arguments: Mapping[str, Any]) -> str | None:
    """Give a parameter of the module the value again that it had.

    What that was is also in a note below /run, which only root can write: without that note, nothing was set.
    """
    name, before, note = arguments["parameter"], arguments["value"], _note(arguments["run"], arguments["parameter"])
    if not PARAMETER.fullmatch(name):
        raise StorlabError(f"{name} is no parameter of a kernel module: left alone")
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


async def load_zfs(context: LayerContext, parameters: Mapping[str, str]) -> None:
    """Load the module, unless it is there, and set parameters of it. Raises ``Unsupported``.

    Each parameter is restored when the context is torn down. The module stays: others may have come to use it.
    """
    if not await is_loaded(context.node):
        try:
            await context.node.run(["modprobe", "zfs"])
        except CommandFailed as error:
            raise Unsupported(f"ZFS can't be loaded: {error}") from None
    for name, value in parameters.items():
        path = f"{_PARAMETERS}/{name}"
        try:
            before = (await context.node.read_text(path)).strip()
        except FileNotFoundError:
            version = parse_version(await context.node.output("zfs", "version")).get("module", "?")
            raise Unsupported(f"ZFS {version} on node {context.node.name} has no module parameter {name}") from None
        if before == value:
            continue
        await context.register_undo("zfs.parameter", parameter=name, value=before, run=context.run)
        await context.node.run(["mkdir", "--parents", "--mode=0755", "--", _NOTES.rpartition("/")[0]])
        await context.node.run(["mkdir", "--parents", "--mode=0755", "--", _NOTES])
        await context.node.write(_note(context.run, name), before.encode())
        try:
            await context.node.write(path, f"{value}\n".encode())
        except NodeError as error:
            raise Unsupported(
                f"ZFS on node {context.node.name} does not take {value} for its module parameter {name}, which stays "
                f"at {before} ({error})"
            ) from None


async def module_facts(node: Node) -> dict[str, Any]:
    """Versions, and all parameters that can be read."""
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
