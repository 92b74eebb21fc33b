"""Layer ``nbd-export``: what is beneath, offered to other nodes by qemu-nbd(8)."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.errors import StorlabError, TrialError, Unsupported
from storlab.layers.base import Layer, Site, undo
from storlab.layers.blockdev import AIO_HELP, CACHE_HELP, Aio, Cache, blockdev, cache_facts, check_aio
from storlab.layers.nbd_list import parse_nbd_list
from storlab.layers.ours import refuse_foreign
from storlab.layers.resources import Disk, Export, File, Resource
from storlab.nodes import binding
from storlab.nodes.binding import Numbers
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.process import Process

_LONGEST_SOCKET = 107  # bytes of a path, see unix(7)
_FIRST_PORT, _PORTS = 10809, 20000  # NBD's own on
_TRIES = 20  # ports that others have taken
_LOOK = 0.02  # s
_UNTIL_READY = 30.0  # s; a loaded guest without hardware virtualisation needs some
_UNTIL_GONE = 10.0  # s; at its end qemu-nbd flushes


@undo("nbd.stop")
async def _stop(node: Node, arguments: Mapping[str, Any]) -> str | None:
    pid_file, socket = arguments["pid_file"], arguments["socket"]
    refuse_foreign(pid_file)
    if socket is not None:
        refuse_foreign(socket)
    pid = await _server(node, pid_file)
    if pid is not None:
        await node.run(["kill", "-TERM", str(pid)], check=False)
        if not await _gone(node, pid, pid_file):
            await node.run(["kill", "-KILL", str(pid)], check=False)
            if not await _gone(node, pid, pid_file):
                raise StorlabError(f"qemu-nbd (process {pid}) does not end, not even by KILL: it hangs in the kernel")
    await node.run(["rm", "--force", "--", pid_file, *([socket] if socket is not None else [])])
    return f"stopped qemu-nbd (process {pid})" if pid is not None else None


async def _server(node: Node, pid_file: str) -> int | None:
    """The process of the server with this pid file, if it still runs: another may have its number by now."""
    try:
        text = (await node.read_text(pid_file)).strip()
    except FileNotFoundError:
        return None
    if not text.isascii() or not text.isdigit():
        return None  # it is written in two steps
    return int(text) if await _is_server(node, int(text), pid_file) else None


async def _is_server(node: Node, pid: int, pid_file: str) -> bool:
    words = (await node.run(["cat", f"/proc/{pid}/cmdline"], check=False)).stdout.split(b"\0")
    return words[0].rpartition(b"/")[2] == b"qemu-nbd" and f"--pid-file={pid_file}".encode() in words


async def _gone(node: Node, pid: int, pid_file: str) -> bool:
    for _ in range(int(_UNTIL_GONE / _LOOK)):
        if not await _is_server(node, pid, pid_file):
            return True
        await asyncio.sleep(_LOOK)
    return False


class NbdExportLayer(Layer):
    """The file or disk beneath, offered by `qemu-nbd`: over a Unix socket on this machine, over TCP from a guest."""

    layer: Literal["nbd-export"] = "nbd-export"
    cache: Cache = Field("none", description=CACHE_HELP)
    aio: Aio = Field("threads", description=AIO_HELP)
    discard: bool = Field(True, description="Pass discards on to what is beneath.")
    pin: Numbers | None = Field(None, description='CPUs of its machine that the server may use: "0-1,4".')
    numa: Numbers | None = Field(None, description="NUMA nodes of its machine for the server: CPUs and memory.")
    shared: int = Field(1, ge=1, le=64, description="How many clients may use it at once; it outlives all of them.")

    takes: ClassVar = (File, Disk)
    gives: ClassVar = Export

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_aio(self.cache, self.aio)
        return self

    def needs(self) -> Needs:
        return Needs(programs=("qemu-nbd", *binding.programs(self.pin, self.numa)))

    async def put_up(self, below: Resource | None, site: Site) -> Export:
        assert isinstance(below, File | Disk)
        pid_file = site.path("nbd.pid")
        socket = site.path("nbd.sock") if site.node.address is None else None
        if socket is not None and len(socket.encode()) > _LONGEST_SOCKET:
            raise Unsupported(
                f"the socket {socket} of an NBD server has a path of more than {_LONGEST_SOCKET} bytes, the longest "
                "that Linux allows: set scratch to a folder with a shorter path"
            )
        await site.will("nbd.stop", pid_file=pid_file, socket=socket)
        server = await self._serve(below, site, pid_file, socket)
        return Export(site.node.name, server, site.owner, below.size)

    async def _serve(self, below: File | Disk, site: Site, pid_file: str, socket: str | None) -> dict[str, str]:
        if socket is not None:
            await _listening(site.node, await self._start(below, site, pid_file, [f"--socket={socket}"]), pid_file)
            return {"type": "unix", "path": socket}
        assert site.node.address is not None
        first = zlib.crc32(pid_file.encode())  # servers on one node that start together begin at different ports
        for attempt in range(_TRIES):
            port = str(_FIRST_PORT + (first + attempt) % _PORTS)
            where = [f"--bind={site.node.address}", f"--port={port}"]
            try:
                await _listening(site.node, await self._start(below, site, pid_file, where), pid_file)
            except TrialError as error:
                if "Address already in use" in error.detail and attempt < _TRIES - 1:
                    continue
                raise
            return {"type": "inet", "host": site.node.address, "port": port}
        raise AssertionError("the last attempt raises")

    async def _start(self, below: File | Disk, site: Site, pid_file: str, where: list[str]) -> Process:
        node = blockdev(below, "export", self.cache, self.aio, self.discard)
        return await site.node.start(
            [
                *binding.numactl(self.pin, self.numa),
                "qemu-nbd",
                f"--pid-file={pid_file}",
                *where,
                "--persistent",
                f"--shared={self.shared}",
                f"--export-name={site.owner}",
                # The cache mode once more: whether each write is flushed is not a property of the block node.
                f"--cache={self.cache}",
                f"json:{json.dumps(node)}",
            ]
        )

    async def facts(self, resource: Resource, site: Site) -> dict[str, Any]:
        assert isinstance(resource, Export)
        where = _client_options(resource.server)
        listing = await site.node.run(["qemu-nbd", "--list", *where], check=False)
        advertised = parse_nbd_list(listing.stdout.decode(errors="replace")).get(resource.export, {})
        return {
            "transport": resource.server["type"],
            **cache_facts(self.cache, self.aio, self.discard),
            "advertised": advertised,
        }


def _client_options(server: Mapping[str, str]) -> list[str]:
    if server["type"] == "unix":
        return [f"--socket={server['path']}"]
    return [f"--bind={server['host']}", f"--port={server['port']}"]


async def _listening(node: Node, process: Process, pid_file: str) -> None:
    """Wait until it serves: it writes its pid file once it listens. Raises what it said where it ended instead."""
    for _ in range(int(_UNTIL_READY / _LOOK)):
        if process.ended is not None:
            process.ended.check(node.name)
            raise TrialError(f"node {node.name}: qemu-nbd ended at once, without a word")
        if await _server(node, pid_file) == process.pid:
            return
        await asyncio.sleep(_LOOK)
    await process.end()
    raise TrialError(f"node {node.name}: qemu-nbd did not listen within {_UNTIL_READY:g} s")
