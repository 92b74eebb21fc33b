"""Layer ``nvme-target``: the kernel's own NVMe target over TCP, see drivers/nvme/target/configfs.c of Linux."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct
from pydantic import Field

from storlab.layers.base import LayerContext
from storlab.layers.resources import Disk, Export, File, Resource
from storlab.layers.server.configfs import MOUNTED, KernelTarget, attributes
from storlab.layers.share.watch import FileSays
from storlab.nodes.node import Node
from storlab.nodes.undo import RunId, undo
from storlab.units import Size

_ROOT = "/sys/kernel/config/nvmet"
_PREFIX = "nqn.2026-01.local.storlab:"

# A port of somebody else's has the same folder, or the same address: either is an error that names it as taken.
_SET_UP = (
    MOUNTED
    + r"""
root=$root/nvmet name=$1 path=$2 buffered=$3 uuid=$4 host=$5 port=$6 inline=$7
space=$root/subsystems/$name/namespaces/1
mkdir "$root/ports/$port"
cd "$root/ports/$port"
echo tcp > addr_trtype
case $host in *:*) echo ipv6 ;; *) echo ipv4 ;; esac > addr_adrfam
echo "$host" > addr_traddr
echo "$port" > addr_trsvcid
echo "$inline" > param_inline_data_size
if [ ! -d "$space" ]; then
    mkdir "$root/subsystems/$name"
    echo 1 > "$root/subsystems/$name/attr_allow_any_host"
    mkdir "$space"
    echo "$path" > "$space/device_path"
    echo "$buffered" > "$space/buffered_io"
    echo "$uuid" > "$space/device_uuid"
    echo 1 > "$space/enable"
fi
ln -s "$root/subsystems/$name" "subsystems/$name" || { cd /; rmdir "$root/ports/$port"; exit 1; }
"""
)
_TEAR_DOWN = r"""
root=/sys/kernel/config/nvmet name=$1 port=$2 host=$3
if [ -L "$root/ports/$port/subsystems/$name" ]; then
    echo gone
    rm "$root/ports/$port/subsystems/$name" || exit 1
fi
if [ "$(cat "$root/ports/$port/addr_traddr" 2> /dev/null)" = "$host" ] && [ -z "$(ls "$root/ports/$port/subsystems")" ]
then
    rmdir "$root/ports/$port" || exit 1
fi
if [ -d "$root/subsystems/$name" ] && ! ls -d "$root"/ports/*/subsystems/"$name" 2> /dev/null; then
    echo gone
    for space in "$root/subsystems/$name"/namespaces/*; do
        [ -d "$space" ] || continue
        echo 0 > "$space/enable" && rmdir "$space" || exit 1
    done
    rmdir "$root/subsystems/$name"
fi
"""
_NAMESPACE = ("device_path", "buffered_io", "enable")
_PORT = ("addr_traddr", "addr_trsvcid", "param_inline_data_size", "param_max_queue_size")


class _Target(Struct, frozen=True, forbid_unknown_fields=True):
    target: Annotated[str, Meta(pattern=r"^nqn\.[A-Za-z0-9.:-]{1,220}$")]
    port: Annotated[int, Meta(ge=1, le=65535)]
    host: Annotated[str, Meta(pattern=r"^[0-9a-fA-F.:]{2,45}$")]
    run: RunId


@undo("nvme-target.remove", arguments=_Target)
async def _remove(node: Node, arguments: Mapping[str, Any]) -> str | None:
    target, port, host = arguments["target"], str(arguments["port"]), arguments["host"]
    ended = (await node.run(["sh", "-c", _TEAR_DOWN, "remove", target, port, host], check=False)).check(node.name)
    return f"removed {target}" if b"gone" in ended.stdout else None


class NvmeTargetLayer(KernelTarget):
    """The underlying file or disk, served over NVMe/TCP by the kernel's own target."""

    layer: Literal["nvme-target"] = "nvme-target"
    inline_data: Size = Field(16384, ge=0, le=65536, description="Writes up to this size go out with their command.")

    protocol: ClassVar = "nvme-tcp"
    modules: ClassVar = ("nvmet", "nvmet_tcp")
    first_port: ClassVar = 4420
    undoes: ClassVar = (_remove, *FileSays.undoes)

    def enabled(self, export: str) -> str:
        return f"{_ROOT}/subsystems/{export}/namespaces/1/enable"

    async def serve(self, below: File | Disk, name: str, port: int, context: LayerContext) -> str:
        target, host = f"{_PREFIX}{name}", context.node.address
        assert host is not None
        await context.register_undo("nvme-target.remove", target=target, port=port, host=host, run=context.run)
        identity = str(uuid.uuid5(uuid.NAMESPACE_URL, target))
        buffered = "0" if self.direct else "1"
        words = (target, below.path, buffered, identity, host, str(port), str(self.inline_data))
        await context.node.run(["sh", "-c", _SET_UP, "serve", "nvmet", *words])
        return target

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, Export)
        space = f"{_ROOT}/subsystems/{resource.export}/namespaces/1"
        port = f"{_ROOT}/ports/{resource.server['port']}"
        return {
            "server": "nvmet",
            "namespace": dict(await attributes(context.node, space, _NAMESPACE)),
            "port": dict(await attributes(context.node, port, _PORT)),
        }
