"""Nodes of kind ``vm``: virtual machines on this machine, what they boot from, how they are started and ended."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from storlab.base.errors import NodeError, UserError
from storlab.base.programs import agent_path, need_extra
from storlab.base.units import size_text
from storlab.images.cache import storlab_cache
from storlab.images.image import (
    Image,
    debian_image,
    find_image,
    find_zfs_tree,
    own_image,
    system_disk,
    system_initramfs,
    with_zfs_tree,
)
from storlab.images.module_tree import archive
from storlab.images.recipe import OWN_SERIES, series_of
from storlab.nodes.accounts import SOCKETS, make_private, private_name, remove_private
from storlab.nodes.demands import Demands
from storlab.nodes.identity import NodeIdentity, boot_of
from storlab.nodes.kind import Launcher, Loss, NodeKind, Prepared, Services
from storlab.nodes.kinds.vm.command import MOST_DEVICES, Files, GuestSpec
from storlab.nodes.kinds.vm.emulator import (
    Acceleration,
    Confinement,
    Emulator,
    find_acceleration,
    find_confinement,
    find_emulator,
)
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.needs import Needs, numactl_programs, untraceable
from storlab.nodes.network import UPLINK_UNDOES, remove_network
from storlab.nodes.node import Node
from storlab.nodes.raw_folders import make_raw_folder
from storlab.nodes.shaping.apply import SHAPING_UNDOES

if TYPE_CHECKING:
    from storlab.nodes.kinds.vm.guest import Guest

_KEPT = 8  # initial RAM disks: pairs of an image and an agent; the ones not used for longest give way
_EXTRAS = {"zfs": "zfs"}  # kernel module → the part of the image that has it
_PROGRAMS = {"perf": "perf"}  # the same of programs
_OWN_MEMORY = 200 * 1024**2  # bytes of QEMU itself for each guest, emulated: mostly translated code
_START = 4.0  # s
_CAUTION = "The virtual machines are emulated: good for counts and for relations, not for absolute speeds"


class VmKind(Hardware, NodeKind):
    """A virtual machine on this machine."""

    kind: Literal["vm"] = "vm"

    session: ClassVar = False
    volatile: ClassVar = True
    most_devices: ClassVar = MOST_DEVICES
    transports: ClassVar = frozenset({"hypervisor", "network"})
    undoes: ClassVar = (remove_private, remove_network, *UPLINK_UNDOES, *SHAPING_UNDOES)

    def needs(self) -> Needs:
        installed = () if self.own_qemu else (self.emulator,)
        return Needs(programs=(*installed, *numactl_programs(self.pin, self.numa)))

    def memory_needed(self) -> int:
        return self.memory + _OWN_MEMORY

    def start_time(self) -> float:
        return _START

    def image(self, needs: Needs) -> frozenset[str] | None:
        own = self.kernel is not None and series_of(self.kernel) is None
        return None if own else self.extras(needs)

    def copied_boot(self) -> str | None:
        return f"{self.kernel} {self.modules} {self.kernel_args}" if self.is_copied else None

    def kernel_series(self) -> str | None:
        series = None if self.kernel is None else series_of(self.kernel)
        return None if series == OWN_SERIES else series

    def extras(self, needs: Needs) -> frozenset[str]:
        """The parts that its image must have in addition to those that all have: not ZFS, where a tree has it."""
        return extras_of(needs) - ({"zfs"} if self.zfs_tree is not None else set())

    def describe(self) -> str:
        words = (
            size_text(self.memory),
            f"{self.cpus} CPU{'s' if self.cpus > 1 else ''}",
            f"{self.sockets} sockets" if self.sockets > 1 else "",
            f"{self.numa_nodes} NUMA nodes" if self.numa_nodes > 1 else "",
            self.machine if self.machine != "q35" else "",
            f"pinned to CPUs {self.pin}" if self.pin else "",
            f"on NUMA node {self.numa}" if self.numa else "",
            "booted each time" if not self.is_copied else "",
            f"in {self.qemu}" if self.own_qemu else "",
        )
        return ", ".join(filter(None, words))

    @classmethod
    def launcher(cls, services: Services) -> Launcher[VmKind]:
        return VmLauncher(services)


@dataclass(frozen=True)
class Boot(Prepared):
    """What the guests of one group boot from, and with which QEMU."""

    image: Image
    initrd: Path
    acceleration: Acceleration
    emulator: Emulator
    confinement: Confinement

    @property
    def emulated(self) -> bool:
        return self.acceleration.accelerator != "kvm"

    @property
    def cautions(self) -> tuple[str, ...]:
        return (f"{_CAUTION} ({self.acceleration.reason}).",) if self.emulated else ()

    def lacks(self, needs: Needs) -> list[str]:
        image = self.image
        absent = [f"{program} is not in it" for program in needs.programs if program not in image.programs]
        if image.modules:  # of a user's own kernel without modules, what is built in is not known: a trial will tell
            absent += [f"its kernel has no {name}" for name in needs.filesystems if name not in image.filesystems]
            modules = (name for name in needs.modules if name.replace("-", "_") not in image.modules)
            absent += [f"its kernel has no module {name}" for name in modules]
            absent += [f"its kernel has no {name}" for name in needs.queues if f"sch_{name}" not in image.modules]
        absent += untraceable(image.kernel, image.release, needs)
        absent = [f"the guest image {image.name} can't do this: {what}" for what in absent]
        return [*absent, *self.emulator.lacks(needs.properties)]

    def system_disk(self, size: int) -> Path:
        return system_disk(self.image, size)

    def facts(self) -> dict[str, Any]:
        found = self.acceleration
        return {"image": self.image.name, "accelerator": found.accelerator, "reason": found.reason}

    def lines(self) -> list[str]:
        found = self.acceleration
        with_ = "with KVM, in which a guest was booted" if found.accelerator == "kvm" else "emulated, without KVM"
        return [f"image {self.image.name}", with_]


class VmLauncher(Launcher[VmKind]):
    """Starts and ends guests. QEMU runs as a command of this machine's agent, and ends with it."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._boots: dict[tuple[Any, ...], Boot] = {}
        self._contexts: dict[str, AsyncExitStack] = {}
        self._lock = asyncio.Lock()
        self._folder = Path(SOCKETS) / private_name(services.run)  # for its guests' sockets: short, see unix(7)
        self._confinements: dict[str, Confinement] = {}
        self._made_folder = False
        self._count = 0

    async def prepare(self, spec: VmKind, needs: Needs) -> Boot:
        """Find the image that has what is needed, and how it can be run.

        Raises ``MissingImage`` where it has to be built, ``MissingTool`` without the extra ``vm``, and another
        ``UserError`` where a user's own kernel, root or QEMU can't be used.
        """
        need_extra("vm", "virtual machines")
        extras = spec.extras(needs)
        key = (spec.kernel, spec.modules, spec.rootfs, spec.zfs_tree, spec.accel, spec.qemu, extras, needs.properties)
        async with self._lock:
            if key not in self._boots:
                try:
                    image = await asyncio.to_thread(_image_of, spec, extras)  # hashes and packs what is a user's own
                except UserError as error:
                    if not error.key and (spec.kernel or spec.zfs_tree) is not None:
                        key_ = "kernel" if spec.kernel is not None else "zfs_tree"
                        raise UserError(str(error), (key_,)) from None
                    raise
                initrd = initrd_with_agent(image)
                emulator = await find_emulator(spec.emulator, needs.properties, self.services.host)
                acceleration = await _acceleration(spec, image, initrd, self.services.host)
                if spec.emulator not in self._confinements:
                    self._confinements[spec.emulator] = await find_confinement(spec.emulator, self.services.host)
                confinement = self._confinements[spec.emulator]
                self._boots[key] = Boot(image, initrd, acceleration, emulator, confinement)
            return self._boots[key]

    async def open(self, name: str, spec: VmKind, prepared: Prepared, demands: Demands, folder: Path) -> Node:
        from storlab.nodes.kinds.vm.guest import (
            running_guest,  # these need the extra `vm`, which `prepare` looks for
            saved_guest,
        )

        assert isinstance(prepared, Boot)
        async with self._lock:
            if not self._made_folder:
                self.services.announce(remove_private.name, path=str(self._folder))
                await make_private(self.services.host, str(self._folder))
                self._made_folder = True
        instance = self.services.new_instance(name)
        host, network = self.services.host, self.services.network
        make_raw_folder(folder)
        self._count += 1  # names of sockets are short, and those of nodes may not be
        sockets = self._folder / str(self._count)
        gdb = sockets.with_suffix(".gdb") if spec.gdb else None
        files = Files(sockets.with_suffix(".qmp"), sockets.with_suffix(".agent"), folder / "console.log", gdb)
        async with AsyncExitStack() as stack:
            in_network = demands.network or demands.reaches_network
            within = tuple(await network.enter()) if in_network else ()
            confinement = prepared.confinement.of_a_guest(serves_files=bool(demands.devices.fsdevs))
            card = await network.tap() if demands.network else None
            if card is not None:
                stack.push_async_callback(network.take_back, card)
            boot, kvm = prepared, prepared.acceleration.accelerator
            initrd = boot.initrd
            if demands.root:
                async with self._lock:  # the guests of a group ask at once
                    initramfs = await asyncio.to_thread(system_initramfs, boot.image)
                    initrd = initrd_with_agent(replace(boot.image, initramfs=initramfs))
            guest_spec = GuestSpec(
                name,
                spec,
                boot.image,
                initrd,
                kvm,
                demands.devices,
                card,
                within,
                boot.emulator.version,
                confinement,
                demands.shared_memory,
                demands.root,
            ).with_ports()
            saved = None
            warm = spec.is_copied and not demands.cold and not demands.root
            if warm and boot.emulator.saves_guests:
                saved = await saved_guest(guest_spec, host, self._folder, self.services.notify)
            running = running_guest(guest_spec, host, files, saved, partial(self._lost, instance))
            guest = await stack.enter_async_context(running)
            node = guest.node
            node.identity = NodeIdentity(instance, spec.kind, "", host.identity.machine, volatile=True)
            about = {**guest.facts(), **boot.emulator.facts()}
            node.machine, node.about, node.process = await boot_of(node), about, guest.process.pid
            node.complaint = guest.complaint
            self._contexts[instance] = stack.pop_all()
        return node

    async def end(self, node: Node) -> None:
        context = self._contexts.pop(node.instance, None)
        if context is not None:
            await context.aclose()

    async def close(self) -> None:
        contexts, self._contexts = self._contexts, {}
        async with AsyncExitStack() as together:
            for context in contexts.values():
                together.push_async_callback(context.aclose)

    async def reach(self, identity: NodeIdentity) -> Node | None:
        if not self.services.host.identity.machine.is_same(identity.machine):
            raise NodeError(f"the virtual machine {identity.name} was on another machine: run `storlab clean` there")
        return None

    def _lost(self, instance: str, guest: Guest) -> None:
        reason = guest.node.lost or f"node {guest.spec.name} is gone"
        at = guest.causes.at or time.monotonic()
        console = f"The end of its console:\n{guest.console_tail()}"
        self.services.on_loss(Loss(at, instance, reason, console))


def extras_of(needs: Needs) -> frozenset[str]:
    modules = (_EXTRAS[module] for module in needs.modules if module in _EXTRAS)
    return frozenset([*modules, *(_PROGRAMS[program] for program in needs.programs if program in _PROGRAMS)])


def _image_of(hardware: Hardware, extras: frozenset[str]) -> Image:
    modules, rootfs = (None if each is None else Path(each) for each in (hardware.modules, hardware.rootfs))
    kernel = hardware.kernel
    # What is wrong with a tree is said before an image is asked for, which takes minutes to build.
    tree = None if hardware.zfs_tree is None else find_zfs_tree(Path(hardware.zfs_tree))
    series = None if kernel is None else series_of(kernel)
    if series is not None:
        image = debian_image(series, extras)
    else:
        image = find_image(extras) if kernel is None else own_image(Path(kernel), modules, rootfs)
    return image if tree is None else with_zfs_tree(image, tree)


async def _acceleration(hardware: Hardware, image: Image, initrd: Path, host: Node) -> Acceleration:
    if hardware.accel == "tcg":
        return Acceleration("tcg", "the study asks for emulation")
    found = await find_acceleration(image, initrd, host, hardware.emulator)
    if hardware.accel == "kvm" and found.accelerator != "kvm":
        raise UserError(f"the study asks for KVM, which does not work here: {found.reason}", ("accel",))
    return found


def initrd_with_agent(image: Image) -> Path:
    """A file with the image's modules and this checkout's agent as ``/init``; made once for each pair.

    The agent is not part of any image, but handed over at boot, so that it is the one that this controller speaks with.
    The kernel reads several cpio archives one after the other (Documentation/driver-api/early-userspace).
    """
    agent = agent_path()
    folder = storlab_cache() / "initrd"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_fingerprint(image.initramfs, agent)}.cpio"
    if not path.exists():
        own = archive({"init": agent.read_bytes()}, frozenset({"init"}), ("dev", "proc", "sys"))
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_bytes(image.initramfs.read_bytes() + own)
        temporary.replace(path)
        for old in sorted(folder.glob("*.cpio"), key=lambda path: -path.stat().st_mtime)[_KEPT:]:
            old.unlink(missing_ok=True)
    os.utime(path)
    return path


def _fingerprint(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]
