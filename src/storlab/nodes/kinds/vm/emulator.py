"""A QEMU as a program: the installed one or one of the user's own, its version, and what its devices know."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from storlab.base.errors import MissingTool, RecordsError, UserError
from storlab.base.programs import unused_user
from storlab.base.record import read_record, to_json
from storlab.base.text import grouped, one_line
from storlab.base.units import shown
from storlab.base.waiting import reaped
from storlab.images.cache import storlab_cache
from storlab.images.image import Image
from storlab.nodes.console import panic
from storlab.nodes.kinds.vm.hardware import QEMU
from storlab.nodes.node import Node

Accelerator = Literal["kvm", "tcg"]

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
    known: dict[str, bool] = {}
    for driver, names in grouped((each.partition(".")[0], each.partition(".")[2]) for each in wanted).items():
        argv = [program, "-machine", "none", "-device", f"{driver},help"]
        said = (await host.run(argv, check=False, timeout=_PATIENCE)).stdout.decode(errors="replace")
        # Of each property it prints a line ``  name=<type>  - …``.
        known |= {f"{driver}.{name}": bool(re.search(rf"^\s*{re.escape(name)}=", said, re.MULTILINE)) for name in names}
    return Emulator(program, found.version, known)


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
            os.killpg(process.pid, signal.SIGKILL)  # a script may have children
        await reaped(process)
    version = one_line(line.decode(errors="replace"))
    if program != QEMU and not _VERSION.match(version):
        said = f"it answers --version with {shown(version)}" if version else "it says nothing at --version"
        raise UserError(f"{shown(program)} is no QEMU: {said}: {_REMEDY}", ("qemu",))
    return version


# Whether KVM really works, which only a guest can tell: on some machines ``/dev/kvm`` answers and every guest dies.

_ALIVE = "storlab-init: alive"
_BOOTS_WITHIN = 10.0  # s; with KVM it takes about one


class Acceleration(Struct, frozen=True, forbid_unknown_fields=True):
    """What guests run with, and, where that is emulation, why KVM can't be had."""

    accelerator: Accelerator
    reason: str = ""


def kvm_device() -> str | None:
    """Why ``/dev/kvm`` can't even be opened; ``None`` where it can."""
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return "there is no /dev/kvm"
    except OSError as error:
        return f"cannot open /dev/kvm: {error.strerror}"
    return None


async def find_acceleration(image: Image, initrd: Path, host: Node, qemu: str = QEMU) -> Acceleration:
    """KVM where a tiny guest lives in it, else emulation. Tried once for each boot of this machine and each QEMU.

    QEMU runs as a command of ``host``, and so never outlives the controller.
    """
    reason = kvm_device()
    if reason is not None:
        return Acceleration("tcg", reason)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8")
    key = "\0".join([boot, qemu, await qemu_version(qemu), str(image.kernel), str(os.geteuid())])
    memory = storlab_cache() / "kvm" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    try:
        return read_record(memory, Acceleration)
    except (OSError, RecordsError):  # it is tried again
        pass
    found = await _try_kvm(image, initrd, host, qemu)
    memory.parent.mkdir(parents=True, exist_ok=True)
    memory.write_bytes(to_json(found))
    return found


async def _try_kvm(image: Image, initrd: Path, host: Node, qemu: str) -> Acceleration:
    argv = [
        *(qemu, "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"),
        *("-accel", "kvm", "-machine", "q35", "-cpu", "host", "-m", "256M"),
        *("-kernel", str(image.kernel), "-initrd", str(initrd), "-serial", "stdio"),
        *("-append", "console=ttyS0 panic=-1 storlab.try=1"),
    ]
    ended = await host.run(argv, check=False, timeout=_BOOTS_WITHIN, grace=0.5)
    text = ended.stdout.decode(errors="replace").replace("\r", "")
    if _ALIVE in text:
        return Acceleration("kvm")
    said = [] if ended.timed_out else ended.stderr.decode(errors="replace").strip().splitlines()
    waited = f"it did not boot within {_BOOTS_WITHIN:g} s" if ended.timed_out else ended.describe()
    why = said[0] if said else panic(text) or waited
    return Acceleration("tcg", f"/dev/kvm answers, but a guest dies in it: {why}")


# What a QEMU may do beyond being a guest's machine: a guest that breaks out of it should find nothing there.
#
# Started by root, QEMU opens what stands on its command line and then becomes a user that nobody else is, another one
# for each guest: neither another guest's QEMU nor any program of the machine can look into it, and it owns no file. A
# filter of system calls (seccomp) forbids it to start programs. Where QEMU or this machine can't do that, it is tried
# with less.

_SANDBOX = "on,obsolete=deny,spawn=deny,resourcecontrol=deny"
_KEPT = ",elevateprivileges=deny"  # it would also forbid to become another user
_TRY = b'{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'


@dataclass(frozen=True)
class Confinement:
    """``user``: whom QEMU becomes, as number of user and group; ``None``: it stays who started it.

    ``reason``: why it is not confined further, in words.
    """

    user: int | None = None
    sandbox: bool = False
    option: str = "-run-with"  # -runas before QEMU 9.1
    reason: str = ""

    def words(self) -> list[str]:
        sandbox = _SANDBOX if self.user is not None else _SANDBOX + _KEPT
        words = ["-sandbox", sandbox] if self.sandbox else []
        if self.user is None:
            return words
        who = f"{self.user}:{self.user}"
        return [*words, self.option, f"user={who}" if self.option == "-run-with" else who]

    def of_a_guest(self, *, serves_files: bool) -> Confinement:
        """For one guest, with a user of its own. A QEMU that serves files itself (9p) stays who started it."""
        if self.user is None:
            return self
        if serves_files:
            return replace(self, user=None, reason="it serves a folder's files by 9p, and needs root for that")
        return replace(self, user=unused_user())

    def facts(self) -> dict[str, Any]:
        """For the records; the number of a guest's own user is not among them, as it is another one each time."""
        user = "its own" if self.user is not None else "root" if os.geteuid() == 0 else "the run's"
        return {"user": user, "sandbox": self.sandbox, **({"reason": self.reason} if self.reason else {})}


UNCONFINED = Confinement()


async def find_confinement(qemu: str, host: Node) -> Confinement:
    """The most that this machine's QEMU can do, which only a QEMU can tell. It runs for a moment, without a guest."""
    root = os.geteuid() == 0
    users = [(unused_user(), "-run-with"), (unused_user(), "-runas")] if root else []
    tried = [Confinement(user, sandbox, option) for sandbox in (True, False) for user, option in users]
    said = ""
    for confinement in (*tried, Confinement(sandbox=True)):
        argv = [qemu, "-no-user-config", "-nodefaults", "-display", "none", "-machine", "none", "-qmp", "stdio"]
        ended = await host.run([*argv, *confinement.words()], check=False, stdin=_TRY, timeout=_PATIENCE)
        if ended.ok:
            whole = confinement.sandbox and (confinement.user is not None or not root)
            return replace(confinement, reason="" if whole else said)
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        said = said or (lines[-1] if lines else ended.describe())
    return Confinement(reason=said)
