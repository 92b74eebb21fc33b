"""QEMU's command line for a guest; a pure function of its specification.

No network, no graphics, no default device: a guest has what the study gives it, and what the agent needs.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from storlab.base.errors import Unsupported
from storlab.base.programs import agent_path
from storlab.images.image import Image
from storlab.nodes.demands import NO_DEVICES, Devices, escaped
from storlab.nodes.kinds.vm import shared_copy
from storlab.nodes.kinds.vm.emulator import UNCONFINED, Accelerator, Confinement, Emulator
from storlab.nodes.kinds.vm.hardware import EMULATED_CPU, Hardware
from storlab.nodes.needs import numactl
from storlab.nodes.network import Card
from storlab.nodes.node import Node, Process
from storlab.nodes.privileges import SYSTEM

LAYER_SERIAL = "storlab-layer-"
PORT = "storlab.agent"
_PORTS_AT_ONCE = 8  # functions of a PCI slot; guests of one kind share a saved one, though not all have as many devices
_FIRST_SLOT, _LAST_SLOT = 0x10, 0x1E  # on the root bus: what all guests have comes below, the chipset above
MOST_DEVICES = (_LAST_SLOT - _FIRST_SLOT + 1) * _PORTS_AT_ONCE


@dataclass(frozen=True)
class GuestSpec:
    """One guest. ``devices`` are its own (its disks), beyond what every guest has; ``initrd`` holds the agent.

    ``card`` is on the network among the nodes, where it has an address there, and ``within`` the words before QEMU's
    command that let it run in that network.
    """

    name: str
    hardware: Hardware
    image: Image
    initrd: Path
    accelerator: Accelerator
    devices: Devices = NO_DEVICES
    card: Card | None = None
    within: tuple[str, ...] = ()
    qemu: str = ""  # its version, for the records
    confinement: Confinement = UNCONFINED
    shared_memory: bool = False  # another program maps its memory as well
    root: str = ""  # the serial number of the disk that holds its root file system, in place of the image's layers
    ports: int = _PORTS_AT_ONCE  # for devices that are plugged in while it runs, on machines that need them

    def with_ports(self) -> GuestSpec:
        """The same with a port for each of its devices. Raises ``Unsupported`` where no machine has so many."""
        count = self.all_devices.pci
        ports = max(-(-count // _PORTS_AT_ONCE), 1) * _PORTS_AT_ONCE
        if ports > MOST_DEVICES:
            said = f"a virtual machine takes {MOST_DEVICES} devices at most, and not {count}"
            raise Unsupported(f"node {self.name}: {said}")
        return replace(self, ports=ports)

    @property
    def cpu(self) -> str:
        return self.hardware.cpu or ("host" if self.accelerator == "kvm" else EMULATED_CPU)

    @property
    def all_devices(self) -> Devices:
        """Its own devices and its network card."""
        return self.devices + (self.card.devices() if self.card else NO_DEVICES)

    def port_names(self) -> list[str]:
        return [f"port{number}" for number in range(self.ports)]


@dataclass(frozen=True)
class Files:
    """Where a guest's sockets and its console lie on this machine."""

    qmp: Path
    agent: Path
    console: Path
    gdb: Path | None = None


@dataclass(frozen=True)
class Memory:
    """The file that is a guest's memory, where it has one: ``shared`` to write it, else a private copy of it.

    ``copied``: the guest writes to a copy of the file, which others can map as well.
    """

    file: Path
    shared: bool = False
    copied: bool = False


def command(spec: GuestSpec, files: Files, *, memory: Memory | None = None, incoming: bool = False) -> list[str]:
    """The argv. With ``incoming`` the guest is a copy of a saved one, and its own devices come over QMP."""
    hardware = spec.hardware
    restorable = memory is not None
    cores = f",sockets={hardware.sockets},cores={hardware.cpus // hardware.sockets}"
    own = NO_DEVICES if restorable else spec.all_devices
    on_ports = own.on_ports(spec.port_names()) if hardware.machine == "q35" else own
    json = Emulator(hardware.emulator, spec.qemu).takes_json
    argv = [
        *spec.within,  # which network, CPUs and memory of this machine QEMU gets
        *numactl(hardware.pin, hardware.numa),
        *([sys.executable, "-I", "-S", shared_copy.__file__, str(memory.file)] if memory and memory.copied else []),
        hardware.emulator,
        # Nothing that a user's or the system's configuration adds.
        *("-no-user-config", "-nodefaults", "-display", "none"),
        *spec.confinement.words(),
        *("-name", f"{spec.name},process=storlab-guest,debug-threads=on"),
        *("-accel", "kvm" if spec.accelerator == "kvm" else "tcg,thread=multi"),
        *("-machine", _machine(spec)),
        *("-cpu", spec.cpu),
        *("-smp", f"{hardware.cpus}{cores if hardware.sockets > 1 else ''}"),
        *("-m", f"{hardware.memory // 1024**2}M"),
        *(_numa_nodes(hardware) if hardware.numa_nodes > 1 else ("-object", _memory(spec, memory))),
        # A guest that panics reboots (panic=-1), and that ends QEMU: nothing hangs, and the console tells why.
        "-no-reboot",
        *("-kernel", str(spec.image.kernel), "-initrd", str(spec.initrd), "-append", _kernel_command_line(spec)),
        *("-chardev", to_file(files.console), "-serial", "chardev:console"),
        *("-chardev", f"socket,id=qmp,path={escaped(str(files.qmp))},server=on,wait=off"),
        *("-mon", "chardev=qmp,mode=control"),
        *("-chardev", f"socket,id=agent,path={escaped(str(files.agent))},server=on,wait=off"),
        *("-device", "virtio-serial-pci,id=serial0,max_ports=2"),
        *("-device", f"virtserialport,bus=serial0.0,chardev=agent,name={PORT}"),
        *(("-gdb", f"unix:{escaped(str(files.gdb))},server=on,wait=off") if files.gdb is not None else ()),
        *_layers(spec).command_line(json),
    ]
    if hardware.machine == "q35":
        argv += _ports(spec.port_names()[: None if restorable else own.pci])
    argv += on_ports.command_line(json)
    if incoming:
        argv += [*spec.all_devices.early_arguments(), "-incoming", "defer"]
    return [*argv, *hardware.qemu_args]


def to_file(path: str | Path) -> str:
    return f"file,id=console,path={escaped(str(path))}"


def _machine(spec: GuestSpec) -> str:
    options = {
        # What no guest uses costs time at boot.
        "q35": "q35,usb=off,vmport=off,smbus=off,sata=off,hpet=off,graphics=off",
        "pc": "pc,usb=off,vmport=off,hpet=off,graphics=off",
    }
    whole = ",memory-backend=memory" if spec.hardware.numa_nodes == 1 else ""
    return f"{options[spec.hardware.machine]}{whole}"


def _numa_nodes(hardware: Hardware) -> list[str]:
    """CPUs and memory in equal parts, in whole MiB; where that can't be, the first nodes have more memory."""
    count, words = hardware.numa_nodes, list[str]()
    for node in range(count):
        first, last = node * hardware.cpus // count, (node + 1) * hardware.cpus // count - 1
        size = (hardware.memory // 1024**2 + count - 1 - node) // count
        words += ["-object", f"memory-backend-memfd,id=memory{node},share=on,size={size}M"]
        words += ["-numa", f"node,nodeid={node},cpus={first}-{last},memdev=memory{node}"]
    return words


def _memory(spec: GuestSpec, memory: Memory | None) -> str:
    size = f"size={spec.hardware.memory}"
    if memory is None:
        return f"memory-backend-memfd,id=memory,share=on,{size}"
    # A private mapping: the file's pages are shared by all copies until one of them writes.
    share = "on" if memory.shared or memory.copied else "off"
    path = shared_copy.COPY_PATH if memory.copied else str(memory.file)
    return f"memory-backend-file,id=memory,mem-path={escaped(path)},share={share},{size}"


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
        f"storlab.root={spec.root}" if spec.root else f"storlab.layers={len(spec.image.layers)}",
        f"storlab.port={PORT}",
        spec.hardware.kernel_args,
    ]
    return " ".join(filter(None, words))


def _layers(spec: GuestSpec) -> Devices:
    blockdevs: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    for number, path in enumerate(() if spec.root else spec.image.layers):
        node = f"layer{number}"
        file = {"driver": "file", "filename": str(path), "locking": "off"}
        blockdevs.append({"driver": "raw", "node-name": node, "read-only": True, "file": file})
        serial = f"{LAYER_SERIAL}{number}"
        devices.append({"driver": "virtio-blk-pci", "drive": node, "serial": serial, "id": f"{node}-dev"})
    return Devices(blockdevs=tuple(blockdevs), devices=tuple(devices))


def _ports(names: Sequence[str]) -> list[str]:
    """PCI Express ports, of which each takes one device at any time; eight are the functions of one slot."""
    words = []
    for number, name in enumerate(names):
        slot, function = divmod(number, _PORTS_AT_ONCE)
        where = f"addr={_FIRST_SLOT + slot:#x}.{function},multifunction=on"
        words += ["-device", f"pcie-root-port,id={name},chassis={number + 1},slot={number + 1},{where}"]
    return words


# What a guest's QEMU sees of this machine's files: what its command line names, and the system's programs.
#
# Whatever else it gets comes as descriptors, over its monitor: ``handover.py``.

_NODES = ("/dev/kvm", "/dev/net/tun")
_UNTIL_IT_IS_A_USER = ("CAP_DAC_OVERRIDE", "CAP_NET_ADMIN", "CAP_SETGID", "CAP_SETUID")


async def start_among_own_files(
    host: Node, argv: Sequence[str], spec: GuestSpec, files: Files, memory: Memory | None
) -> Process:
    """Start a QEMU that sees no other files. Its console is opened for it: that may lie in no folder with a name.

    One that stays who started it, that isn't the system's, or that a study or a controller of a disk has open what
    Storlab doesn't know of, sees all that its user may.
    """
    emulator = spec.hardware.emulator
    program = Path(shutil.which(emulator) or emulator).resolve()
    more = spec.hardware.qemu_args or any(device["driver"] == "vfio-pci" for device in spec.all_devices.devices)
    if spec.confinement.user is None or more or not program.is_relative_to("/usr"):
        return await host.start(argv)
    read = [*SYSTEM, spec.image.kernel, spec.initrd, *spec.image.layers]
    written: set[str | Path] = {files.qmp.parent, files.agent.parent}
    nodes = [*_NODES]
    if memory is None:  # else its own devices come later
        for path in _named(spec.all_devices.commands()):
            if path.startswith("/dev/"):
                nodes.append(path)
            else:
                written.add(path)
    else:  # opened for writing, though a copy of a saved guest writes nothing there
        written.add(memory.file.parent if memory.shared else memory.file)
    confinement = {
        "visible": [str(path) for path in read],
        "writable": sorted(str(path) for path in written),
        "devices": nodes,
        "capabilities": _UNTIL_IT_IS_A_USER,
        "mounts_only": True,
        "bare": True,
    }
    console = {to_file(files.console): to_file("/dev/stdout")}
    at, words = argv.index(emulator), [console.get(word, word) for word in argv]
    confined = [str(agent_path()), "confine", orjson.dumps(confinement).decode()]
    return await host.start([*words[:at], *confined, *words[at:]], stdout_file=str(files.console))


def _named(arguments: Any) -> Iterator[str]:
    if isinstance(arguments, list | tuple):
        for each in arguments:
            yield from _named(each)
    elif isinstance(arguments, Mapping):
        if "filename" in arguments:
            yield str(arguments["filename"])
        if arguments.get("type") == "unix":
            yield str(arguments.get("data", arguments)["path"])
        yield from _named([*arguments.values()])
