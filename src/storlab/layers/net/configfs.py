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

from storlab.base.errors import CommandFailed, DiskFull, NodeError, NodeLost, TrialError, Unsupported
from storlab.base.text import number_or_text
from storlab.layers.base import Layer, LayerContext, not_raw
from storlab.layers.block.queue import has_volatile_cache
from storlab.layers.fs.mount import mount_at
from storlab.layers.net.connect import title
from storlab.layers.resources import Disk, Export, File, Protocol
from storlab.layers.server.base import network_address, on_free_port
from storlab.layers.server.running import FileSays
from storlab.nodes.agent import steps
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node

CONFIGFS = "/sys/kernel/config"


async def mount_configfs(node: Node, shown_by: str) -> None:
    """Mount it unless it is; ``shown_by``: a folder there."""
    (there,) = await node.carry_out(steps.look(f"{CONFIGFS}/{shown_by}"), go_on=True)
    if not there.there:
        await load_modules(node, "configfs")
        if await mount_at(node, CONFIGFS) is None:
            await node.run(["mount", "-t", "configfs", "none", CONFIGFS])


async def configure(node: Node, *wanted: steps.Step) -> None:
    """Carry these out. Raises ``CommandFailed`` with what the kernel says."""
    try:
        await node.carry_out(*wanted)
    except NodeLost:
        raise
    except FileNotFoundError as error:
        raise CommandFailed(f"node {node.name}: there is no {error}") from None
    except NodeError as error:
        raise CommandFailed(str(error), str(error)) from None


def settings(folder: str, values: Mapping[str, object]) -> list[steps.Step]:
    return [steps.write(f"{folder}/{name}", f"{value}\n") for name, value in values.items()]


def target_name(context: LayerContext, layer: str) -> str:
    digest = hashlib.sha256(f"{context.node.instance}:{context.path(layer)}".encode()).hexdigest()[:12]
    return f"storlab-{context.run}-{digest}"


def small_number(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


class KernelTarget(Layer[File | Disk, Export]):
    """The underlying file or disk, served by the kernel itself at an address of the node's."""

    direct: bool = Field(True, description="Past the server's page cache.")

    protocol: ClassVar[Protocol]
    modules: ClassVar[tuple[str, ...]]
    first_port: ClassVar[int]
    """The port that it has by custom, which is tried first."""

    def needs(self) -> Needs:
        return Needs(programs=("modprobe", "mount"), modules=self.modules, root="targets of the kernel")

    def check_above(self, below: Layer | None) -> str | None:
        return not_raw(below, "it serves", "serve that by nbd-export, or make it a raw one")

    @abstractmethod
    async def serve(self, below: File | Disk, name: str, port: int, context: LayerContext) -> str:
        """Announce how to undo it, set it up at this port, and give the name by which clients ask for it.

        Raises ``CommandFailed`` where the port is taken, among other reasons.
        """

    @abstractmethod
    def enabled(self, export: str) -> str:
        """The file of configfs that says 1 for as long as this target serves."""

    async def set_up(self, below: File | Disk, context: LayerContext) -> Export:
        node, address = context.node, network_address(context.node)
        name = target_name(context, self.layer)
        loaded = await load_modules(node, *self.modules)
        if loaded is not None and not loaded.ok:
            raise Unsupported(f"layer {self.layer}: {loaded.stderr.decode(errors='replace').strip()}")

        async def at(port: int) -> tuple[str, int]:
            try:
                return await self.serve(below, name, port, context), port
            except (CommandFailed, DiskFull) as error:
                raise TrialError(f"layer {self.layer}: {error}", error.detail) from None

        export, port = await on_free_port(node, self.first_port, at, "File exists")
        gone = f"the kernel's {title(self.protocol)} target {export} does not serve any more"
        await FileSays(self.enabled(export), "1", gone).set_up(context)
        server = {"type": "inet", "host": address, "port": str(port)}
        cache = await has_volatile_cache(node, below) or not self.direct
        return Export(node.name, server, export, below.size, self.protocol, cache)


async def attributes(node: Node, folder: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    """What these files of a folder say; numbers become integers."""
    said = await node.carry_out(*(steps.read(f"{folder}/{name}") for name in names))
    lines = (each.text.partition("\n")[0] for each in said)
    return {name: number_or_text(line) for name, line in zip(names, lines, strict=True)}
