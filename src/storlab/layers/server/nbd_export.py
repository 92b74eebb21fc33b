"""Layer ``nbd-export``: what is beneath, offered to other nodes by qemu-nbd(8)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.layers.attach.blockdev import (
    AIO_HELP,
    CACHE_HELP,
    Aio,
    Cache,
    blockdev,
    cache_facts,
    check_aio,
    has_write_cache,
    is_direct,
)
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import has_volatile_cache
from storlab.layers.resources import Disk, Export, File, Resource
from storlab.layers.server.base import ServerContext, ServerLayer
from storlab.text import number_or_text

_EXPORT = re.compile(r"export: '(.*)'")


class NbdExportLayer(ServerLayer):
    """The file or disk beneath, offered by `qemu-nbd`: over a Unix socket on this machine, over TCP from a guest."""

    layer: Literal["nbd-export"] = "nbd-export"
    cache: Cache = Field("none", description=CACHE_HELP)
    aio: Aio = Field("threads", description=AIO_HELP)
    discard: bool = Field(True, description="Pass discards on to what is beneath.")
    shared: int = Field(1, ge=1, le=64, description="How many clients may use it at once; it outlives all of them.")

    takes: ClassVar = (File, Disk)
    gives: ClassVar = Export
    program: ClassVar = "qemu-nbd"
    protocol: ClassVar = "nbd"
    first_port: ClassVar = 10809
    start_patience: ClassVar = 30.0  # a loaded guest without hardware virtualisation needs some
    stop_patience: ClassVar = 10.0  # at its end it flushes

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_aio(self.cache, self.aio)
        return self

    def command(self, server: ServerContext) -> list[str]:
        assert isinstance(server.below, File | Disk)
        node = blockdev(server.below, "export", self.cache, self.aio, self.discard)
        return [
            self.program,
            f"--pid-file={server.folder}/pid",
            *_address(self._export(server)),
            "--persistent",
            f"--shared={self.shared}",
            f"--export-name={server.context.owner}",
            # The cache mode once more: whether each write is flushed is not a property of the block node.
            f"--cache={self.cache}",
            f"json:{json.dumps(node)}",
        ]

    async def answers(self, server: ServerContext) -> bool:
        """It writes its pid file once it listens; a client that only asks would be one of ``shared``."""
        try:
            return bool(await server.node.read(f"{server.folder}/pid"))
        except FileNotFoundError:
            return False

    async def resource(self, server: ServerContext) -> Export:
        assert server.below is not None
        cache = has_write_cache(self.cache) and (
            not is_direct(self.cache) or await has_volatile_cache(server.node, server.below)
        )
        return replace(self._export(server), write_cache=cache)

    def _export(self, server: ServerContext) -> Export:
        assert isinstance(server.below, File | Disk)
        if server.host is None:
            where = {"type": "unix", "path": server.socket}
        else:
            where = {"type": "inet", "host": server.host, "port": str(server.port)}
        return Export(server.node.name, where, server.context.owner, server.below.size)

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, Export)
        listing = await context.node.run([self.program, "--list", *_address(resource)], check=False)
        advertised = parse_nbd_list(listing.stdout.decode(errors="replace")).get(resource.export, {})
        semantics = cache_facts(self.cache, self.aio, self.discard)
        return {"transport": resource.server["type"], **semantics, "advertised": advertised}


def _address(export: Export) -> list[str]:
    server = export.server
    if server["type"] == "unix":
        return [f"--socket={server['path']}"]
    return [f"--bind={server['host']}", f"--port={server['port']}"]


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
