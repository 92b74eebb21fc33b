"""Layer ``redis``: a Redis server whose append-only file lies in the underlying directory.

See https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/ and redis-server's redis.conf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from storlab.api import (
    Dir,
    LayerContext,
    Server,
    ServerContext,
    ServerLayer,
    TrialError,
    options_of,
)

Setting = Literal[
    "auto-aof-rewrite-min-size", "auto-aof-rewrite-percentage", "hz", "io-threads", "no-appendfsync-on-rewrite",
]  # fmt: skip
"""What may be set: others name files, load modules, or let other machines in."""
Value = Annotated[str, options_of("redis-server"), Field(pattern=r"^[a-z0-9]{1,20}$")]


class RedisLayer(ServerLayer[Dir, Server]):
    """A Redis that logs every write to a file in the underlying directory."""

    layer: Literal["redis"] = "redis"
    appendfsync: Literal["always", "everysec", "no"] = Field(
        "always", description="When its log reaches the disk: before each answer, once a second, when the kernel likes."
    )
    settings: dict[Setting, Value] = Field(default_factory=dict, description="More lines of its configuration.")

    program: ClassVar = "redis-server"
    first_port: ClassVar = 6379
    own_user: ClassVar = True  # it would run as root, but has no reason to

    def _settings(self) -> dict[str, str]:
        return {"appendonly": "yes", "appendfsync": self.appendfsync, "save": '""', **self.settings}

    def configuration(self, server: ServerContext) -> Mapping[str, str]:
        # Its folder lets in the run's own clients alone, and these are other users than the server.
        lines = {"dir": server.data, "unixsocket": server.socket, "unixsocketperm": "777", "port": "0"}
        lines |= self._settings()
        if server.host is not None:  # its node is in the run's network, where nobody else is
            lines |= {"bind": server.host, "port": str(server.port), "protected-mode": "no"}
        return {"redis.conf": "".join(f"{name} {value}\n" for name, value in lines.items())}

    def listens_on_socket(self, server: ServerContext) -> bool:
        return True

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self.program, f"{server.folder}/redis.conf"]

    async def answers(self, server: ServerContext) -> bool:
        ended = await server.node.run(["redis-cli", "-s", server.socket, "ping"], check=False)
        return ended.stdout.strip() == b"PONG"  # not while it still loads its data

    async def resource(self, server: ServerContext[Dir]) -> Server:
        disks = server.below.disks
        return Server(server.node.name, "redis", server.host, server.port, server.socket, disks=disks)

    async def facts(self, resource: Server, context: LayerContext) -> dict[str, Any]:
        """Its settings, as it says itself. Raises ``TrialError`` where one did not take."""
        assert resource.socket is not None
        wanted = self._settings()
        said = await context.node.output("redis-cli", "-s", resource.socket, "config", "get", *wanted)
        words = said.splitlines()
        got = dict(zip(words[::2], words[1::2], strict=True))
        for name, value in wanted.items():
            if got.get(name) != value.strip('"'):
                raise TrialError(
                    f"redis: {name} should be {value}, but the server has {got.get(name, 'no such setting')}"
                )
        return {**await super().facts(resource, context), **got}
