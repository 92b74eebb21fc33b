"""How checks look at a machine, this one or another over SSH, and what they find. Nothing but sh(1) need be there.

Nothing is changed, and no module of the kernel is loaded. Tests put another machine in its place.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from storlab.base.errors import MissingTool
from storlab.base.programs import ADMINISTRATION, agent_path
from storlab.ssh.client import MARK
from storlab.ssh.machine import Machine as Connected

Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Check:
    """``says`` is what was found, or the reason why it is missing; ``remedy`` the command that would fix it."""

    name: str
    group: str
    status: Status
    says: str
    remedy: str = ""


@dataclass(frozen=True)
class Ended:
    """How a program ended: its status, and what it printed on both streams, trimmed."""

    status: int
    text: str

    @property
    def first_line(self) -> str:
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")


_TIMEOUT, _FAR_TIMEOUT = 10.0, 30.0  # s; a program that takes longer to say its version is broken
_BEGIN = f"PATH=$PATH:{':'.join(ADMINISTRATION)}; LC_ALL=C; export PATH LC_ALL\n"
_NOT_ON_PATH = "/usr/libexec:/usr/lib/qemu"  # nor on root's: virtiofsd
_CALL = """import ctypes, sys
number, *arguments = eval(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
made = [ctypes.c_uint(each) if isinstance(each, int) else ctypes.create_string_buffer(each) for each in arguments]
result = int(libc.syscall(ctypes.c_long(number), *made))
print(result if result >= 0 else -ctypes.get_errno())"""


class Machine:
    """This machine."""

    here = True
    python = sys.executable

    def sh(self, script: str, *words: str) -> Ended:
        argv = ["sh", "-c", _BEGIN + script, "sh", *words]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            return Ended(124, f"no answer within {_TIMEOUT:.0f} s")
        return Ended(done.returncode, done.stdout.decode("utf-8", "replace").strip())

    def read(self, path: str) -> str | None:
        """A file's text, trimmed; ``None`` if it can't be read."""
        found = self.sh('exec cat -- "$1"', path)
        return found.text if found.status == 0 else None

    def exists(self, path: str) -> bool:
        return self.sh('[ -e "$1" ] || [ -L "$1" ]', path).status == 0

    def glob(self, folder: str, pattern: str) -> list[str]:
        words = "".join(sign if sign in "*?[]-" or sign.isalnum() else shlex.quote(sign) for sign in pattern)
        found = self.sh(f'cd -- "$1" 2>/dev/null && ls -d -- {words} 2>/dev/null', folder)
        return sorted(f"{folder}/{name}" for name in found.text.splitlines())

    def which(self, program: str) -> str | None:
        found = self.sh(f'PATH=$PATH:{_NOT_ON_PATH}; command -v -- "$1"', program)
        return found.text if found.status == 0 and found.text.startswith("/") else None

    def run(self, argv: Sequence[str]) -> Ended:
        """Run a short program to its end, without input; one that is missing or hangs has status 127 or 124."""
        lacks = 'command -v -- "$1" >/dev/null || { echo "$1 is not installed"; exit 127; }'
        return self.sh(f'PATH=$PATH:{_NOT_ON_PATH}; {lacks}; exec "$@" 2>&1 </dev/null', *argv)

    def syscall(self, number: int, *arguments: int | bytes) -> int | None:
        """A system call that gives a file descriptor, which is closed again: 0 or more, or the negated errno.

        ``arguments``: 32-bit numbers, and what pointers lead to. ``None``: it can't be tried on this machine.
        """
        ended = self.run([self.python, "-I", "-c", _CALL, repr((number, *arguments))])  # its end closes what it opened
        words = ended.text.split()
        return int(words[-1]) if ended.status == 0 and words else None

    @contextmanager
    def empty_file(self, folder: str, size: int) -> Iterator[str]:
        """The path of a sparse file, which goes with the context. Raises ``OSError``."""
        script = 'f=$(mktemp -p "$1" storlab-doctor-XXXXXX) && truncate -s "$2" "$f" && echo "$f"'
        made = self.sh(script, folder, f"{size}")
        if made.status != 0:
            raise OSError(made.text)
        try:
            yield made.text
        finally:
            self.sh('rm -f -- "$1"', made.text)

    def free(self, folder: str) -> int:
        rows = self.sh('df --output=avail -B1 -- "$1"', folder).text.split()
        return int(rows[-1]) if rows and rows[-1].isdecimal() else 0

    def agent(self) -> str:
        """The path of the agent there. Raises ``MissingTool``."""
        return str(agent_path())

    @cached_property
    def cpus(self) -> int:
        count = self.sh("getconf _NPROCESSORS_ONLN").text
        return int(count) if count.isdecimal() else 1

    @cached_property
    def architecture(self) -> str:
        return self.sh("uname -m").text

    @property
    def is_root(self) -> bool:
        return os.geteuid() == 0

    @cached_property
    def release(self) -> str:
        return self.sh("uname -r").text

    @cached_property
    def capabilities(self) -> int:
        """The effective capabilities, as bits; see capabilities(7)."""
        lines = (self.read("/proc/self/status") or "").splitlines()
        return int(next((line.split(":", 1)[1] for line in lines if line.startswith("CapEff:")), "0"), 16)

    @cached_property
    def kernel_options(self) -> Mapping[str, str]:
        """``CONFIG_…`` → ``y``, ``m`` or another value; empty if this kernel doesn't tell."""
        text = self.run(["gzip", "-dc", "/proc/config.gz"]).text if self.exists("/proc/config.gz") else None
        lines = (text or self.read(f"/boot/config-{self.release}") or "").splitlines()
        return dict(line.split("=", 1) for line in lines if line.startswith("CONFIG_") and "=" in line)


class OtherMachine(Machine):
    """A machine that is connected: a look is a command there, in a session of the connection that is open already.

    ``agent``: the path of the agent that was brought there.
    """

    here = False
    python = "python3"

    def __init__(self, connected: Connected, agent: str | None) -> None:
        self._connected, self._agent = connected, agent

    def sh(self, script: str, *words: str) -> Ended:
        argv = self._connected.argv("sh", "-c", _BEGIN + script, "sh", *words, marked=True)
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_FAR_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            return Ended(124, f"no answer within {_FAR_TIMEOUT:.0f} s")
        _, mark, output = done.stdout.partition(f"{MARK}\n".encode())
        if not mark:
            raise self._connected.lost()
        return Ended(done.returncode, output.decode("utf-8", "replace").strip())

    def agent(self) -> str:
        if self._agent is None:
            raise MissingTool(f"there is no agent for {self._connected.architecture}")
        return self._agent

    @property
    def is_root(self) -> bool:
        return self._connected.uid == 0
