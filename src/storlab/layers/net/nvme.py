"""Layer ``nvme-tcp``: a disk of the kernel's NVMe client over TCP, see drivers/nvme/host/fabrics.c of Linux.

The kernel is asked through ``/dev/nvme-fabrics``, as nvme(1) does: that of Debian 12 does not know
``fast_io_fail_tmo``, without which requests wait until the controller is given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct
from pydantic import Field

from storlab.errors import CommandFailed, TrialError, Unsupported
from storlab.layers.base import LayerContext
from storlab.layers.block.queue import sysfs
from storlab.layers.net.initiator import InitiatorLayer, appears, host_uuid
from storlab.layers.resources import Disk, Export, Resource
from storlab.layers.share.watch import Reachable
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunId, undo

_PATIENCE = 3  # s, for a server that is to answer a ping
# Each path of a controller would be a disk of its own below another one, which has no scheduler and no requests.
_CONNECT = r"""
set -eu
modprobe nvme_core multipath=N
modprobe nvme_tcp
exec 3<>/dev/nvme-fabrics
printf %s "$1" >&3 || { dmesg | grep -i nvme | tail -n 3 >&2; exit 1; }
head -n 1 <&3
"""
# Controllers of this subsystem and host; there is one.
_DISCONNECT = r"""
for each in /sys/class/nvme/nvme*; do
    [ "$(cat "$each/subsysnqn" 2> /dev/null)" = "$1" ] && [ "$(cat "$each/hostid" 2> /dev/null)" = "$2" ] || continue
    sever "$each"; echo 1 > "$each/delete_controller"; echo gone
done
"""
# While the kernel takes a controller for alive, deleting it waits for all requests, until their time is over, and a
# minute for its goodbye; once its connections are reset, it fails them. The kernel's sockets belong to no process: only
# sock_diag(7) reaches them.
_RESET = r"""
look() {
    address=$(cat "$1/address")
    host=${address#*traddr=} host=${host%%,*} port=${address#*trsvcid=} port=${port%%,*}
}
reset() {
    case $host in *:*) host="[$host]" ;; esac
    ss --kill --no-header --tcp "dst $host and dport = :$port" > /dev/null
}
"""
_SEVER = _RESET + 'sever() { look "$1"; reset; }'
_SEVER_SILENT = _RESET + f'sever() {{ look "$1"; ping -n -q -c 1 -w {_PATIENCE} "$host" > /dev/null 2>&1 || reset; }}'
_FACTS = ("state", "sqsize", "queue_count", "kato", "ctrl_loss_tmo", "fast_io_fail_tmo", "reconnect_delay", "hostnqn")


class _Connected(Struct, frozen=True, forbid_unknown_fields=True):
    subsystem: Annotated[str, Meta(pattern=r"^nqn\.[A-Za-z0-9.:-]{1,220}$")]
    host: Annotated[str, Meta(pattern=r"^[0-9a-f-]{36}$")]
    run: RunId


@undo("nvme-tcp.disconnect", arguments=_Connected)
async def _disconnect(node: Node, arguments: Mapping[str, Any]) -> str | None:
    subsystem, host = arguments["subsystem"], arguments["host"]
    did = await node.output("sh", "-c", _SEVER_SILENT + _DISCONNECT, "disconnect", subsystem, host)
    return f"disconnected {subsystem}" if did else None


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
        await context.register_undo("nvme-tcp.disconnect", subsystem=below.export, host=host, run=context.run)
        options = ",".join(f"{name}={value}" for name, value in self._options(below, host).items())
        options += ",hdr_digest" * self.header_digest + ",data_digest" * self.data_digest
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
        controller = f"/sys/class/nvme/{disk.partition('n1')[0]}"
        return {"session": {name: (await context.node.read_text(f"{controller}/{name}")).strip() for name in _FACTS}}

    async def sever(self, resource: Resource, context: LayerContext) -> None:
        assert isinstance(resource, Disk)
        subsystem = f"/sys/class/nvme/{resource.name.partition('n1')[0]}/subsysnqn"
        nqn = (await context.node.read_text(subsystem)).strip()
        await context.node.run(["sh", "-c", _SEVER + _DISCONNECT, "sever", nqn, str(host_uuid(context))], check=False)


def parse_instance(answer: str) -> int | None:
    """The controller's number in the kernel's answer, ``instance=0,cntlid=1``; ``None`` where there is none."""
    for word in answer.strip().split(","):
        key, _, value = word.partition("=")
        if key == "instance" and value.isascii() and value.isdigit() and len(value) < 6:
            return int(value)
    return None
