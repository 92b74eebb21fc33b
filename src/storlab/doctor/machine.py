"""How checks look at the machine: files, programs, system calls. Tests put another machine in its place."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_TIMEOUT = 10.0  # s; a program that takes longer to say its version is broken
# Debian keeps mkfs and its kind off an ordinary user's PATH; virtiofsd and PostgreSQL are not on anyone's.
_MORE_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/libexec", "/usr/lib/qemu")


@dataclass(frozen=True)
class Ended:
    """How a program ended: its status, and what it printed on both streams, trimmed."""

    status: int
    text: str

    @property
    def first_line(self) -> str:
        """The first line that isn't blank."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")


class Machine:
    """This machine."""

    def read(self, path: str) -> str | None:
        """A file's text, trimmed; ``None`` where it can't be read."""
        try:
            return Path(path).read_text("utf-8", errors="replace").strip()
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is such a path."""
        return os.path.lexists(path)

    def glob(self, folder: str, pattern: str) -> list[str]:
        """The paths in ``folder`` that match, in order."""
        return sorted(str(path) for path in Path(folder).glob(pattern))

    def which(self, program: str) -> str | None:
        """The program's path."""
        return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_MORE_FOLDERS]))

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

    def syscall(self, number: int, *arguments: object) -> int:
        """A system call: its result, or the negated errno."""
        libc = ctypes.CDLL(None, use_errno=True)
        result = int(libc.syscall(ctypes.c_long(number), *arguments))
        return result if result >= 0 else -ctypes.get_errno()

    @property
    def is_root(self) -> bool:
        """Whether this process has root's user id."""
        return os.geteuid() == 0

    @cached_property
    def release(self) -> str:
        """The kernel's release."""
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
