"""Layer ``nvme-target``: the kernel's own NVMe target over TCP, see drivers/nvme/target/configfs.c of Linux."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from pydantic import Field

from storlab.errors import CommandFailed
from storlab.layers.base import LayerContext
from storlab.layers.resources import Disk, Export, File
from storlab.layers.server.base import network_address
from storlab.layers.server.configfs import KernelTarget, attributes, configure, mount_configfs, settings
from storlab.layers.share.watch import FileSays
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.nodes.undo import NvmeName, Port, undo
from storlab.units import Size

_ROOT = "/sys/kernel/config/nvmet"
_PREFIX = "nqn.2026-01.local.storlab:"

_NAMESPACE = ("device_path", "buffered_io", "enable")
_PORT = ("addr_traddr", "addr_trsvcid", "param_inline_data_size", "param_max_queue_size")
_Host = Annotated[str, Meta(pattern=r"^[0-9a-fA-F.:]{2,45}$")]


@undo("nvme-target.remove", proof="note")
async def _remove(node: Node, target: NvmeName, port: Port, host: _Host) -> str | None:
    subsystem, at = f"{_ROOT}/subsystems/{target}", f"{_ROOT}/ports/{port}"
    look = (
        steps.look(f"{at}/subsystems/{target}"),
        steps.read(f"{at}/addr_traddr"),
        steps.names(f"{at}/subsystems"),
        steps.names(f"{_ROOT}/ports"),
        steps.names(f"{subsystem}/namespaces"),
    )
    link, address, served, ports, spaces = await node.carry_out(*look, go_on=True)
    wanted = [steps.unlink(f"{at}/subsystems/{target}")] if link.there else []
    if address.text == host and set(served.entries) <= {target}:
        wanted.append(steps.remove_directory(at))
    others = [f"{_ROOT}/ports/{each}/subsystems/{target}" for each in ports.entries if each != str(port)]
    elsewhere = await node.carry_out(*map(steps.look, others), go_on=True)
    if spaces.there and not any(each.there for each in elsewhere):
        for each in spaces.entries:
            space = f"{subsystem}/namespaces/{each}"
            wanted += [steps.write(f"{space}/enable", "0\n"), steps.remove_directory(space)]
        wanted.append(steps.remove_directory(subsystem))
    await node.carry_out(*wanted)
    return f"removed {target}" if link.there or spaces.there else None


class NvmeTargetLayer(KernelTarget):
    """The underlying file or disk, served over NVMe/TCP by the kernel's own target."""

    layer: Literal["nvme-target"] = "nvme-target"
    inline_data: Size = Field(16384, ge=0, le=65536, description="Writes up to this size go out with their command.")

    protocol: ClassVar = "nvme-tcp"
    compared: ClassVar = ("server",)
    modules: ClassVar = ("nvmet", "nvmet_tcp")
    first_port: ClassVar = 4420
    undoes: ClassVar = (_remove, *FileSays.undoes)

    def enabled(self, export: str) -> str:
        return f"{_ROOT}/subsystems/{export}/namespaces/1/enable"

    async def serve(self, below: File | Disk, name: str, port: int, context: LayerContext) -> str:
        node, target, host = context.node, f"{_PREFIX}{name}", network_address(context.node)
        await context.register_undo("nvme-target.remove", target=target, port=port, host=host)
        identity = str(uuid.uuid5(uuid.NAMESPACE_URL, target))
        await mount_configfs(node, "nvmet")
        subsystem, at = f"{_ROOT}/subsystems/{target}", f"{_ROOT}/ports/{port}"
        space = f"{subsystem}/namespaces/1"
        address = {
            "addr_trtype": "tcp",
            "addr_adrfam": "ipv6" if ":" in host else "ipv4",
            "addr_traddr": host,
            "addr_trsvcid": port,
            "param_inline_data_size": self.inline_data,
        }
        served = {
            "device_path": below.path,
            "buffered_io": int(not self.direct),
            "device_uuid": identity,
            "enable": 1,
        }
        (there,) = await node.carry_out(steps.look(space), go_on=True)
        made = [
            steps.make_directory(subsystem),
            steps.write(f"{subsystem}/attr_allow_any_host", "1\n"),
            steps.make_directory(space),
            *settings(space, served),
        ]
        # A port of somebody else's has the same folder, or the same address: either is an error that says it is taken.
        await configure(node, steps.make_directory(at))
        try:
            link = steps.symlink(f"{at}/subsystems/{target}", subsystem)
            await configure(node, *settings(at, address), *([] if there.there else made), link)
        except CommandFailed:
            await node.carry_out(steps.remove_directory(at), go_on=True)
            raise
        return target

    async def facts(self, resource: Export, context: LayerContext) -> dict[str, Any]:
        space = f"{_ROOT}/subsystems/{resource.export}/namespaces/1"
        port = f"{_ROOT}/ports/{resource.server['port']}"
        return {
            "server": "nvmet",
            "namespace": dict(await attributes(context.node, space, _NAMESPACE)),
            "port": dict(await attributes(context.node, port, _PORT)),
        }
