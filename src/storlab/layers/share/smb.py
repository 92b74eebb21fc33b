"""Layer ``smb``: what ``smb-share`` of another node serves as a directory of this one; mount.cifs(8)."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from storlab.errors import TrialError
from storlab.layers.base import LayerContext
from storlab.layers.fs.mount import Mount
from storlab.layers.fs.options import OfSmb
from storlab.layers.resources import Dir, Share
from storlab.layers.share.client import ShareClient, check_options, option_of, read_ahead_at
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.text import number_or_text
from storlab.units import Size

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
        return {**_shown(mount), **session, "read_ahead": await read_ahead_at(node, bdi)}


def _shown(mount: Mount) -> dict[str, Any]:
    values = {name: option_of(mount, name) for name in (*_SHOWN, "addr")}
    facts: dict[str, Any] = {name: number_or_text(value) for name, value in values.items() if value is not None}
    return {**facts, "flags": [name for name in _FLAGS if option_of(mount, name) is not None]}


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
