"""QEMU's command line for a guest; a pure function of its specification.

No network, no graphics, no default device: a guest has what the study gives it, and what the agent needs.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storlab.nodes.binding import numactl
from storlab.nodes.vm.devices import Devices
from storlab.nodes.vm.spec import HOTPLUG_PORTS, LAYER_SERIAL, PORT, GuestSpec

QEMU = "qemu-system-x86_64"


@dataclass(frozen=True)
class Files:
    """Where a guest's sockets and its console lie on this machine."""

    qmp: Path
    agent: Path
    console: Path


@dataclass(frozen=True)
class Memory:
    """The file that is a guest's memory, where it has one: ``shared`` to write it, else a private copy of it."""

    file: Path
    shared: bool


def command(spec: GuestSpec, files: Files, *, memory: Memory | None = None, incoming: bool = False) -> list[str]:
    """The argv. With ``incoming`` the guest is a copy of a saved one, and its own devices come over QMP."""
    hardware = spec.hardware
    restorable = memory is not None
    own = Devices() if restorable else spec.all_devices
    ports = [f"port{number}" for number in range(HOTPLUG_PORTS if restorable else own.pci)]
    on_ports = own.on_ports(ports) if hardware.machine == "q35" else own
    argv = [
        *_where(spec),
        QEMU,
        # Nothing that a user's or the system's configuration adds.
        *("-no-user-config", "-nodefaults", "-display", "none"),
        *("-name", f"{spec.name},process=storlab-guest,debug-threads=on"),
        *("-accel", "kvm" if spec.accelerator == "kvm" else "tcg,thread=multi"),
        *("-machine", _machine(spec)),
        *("-cpu", spec.cpu),
        *("-smp", str(hardware.cpus)),
        *("-m", f"{hardware.memory // 1024**2}M"),
        *("-object", _memory(spec, memory)),
        # A guest that panics reboots (panic=-1), and that ends QEMU: nothing hangs, and the console tells why.
        "-no-reboot",
        *("-kernel", str(spec.image.kernel), "-initrd", str(spec.initrd), "-append", _kernel_command_line(spec)),
        *("-chardev", f"file,id=console,path={_escaped(files.console)}", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=qmp,path={_escaped(files.qmp)},server=on,wait=off"),
        *("-mon", "chardev=qmp,mode=control"),
        *("-chardev", f"socket,id=agent,path={_escaped(files.agent)},server=on,wait=off"),
        *("-device", "virtio-serial-pci,id=serial0,max_ports=2"),
        *("-device", f"virtserialport,bus=serial0.0,chardev=agent,name={PORT}"),
        *_layers(spec).command_line(),
    ]
    if hardware.machine == "q35":
        argv += _ports(ports)
    argv += on_ports.command_line()
    if incoming:
        argv += ["-incoming", "defer"]
    return [*argv, *hardware.qemu_args]


def _where(spec: GuestSpec) -> list[str]:
    """Which CPUs, memory and network of this machine QEMU gets."""
    words = []
    if spec.netns is not None:
        words += ["ip", "netns", "exec", spec.netns]
    return [*words, *numactl(spec.hardware.pin, spec.hardware.numa)]


def _machine(spec: GuestSpec) -> str:
    options = {
        # What no guest uses costs time at boot.
        "q35": "q35,usb=off,vmport=off,smbus=off,sata=off,hpet=off,graphics=off",
        "pc": "pc,usb=off,vmport=off,hpet=off,graphics=off",
    }
    return f"{options[spec.hardware.machine]},memory-backend=memory"


def _memory(spec: GuestSpec, memory: Memory | None) -> str:
    size = f"size={spec.hardware.memory}"
    if memory is None:
        return f"memory-backend-memfd,id=memory,share=on,{size}"
    # A private mapping: the file's pages are shared by all copies until one of them writes.
    return f"memory-backend-file,id=memory,mem-path={_escaped(memory.file)},share={_on(memory.shared)},{size}"


def _kernel_command_line(spec: GuestSpec) -> str:
    words = [
        "console=ttyS0",
        "quiet",
        "panic=-1",
        # What would be measured on a noisy machine is a watchdog's complaint: the study's own limit says what hangs.
        "nowatchdog",
        # Else the kernel tests every cipher it has, an eighth of an emulated boot; they work all the same.
        "cryptomgr.notests",
        # Else it counts timer interrupts, and thinks ill of the timer where an emulated CPU has to wait for its turn.
        # With KVM the kernel sets this itself (arch/x86/kernel/kvm.c).
        "no_timer_check",
        "tsc=reliable" if spec.accelerator == "kvm" else "",
        f"storlab.layers={len(spec.image.layers)}",
        f"storlab.port={PORT}",
        spec.hardware.kernel_args,
    ]
    return " ".join(filter(None, words))


def _layers(spec: GuestSpec) -> Devices:
    """The parts of the root file system, read-only, shared by all guests."""
    blockdevs: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    for number, path in enumerate(spec.image.layers):
        node = f"layer{number}"
        file = {"driver": "file", "filename": str(path), "locking": "off"}
        blockdevs.append({"driver": "raw", "node-name": node, "read-only": True, "file": file})
        serial = f"{LAYER_SERIAL}{number}"
        devices.append({"driver": "virtio-blk-pci", "drive": node, "serial": serial, "id": f"{node}-dev"})
    return Devices(blockdevs=tuple(blockdevs), devices=tuple(devices))


def _ports(names: Sequence[str]) -> list[str]:
    """PCI Express ports, of which each takes one device at any time."""
    return [
        word
        for number, name in enumerate(names)
        for word in ("-device", f"pcie-root-port,id={name},chassis={number + 1},slot={number + 1}")
    ]


def _escaped(path: Path) -> str:
    """QEMU takes a doubled comma in an option's value for one that belongs to it."""
    return str(path).replace(",", ",,")


def _on(flag: bool) -> str:
    return "on" if flag else "off"


def shell_text(argv: Sequence[str]) -> str:
    """The command as one could type it."""
    return shlex.join(argv)
