"""Layer ``nvme-tcp``: a disk of the kernel's NVMe client over TCP, see drivers/nvme/host/fabrics.c of Linux.

The kernel is asked through ``/dev/nvme-fabrics``, as nvme(1) does: that of Debian 12 does not know
``fast_io_fail_tmo``, without which requests wait until the controller is given up.
"""

from __future__ import annotations

import re
import uuid
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from pydantic import Field

from storlab.base.errors import CommandFailed, TrialError, Unsupported
from storlab.base.units import Size
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import sysfs
from storlab.layers.net.configfs import KernelTarget, attributes, configure, mount_configfs, settings
from storlab.layers.net.initiator import InitiatorLayer, appears, host_uuid
from storlab.layers.resources import Disk, Export, File
from storlab.layers.server.base import network_address
from storlab.layers.server.running import FileSays, Reachable
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import NvmeName, Port, undo

_PATIENCE = 3  # s, for a server that is to answer a ping
# What the kernel answers is for who has asked by the same open file.
_CONNECT = r"""
exec 3<>/dev/nvme-fabrics
printf %s "$1" >&3 || { dmesg | grep -i nvme | tail -n 3 >&2; exit 1; }
read -r answer <&3
echo "$answer"
"""
_CLASS = "/sys/class/nvme"
_ADDRESS = re.compile(r"traddr=([0-9A-Fa-f.:]{2,45}),trsvcid=(\d{1,5})\b")
_FACTS = ("state", "sqsize", "queue_count", "kato", "ctrl_loss_tmo", "fast_io_fail_tmo", "reconnect_delay", "hostnqn")
_Host = Annotated[str, Meta(pattern=r"^[0-9a-f-]{36}$")]


@undo("nvme-tcp.disconnect")
async def _disconnect(node: Node, subsystem: NvmeName, host: _Host) -> str | None:
    connected = await _controllers(node, subsystem, host)
    for each in connected:
        await _delete(node, *each, reset=False)
    return f"disconnected {subsystem}" if connected else None


async def _load_driver(node: Node) -> None:
    """Without multipath: a controller's paths would be disks below another one, which has no scheduler of its own."""
    modules = ("/sys/module/nvme_core", "/sys/module/nvme_tcp")
    core, driver = await node.carry_out(*map(steps.look, modules), go_on=True)
    if not core.there:
        await node.run(["modprobe", "nvme_core", "multipath=N"], check=False)
    if not driver.there:
        await node.run(["modprobe", "nvme_tcp"])


async def _controllers(node: Node, subsystem: str, host: str) -> list[tuple[str, str]]:
    """The kernel's folders of this subsystem's and host's controllers, of which there is one, and their addresses."""
    (listed,) = await node.carry_out(steps.names(_CLASS), go_on=True)
    folders = [f"{_CLASS}/{name}" for name in listed.entries]
    said = await node.texts(*(f"{folder}/{file}" for folder in folders for file in ("subsysnqn", "hostid", "address")))
    all_of_them = zip(folders, said[::3], said[1::3], said[2::3], strict=True)
    return [(at, address or "") for at, nqn, own, address in all_of_them if (nqn, own) == (subsystem, host)]


async def _delete(node: Node, folder: str, at: str, *, reset: bool) -> None:
    """Delete a controller, whether or not its server is there.

    While the kernel takes it for alive, that waits for all requests, until their time is over, and a minute for its
    goodbye; once its connections are reset, it fails them. The kernel's sockets belong to no process: only sock_diag(7)
    reaches them.
    """
    address = _ADDRESS.search(at)
    # Whether it answers now: half a second ago, when whoever watches it has asked, says too little.
    ping = ["ping", "-n", "-q", "-c", "1", "-w", str(_PATIENCE)]
    if address is not None and (reset or not (await node.run([*ping, address[1]], check=False)).ok):
        host = f"[{address[1]}]" if ":" in address[1] else address[1]
        which = f"dst {host} and dport = :{address[2]}"
        await node.run(["ss", "--kill", "--no-header", "--tcp", which], check=False)
    await node.carry_out(steps.write(f"{folder}/delete_controller", "1\n"), go_on=True)


class NvmeTcpLayer(InitiatorLayer):
    """A disk of the kernel's own NVMe client, over TCP."""

    layer: Literal["nvme-tcp"] = "nvme-tcp"
    header_digest: bool = Field(False, description="A checksum of each header.")
    data_digest: bool = Field(False, description="A checksum of all data.")

    protocol: ClassVar = "nvme-tcp"
    undoes: ClassVar = (_disconnect, *Reachable.undoes)

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("modprobe", "ss"), modules=("nvme_tcp",))

    async def connect(self, below: Export, context: LayerContext) -> str:
        node, host = context.node, str(host_uuid(context))
        await context.register_undo("nvme-tcp.disconnect", subsystem=below.export, host=host)
        options = ",".join(f"{name}={value}" for name, value in self._options(below, host).items())
        options += ",hdr_digest" * self.header_digest + ",data_digest" * self.data_digest
        await _load_driver(node)
        try:
            answer = await node.output("sh", "-c", _CONNECT, "connect", options)
        except CommandFailed as error:
            raise TrialError(f"node {node.name}: the kernel refused to connect to {below.export}", str(error)) from None
        controller = parse_instance(answer)
        if controller is None:
            raise TrialError(f"node {node.name}: the kernel connected to {below.export}, and answered {answer!r}")
        if (await node.read_text("/sys/module/nvme_core/parameters/multipath")).strip() != "N":
            raise Unsupported(
                f"layer nvme-tcp: node {node.name} has loaded nvme_core with multipath, whose disks have no scheduler "
                'and no requests of their own: write kernel_args = "nvme_core.multipath=N" for it'
            )
        name = f"nvme{controller}n1"
        if not await appears(node, f"{sysfs(name)}/size"):
            raise TrialError(f"node {node.name}: {below.export} is connected, and its disk {name} did not appear")
        return name

    def _options(self, below: Export, host: str) -> dict[str, str | int]:
        """A silent server is noticed after ``keep_alive_tmo``, and requests fail ``fast_io_fail_tmo`` later."""
        notice = max(round(self.give_up / 3), 1)
        return {
            "transport": "tcp",
            "traddr": below.server["host"],
            "trsvcid": below.server["port"],
            "nqn": below.export,
            "hostnqn": f"nqn.2014-08.org.nvmexpress:uuid:{host}",
            "hostid": host,
            "nr_io_queues": self.queues,
            "queue_size": min(max(self.queue_depth + 1, 16), 1024),  # one of a ring is always free
            "keep_alive_tmo": notice,
            "reconnect_delay": 1,
            "fast_io_fail_tmo": notice,
            "ctrl_loss_tmo": max(round(self.give_up), 1),
        }

    def timeouts(self) -> dict[str, str]:
        return {"queue/io_timeout": str(round(self.give_up * 1000))}  # ms

    async def session_facts(self, disk: str, context: LayerContext) -> dict[str, Any]:
        controller = f"{_CLASS}/{disk.partition('n1')[0]}"
        said = await context.node.carry_out(*(steps.read(f"{controller}/{name}") for name in _FACTS))
        return {"session": dict(zip(_FACTS, (each.text for each in said), strict=True))}

    async def sever(self, resource: Disk, context: LayerContext) -> None:
        (nqn,) = await context.node.texts(f"{_CLASS}/{resource.name.partition('n1')[0]}/subsysnqn")
        if nqn is None:
            return  # it is gone: by itself, after ctrl_loss_tmo, or severed before
        for each in await _controllers(context.node, nqn, str(host_uuid(context))):
            await _delete(context.node, *each, reset=True)


def parse_instance(answer: str) -> int | None:
    """The controller's number in the kernel's answer, ``instance=0,cntlid=1``; ``None`` where there is none."""
    for word in answer.strip().split(","):
        key, _, value = word.partition("=")
        if key == "instance" and value.isascii() and value.isdigit() and len(value) < 6:
            return int(value)
    return None


# Layer ``nvme-target``: the kernel's own NVMe target over TCP, see drivers/nvme/target/configfs.c of Linux.

_ROOT = "/sys/kernel/config/nvmet"
_PREFIX = "nqn.2026-01.local.storlab:"

_NAMESPACE = ("device_path", "buffered_io", "enable")
_PORT = ("addr_traddr", "addr_trsvcid", "param_inline_data_size", "param_max_queue_size")
_NvmeTargetHost = Annotated[str, Meta(pattern=r"^[0-9a-fA-F.:]{2,45}$")]


@undo("nvme-target.remove", proof="note")
async def _remove(node: Node, target: NvmeName, port: Port, host: _NvmeTargetHost) -> str | None:
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
