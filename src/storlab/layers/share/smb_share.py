"""Layer ``smb-share``: the underlying directory, served by the kernel's own SMB server; ksmbd.mountd(8), ksmbd.conf(5).

Its configuration and its only user, whose password is made for this one share, lie in a private folder of Storlab's. A
kernel has one such server.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from storlab.errors import StorlabError, TrialError, Unsupported
from storlab.layers.base import Layer, LayerContext
from storlab.layers.resources import Dir, Server, Share
from storlab.layers.server.base import TAKEN, ServerContext, ServerLayer, network_address
from storlab.layers.share.ports import is_taken
from storlab.layers.share.watch import FileSays
from storlab.nodes.answers import load_modules
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunPath, refuse_foreign, undo
from storlab.units import Size

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
