"""A running guest: QEMU as a command on this machine, its monitor, and the agent inside as a ``Node``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient

from storlab.errors import NodeError, NodeLost
from storlab.nodes.agent import steps
from storlab.nodes.agent.connection import Connection
from storlab.nodes.answers import understood
from storlab.nodes.console import MAX_CONSOLE, console_text, killed_for_memory, tail
from storlab.nodes.kinds.vm.causes import Causes
from storlab.nodes.kinds.vm.command import Files, GuestSpec, Memory, command
from storlab.nodes.kinds.vm.handover import Handover
from storlab.nodes.kinds.vm.own_files import start_among_own_files
from storlab.nodes.kinds.vm.qmp import execute, hang_up, ignore_shared_memory, migration_ends
from storlab.nodes.modules import load_modules
from storlab.nodes.network import CARD, PREFIX
from storlab.nodes.node import Node
from storlab.nodes.process import Process
from storlab.waiting import cancelled, to_its_end

MAGIC = b"storlab-renew/1\n"
ENTROPY = 64  # bytes
BOOT = 180.0  # s, for a guest to boot; emulated, and beside many others
_HEARTBEAT = 1.0  # s
_END = 3.0  # s, for QEMU to obey `quit`; one that does not is killed


@dataclass
class Guest:
    """A guest that runs. ``boot_seconds``: from its start until the agent answered."""

    spec: GuestSpec
    node: Node
    qmp: QMPClient
    process: Process
    files: Files
    restored: bool
    causes: Causes
    boot_seconds: float
    argv: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        hardware, image = self.spec.hardware, self.spec.image
        pinning = {"cpus": hardware.pin, "numa": hardware.numa}
        return {
            "accelerator": self.spec.accelerator,
            "machine": hardware.machine,
            "cpu": self.spec.cpu,
            "cpus": hardware.cpus,
            **{name: each for name in ("sockets", "numa_nodes") if (each := getattr(hardware, name)) > 1},
            "memory": hardware.memory,
            "kernel": image.release,
            "kernel_args": hardware.kernel_args,
            "image": image.name,
            "root": "its disk" if self.spec.root else "the image",
            "boot": "restored" if self.restored else "cold",
            "boot_seconds": round(self.boot_seconds, 3),
            "pinning": {key: value for key, value in pinning.items() if value is not None},
            "qemu": self.spec.qemu,
            "confinement": self.spec.confinement.facts(),
            "command": shlex.join(self.argv),
            **({"gdb": str(self.files.gdb)} if self.files.gdb is not None else {}),
        }

    def console_tail(self) -> str:
        return tail(console_text(self.files.console))

    def console_size(self) -> int:
        try:
            return self.files.console.stat().st_size
        except OSError:
            return 0

    def complaint(self) -> str | None:
        killed = killed_for_memory(console_text(self.files.console))
        return killed and f"the guest {self.spec.name} ran out of memory, and its kernel killed {killed}"


@asynccontextmanager
async def running_guest(
    spec: GuestSpec, host: Node, files: Files, saved: Path | None, on_lost: Callable[[Guest], None]
) -> AsyncIterator[Guest]:
    """A guest for as long as the context lasts; a copy of ``saved``, or booted. Raises ``NodeError``.

    QEMU runs as a command of ``host``: it ends with that agent, and so with the controller, however either ends.
    ``on_lost`` is called where the guest is gone before the context ends.
    """
    began = time.monotonic()
    memory = Memory(saved / "memory", copied=spec.shared_memory) if saved is not None else None
    argv = command(spec, files, memory=memory, incoming=saved is not None)
    async with AsyncExitStack() as stack:
        process = await start_among_own_files(host, argv, spec, files, memory)
        stack.push_async_callback(process.end)
        causes = Causes(spec.name, process, files.console)
        qmp = await causes.monitor(files.qmp)
        stack.push_async_callback(_quit, qmp, process)
        causes.listen(qmp)
        stack.push_async_callback(causes.end)
        if saved is not None:
            await _restore(qmp, spec, saved)
        connection = await _agent(files.agent, spec, causes)
        stack.push_async_callback(connection.close)
        causes.on_disk_error = connection.give_up
        try:
            greeting = await connection.greet(BOOT)
        except NodeLost as error:
            raise NodeError(str(error)) from None
        node = Node(spec.name, connection, pid=greeting.pid, address=spec.card.address if spec.card else None)
        try:
            async with asyncio.timeout(BOOT):  # nobody watches over its heartbeat yet
                with understood(spec.name, "its network is set up"):
                    await _settle_in(node, spec)
        except TimeoutError:
            raise NodeError(f"node {spec.name}: its network was not set up within {BOOT:g} s") from None
        guest = Guest(spec, node, qmp, process, files, saved is not None, causes, time.monotonic() - began, tuple(argv))
        watching = asyncio.create_task(_watch(guest, on_lost), name=f"heartbeat of {spec.name}")
        stack.push_async_callback(cancelled, watching)
        yield guest


async def _restore(qmp: QMPClient, spec: GuestSpec, saved: Path) -> None:
    confined = spec.confinement.user is not None
    handover = Handover(qmp)
    state = str(saved / "state")
    await ignore_shared_memory(qmp)
    file = await handover.file(state, os.O_RDONLY) if confined else state
    await execute(qmp, "migrate-incoming", {"uri": f"file:{file}"})
    await migration_ends(qmp)
    devices = spec.all_devices.on_ports(spec.port_names()) if spec.hardware.machine == "q35" else spec.all_devices
    for name, arguments in devices.commands():
        await execute(qmp, name, await handover.arguments(arguments) if confined else arguments)
    await execute(qmp, "cont")


def preamble() -> bytes:
    """What a guest is told before anything else: the time, and entropy of its own, fresh for each guest.

    A guest that is a copy of a saved one has the clock and the random numbers of that one; and an emulated one has
    little entropy, and a clock that counts whole seconds. ``docs/reference/agent-protocol.md`` defines these bytes.
    """
    return MAGIC + struct.pack(">Q", time.time_ns()) + os.urandom(ENTROPY)


async def _agent(path: Path, spec: GuestSpec, causes: Causes) -> Connection:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(preamble())  # at the very last moment, since it carries the time
    return Connection(spec.name, reader, writer, patience=spec.hardware.silence, why=causes.name)


async def _settle_in(node: Node, spec: GuestSpec) -> None:
    await node.write("/proc/sys/kernel/hostname", spec.name.encode())
    if spec.card is None:
        return
    loaded = await load_modules(node, "virtio_net")
    if loaded is not None:
        loaded.check(node.name)
    lines = (
        f"link set dev {await _card(node, spec.card.mac)} name {CARD}",
        f"address add {spec.card.address}/{PREFIX} dev {CARD}",
        f"link set dev {CARD} up",
    )
    await node.run(["ip", "-batch", "-"], stdin="".join(f"{line}\n" for line in lines).encode())


async def _card(node: Node, mac: str) -> str:
    for _ in range(100):
        (cards,) = await node.carry_out(steps.names("/sys/class/net"))
        addresses = await node.texts(*(f"/sys/class/net/{card}/address" for card in cards.entries))
        if mac in addresses:
            return cards.entries[addresses.index(mac)]
        await asyncio.sleep(0.1)
    raise NodeError(f"node {node.name}: its network card {mac} did not appear")


async def _watch(guest: Guest, on_lost: Callable[[Guest], None]) -> None:
    """Ask the agent for its clock each second; one that is silent for too long counts as hung."""
    silence = guest.spec.hardware.silence
    connection = guest.node.connection
    while not connection.gone.is_set():
        try:
            async with asyncio.timeout(silence):
                await connection.ask("clock")
        except TimeoutError:
            connection.give_up(await guest.causes.hung(silence))
        except NodeLost:
            break
        if guest.console_size() > MAX_CONSOLE:
            connection.give_up(f"its console has more than {MAX_CONSOLE >> 20}M, and would fill the disk")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEARTBEAT):
                await connection.gone.wait()
    on_lost(guest)


async def _quit(qmp: QMPClient, process: Process) -> None:
    """End QEMU at once: nothing in a guest is worth a clean shutdown."""
    with contextlib.suppress(NodeError, TimeoutError):
        async with asyncio.timeout(_END):
            if process.ended is None:
                await execute(qmp, "quit")
            await process.rest()
    await to_its_end(hang_up(qmp))
