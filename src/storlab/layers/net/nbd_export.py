"""The programs that serve NBD for the layer ``nbd-export``: what each is given, and what each can't do."""

from __future__ import annotations

import contextlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import CommandFailed
from storlab.base.text import number_or_text
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
from storlab.layers.base import Layer, LayerContext, not_raw
from storlab.layers.block.queue import has_volatile_cache
from storlab.layers.resources import Disk, Export, File
from storlab.layers.server.base import ServerContext, ServerLayer, to_what_it_serves
from storlab.layers.server.running import is_listening
from storlab.nodes.agent import steps
from storlab.nodes.node import Confinement, Node
from storlab.nodes.process import telling

NbdProgram = Literal["qemu-nbd", "nbd-server", "nbdkit"]
Options = Mapping[str, str | bool]

_CONFIGURATION, _START = "nbd-server.conf", "start.sh"


@dataclass(frozen=True)
class Offer:
    """What is to be served: the file or disk, under which name, at which address (as of an ``Export``), and how.

    ``folder`` is the server's own, for its pid file and its configuration.
    """

    below: File | Disk
    name: str
    address: Mapping[str, str]
    folder: str
    cache: Cache
    aio: Aio
    discard: bool
    shared: int

    @property
    def pid_file(self) -> str:
        """The file that the server writes, once it listens or soon before."""
        return f"{self.folder}/pid"


class NbdServer(ABC):
    """One program."""

    caches: ClassVar[tuple[Cache, ...]] = ("writeback",)
    """The modes of the cache that it has; the first is what it does by default."""
    without: ClassVar[str] = "works through the page cache, and passes flushes on"
    """Why it has no others."""
    has_aio: ClassVar[bool] = False
    keeps_discards: ClassVar[bool] = True
    """Whether it can ignore discards."""
    only_raw: ClassVar[bool] = True
    program: ClassVar[NbdProgram]

    def name(self, owner: str) -> str:
        """Of the export that is made for a node."""
        return owner

    @abstractmethod
    def command(self, offer: Offer) -> list[str]:
        """Its command line, to run in the foreground."""

    def configuration(self, offer: Offer) -> dict[str, str]:
        """Files in its folder."""
        return {}

    def refusals(self, cache: Cache | None, aio: Aio | None, discard: bool) -> Iterator[str]:
        """What was asked for and it can't do, ``None`` being whatever it does: a sentence for each key."""
        qemu = 'or server = "qemu-nbd"'
        if cache is not None and cache not in self.caches:
            offered = " or ".join(f'"{each}"' for each in self.caches)
            yield f'cache = "{cache}": {self.program} {self.without}: write cache = {offered}, {qemu}'
        if aio is not None and not self.has_aio:
            yield f'aio = "{aio}": {self.program} has one way alone to read and write: leave aio out, {qemu}'
        if not discard and not self.keeps_discards:
            yield f"discard = false: {self.program} passes discards on in any case: leave discard out, {qemu}"

    async def listens(self, node: Node, offer: Offer) -> bool:
        """Whether it does by now. A client that only asks would be one of those that share it."""
        try:
            return bool(await node.read(offer.pid_file))
        except FileNotFoundError:
            return False

    def reason(self, how: str, lines: Sequence[str]) -> str:
        """Why it is gone, from how its command ended and its last lines."""
        return f"{how}: {telling(lines)}"


class QemuNbd(NbdServer):
    """qemu-nbd(8): files of any format, in any mode of the cache."""

    program = "qemu-nbd"
    caches = ("none", "writeback", "writethrough", "directsync", "unsafe")
    has_aio = True
    only_raw = False

    def command(self, offer: Offer) -> list[str]:
        node = blockdev(offer.below, "export", offer.cache, offer.aio, offer.discard)
        return [
            self.program,
            f"--pid-file={offer.pid_file}",
            *qemu_address(offer.address),
            "--persistent",
            f"--shared={offer.shared}",
            f"--export-name={offer.name}",
            # The cache mode once more: whether each write is flushed is not a property of the block node.
            f"--cache={offer.cache}",
            f"json:{json.dumps(node)}",
        ]


class Nbdkit(NbdServer):
    """nbdkit(1) with nbdkit-file-plugin(1), which serves one file under whatever name a client asks for."""

    program = "nbdkit"
    keeps_discards = False

    def command(self, offer: Offer) -> list[str]:
        at = offer.address
        where = [f"--unix={at['path']}"] if at["type"] == "unix" else [f"--ipaddr={at['host']}", f"--port={at['port']}"]
        return [self.program, "--foreground", f"--pidfile={offer.pid_file}", *where, "file", f"file={offer.below.path}"]


# Without --dont-fork it is a daemon, which writes its pid down; with it, it serves one client and ends. What binds the
# port is the daemon, and nobody hears of its failure: so whether it is taken is tried before.
_DAEMON = r"""
program=$1 configuration=$2 pid_file=$3 host=$4 port=$5
exec {never}<> <(:)
if [[ -n $port ]] && (exec 3<> "/dev/tcp/$host/$port") 2> /dev/null; then
    echo "$host:$port: Address already in use"
    exit 1
fi
"$program" -C "$configuration" -p "$pid_file" || exit
for ((tries = 0; tries < 50; tries++)); do
    [[ ! -s $pid_file ]] || break
    read -r -t 0.1 -u "$never"
done
pid=$(< "$pid_file") || exit
trap 'kill "$pid" 2> /dev/null' TERM
while kill -0 "$pid" 2> /dev/null; do
    read -r -t 0.1 -u "$never"
done
exit 1
"""


class NbdServerProgram(NbdServer):
    """nbd-server(1), which forks a process for each client and opens the file only then."""

    program = "nbd-server"
    caches = ("writeback", "writethrough")
    without = "works through the page cache, and flushes when it is asked to or after each write"

    def name(self, owner: str) -> str:
        return f"disk-{owner}"  # a section of its configuration: one that is called generic is another matter

    def command(self, offer: Offer) -> list[str]:
        words = [self.program, f"{offer.folder}/{_CONFIGURATION}", offer.pid_file]
        return ["bash", f"{offer.folder}/{_START}", *words, *(offer.address.get(key, "") for key in ("host", "port"))]

    def configuration(self, offer: Offer) -> dict[str, str]:
        at, flushed = offer.address, offer.cache == "writeback"
        if at["type"] == "unix":
            where = {"unixsock": at["path"]}
        else:
            where = {"listenaddr": at["host"], "port": at["port"]}
        served: Options = {"exportname": offer.below.path, "flush": flushed, "fua": flushed, "sync": not flushed}
        sections: dict[str, Options] = {"generic": {"allowlist": True, **where}}
        sections[offer.name] = {**served, "trim": offer.discard}
        lines = []
        for section, options in sections.items():
            # A backslash escapes in its configuration.
            spelled = {k: v.replace("\\", "\\\\") if isinstance(v, str) else str(v).lower() for k, v in options.items()}
            lines.append(f"[{section}]\n" + "".join(f"{name} = {value}\n" for name, value in spelled.items()))
        return {_CONFIGURATION: "\n".join(lines), _START: _DAEMON}

    async def listens(self, node: Node, offer: Offer) -> bool:
        if not await super().listens(node, offer):
            return False
        at = offer.address
        if at["type"] == "unix":
            (socket,) = await node.carry_out(steps.look(at["path"]), go_on=True)
            return socket.result.kind == "socket"
        return is_listening(await node.read_text("/proc/net/tcp"), int(at["port"]))

    def reason(self, how: str, lines: Sequence[str]) -> str:
        """As a daemon, it tells nobody how it ended."""
        if lines != ["no output"]:
            return f"{self.program}: {telling(lines)}"
        return how if how.startswith(self.program) else f"{self.program} is gone"


SERVERS: Mapping[NbdProgram, NbdServer] = {each.program: each for each in (QemuNbd(), NbdServerProgram(), Nbdkit())}


def qemu_address(address: Mapping[str, str]) -> list[str]:
    if address["type"] == "unix":
        return [f"--socket={address['path']}"]
    return [f"--bind={address['host']}", f"--port={address['port']}"]


# Layer ``nbd-export``: what lies below, offered to other nodes over NBD by one of several programs.

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
        remedy = 'write server = "qemu-nbd", or make it a raw one'
        return not_raw(below, f"{self.server} serves", remedy) if self._server.only_raw else None

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
