"""Layer ``ssh-share``: the underlying directory, served by SFTP, by an sshd of Storlab's own; sshd_config(5).

It has keys, a port and a configuration of its own, and lets in whoever has the one key that it made for this. Nothing
of the machine's SSH configuration is read or changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from storlab.layers.base import LayerContext
from storlab.layers.resources import Dir, Share
from storlab.layers.server.base import OWN_NAME, ServerContext, ServerLayer, network_address
from storlab.layers.share.ports import is_taken
from storlab.nodes.needs import Needs, numactl_programs


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
