"""Layer ``smb``: what ``smb-share`` of another node serves as a directory of this one; mount.cifs(8)."""

from __future__ import annotations

import asyncio
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from storlab.base.errors import StorlabError, TrialError, Unsupported
from storlab.base.text import number_or_text
from storlab.base.units import Size
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.mkfs import OfSmb
from storlab.layers.resources import Dir, Server, Share
from storlab.layers.server.base import TAKEN, ServerContext, ServerLayer, network_address
from storlab.layers.server.running import FileSays, is_taken
from storlab.layers.share.client import ShareClient, check_options, option_of, read_ahead_at
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunPath, refuse_foreign, undo

# Layer ``smb-share``: the underlying directory, served by the kernel's own SMB server; ksmbd.mountd(8),
# ksmbd.conf(5).
#
# Its configuration and its only user, whose password is made for this one share, lie in a private folder of
# Storlab's. A kernel has one such server.

_CONTROL = "/sys/class/ksmbd-control"
_LOCK = "/run/ksmbd.lock"
_USER, _NAME = "root", "share"  # loads run as root, as on the other kinds of share
_LOOKS, _LOOK = 100, 0.05  # s between looks


@undo("ksmbd.stop", proof="note")
async def _stop(node: Node, configuration: RunPath) -> str | None:
    """Stop the kernel's server, unless its daemon is another than the one with Storlab's configuration."""
    refuse_foreign(configuration)
    if await _state(node) != "running":
        node.taken.discard("ksmbd")
        return None
    words = await _daemon(node)
    if words and configuration not in words:
        return None
    await node.write(f"{_CONTROL}/kill_server", b"hard")
    for _ in range(_LOOKS):
        if await _state(node) != "running":
            node.taken.discard("ksmbd")
            return f"stopped the SMB server of node {node.name}"
        await asyncio.sleep(_LOOK)
    raise StorlabError(f"the SMB server of node {node.name} does not stop")


class _Daemon(ServerLayer[Dir, Server]):
    """Tells the kernel's server what to serve, and who may use it."""

    layer: Literal["ksmbd"] = "ksmbd"
    settings: dict[str, str] = Field(description="Settings of the whole server.")
    _password: str = PrivateAttr(default_factory=lambda: secrets.token_urlsafe(24))  # fields may be shown

    program: ClassVar = "ksmbd.mountd"
    first_port: ClassVar = 445
    stop_patience: ClassVar = 5.0

    def configuration(self, server: ServerContext) -> Mapping[str, str]:
        assert server.data is not None
        settings = {"tcp port": str(server.port), **self.settings}
        # A folder of its own: of the root of a file system ksmbd 6.12 lists nothing, not even what it has just made.
        share = {"path": server.data, "read only": "no", "guest ok": "no", "valid users": _USER}
        sections = {"global": settings, _NAME: share}
        lines = (f"[{name}]\n" + "".join(f"\t{k} = {v}\n" for k, v in each.items()) for name, each in sections.items())
        return {"ksmbd.conf": "\n".join(lines)}

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self.program, "--nodetach", "--config", _path(server), "--users", f"{server.folder}/users"]

    async def prepare(self, server: ServerContext) -> None:
        await server.context.register_undo("ksmbd.stop", configuration=_path(server))
        empty, users = f"{server.folder}/empty.conf", f"{server.folder}/users"
        await server.node.write(empty, b"")
        await server.node.write(users, b"", mode=0o600)
        # The tool knows the format of its database of users, and the password goes over a pipe.
        argv = ["ksmbd.adduser", "--add-user", _USER, "--import-users", users, "--config", empty]
        await server.node.run(argv, stdin=f"{self._password}\n{self._password}\n".encode())

    async def start_at(self, server: ServerContext) -> None:
        """The kernel says nothing where somebody else has the port, and runs without one."""
        if await is_taken(server.node, server.port):
            raise TrialError(f"node {server.node.name}: port {server.port} is taken", TAKEN)
        await super().start_at(server)

    async def answers(self, server: ServerContext) -> bool:
        return await _state(server.node) == "running"

    async def resource(self, server: ServerContext) -> Server:
        return Server(server.node.name, "smb", server.host, server.port)


class SmbShareLayer(Layer[Dir, Share]):
    """The underlying directory, offered to other nodes by the SMB server of the node's kernel. A node has one."""

    layer: Literal["smb-share"] = "smb-share"
    signing: Literal["auto", "mandatory", "disabled"] = Field("auto", description="Whether messages must be signed.")
    encryption: Literal["auto", "yes", "no"] = Field("auto", description="Whether messages must be encrypted.")
    oplocks: bool = Field(True, description="Let clients cache what nobody else has open.")
    max_read: Size | None = Field(None, ge=65536, le=8 * 1024**2, description="Largest read; by default 4M.")
    max_write: Size | None = Field(None, ge=65536, le=8 * 1024**2, description="Largest write; by default 4M.")

    compared: ClassVar = ("version",)
    undoes: ClassVar = (_stop, *FileSays.undoes, *ServerLayer.undoes)
    protocol: ClassVar = "smb"

    def needs(self) -> Needs:
        return Needs(programs=("ksmbd.mountd", "ksmbd.adduser", "ss", "bash"), modules=("ksmbd",), root="an SMB server")

    async def set_up(self, below: Dir, context: LayerContext) -> Share:
        node = context.node
        address = network_address(node)
        await self._claim(node)
        daemon = _Daemon(settings=self._settings())
        try:
            server = await daemon.set_up(below, context)
        except BaseException:
            node.taken.discard("ksmbd")
            raise
        assert server.port is not None
        what = "the kernel's SMB server was stopped"
        await FileSays(f"{_CONTROL}/stats", "* running *", what).set_up(context)
        access = {"user": _USER, "password": daemon._password}
        return Share(node.name, self.protocol, address, server.port, _NAME, access)

    async def _claim(self, node: Node) -> None:
        await load_modules(node, "ksmbd")
        if "ksmbd" in node.taken or await _state(node) == "running" or await _daemon(node):
            raise Unsupported(
                f"node {node.name} has an SMB server already, and a kernel has only one: share the directory once for "
                "all that mount it (once = true), or another one from a node of its own"
            )
        node.taken.add("ksmbd")

    def _settings(self) -> dict[str, str]:
        settings = {
            "netbios name": "STORLAB",
            "server min protocol": "SMB3_00",
            "server max protocol": "SMB3_11",
            "server signing": self.signing,
            "smb3 encryption": self.encryption,
            "oplocks": "yes" if self.oplocks else "no",
            "map to guest": "never",
        }
        sizes = {"smb2 max read": self.max_read, "smb2 max write": self.max_write}
        return settings | {name: str(size) for name, size in sizes.items() if size is not None}

    async def facts(self, resource: Share, context: LayerContext) -> dict[str, Any]:
        if await _state(context.node) != "running":
            raise TrialError(f"node {context.node.name}: the kernel's SMB server does not run")
        version = (await context.node.output("ksmbd.mountd", "--version")).strip()
        return {"version": version, "port": resource.port, "settings": self._settings()}


def _path(server: ServerContext) -> str:
    return f"{server.folder}/ksmbd.conf"


async def _state(node: Node) -> str:
    """The second word of what it says: ``startup`` while it serves nothing, ``running``, ``reset`` …"""
    try:
        words = (await node.read_text(f"{_CONTROL}/stats")).split()
    except FileNotFoundError:
        return ""
    return words[1] if len(words) > 1 else ""


async def _daemon(node: Node) -> list[str]:
    try:
        pid = int((await node.read_text(_LOCK)).strip() or "0")
        words = (await node.read_text(f"/proc/{pid}/cmdline")).split("\0")
    except (FileNotFoundError, ValueError):
        return []
    return words if words[0].endswith("ksmbd.mountd") else []


_ECHOES = 3  # without an answer until the kernel gives up a server, see ``server_unresponsive`` in fs/smb/client
_SHOWN = ("vers", "cache", "rsize", "wsize", "bsize", "echo_interval", "actimeo", "closetimeo", "reparse")
_FLAGS = ("soft", "hard", "seal", "sign", "nosharesock", "serverino", "noserverino")
_SERVER = re.compile(r"^\d+\) ConnectionId:.*?(?=^\d+\) ConnectionId:|\Z)", re.MULTILINE | re.DOTALL)

_Transfer = Annotated[Size, Field(ge=4096, le=8 * 1024**2, multiple_of=4096)] | None


class SmbLayer(ShareClient):
    """A mount by the kernel's SMB client, over a connection of its own."""

    layer: Literal["smb"] = "smb"
    version: Literal["3.0", "3.0.2", "3.1.1"] = Field("3.1.1", description="Version of the protocol.")
    cache: Literal["strict", "none", "loose"] = Field("strict", description="What is cached, see mount.cifs(8).")
    rsize: _Transfer = Field(None, description="Largest read in bytes; by default the server's.")
    wsize: _Transfer = Field(None, description="Largest write in bytes; by default the server's.")
    actimeo: int | None = Field(
        None, ge=0, le=86400, description="Seconds for which attributes are cached; by default 1."
    )
    sign: bool = Field(False, description="Sign every message.")
    seal: bool = Field(False, description="Encrypt every message.")
    options: OfSmb = Field((), description="More [options of the mount](options.md), as mount.cifs(8) has them.")

    protocol: ClassVar = "smb"
    compared: ClassVar = ("vers", "cache", "rsize", "wsize", "actimeo", "flags", "signed", "encrypted", "read_ahead")

    def label(self) -> str:
        return f"smb {self.version}"

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("mount.cifs",), filesystems=("cifs",))

    async def mount(self, share: Share, path: str, context: LayerContext) -> None:
        node = context.node
        options = ",".join(self._options(share))
        before = await _bdis(node)
        argv = ["mount", "-t", "cifs", "-o", options, f"//{share.host}/{share.name}", path]
        # The password comes over a pipe: a command line is everybody's to read.
        credentials = f"username={share.access['user']}\npassword={share.access['password']}\n".encode()
        await self.mounted(argv, share, context, stdin=credentials)

        async def find() -> str:
            """It has a number that nothing else tells."""
            return max((await _bdis(node)) - before, key=len, default="")

        bdi = await context.once(_bdi_of(path), find)
        await read_ahead_at(node, bdi, self.read_ahead)

    def _options(self, share: Share) -> list[str]:
        echo = max(math.floor(self.give_up / _ECHOES), 1)
        options = [*self.options, f"vers={self.version}", f"port={share.port}", "credentials=/dev/stdin", "soft"]
        options += [f"echo_interval={echo}", "nosharesock", f"cache={self.cache}"]
        values = {"rsize": self.rsize, "wsize": self.wsize, "actimeo": self.actimeo}
        options += [f"{name}={value}" for name, value in values.items() if value is not None]
        flags = {"sign": self.sign, "seal": self.seal}
        return [*options, *(name for name, wanted in flags.items() if wanted)]

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        node = context.node
        mount = await self.mount_of(resource.path, context)
        wanted = {"vers": self.version, "cache": self.cache, "rsize": self.rsize, "wsize": self.wsize}
        check_options(node, mount, {**wanted, "actimeo": self.actimeo})
        session = parse_debug_data(await node.read_text("/proc/fs/cifs/DebugData"), mount.source)
        for name, asked, got in (("sign", self.sign, "signed"), ("seal", self.seal, "encrypted")):
            if asked and not session.get(got):
                raise TrialError(f"node {node.name}: {name} should be true, but the session is not {got}")
        bdi = await context.once(_bdi_of(resource.path), _unknown)
        values = {name: option_of(mount, name) for name in (*_SHOWN, "addr")}
        shown = {name: number_or_text(value) for name, value in values.items() if value is not None}
        flags = [name for name in _FLAGS if option_of(mount, name) is not None]
        return {**shown, "flags": flags, **session, "read_ahead": await read_ahead_at(node, bdi)}


def parse_debug_data(text: str, source: str) -> dict[str, Any]:
    """Of ``/proc/fs/cifs/DebugData`` what the connection of the share ``//host/name`` really has.

    ``dialect``: of the protocol, as a number; ``signed``, ``encrypted``; nothing where it is not there.
    """
    share = source.replace("/", "\\")
    for server in _SERVER.findall(text):
        if not any(line.partition(") ")[2].split(" ")[0] == share for line in server.splitlines()):
            continue
        dialect = re.search(r"\bDialect (0x[0-9a-f]{1,4})\b", server)
        words = server.replace("(", " ").split()
        return {
            "dialect": None if dialect is None else dialect[1],
            "signed": "signed" in words,
            "encrypted": "encrypted" in words,
        }
    return {}


def _bdi_of(path: str) -> str:
    return f"bdi of {path}"


async def _unknown() -> str:
    return ""


async def _bdis(node: Node) -> set[str]:
    return {name for name in (await node.output("ls", "/sys/class/bdi")).split() if name.startswith("cifs-")}
