"""A run's virtual machines: what they boot from, whether KVM works, their network; started and ended one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storlab.errors import NodeLost, UserError
from storlab.images.image import Image, find_image, own_image
from storlab.layers.base import undo
from storlab.layers.ours import remove_folder
from storlab.nodes.node import Node
from storlab.nodes.vm.accelerator import Acceleration, find_acceleration, qemu_version
from storlab.nodes.vm.command import Files
from storlab.nodes.vm.devices import Devices, Nic
from storlab.nodes.vm.guest import Guest, running_guest
from storlab.nodes.vm.hardware import Hardware
from storlab.nodes.vm.initrd import initrd_with_agent
from storlab.nodes.vm.network import add_tap, network_name, put_up_network, remove_network
from storlab.nodes.vm.saved import saved_guest
from storlab.nodes.vm.spec import Accelerator, GuestSpec
from storlab.run.journal import Journal
from storlab.study.cells import HOST

_AFTERMATH = 0.5  # s: where a server is gone, its clients may be known to be gone a moment earlier
_SOCKETS = "/tmp"


@undo("network.remove")
async def _remove_network(node: Node, arguments: Mapping[str, Any]) -> str | None:
    return await remove_network(node, arguments["name"])


@undo("sockets.remove")
async def _remove_sockets(node: Node, arguments: Mapping[str, Any]) -> str | None:
    return await remove_folder(node, arguments["path"])


@dataclass(frozen=True)
class Boot:
    """What the guests of one group boot with."""

    image: Image
    initrd: Path
    acceleration: Acceleration
    qemu: str  # its version


@dataclass(frozen=True)
class Loss:
    """A guest that is gone before its time: when (monotonic), why, and the end of its console.

    ``served``: other guests had their disks from it.
    """

    at: float
    node: str
    served: bool
    reason: str
    console: str


@dataclass
class Hypervisor:
    """Starts and ends guests. ``told`` gets a sentence where something takes a while."""

    run: str
    find_host: Callable[[], Node]  # its agent may be launched anew
    told: Callable[[str], None]
    guests: dict[str, Guest] = field(default_factory=dict)
    journal: Journal | None = None
    _boots: dict[tuple[Any, ...], Boot] = field(default_factory=dict)
    _contexts: dict[str, AsyncExitStack] = field(default_factory=dict)
    _network: str | None = None
    _nics: dict[str, Nic] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _made_folder: bool = False
    _losses: list[Loss] = field(default_factory=list)
    _loss: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def host(self) -> Node:
        """This machine."""
        return self.find_host()

    @property
    def folder(self) -> Path:
        """For the sockets of this run's guests."""
        return Path(_SOCKETS) / f"storlab-{self.run}"

    async def boot_of(self, hardware: Hardware, extras: frozenset[str]) -> Boot:
        """What such guests boot with; found out once. Raises ``UserError``, where a key is wrong with it."""
        key = (hardware.kernel, hardware.modules, hardware.rootfs, hardware.accel, extras)
        async with self._lock:
            if key not in self._boots:
                image = await asyncio.to_thread(image_of, hardware, extras)  # hashes and packs what is a user's own
                initrd = await initrd_with_agent(image)
                acceleration = await _acceleration(hardware, image, initrd, self.host)
                self._boots[key] = Boot(image, initrd, acceleration, await qemu_version())
            return self._boots[key]

    async def start(
        self,
        name: str,
        hardware: Hardware,
        extras: frozenset[str],
        devices: Devices,
        console: Path,
        *,
        networked: bool,
        serves: bool,
    ) -> Guest:
        """Start a guest. ``networked``: its disk comes over the network among the nodes; ``serves``: it is in it."""
        boot = await self.boot_of(hardware, extras)
        await self._make_folder()
        netns = await self._join() if networked or serves else None
        nic = await self._nic(name) if serves else None
        accelerator: Accelerator = boot.acceleration.accelerator
        spec = GuestSpec(name, hardware, boot.image, boot.initrd, accelerator, devices, nic, netns, boot.qemu)
        saved = None
        if hardware.start == "restored":
            saved = await saved_guest(spec, self.host, self.folder, self.told)
        files = Files(self.folder / f"{name}.qmp", self.folder / f"{name}.agent", console)
        console.parent.mkdir(parents=True, exist_ok=True)
        self._contexts[name] = AsyncExitStack()
        self.guests[name] = await self._contexts[name].enter_async_context(
            running_guest(spec, self.host, files, saved, self._lost)
        )
        return self.guests[name]

    async def end(self, name: str) -> None:
        """End a guest; nothing where it is not there."""
        self.guests.pop(name, None)
        context = self._contexts.pop(name, None)
        if context is not None:
            await context.aclose()

    async def close(self) -> None:
        """End all guests."""
        async with AsyncExitStack() as together:
            for name in list(self._contexts):
                together.push_async_callback(self.end, name)

    @property
    def processes(self) -> dict[str, int]:
        """Guest → process id of its QEMU on this machine."""
        return {name: guest.pid for name, guest in self.guests.items() if guest.pid is not None}

    @property
    def first_lost(self) -> Loss | None:
        """Of the guests that are gone, the one that went first: what happened to the others may follow from it.

        One that served disks comes before those that it served, which may have known of its end before this machine.
        """
        return min(self._losses, key=lambda loss: (not loss.served, loss.at), default=None)

    def forget_lost(self) -> None:
        """Begin to count anew."""
        self._losses.clear()
        self._loss.clear()

    async def until_one_is_lost(self) -> None:
        """Wait until a guest is gone; raises ``NodeLost`` with the reason."""
        await self._loss.wait()
        await asyncio.sleep(_AFTERMATH)
        assert self.first_lost is not None
        raise NodeLost(self.first_lost.reason)

    def _lost(self, guest: Guest) -> None:
        reason = guest.node.lost or f"node {guest.spec.name} is gone"
        at, name = guest.causes.at or time.monotonic(), guest.spec.name
        self._losses.append(Loss(at, name, guest.spec.nic is not None, reason, guest.console_tail()))
        self._loss.set()

    async def _make_folder(self) -> None:
        async with self._lock:
            if self._made_folder:
                return
            assert self.journal is not None, "guests are started within a run"
            self.journal.will(HOST, "sockets.remove", {"path": str(self.folder)})
            await self.host.run(["mkdir", "--mode=0700", "--parents", "--", str(self.folder)])
            self._made_folder = True

    async def _join(self) -> str:
        """The namespace of the network among the nodes, made when it is first needed."""
        async with self._lock:
            if self._network is None:
                assert self.journal is not None, "guests are started within a run"
                name = network_name(self.run)
                self.journal.will(HOST, "network.remove", {"name": name})
                await put_up_network(self.host, name)
                self._network = name
            return self._network

    async def _nic(self, name: str) -> Nic:
        """A guest keeps its card's address for the whole run."""
        async with self._lock:
            assert self._network is not None
            if name not in self._nics:
                self._nics[name] = await add_tap(self.host, self._network, len(self._nics) + 1)
            return self._nics[name]


def image_of(hardware: Hardware, extras: frozenset[str]) -> Image:
    """The image that such guests boot from.

    Raises ``MissingImage``, or another ``UserError`` where a user's own kernel or root can't be used.
    """
    if hardware.kernel is None:
        return find_image(extras)
    return own_image(
        Path(hardware.kernel),
        None if hardware.modules is None else Path(hardware.modules),
        None if hardware.rootfs is None else Path(hardware.rootfs),
    )


async def _acceleration(hardware: Hardware, image: Image, initrd: Path, host: Node) -> Acceleration:
    if hardware.accel == "tcg":
        return Acceleration("tcg", "the study asks for emulation")
    found = await find_acceleration(image, initrd, host)
    if hardware.accel == "kvm" and found.accelerator != "kvm":
        raise UserError(f"the study asks for KVM, which does not work here: {found.reason}", ("accel",))
    return found
