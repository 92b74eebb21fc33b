"""The programs that serve NBD for the layer ``nbd-export``: what each is given, and what each can't do."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from storlab.layers.attach.blockdev import Aio, Cache, blockdev
from storlab.layers.resources import Disk, File
from storlab.layers.share.ports import is_listening
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
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
        text = "\n".join(f"[{name}]\n{_options(options)}" for name, options in sections.items())
        return {_CONFIGURATION: text, _START: _DAEMON}

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


def _options(options: Options) -> str:
    """Lines of a configuration, in which a backslash escapes."""
    return "".join(f"{name} = {_value(value)}\n" for name, value in options.items())


def _value(value: str | bool) -> str:
    return value.replace("\\", "\\\\") if isinstance(value, str) else str(value).lower()
