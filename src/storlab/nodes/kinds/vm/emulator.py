"""A QEMU as a program: the installed one or one of the user's own, its version, and what its devices know."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from storlab.errors import MissingTool, UserError
from storlab.nodes.kinds.vm.hardware import QEMU
from storlab.nodes.node import Node
from storlab.text import one_line
from storlab.units import shown

_VERSION = re.compile(r"QEMU emulator version (?P<short>(\d+)\.(\d+)\S*)")
_OLDEST = (5, 2)
_TAKES_JSON = (7, 2)  # -device from 6.2 on, -netdev from 7.2
_SAVES_TO_FILES = (8, 2)  # `migrate file:…`
_PATIENCE = 20.0  # s; it takes a twentieth of one
_REMEDY = "write the path of a qemu-system-x86_64"


@dataclass(frozen=True)
class Emulator:
    """``version``: the first line that it prints; ``properties``: ``driver.property`` → whether it knows that."""

    program: str
    version: str
    properties: Mapping[str, bool] = field(default_factory=dict)

    @property
    def number(self) -> tuple[int, int]:
        """The first two numbers of its version; an unknown one counts as a new one."""
        found = _VERSION.match(self.version)
        return (int(found[2]), int(found[3])) if found else (99, 0)

    @property
    def takes_json(self) -> bool:
        return self.number >= _TAKES_JSON

    @property
    def saves_guests(self) -> bool:
        return self.number >= _SAVES_TO_FILES

    def lacks(self, wanted: Iterable[str]) -> list[str]:
        unknown = (name.split(".") for name in wanted if not self.properties.get(name))
        found = _VERSION.match(self.version)
        which = f"{self.program} (QEMU {found['short']})" if found else self.program
        return [
            f"{which} has no {name} for its {driver}: name one that has, by its key qemu" for driver, name in unknown
        ]

    def facts(self) -> dict[str, Any]:
        """For the records: the program where it is not the installed one, and what was asked of its devices."""
        program = {"emulator": self.program} if self.program != QEMU else {}
        return {**program, **({"properties": dict(self.properties)} if self.properties else {})}


async def find_emulator(program: str, properties: Iterable[str], host: Node) -> Emulator:
    """Ask a QEMU who it is, and which of these ``driver.property`` it knows.

    Raises ``MissingTool`` where none is installed, ``UserError`` with its ``key`` where the user's own is none.
    """
    found = Emulator(program, await qemu_version(program))
    if found.number < _OLDEST:
        needed = ".".join(map(str, _OLDEST))
        raise UserError(f"{shown(program)} is {found.version}: Storlab needs QEMU {needed} or later", ("qemu",))
    wanted = sorted(set(properties))
    helps = {driver: await _help(program, driver, host) for driver in {name.partition(".")[0] for name in wanted}}
    known = {name: _knows(helps[name.partition(".")[0]], name.partition(".")[2]) for name in wanted}
    return Emulator(program, found.version, known)


async def _help(program: str, driver: str, host: Node) -> str:
    argv = [program, "-machine", "none", "-device", f"{driver},help"]
    ended = await host.run(argv, check=False, timeout=_PATIENCE)
    return ended.stdout.decode(errors="replace")


def _knows(text: str, name: str) -> bool:
    """Whether QEMU's list, with a line ``  name=<type>  - …`` for each property, has this one."""
    return re.search(rf"^\s*{re.escape(name)}=", text, re.MULTILINE) is not None


async def qemu_version(program: str = QEMU) -> str:
    """The first line of ``--version``. Raises as ``find_emulator``."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        if program == QEMU:
            raise MissingTool(f"{QEMU} is not installed, which guests need: apt-get install qemu-system-x86") from None
        raise UserError(f"cannot run {shown(program)}: {error.strerror}: {_REMEDY}", ("qemu",)) from None
    assert process.stdout is not None
    line = b""
    try:
        async with asyncio.timeout(_PATIENCE):
            line = await process.stdout.readline()
    except (TimeoutError, ValueError):  # it says nothing, or no end of a line comes
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a script may have children, which hold its output open
        await process.wait()
    version = one_line(line.decode(errors="replace"))
    if program != QEMU and not _VERSION.match(version):
        said = f"it answers --version with {shown(version)}" if version else "it says nothing at --version"
        raise UserError(f"{shown(program)} is no QEMU: {said}: {_REMEDY}", ("qemu",))
    return version
