"""Layer ``nfs``: what ``nfs-export`` of another node serves as a directory of this one; nfs(5)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from storlab.base.errors import TrialError
from storlab.base.units import Size
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.mkfs import OfNfs
from storlab.layers.resources import Dir, Share
from storlab.layers.share.client import ShareClient, check_options, option_of, read_ahead_at
from storlab.layers.share.nfs_export import NfsExportLayer, parse_mountstats
from storlab.nodes.needs import Needs

_RETRIES = 1  # of a request, before it fails; the first wait and the second, which is longer, make give_up

_Transfer = Annotated[Size, Field(ge=4096, le=1024**2, multiple_of=4096)] | None


class NfsLayer(ShareClient):
    """A mount by the kernel's NFS client. It shares nothing with other mounts of the same server."""

    layer: Literal["nfs"] = "nfs"
    version: Literal["3", "4.0", "4.1", "4.2"] = Field("4.2", description="Version of the protocol.")
    rsize: _Transfer = Field(None, description="Largest read in bytes; by default the server's.")
    wsize: _Transfer = Field(None, description="Largest write in bytes; by default the server's.")
    nconnect: int = Field(1, ge=1, le=16, description="TCP connections to the server.")
    actimeo: int | None = Field(
        None, ge=0, le=86400, description="Seconds for which attributes are cached; by default 3 to 60."
    )
    noac: bool = Field(False, description="Cache no attributes, and write synchronously.")
    options: OfNfs = Field((), description="More [options of the mount](options.md), as nfs(5) has them.")

    protocol: ClassVar = "nfs"
    compared: ClassVar = ("vers", "rsize", "wsize", "proto", "flags", "connections", "transport", "read_ahead")

    def label(self) -> str:
        return f"nfs {self.version}"

    def check_above(self, below: Layer | None) -> str | None:
        wrong = super().check_above(below)
        if wrong is None and isinstance(below, NfsExportLayer) and self.version[0] not in below.versions:
            served = " and ".join(below.versions)
            wrong = f'version {self.version} is not served: layer nfs-export has versions = "{served}"'
        return wrong

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("mount.nfs",), filesystems=("nfs",))

    async def mount(self, share: Share, path: str, context: LayerContext) -> None:
        node = context.node
        source = f"{share.host}:{share.name if self.version == '3' else '/'}"
        argv = ["mount", "-t", "nfs", "-o", ",".join(self._options(share)), source, path]
        await self.mounted(argv, share, context)
        await read_ahead_at(node, (await self.mount_of(path, context)).device, self.read_ahead)

    def _options(self, share: Share) -> list[str]:
        tenths = max(round(self.give_up * 10 / (1 + _RETRIES)), 1)
        options = [*self.options, f"vers={self.version}", "proto=tcp", f"port={share.port}", "nosharecache", "retry=0"]
        options += ["softerr", f"timeo={tenths}", f"retrans={_RETRIES}"]
        if self.version == "3":  # asked of nobody, and so no rpcbind is needed; locks are the client's own
            options += [f"mountport={share.access['mountd']}", "mountproto=tcp", "nolock"]
        sizes = {"rsize": self.rsize, "wsize": self.wsize, "actimeo": self.actimeo}
        options += [f"{name}={value}" for name, value in sizes.items() if value is not None]
        options += [f"nconnect={self.nconnect}"] if self.nconnect > 1 else []
        return [*options, *(["noac"] if self.noac else [])]

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        node = context.node
        mount = await self.mount_of(resource.path, context)
        check_options(node, mount, {"vers": self.version, "rsize": self.rsize, "wsize": self.wsize})
        found = parse_mountstats(await node.read_text("/proc/self/mountstats"), mount.path)
        if self.nconnect != found.get("connections"):
            raise TrialError(
                f"node {node.name}: nconnect should be {self.nconnect}, but the mount has "
                f"{found.get('connections', 'no')} connections"
            )
        server = option_of(mount, "addr")
        return {"server": server, **found, "read_ahead": await read_ahead_at(node, mount.device)}
