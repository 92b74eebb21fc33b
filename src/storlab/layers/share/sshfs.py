"""Layer ``sshfs``: what ``ssh-share`` of another node serves as a directory of this one; sshfs(1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.layers.base import LayerContext
from storlab.layers.fs.mkfs import OfSshfs
from storlab.layers.fs.mount import mount_at
from storlab.layers.resources import Dir, Share
from storlab.layers.server.base import OWN_NAME, ServerContext, ServerLayer, network_address
from storlab.layers.server.running import Reachable, is_taken
from storlab.layers.share.client import ShareClient, read_ahead_at, unmount_share
from storlab.nodes.needs import Needs, numactl_programs

# Layer ``ssh-share``: the underlying directory, served by SFTP, by an sshd of Storlab's own; sshd_config(5).
#
# It has keys, a port and a configuration of its own, and lets in whoever has the one key that it made for this.
# Nothing of the machine's SSH configuration is read or changed.


class SshShareLayer(ServerLayer[Dir, Share]):
    """A folder in the underlying directory, offered to other nodes by SFTP, as a user of its own."""

    layer: Literal["ssh-share"] = "ssh-share"

    compared: ClassVar = ("version",)
    program: ClassVar = "/usr/sbin/sshd"  # it insists on being called by its path
    first_port: ClassVar = 2222
    own_user: ClassVar = True
    stop_patience: ClassVar = 10.0
    protocol: ClassVar = "sftp"

    def needs(self) -> Needs:
        bound = numactl_programs(self.pin, self.numa)
        return Needs(programs=("sshd", "ssh-keygen", "ss", "setpriv", *bound), root="a user of its own")

    async def prepare(self, server: ServerContext) -> None:
        network_address(server.node)
        for name in ("host", "client"):
            await server.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{server.folder}/{name}")

    def configuration(self, server: ServerContext) -> Mapping[str, str]:
        lines = {
            "ListenAddress": f"{server.host}:{server.port}",
            "HostKey": f"{server.folder}/host",
            "AuthorizedKeysFile": f"{server.folder}/client.pub",
            "PidFile": "none",
            "StrictModes": "no",  # nobody else can write into its folder
            "UsePAM": "no",  # it has a setuid program look whether the user may log in
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
        """It has read its keys, and then listens; a question that it answers costs a key exchange."""
        return await is_taken(server.node, server.port)

    async def resource(self, server: ServerContext) -> Share:
        assert server.data is not None and server.host is not None and server.port is not None
        own = server.account is not None
        user = OWN_NAME if own else (await server.node.output("id", "--user", "--name")).strip()
        key, host_key = [await server.node.read_text(f"{server.folder}/{name}") for name in ("client", "host.pub")]
        access = {"user": user, "key": key, "host_key": host_key}
        return Share(server.node.name, self.protocol, server.host, server.port, server.data, access)

    async def facts(self, resource: Share, context: LayerContext) -> dict[str, Any]:
        # sshd and ssh are of one release, and only the latter tells which.
        version = (await context.node.run(["ssh", "-V"], check=False)).stderr.decode(errors="replace").strip()
        return {"version": version, "port": resource.port, "user": resource.access["user"]}


_ALIVE = 3  # unanswered questions until ssh gives a server up: later than the watch, which says more


class _Program(ServerLayer[Share, Dir]):
    """The program that a mount belongs to. It is no server, but runs for as long as the mount is there."""

    layer: Literal["sshfs-program"] = "sshfs-program"
    path: str = Field(description="Where it mounts.")
    options: dict[str, str] = Field(description="Options of sshfs and ssh.")
    flags: tuple[str, ...] = Field(description="Options of sshfs without a value.")

    program: ClassVar = "sshfs"
    stop_patience: ClassVar = 10.0

    async def prepare(self, server: ServerContext[Share]) -> None:
        share = server.below
        await server.node.write(f"{server.folder}/key", share.access["key"].encode(), mode=0o600)
        known = f"[{share.host}]:{share.port} {share.access['host_key']}"
        await server.node.write(f"{server.folder}/known_hosts", known.encode())

    def command(self, server: ServerContext[Share]) -> Sequence[str]:
        share = server.below
        options = {
            "IdentityFile": f"{server.folder}/key",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": f"{server.folder}/known_hosts",
            "BatchMode": "yes",
            **self.options,
        }
        words = ",".join([*self.flags, *(f"{name}={value}" for name, value in options.items())])
        source = f"{share.access['user']}@{share.host}:{share.name}"
        return [self.program, "-f", "-F", "/dev/null", "-p", str(share.port), "-o", words, source, self.path]

    async def answers(self, server: ServerContext[Share]) -> bool:
        """It mounts before it connects, so a mount is not enough."""
        if await mount_at(server.node, self.path) is None:
            return False
        return (await server.node.run(["stat", "--", self.path], check=False, timeout=5.0)).ok

    async def resource(self, server: ServerContext[Share]) -> Dir:
        return Dir(server.node.name, self.path)


class SshfsLayer(ShareClient):
    """A mount by FUSE of what a server offers by SFTP."""

    layer: Literal["sshfs"] = "sshfs"
    compression: bool = Field(False, description="Let SSH compress what it carries.")
    cache: bool = Field(True, description="Let sshfs cache attributes and directories.")
    direct_io: bool = Field(False, description="Keep what is read and written out of the page cache.")
    options: OfSshfs = Field((), description="More [options of sshfs](options.md): with others, ssh runs programs.")

    undoes: ClassVar = (unmount_share, *Reachable.undoes)
    protocol: ClassVar = "sftp"
    compared: ClassVar = ("version", "read_ahead")
    requests: ClassVar = "fuse"

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("sshfs", "ssh"), filesystems=("fuse",))

    async def mount(self, share: Share, path: str, context: LayerContext) -> None:
        await self._program(path).set_up(share, context)
        await read_ahead_at(context.node, (await self.mount_of(path, context)).device, self.read_ahead)

    def _program(self, path: str) -> _Program:
        options = {
            "Compression": "yes" if self.compression else "no",
            "dir_cache": "yes" if self.cache else "no",
            "ConnectTimeout": str(max(round(self.give_up), 1)),
            "ServerAliveInterval": str(math.ceil(self.give_up / _ALIVE) + 1),
            "ServerAliveCountMax": str(_ALIVE),
        }
        flags = ("direct_io", *self.options) if self.direct_io else self.options
        return _Program(path=path, options=options, flags=flags)

    async def sever(self, resource: Dir, context: LayerContext) -> None:
        """Kill sshfs, and so cut the kernel's connection to it: what waits for the server gets an error."""
        await self._program(resource.path).kill(context)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        node = context.node
        mount = await self.mount_of(resource.path, context)
        program = self._program(resource.path)
        version = await program.facts(resource, context)
        asked = {**program.options, **dict.fromkeys(program.flags, True)}
        read_ahead = await read_ahead_at(node, mount.device)
        return {**version, "source": mount.source, "options": mount.options, "asked": asked, "read_ahead": read_ahead}
