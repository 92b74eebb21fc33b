"""Another machine, looked at over SSH, for the checks that look at this one: nothing but sh(1) need be there.

A look is a command there, in a session of the connection that stands already.
"""

from __future__ import annotations

import inspect
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import ClassVar

from storlab.doctor import machine as here
from storlab.doctor.machine import Ended, Machine
from storlab.errors import MissingTool
from storlab.ssh.machine import Machine as Connected
from storlab.ssh.words import MARK

_TIMEOUT = 30.0  # s
_PATH = "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; LC_ALL=C; export PATH LC_ALL\n"
_CALL = f"""from __future__ import annotations
import ctypes, sys
{inspect.getsource(here.call)}
print(call(*eval(sys.argv[1])))"""


class OtherMachine(Machine):
    """A machine that is connected. ``agent``: the path of the agent that was brought there."""

    here: ClassVar = False

    def __init__(self, connected: Connected, agent: str | None) -> None:
        self._connected, self._agent = connected, agent

    def _sh(self, script: str, *words: str) -> Ended:
        argv = self._connected.argv("sh", "-c", _PATH + script, "sh", *words, marked=True)
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            return Ended(124, f"no answer within {_TIMEOUT:.0f} s")
        _, mark, output = done.stdout.partition(f"{MARK}\n".encode())
        if not mark:
            raise self._connected.lost()
        return Ended(done.returncode, output.decode("utf-8", "replace").strip())

    def read(self, path: str) -> str | None:
        found = self._sh('exec cat -- "$1"', path)
        return found.text if found.status == 0 else None

    def exists(self, path: str) -> bool:
        return self._sh('[ -e "$1" ] || [ -L "$1" ]', path).status == 0

    def glob(self, folder: str, pattern: str) -> list[str]:
        found = self._sh(f'cd -- "$1" 2>/dev/null && ls -d -- {_as_pattern(pattern)} 2>/dev/null', folder)
        return sorted(f"{folder}/{name}" for name in found.text.splitlines())

    def which(self, program: str) -> str | None:
        found = self._sh('PATH=$PATH:/usr/libexec:/usr/lib/qemu; command -v -- "$1"', program)
        return found.text if found.status == 0 and found.text.startswith("/") else None

    def run(self, argv: Sequence[str]) -> Ended:
        return self._sh('exec "$@" 2>&1 </dev/null', *argv)

    def syscall(self, number: int, *arguments: int | bytes) -> int | None:
        ended = self.run(["python3", "-I", "-c", _CALL, repr((number, *arguments))])  # the end closes what it opened
        words = ended.text.split()
        return int(words[-1]) if ended.status == 0 and words else None

    @contextmanager
    def empty_file(self, folder: str, size: int) -> Iterator[str]:
        made = self._sh(
            'f=$(mktemp -p "$1" storlab-doctor-XXXXXX) && truncate -s "$2" "$f" && echo "$f"', folder, f"{size}"
        )
        if made.status != 0:
            raise OSError(made.text)
        try:
            yield made.text
        finally:
            self._sh('rm -f -- "$1"', made.text)

    def free(self, folder: str) -> int:
        rows = self._sh('df --output=avail -B1 -- "$1"', folder).text.split()
        return int(rows[-1]) if rows and rows[-1].isdecimal() else 0

    def agent(self) -> str:
        if self._agent is None:
            raise MissingTool(f"there is no agent for {self._connected.architecture}")
        return self._agent

    @cached_property
    def cpus(self) -> int:
        count = self._sh("getconf _NPROCESSORS_ONLN").text
        return int(count) if count.isdecimal() else 1

    @cached_property
    def architecture(self) -> str:
        return self._connected.architecture

    @property
    def is_root(self) -> bool:
        return self._connected.uid == 0

    @cached_property
    def release(self) -> str:
        return self._sh("uname -r").text


def _as_pattern(pattern: str) -> str:
    """A pattern of ours for a shell, which reads nothing else in it."""
    return "".join(each if each in "*?[]-" or each.isalnum() else shlex.quote(each) for each in pattern)
