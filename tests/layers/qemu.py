"""A QEMU that runs no guest: it stands still before its first instruction, and takes devices over QMP."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laboratory import wait_until
from storlab.nodes.demands import Devices

_PORT = "slot0"


@dataclass
class Qemu:
    """The monitor of one."""

    stream: Any

    def ask(self, command: str, **arguments: Any) -> Any:
        """What a command returns. Raises ``AssertionError`` with QEMU's own words."""
        self.stream.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        self.stream.flush()
        while True:
            answer = json.loads(self.stream.readline())
            assert "error" not in answer, f"{command} {arguments}: {answer['error']['desc']}"
            if "return" in answer:
                return answer["return"]

    def attach(self, devices: Devices) -> None:
        """As a launcher does."""
        for command, arguments in devices.on_ports([_PORT]).commands():
            self.ask(command, **arguments)


@contextmanager
def standing_qemu(folder: Path, *arguments: str) -> Iterator[Qemu]:
    """With one free slot."""
    path = folder / "qmp"
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-nodefaults", "-S", "-display", "none"]
    argv += ["-m", "64", "-qmp", f"unix:{path},server=on,wait=off", "-device", f"pcie-root-port,id={_PORT}"]
    with subprocess.Popen([*argv, *arguments], stderr=subprocess.PIPE) as process:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                wait_until(lambda: process.poll() is not None or not connection.connect_ex(str(path)), 20.0)
                assert process.stderr is not None
                assert process.poll() is None, process.stderr.read().decode()
                with connection.makefile("rwb") as stream:
                    qemu = Qemu(stream)
                    stream.readline()  # the greeting
                    qemu.ask("qmp_capabilities")
                    yield qemu
        finally:
            process.kill()
            path.unlink(missing_ok=True)


def arguments_of(devices: Devices) -> list[str]:
    """The same on a command line."""
    return devices.on_ports([_PORT]).command_line()
