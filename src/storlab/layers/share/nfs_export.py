"""Layer ``nfs-export``: the underlying directory, served by the kernel's NFS server; nfsd(7), rpc.nfsd(8), exports(5).

The export is in a table of Storlab's own that only its own rpc.mountd(8) reads, so nothing of the machine's NFS
configuration is read or changed. A kernel has one such server, or one in each network namespace.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from pydantic import Field, field_validator

from storlab.base.errors import StorlabError, TrialError, Unsupported
from storlab.base.text import number_or_text
from storlab.base.units import Size
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.mount import unescaped
from storlab.layers.resources import Dir, Resource, Server, Share
from storlab.layers.server.base import ServerContext, ServerLayer, network_address, on_free_port
from storlab.layers.server.running import FileSays, is_taken
from storlab.nodes.agent import steps
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import Port, RunPath, refuse_foreign, undo

# What NFS keeps in text: exports as rpc.mountd(8) reads and the kernel lists them, and /proc/self/mountstats.
#
# Sources: ``support/nfs/exports.c`` of nfs-utils, ``fs/nfsd/export.c`` and ``fs/nfs/super.c`` of the kernel.

_EXPORT = re.compile(r"(?P<path>\S+)\t(?P<client>[^\s(]+)\((?P<flags>[^)]*)\)")
_MOUNT = re.compile(r"device (?P<source>.+) mounted on (?P<path>\S+) with fstype nfs4? statvers=")
_SHOWN = frozenset(
    {"vers", "proto", "rsize", "wsize", "timeo", "retrans", "nconnect", "acregmin", "acregmax", "acdirmin", "acdirmax"}
)
_FLAGS = frozenset({"soft", "softerr", "hard", "noac", "sync", "nosharecache", "nolock", "nocto"})


def export_line(path: str, *, sync: bool, wdelay: bool) -> str:
    """A line of rpc.mountd's table: the whole directory for everybody, as the root of what NFS 4 serves (fsid=0)."""
    flags = ["rw", "sync" if sync else "async", "wdelay" if wdelay else "no_wdelay", "insecure"]
    flags += ["no_root_squash", "no_all_squash", "no_subtree_check"]  # loads run as root
    escaped = "".join(char if char > " " and char not in '\\"#' else f"\\{ord(char):03o}" for char in path)
    return f"{escaped}\t*({','.join(flags)},fsid=0,anonuid=65534,anongid=65534,sec=sys)\n"


def export_flags(line: str) -> list[str]:
    return line.rpartition("(")[2].rstrip(")\n").split(",")


def default_block_size(memory: int) -> int:
    """What a kernel with so many bytes of memory takes at most in one read or write, where nobody says.

    It decides that once and then keeps it: ``nfsd_get_default_max_blksize`` in fs/nfsd/nfssvc.c.
    """
    size = 1024**2
    while size > memory // 4096 and size >= 16 * 1024:
        size //= 2
    return size


def parse_exports(text: str) -> dict[str, tuple[str, ...]]:
    """``/proc/fs/nfsd/exports``: path → the flags with which the kernel serves it. What is no such line is skipped."""
    found = (_EXPORT.match(line) for line in text.splitlines())
    return {unescaped(each["path"]): tuple(each["flags"].split(",")) for each in found if each is not None}


def parse_mountstats(text: str, path: str) -> dict[str, Any]:
    """Of ``/proc/self/mountstats`` what the mount on ``path`` really has; nothing where it is no mount of NFS.

    Sizes in bytes, ``timeo`` in tenths of a second, ``connections``: how many there are to the server.
    """
    here = False
    facts: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("device "):
            begun = _MOUNT.match(line)
            here = begun is not None and unescaped(begun["path"]) == path
            if here:
                facts = {"connections": 0, "flags": []}
            continue
        key, separator, value = line.strip().partition(":")
        if not here or not separator:
            continue
        if key == "opts":
            facts |= _options(value.strip())
        elif key == "xprt" and value.split():
            facts["connections"] += 1
            facts["transport"] = value.split()[0]
    return facts


def _options(text: str) -> dict[str, Any]:
    words = [option.partition("=") for option in text.split(",")]
    found = {name: number_or_text(value) for name, sign, value in words if sign and name in _SHOWN}
    return {**found, "flags": sorted(name for name, sign, _ in words if not sign and name in _FLAGS)}


_NFSD = "/proc/fs/nfsd"
_PORT = 2049
_LOOKS, _LOOK = 40, 0.05  # s between looks

_Bytes = Annotated[int, Meta(ge=1024, le=4 * 1024**2)]


@undo("nfsd.stop", proof="note")
async def _stop(node: Node, path: RunPath, port: Port) -> str | None:
    """Stop the kernel's server, unless it serves anything but what Storlab exported there."""
    refuse_foreign(path)
    if not await _threads(node):
        node.taken.discard("nfsd")
        return None
    if f"tcp {port}" not in (await node.read_text(f"{_NFSD}/portlist")).splitlines():
        return None  # another one, which somebody has started since
    if others := parse_exports(await node.read_text(f"{_NFSD}/exports")).keys() - {path}:
        raise StorlabError(f"the NFS server of node {node.name} serves {others.pop()}, too: left alone")
    await node.run(["rpc.nfsd", "0"])
    for _ in range(_LOOKS):
        if not await _threads(node):
            node.taken.discard("nfsd")
            return f"stopped the NFS server of node {node.name}"
        await asyncio.sleep(_LOOK)
    raise StorlabError(f"the NFS server of node {node.name} does not stop")


_before: dict[str, int] = {}  # by boot id: what a kernel had before Storlab, for all network namespaces together


@undo("nfsd.limit")
async def _restore_block_size(node: Node, before: _Bytes, wanted: _Bytes) -> str | None:
    """Give the kernel its limit again, by which the machine's own server would run later; unless others set it."""
    (now,) = await node.texts(f"{_NFSD}/max_block_size")
    if now == str(wanted):
        await node.write(f"{_NFSD}/max_block_size", b"%d\n" % before)
    elif now != str(before):
        return None
    _before.pop(node.machine, None)
    if now == str(before):
        return None
    return f"set the largest request of the NFS server of node {node.name} back to {before}"


class _Mountd(ServerLayer[None, Server]):
    """Answers what the kernel's server asks of the export, and which clients of version 3 ask to mount it."""

    layer: Literal["mountd"] = "mountd"
    versions: tuple[str, ...] = Field(description="Versions of NFS that are served.")
    line: str = Field(description="The export, as a line of its table.")

    program: ClassVar = "rpc.mountd"
    first_port: ClassVar = 20048
    stop_patience: ClassVar = 5.0

    def configuration(self, server: ServerContext) -> Mapping[str, str]:
        return {"etab": self.line, "rmtab": ""}

    def command(self, server: ServerContext) -> Sequence[str]:
        without = [] if "3" in self.versions else ["--no-nfs-version", "3"]
        where = ["--state-directory-path", server.folder, "--port", str(server.port)]
        return [self.program, "--foreground", "--no-udp", *without, *where]

    async def answers(self, server: ServerContext) -> bool:
        """It reads its table, and then listens."""
        return await is_taken(server.node, server.port)

    async def resource(self, server: ServerContext) -> Server:
        return Server(server.node.name, "mount", server.host, server.port)


class _Rpcbind(ServerLayer[None, Resource]):
    """Without it the kernel serves no version 3, though Storlab's clients ask it nothing."""

    layer: Literal["rpcbind"] = "rpcbind"

    program: ClassVar = "rpcbind"
    stop_patience: ClassVar = 5.0

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self.program, "-f"]

    async def answers(self, server: ServerContext) -> bool:
        return await _has_rpcbind(server.node)

    async def resource(self, server: ServerContext) -> Resource:
        return Resource(server.node.name)


class NfsExportLayer(Layer[Dir, Share]):
    """The underlying directory, offered to other nodes by the NFS server of the node's kernel. A node has one."""

    layer: Literal["nfs-export"] = "nfs-export"
    versions: tuple[Literal["3", "4"], ...] = Field(
        ("3", "4"), min_length=1, description="Versions of NFS that it serves."
    )
    threads: int = Field(8, ge=1, le=1024, description="Threads of the server.")
    sync: bool = Field(True, description="Answer a write once it is on disk; else as soon as it is in memory.")
    write_delay: bool = Field(True, description="With `sync`: wait a moment for further writes to the same file.")
    max_block_size: Size | None = Field(
        None, ge=4096, le=1024**2, description="Largest read or write; by default the kernel decides, by its memory."
    )

    compared: ClassVar = ("threads", "versions", "max_block_size")
    undoes: ClassVar = (_stop, _restore_block_size, *FileSays.undoes, *ServerLayer.undoes)
    protocol: ClassVar = "nfs"

    @field_validator("versions", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def label(self) -> str:
        return f"nfs-export {'sync' if self.sync else 'async'}"

    def needs(self) -> Needs:
        rpcbind = ("rpcbind",) if "3" in self.versions else ()
        programs = ("rpc.mountd", "rpc.nfsd", "ss", "bash", *rpcbind)
        return Needs(programs=programs, modules=("nfsd",), root="an NFS server")

    async def set_up(self, below: Dir, context: LayerContext) -> Share:
        node = context.node
        address = network_address(node)
        await self._claim(node)
        try:
            mountd = await self._prepare(below, context)
        except BaseException:
            node.taken.discard("nfsd")  # what gives it back is journalled when it starts
            raise
        port = await self._start(below.path, context)
        await self._serves(context)
        what = "the kernel's NFS server was stopped"
        await FileSays(f"{_NFSD}/threads", "[1-9]*", what).set_up(context)
        access = {"mountd": str(mountd.port), "versions": ",".join(self.versions)}
        return Share(node.name, self.protocol, address, port, below.path, access)

    async def _prepare(self, below: Dir, context: LayerContext) -> Server:
        """What the kernel's server needs: its daemons, and a limit that it would keep from the one before."""
        node = context.node
        memory = re.search(r"^MemTotal: +(\d{1,12}) kB$", await node.read_text("/proc/meminfo"), re.MULTILINE)
        default = default_block_size(int(memory[1]) * 1024 if memory is not None else 0)
        await self._limit(self.max_block_size or default, default, context)
        if "3" in self.versions and not await _has_rpcbind(node):
            await _Rpcbind().set_up(None, context)
        return await _Mountd(versions=self.versions, line=self._line(below.path)).set_up(None, context)

    async def _limit(self, wanted: int, default: int, context: LayerContext) -> None:
        """Set the largest request. A kernel that has not decided on one yet says 0, which it does not take back."""
        path = f"{_NFSD}/max_block_size"
        now = int(await context.node.read_text(path))
        if now == wanted:
            return
        before = _before.setdefault(context.node.machine, now or default)
        if before != wanted:
            await context.register_undo("nfsd.limit", before=before, wanted=wanted)
        await context.node.write(path, b"%d\n" % wanted)

    async def _claim(self, node: Node) -> None:
        await load_modules(node, "nfsd")
        (there,) = await node.carry_out(steps.look(f"{_NFSD}/threads"), go_on=True)
        if not there.there:
            # What a kernel has always mounted where it serves; it is not ours to take away again.
            await node.run(["mount", "-t", "nfsd", "nfsd", _NFSD])
        if "nfsd" in node.taken or await _threads(node):
            raise Unsupported(
                f"node {node.name} has an NFS server already, and a kernel has only one: export the directory once for "
                "all that mount it (once = true), or another one from a node of its own"
            )
        node.taken.add("nfsd")

    async def _start(self, path: str, context: LayerContext) -> int:
        """Start the server's threads, on the first port that is free."""
        node = context.node
        flags = {version: "--nfs-version" if version in self.versions else "--no-nfs-version" for version in ("3", "4")}
        versions = [word for version, flag in flags.items() for word in (flag, version)]

        async def at(port: int) -> int:
            await context.register_undo("nfsd.stop", path=path, port=port)
            command = ["rpc.nfsd", "--host", str(node.address), "--port", str(port), "--no-udp", *versions]
            await node.run([*command, str(self.threads)])
            return port

        return await on_free_port(node, _PORT, at)

    def _line(self, path: str) -> str:
        return export_line(path, sync=self.sync, wdelay=self.write_delay)

    async def _serves(self, context: LayerContext) -> None:
        """Make sure that it serves: rpc.nfsd(8) may start nothing, and end well; a client would wait for minutes."""
        node = context.node
        if (threads := await _threads(node)) != self.threads:
            log = (await node.run(["dmesg"], check=False)).stdout.decode(errors="replace").splitlines()[-20:]
            last = next(
                (line.partition("] ")[2] for line in reversed(log) if "nfsd" in line.lower()), "no reason given"
            )
            raise TrialError(
                f"node {node.name}: its NFS server has {threads} threads instead of {self.threads}: {last}",
                "\n".join(log),
            )
        if "4" in self.versions:
            # Clients that had files open before it started get the time to say so; there can be none.
            await node.write(f"{_NFSD}/v4_end_grace", b"Y\n")

    async def facts(self, resource: Share, context: LayerContext) -> dict[str, Any]:
        node = context.node
        files = ("threads", "versions", "portlist", "max_block_size")
        threads, versions, ports, block = await node.carry_out(*(steps.read(f"{_NFSD}/{name}") for name in files))
        facts = {
            "threads": int(threads.text),
            "versions": [word[1:] for word in versions.text.split() if word.startswith("+")],
            "ports": ports.text.splitlines() or [""],
            "max_block_size": int(block.text),
            # As rpc.mountd has it: the kernel asks for it, and lists it, when the first client comes.
            "export": export_flags(self._line(resource.name)),
        }
        if self.max_block_size not in (None, facts["max_block_size"]):
            raise TrialError(
                f"node {node.name}: max_block_size should be {self.max_block_size}, but the NFS server has "
                f"{facts['max_block_size']}"
            )
        return facts


async def _threads(node: Node) -> int:
    try:
        return int(await node.read_text(f"{_NFSD}/threads"))
    except FileNotFoundError:
        return 0


async def _has_rpcbind(node: Node) -> bool:
    return (await node.run(["rpcinfo", "-s"], check=False)).ok
