"""Layer ``nbd-export``: what lies below, offered to other nodes over NBD by one of several programs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.errors import CommandFailed
from storlab.layers.attach.blockdev import (
    AIO_HELP,
    CACHE_HELP,
    Aio,
    Cache,
    cache_facts,
    check_aio,
    has_write_cache,
    is_direct,
)
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.queue import has_volatile_cache
from storlab.layers.resources import Disk, Export, File
from storlab.layers.server.base import ServerContext, ServerLayer
from storlab.layers.server.nbd_servers import SERVERS, NbdProgram, NbdServer, Offer, qemu_address
from storlab.layers.server.serving import to_what_it_serves
from storlab.nodes.node import Confinement, Node
from storlab.text import number_or_text

_EXPORT = re.compile(r"export: '(.*)'")


class NbdExportLayer(ServerLayer[File | Disk, Export]):
    """The underlying file or disk, offered over NBD: over a Unix socket on this machine, over TCP from a guest."""

    layer: Literal["nbd-export"] = "nbd-export"
    server: NbdProgram = Field(
        "qemu-nbd",
        description="The program that serves. `nbd-server` and `nbdkit` take disks and raw files alone, and work "
        "through the page cache.",
    )
    cache: Cache | None = Field(
        None, description=f"By default `none` for qemu-nbd, and `writeback` for the others. {CACHE_HELP}"
    )
    aio: Aio | None = Field(None, description=f"Of qemu-nbd, by default `threads`. {AIO_HELP}")
    discard: bool = Field(True, description="Pass discards on to what lies below.")
    shared: int = Field(
        1,
        ge=1,
        le=64,
        description="How many clients may use it at once; `nbd-server` and `nbdkit` take any number. The server "
        "outlives all of them.",
    )

    compared: ClassVar = (
        "server", "version", "transport", "cache", "direct", "no_flush", "write_cache", "aio", "discard",
        "advertised.*",
    )  # fmt: skip
    program: ClassVar = "qemu-nbd"
    protocol: ClassVar = "nbd"
    first_port: ClassVar = 10809
    start_patience: ClassVar = 30.0  # a loaded guest without hardware virtualisation needs some
    stop_patience: ClassVar = 10.0  # at its end it flushes

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for refusal in self._server.refusals(self.cache, self.aio, self.discard):
            raise ValueError(refusal)
        check_aio(self._cache, self._aio)
        return self

    @property
    def _server(self) -> NbdServer:
        return SERVERS[self.server]

    @property
    def _cache(self) -> Cache:
        return self.cache or self._server.caches[0]

    @property
    def _aio(self) -> Aio:
        return self.aio or "threads"

    def check_above(self, below: Layer | None) -> str | None:
        if below is None or not self._server.only_raw or below.file_format() == "raw":
            return None
        return (
            f"{self.server} serves a file as it is, and layer {below.layer} gives a {below.file_format()} file: write "
            'server = "qemu-nbd", or make it a raw one'
        )

    def executable(self) -> str:
        return self.server

    def command(self, server: ServerContext[File | Disk]) -> list[str]:
        return self._server.command(self._offer(server))

    def configuration(self, server: ServerContext[File | Disk]) -> Mapping[str, str]:
        return self._server.configuration(self._offer(server))

    async def answers(self, server: ServerContext[File | Disk]) -> bool:
        return await self._server.listens(server.node, self._offer(server))

    async def reach(self, server: ServerContext[File | Disk]) -> Confinement | None:
        return to_what_it_serves(server, self.server)

    def reason(self, how: str, lines: Sequence[str]) -> str:
        return self._server.reason(how, lines)

    def listens_on_socket(self, server: ServerContext[File | Disk]) -> bool:
        return server.host is None

    async def resource(self, server: ServerContext[File | Disk]) -> Export:
        cache = has_write_cache(self._cache) and (
            not is_direct(self._cache) or await has_volatile_cache(server.node, server.below)
        )
        export = replace(self._export(server), write_cache=cache)
        # Asked before any client comes: a server with one client at a time lets the next one wait.
        return replace(export, advertised=await self._advertised(export, server.node))

    def _export(self, server: ServerContext[File | Disk]) -> Export:
        if server.host is None:
            where = {"type": "unix", "path": server.socket}
        else:
            where = {"type": "inet", "host": server.host, "port": str(server.port)}
        return Export(server.node.name, where, self._server.name(server.context.owner), server.below.size)

    def _offer(self, server: ServerContext[File | Disk]) -> Offer:
        export = self._export(server)
        modes = (self._cache, self._aio, self.discard, self.shared)
        return Offer(server.below, export.export, export.server, server.folder, *modes)

    async def facts(self, resource: Export, context: LayerContext) -> dict[str, Any]:
        version = await context.node.first_line(self.server, "--version")
        semantics = cache_facts(self._cache, self._aio, self.discard)
        if not self._server.has_aio:
            del semantics["aio"]
        return {
            "server": self.server,
            "version": version,
            "transport": resource.server["type"],
            **semantics,
            "advertised": dict(resource.advertised),
        }

    @staticmethod
    async def _advertised(export: Export, node: Node) -> dict[str, Any]:
        """What the server says to clients; empty where there is no qemu-nbd to ask. nbdkit serves under any name.

        nbd-server looks at a file only once a client has chosen it, and until then tells of a size of 0.
        """
        with contextlib.suppress(CommandFailed):
            listing = await node.run(["qemu-nbd", "--list", *qemu_address(export.server)], check=False)
            listed = parse_nbd_list(listing.stdout.decode(errors="replace"))
            told = listed.get(export.export, listed.get("", {}))
            return {key: value for key, value in told.items() if (key, value) != ("size", 0)}
        return {}


def parse_nbd_list(text: str) -> dict[str, dict[str, Any]]:
    """What ``qemu-nbd --list`` prints: name → ``size``, ``flags`` (``flush``, ``fua`` …) and block sizes."""
    exports: dict[str, dict[str, Any]] = {}
    mine: dict[str, Any] = {}
    for line in map(str.strip, text.splitlines()):
        name = _EXPORT.fullmatch(line)
        if name is not None:
            mine = exports.setdefault(name[1], {})
            continue
        key, separator, value = (part.strip() for part in line.partition(":"))
        if key == "flags" and "(" in value:
            mine["flags"] = sorted(value.partition("(")[2].rstrip(") ").split())
        elif separator and key in ("size", "min block", "opt block", "max block"):
            mine[key.replace(" ", "_")] = number_or_text(value)
    return exports
