"""How checks look at the machine, and what they find: files, programs, features of the kernel. Tests put another
machine in its place. A feature is built in, loaded, or a module that could be loaded; nothing is loaded.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from storlab.agent_binary import agent_path
from storlab.nodes.needs import PROGRAMS
from storlab.programs import search_path

_TIMEOUT = 10.0  # s; a program that takes longer to say its version is broken
_NOT_ON_PATH = ("/usr/libexec", "/usr/lib/qemu")  # nor on root's: virtiofsd


@dataclass(frozen=True)
class Ended:
    """How a program ended: its status, and what it printed on both streams, trimmed."""

    status: int
    text: str

    @property
    def first_line(self) -> str:
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")


class Machine:
    """This machine."""

    here: ClassVar[bool] = True

    def read(self, path: str) -> str | None:
        """A file's text, trimmed; ``None`` where it can't be read."""
        try:
            return Path(path).read_text("utf-8", errors="replace").strip()
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def glob(self, folder: str, pattern: str) -> list[str]:
        return sorted(str(path) for path in Path(folder).glob(pattern))

    def which(self, program: str) -> str | None:
        return shutil.which(program, path=search_path(*_NOT_ON_PATH))

    def run(self, argv: Sequence[str]) -> Ended:
        """Run a short program to its end, without input; one that is missing or hangs has status 127 or 124."""
        path = self.which(argv[0])
        if path is None:
            return Ended(127, f"{argv[0]} is not installed")
        try:
            done = subprocess.run(
                [path, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ended(124, f"{argv[0]} did not answer within {_TIMEOUT:.0f} s")
        except OSError as error:
            return Ended(126, f"{path}: {error.strerror}")
        return Ended(done.returncode, done.stdout.decode(errors="replace").strip())

    def syscall(self, number: int, *arguments: int | bytes) -> int | None:
        """A system call that gives a file descriptor, which is closed again: 0 or more, or the negated errno.

        ``arguments``: 32-bit numbers, and what pointers lead to. ``None``: it can't be tried on this machine.
        """
        ended = call(number, *arguments)
        if ended >= 0:
            os.close(ended)
        return ended

    @contextmanager
    def empty_file(self, folder: str, size: int) -> Iterator[str]:
        """The path of a sparse file, which goes with the context. Raises ``OSError``."""
        with tempfile.NamedTemporaryFile(dir=folder, prefix="storlab-doctor-") as file:
            file.truncate(size)
            yield file.name

    def free(self, folder: str) -> int:
        """Bytes that are free on the file system of a folder."""
        return shutil.disk_usage(folder).free

    def agent(self) -> str:
        """The path of the agent there. Raises ``MissingTool``."""
        return str(agent_path())

    @cached_property
    def cpus(self) -> int:
        return os.cpu_count() or 1

    @cached_property
    def architecture(self) -> str:
        return platform.machine()

    @property
    def is_root(self) -> bool:
        return os.geteuid() == 0

    @cached_property
    def release(self) -> str:
        return platform.release()

    @cached_property
    def capabilities(self) -> int:
        """The effective capabilities, as bits; see capabilities(7)."""
        status = self.read("/proc/self/status") or ""
        lines = (line.split(":", 1)[1] for line in status.splitlines() if line.startswith("CapEff:"))
        return int(next(lines, "0"), 16)

    @cached_property
    def kernel_options(self) -> Mapping[str, str]:
        """``CONFIG_…`` → ``y``, ``m`` or another value; empty where this kernel doesn't tell."""
        text = self.run(["gzip", "-dc", "/proc/config.gz"]).text if self.exists("/proc/config.gz") else None
        lines = (text or self.read(f"/boot/config-{self.release}") or "").splitlines()
        return dict(line.split("=", 1) for line in lines if line.startswith("CONFIG_") and "=" in line)


def call(number: int, *arguments: int | bytes) -> int:
    """A system call: its result, or the negated errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    made = (ctypes.c_uint(each) if isinstance(each, int) else ctypes.create_string_buffer(each) for each in arguments)
    result = int(libc.syscall(ctypes.c_long(number), *made))
    return result if result >= 0 else -ctypes.get_errno()


Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Check:
    """``says`` is what was found, or the reason why it is missing; ``remedy`` the command that would fix it."""

    name: str
    group: str
    status: Status
    says: str
    remedy: str = ""


def ok(name: str, group: str, says: str) -> Check:
    """It works, as far as that can be seen."""
    return Check(name, group, "ok", says)


def warn(name: str, group: str, says: str, remedy: str = "") -> Check:
    """It works in part, or disturbs measurements, or can't be judged from here."""
    return Check(name, group, "warn", says, remedy)


def missing(name: str, group: str, says: str, remedy: str = "") -> Check:
    """It is not there; what needs it is unsupported on this machine."""
    return Check(name, group, "missing", says, remedy)


_DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
REMEDY = f"apt-get install linux-image-{_DEBIAN.get(platform.machine(), platform.machine())}, and boot it"
_VERSION = re.compile(r"\d+\.\d+[\w.+~-]*")


def has_feature(machine: Machine, module: str, option: str) -> str | None:
    """How the kernel has it: ``built in``, ``loaded``, ``module``; ``None`` where it hasn't.

    ``option`` is the name in the kernel's configuration, which is asked because what is built in leaves few traces.
    """
    if machine.kernel_options.get(option) == "y":
        return "built in"
    loaded = {line.split(" ", 1)[0] for line in (machine.read("/proc/modules") or "").splitlines()}
    if module.replace("-", "_") in loaded:
        return "loaded"
    if machine.run(["modprobe", "--dry-run", "--quiet", module]).status == 0:
        return "module"
    return None


def why_not(machine: Machine, option: str) -> str:
    """Why a feature is missing, in words."""
    options = machine.kernel_options
    if options and option not in options:
        return f"this kernel ({machine.release}) was built without it"
    if not machine.exists(f"/lib/modules/{machine.release}"):
        return f"there are no modules for this kernel ({machine.release}) in /lib/modules"
    return f"this kernel ({machine.release}) has no such module"


def feature(machine: Machine, group: str, name: str, module: str, option: str, tools: str = "") -> Check:
    """A kernel feature alone; ``tools`` are told beside it."""
    how = has_feature(machine, module, option)
    if how is None:
        return missing(name, group, why_not(machine, option), REMEDY)
    return ok(name, group, how + (f", {tools}" if tools else ""))


def feature_with_program(
    machine: Machine, group: str, name: str, module: str, option: str, program: str, package: str
) -> Check:
    """A kernel feature that is of use only with its program."""
    found = feature(machine, group, name, module, option, program)
    if found.status == "ok" and machine.which(program) is None:
        return missing(name, group, f"the kernel has it, but {program} is not installed", f"apt-get install {package}")
    return found


def version(machine: Machine, program: str, *arguments: str) -> str:
    """The version that a program prints, without what else it prints; its first line where there is none."""
    asked = arguments or (PROGRAMS[program].version if program in PROGRAMS else ("--version",))
    said = machine.run([program, *asked])
    # mariadbd: "Ver 10.11.14-MariaDB-…": what follows the number is the packager's. bonnie++ has it below its usage.
    found = _VERSION.search(said.first_line) or _VERSION.search(said.text)
    return found[0] if found else said.first_line


def program(
    machine: Machine, group: str, name: str, package: str, *arguments: str, what: str = "", path: str = ""
) -> Check:
    """A program that is driven as it stands; ``what`` it is for, ``path`` where it is not on PATH."""
    where = path or name
    if machine.which(where) is None:
        return missing(name, group, f"not installed{what and f'; {what}'}", f"apt-get install {package}")
    said = version(machine, where, *arguments)
    return ok(name, group, said) if said else warn(name, group, "installed, but prints no version")
