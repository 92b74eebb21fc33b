"""What a guest's QEMU sees of this machine's files: what its command line names, and the system's programs.

Whatever else it gets comes as descriptors, over its monitor: ``handover.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from storlab.agent_binary import agent_path
from storlab.nodes.kinds.vm.command import Files, GuestSpec, Memory, to_file
from storlab.nodes.node import Node, Process
from storlab.nodes.privileges import SYSTEM

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
