"""Storlab's side of boot.py: guests with a disk each, booted or copies of a saved one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks.starts import Start, cpu_seconds, memory
from storlab.images.image import Image
from storlab.nodes.demands import Demands, Devices
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.command import Files, GuestSpec
from storlab.nodes.kinds.vm.emulator import Accelerator, find_acceleration, qemu_version
from storlab.nodes.kinds.vm.guest import Guest, running_guest, saved_guest
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.kinds.vm.kind import initrd_with_agent
from storlab.nodes.node import Node

# A disk with nothing behind it: what is measured is the guest.
_DISK = Devices(
    blockdevs=({"driver": "null-co", "node-name": "disk", "size": 1 << 30, "read-zeroes": True},),
    devices=({"driver": "virtio-blk-pci", "drive": "disk", "serial": "disk", "id": "disk0"},),
)


@dataclass
class Laboratory:
    """Starts guests as a run does, which has found out beforehand what they boot from and whether KVM works."""

    host: Node
    image: Image
    initrd: Path
    accelerator: Accelerator
    qemu: str
    folder: Path
    numbers: count[int] = field(default_factory=count)

    @staticmethod
    @asynccontextmanager
    async def of(image: Image, folder: Path) -> AsyncIterator[Laboratory]:
        """With an agent on this machine."""
        initrd = initrd_with_agent(image)
        async with local_node("host") as host:
            found = await find_acceleration(image, initrd, host)
            yield Laboratory(host, image, initrd, found.accelerator, await qemu_version(), folder)

    async def cold(self, guests: int) -> Start:
        """Boot so many at once, and end them."""
        return await self._start(guests, Hardware(start="cold"))

    async def restored(self, guests: int) -> Start:
        """Restore so many at once, and end them."""
        return await self._start(guests, Hardware(start="restored"))

    async def _start(self, guests: int, hardware: Hardware) -> Start:
        async with AsyncExitStack() as stack:
            began = time.monotonic()
            running = await asyncio.gather(*(self._guest(stack, hardware) for _ in range(guests)))
            command = time.monotonic() - began
            pids = [guest.process.pid for guest, _ in running if guest.process.pid is not None]
            seen = [memory(pid, hardware.memory) for pid in pids]
            return Start(
                command=command,
                answering=max(answered for _, answered in running) - began,
                emulated=0,
                cpu=sum(cpu_seconds(pid) for pid in pids),
                ram=sum(each.ram for each in seen) / guests,
                others=sum(each.others for each in seen) / guests,
            )

    async def _guest(self, stack: AsyncExitStack, hardware: Hardware) -> tuple[Guest, float]:
        """A guest in which a command has run, and when its agent answered."""
        guest = await self.guest(stack, hardware)
        answered = time.monotonic()
        await guest.node.output("uname", "-r")
        return guest, answered

    async def guest(self, stack: AsyncExitStack, hardware: Hardware, demands: Demands | None = None) -> Guest:
        """A guest that ends with ``stack``."""
        number, demands = next(self.numbers), demands or Demands(_DISK)
        spec = GuestSpec(
            f"vm-{number}",
            hardware,
            self.image,
            self.initrd,
            self.accelerator,
            demands.devices,
            qemu=self.qemu,
            shared_memory=demands.shared_memory,
        )
        saved = await saved_guest(spec, self.host, self.folder, print) if hardware.start == "restored" else None
        files = Files(*(self.folder / f"{number}.{kind}" for kind in ("qmp", "agent", "console")))
        return await stack.enter_async_context(running_guest(spec, self.host, files, saved, lambda guest: None))


@dataclass(frozen=True)
class AgentMemory:
    """Resident bytes in a guest: of the agent, and of process 1."""

    agent: int
    init: int


async def agent_memory(laboratory: Laboratory) -> AgentMemory:
    """In a guest that has just booted."""
    async with AsyncExitStack() as stack:
        node = (await laboratory.guest(stack, Hardware(start="cold"))).node
        return AgentMemory(await _resident(node, node.pid or 0), await _resident(node, 1))


async def _resident(node: Node, pid: int) -> int:
    status = await node.read_text(f"/proc/{pid}/status")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
