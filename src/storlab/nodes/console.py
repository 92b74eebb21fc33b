"""What a machine's kernel says on its console: kept in a file, and searched for why the machine is gone.

A guest's console is written by QEMU; that of another machine is what a command of the user's prints, such as
``ipmitool sol activate``, ``conserver`` or ``ssh`` to a serial server.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from storlab.nodes.node import Node
from storlab.nodes.process import Process
from storlab.nodes.raw_folders import make_raw_folder

MAX_CONSOLE = 64 * 1024**2  # bytes; a serial port is slow, so it is not much more when that is seen
_PANIC = re.compile(r"Kernel panic - not syncing: (?P<reason>.*)")
_KILLED = re.compile(r"Out of memory: Killed process \d+ \((?P<program>.*?)\) ")
_TIME = re.compile(r"^\[ *\d+\.\d+\] ")
_TAIL = 30  # lines
_PANIC_TAIL = 80  # lines; a kernel that panics prints its call trace after the reason
_MOST = 64 * 1024  # bytes
_KEEP = 'exec "$1" "$2" >>"$3" 2>&1 </dev/null'


def console_text(path: Path, since: int = 0) -> str:
    """The end of a console, as text; nothing of its first ``since`` bytes."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - _MOST, since))
            return file.read().decode(errors="replace").replace("\r", "")
    except OSError:
        return ""


def panic(text: str) -> str | None:
    found = _PANIC.search(text)
    return found["reason"].strip() if found else None


def killed_for_memory(text: str) -> str | None:
    """The program that a machine's kernel killed last because memory ran out; ``None`` where that did not happen."""
    found = _KILLED.findall(text)
    return found[-1] if found else None


def tail(text: str) -> str:
    """The last lines, without the kernel's times; where it panicked, the reason is among them."""
    lines = [line for line in (_TIME.sub("", line).rstrip() for line in text.splitlines()) if line]
    panicked = [number for number, line in enumerate(lines) if _PANIC.match(line)]
    first = max(len(lines) - _TAIL, 0)
    if panicked:
        first = max(min(first, panicked[0]), len(lines) - _PANIC_TAIL, 0)
    return "\n".join(lines[first:])


@dataclass
class Console:
    """A console that a command prints, of the machine called ``name``. ``path``: the file that it goes to.

    ``since``: bytes of it that are of an earlier boot.
    """

    name: str
    path: Path
    process: Process

    since: int = 0

    def begin(self) -> None:
        """What it has said so far is of an earlier boot, and no reason for anything later."""
        self.since = self.path.stat().st_size if self.path.exists() else 0

    def reason(self) -> str | None:
        why = panic(console_text(self.path, self.since))
        return None if why is None else f"the kernel of {self.name} panicked: {why}"

    def complaint(self) -> str | None:
        """That its kernel killed a program because memory ran out, where it did."""
        killed = killed_for_memory(console_text(self.path, self.since))
        return killed and f"{self.name} ran out of memory, and its kernel killed {killed}"

    def tail(self) -> str:
        return tail(console_text(self.path, self.since))

    def trouble(self) -> str | None:
        ended = self.process.ended
        if ended is None:
            return None
        if ended.signal == "SIGXFSZ":
            return f"the console of {self.name} has more than {MAX_CONSOLE >> 20}M: what came later is not kept"
        said = tail(console_text(self.path)).splitlines()
        return f"the command that shows the console of {self.name} has ended{f': {said[-1]}' if said else ''}"


@asynccontextmanager
async def kept_console(host: Node, name: str, program: str, address: str, path: Path) -> AsyncIterator[Console]:
    """What ``PROGRAM ADDRESS`` prints on this machine, in the file ``path``, for as long as the context lasts.

    It runs as a command of ``host``, and so ends with the controller, however that ends.
    """
    make_raw_folder(path.parent)
    limited = ["prlimit", f"--fsize={MAX_CONSOLE}", "--"]  # so that it can't fill the disk
    process = await host.start([*limited, "sh", "-c", _KEEP, "sh", program, address, str(path)])
    try:
        yield Console(name, path, process)
    finally:
        await process.end()
