"""Layers ``sshd`` and ``ssh-folder``: a directory of one node as a directory of another, over SSH.

``sshd`` serves the directory below it by SFTP, to whoever has the key that it made for this; ``ssh-folder`` is a
crossing: it mounts that by sshfs. See sshd_config(5), sshfs(1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.api import (
    Crossing,
    Demands,
    Dir,
    LayerContext,
    Mount,
    Needs,
    Node,
    Resource,
    ServerContext,
    ServerLayer,
    Transport,
    Unsupported,
    parse_mountinfo,
)


@dataclass(frozen=True)
class SshFolder(Resource):
    """A directory that can be reached by SFTP. ``key`` is the private key that opens it, ``host_key`` the server's."""

    path: str
    user: str
    host: str
    port: int
    key: str
    host_key: str
    kind: ClassVar[str] = "SshFolder"


class SshdLayer(ServerLayer[Dir, SshFolder]):
    """Serves the directory below it by SFTP, as a user without privileges."""

    layer: Literal["sshd"] = "sshd"

    program: ClassVar = "/usr/sbin/sshd"  # it insists on being called by its path
    first_port: ClassVar = 2222
    users: ClassVar = ("nobody",)  # root's would need /run/sshd
    stop_patience: ClassVar = 10.0

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("ssh-keygen", "ssh-keyscan"))

    async def prepare(self, server: ServerContext) -> None:
        if server.host is None:
            raise Unsupported(f"node {server.node.name} is in no network of the run: make it a netns or vm")
        for name in ("host", "client"):
            await server.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{server.folder}/{name}")

    def configuration(self, server: ServerContext) -> Mapping[str, str]:
        lines = {
            "ListenAddress": f"{server.host}:{server.port}",
            "HostKey": f"{server.folder}/host",
            "AuthorizedKeysFile": f"{server.folder}/client.pub",
            "PidFile": "none",
            "StrictModes": "no",  # nobody else can write into its folder
            "UsePAM": "yes",  # without it, system users count as locked
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "Subsystem": "sftp internal-sftp",
            "ForceCommand": "internal-sftp",
            "DisableForwarding": "yes",
        }
        return {"sshd_config": "".join(f"{name} {value}\n" for name, value in lines.items())}

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self.program, "-D", "-e", "-f", f"{server.folder}/sshd_config"]

    async def answers(self, server: ServerContext) -> bool:
        ask = ["ssh-keyscan", "-t", "ed25519", "-p", str(server.port), str(server.host)]
        return bool((await server.node.run(ask, check=False)).stdout)

    async def resource(self, server: ServerContext) -> SshFolder:
        assert server.data is not None and server.host is not None and server.port is not None
        user = server.user or (await server.node.output("id", "--user", "--name")).strip()
        key, host_key = [await server.node.read_text(f"{server.folder}/{name}") for name in ("client", "host.pub")]
        return SshFolder(server.node.name, server.data, user, server.host, server.port, key, host_key)


class SshfsLayer(ServerLayer[SshFolder, Dir], Crossing[SshFolder, Dir]):
    """Mounts what ``sshd`` serves. Its program is no server, but one that runs for as long as the mount is there."""

    layer: Literal["ssh-folder"] = "ssh-folder"
    compression: bool = Field(False, description="Let SSH compress what it carries.")
    cache: bool = Field(True, description="Let sshfs cache attributes and directories.")

    transport: ClassVar[Transport] = "network"
    program: ClassVar = "sshfs"
    stop_patience: ClassVar = 10.0

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("ssh", "umount"), filesystems=("fuse",), root="mounts")

    def demands(self, below: SshFolder, slot: str) -> Demands:
        return Demands(network=True)

    async def set_up(self, below: SshFolder, context: LayerContext) -> Dir:
        mountpoint = context.path("ssh")
        await context.register_undo("mount.unmount", path=mountpoint)  # for what is left once the program has ended
        await context.node.run(["mkdir", "--", mountpoint])
        return await super().set_up(below, context)

    async def prepare(self, server: ServerContext[SshFolder]) -> None:
        folder = server.below
        await server.node.write(f"{server.folder}/key", folder.key.encode(), mode=0o600)
        known = f"[{folder.host}]:{folder.port} {folder.host_key}"
        await server.node.write(f"{server.folder}/known_hosts", known.encode())

    def command(self, server: ServerContext[SshFolder]) -> Sequence[str]:
        folder = server.below
        options = {
            "IdentityFile": f"{server.folder}/key",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": f"{server.folder}/known_hosts",
            "BatchMode": "yes",
            "Compression": "yes" if self.compression else "no",
            "dir_cache": "yes" if self.cache else "no",
        }
        words = ",".join(f"{name}={value}" for name, value in options.items())
        source = f"{folder.user}@{folder.host}:{folder.path}"
        return [self.program, "-f", "-F", "/dev/null", "-p", str(folder.port), "-o", words, source, _mountpoint(server)]

    async def answers(self, server: ServerContext) -> bool:
        """It mounts before it connects, so a mount is not enough."""
        if await _mount(server.node, _mountpoint(server)) is None:
            return False
        return (await server.node.run(["stat", "--", _mountpoint(server)], check=False)).ok

    async def resource(self, server: ServerContext) -> Dir:
        return Dir(server.node.name, _mountpoint(server))

    async def sever(self, resource: Dir, context: LayerContext) -> None:
        """Kill sshfs, and so cut the kernel's connection to it: what waits for the server gets an error."""
        await self.kill(context)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        mount = await _mount(context.node, resource.path)
        assert mount is not None
        return {"filesystem": mount.filesystem, "source": mount.source, "options": mount.options}


def _mountpoint(server: ServerContext) -> str:
    return server.context.path("ssh")


async def _mount(node: Node, path: str) -> Mount | None:
    mounts = parse_mountinfo(await node.read_text("/proc/self/mountinfo"))
    return next((mount for mount in mounts if mount.path == path and mount.filesystem == "fuse.sshfs"), None)
