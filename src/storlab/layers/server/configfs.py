"""Targets of the kernel's own, which are folders of configfs: Documentation/filesystems/configfs.rst in its sources.

No program serves there, so nothing has to be kept running; what was made stays until its folders are removed, in the
reverse order.
"""

from __future__ import annotations

import hashlib
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from storlab.errors import CommandFailed, DiskFull, TrialError, Unsupported
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.queue import has_volatile_cache
from storlab.layers.net.protocols import title
from storlab.layers.resources import Disk, Export, File, Protocol, Resource
from storlab.layers.share.watch import FileSays
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.text import number_or_text

_TRIES = 20  # ports that others have taken
_TAKEN = ("Address already in use", "File exists")
MOUNTED = r"""
set -eu
root=/sys/kernel/config
[ -d "$root/$1" ] || { modprobe configfs || true; mountpoint -q $root || mount -t configfs none $root; }
shift
"""
"""The first lines of a script: ``$root`` is configfs; the first argument, a folder there that shows it, is gone."""


def target_name(context: LayerContext, layer: str) -> str:
    """A name that no other target of this run has, and none of another run."""
    digest = hashlib.sha256(f"{context.node.instance}:{context.path(layer)}".encode()).hexdigest()[:12]
    return f"storlab-{context.run}-{digest}"


def small_number(name: str) -> int:
    """A number for a name, for folders that have numbers."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def not_raw(below: Layer | None) -> str | None:
    """What is wrong below a target that serves the bytes of a file as they are."""
    if below is None or below.file_format() == "raw":
        return None
    return (
        f"it serves a file as it is, and layer {below.layer} gives a {below.file_format()} file: serve that by "
        "nbd-export, or make it a raw one"
    )


class KernelTarget(Layer):
    """The underlying file or disk, served by the kernel itself at an address of the node's."""

    direct: bool = Field(True, description="Past the server's page cache.")

    takes: ClassVar = (File, Disk)
    gives: ClassVar = Export

    protocol: ClassVar[Protocol]
    modules: ClassVar[tuple[str, ...]]
    first_port: ClassVar[int]
    """The port that it has by custom, which is tried first."""

    def needs(self) -> Needs:
        own = Needs(programs=("modprobe", "mount"), modules=self.modules, root="targets of the kernel")
        return own | Needs(programs=(FileSays.program,))

    def check_above(self, below: Layer | None) -> str | None:
        return not_raw(below)

    @abstractmethod
    async def serve(self, below: File | Disk, name: str, port: int, context: LayerContext) -> str:
        """Announce how to undo it, set it up at this port, and give the name by which clients ask for it.

        Raises ``CommandFailed`` where the port is taken, among other reasons.
        """

    @abstractmethod
    def enabled(self, export: str) -> str:
        """The file of configfs that says 1 for as long as this target serves."""

    async def set_up(self, below: Resource | None, context: LayerContext) -> Export:
        assert isinstance(below, File | Disk)
        node = context.node
        if node.address is None:
            raise Unsupported(f"layer {self.layer}: node {node.name} is in no network of the run")
        name = target_name(context, self.layer)
        loaded = await node.run(["modprobe", "--all", *self.modules], check=False)
        if not loaded.ok:
            raise Unsupported(f"layer {self.layer}: {loaded.stderr.decode(errors='replace').strip()}")
        for attempt in range(1, _TRIES + 1):
            port = node.ports.next_port(self.first_port)
            try:
                export = await self.serve(below, name, port, context)
                break
            except (CommandFailed, DiskFull) as error:
                if attempt == _TRIES or not any(taken in error.detail for taken in _TAKEN):
                    raise TrialError(f"layer {self.layer}: {error}", error.detail) from None
        gone = f"the kernel's {title(self.protocol)} target {export} does not serve any more"
        await FileSays(path=self.enabled(export), pattern="1", otherwise=gone).set_up(None, context)
        server = {"type": "inet", "host": node.address, "port": str(port)}
        cache = await has_volatile_cache(node, below) or not self.direct
        return Export(node.name, server, export, below.size, self.protocol, cache)


def parse_attributes(listing: str) -> dict[str, Any]:
    """Lines ``NAME=VALUE``, one for each file; numbers become integers, lines that are none are skipped."""
    facts: dict[str, Any] = {}
    for line in listing.splitlines():
        name, separator, value = line.partition("=")
        if separator and name:
            facts[name] = number_or_text(value.strip())
    return facts


async def attributes(node: Node, folder: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    """What these files of a folder say."""
    script = 'cd -P "$1" && shift && for each; do value=; read -r value < "$each"; echo "$each=$value"; done'
    return parse_attributes(await node.output("sh", "-c", script, "attributes", folder, *names))
