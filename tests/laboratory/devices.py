"""Devices of a test's own, standing for disks of the user's."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from laboratory import Laboratory
from storlab.base.errors import StudyError

PLAIN = {"PATH": os.environ["PATH"]}  # without what marks the processes of a test's laboratory


def sh(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Device:
    """A loop device of the test's own."""

    path: str
    image: Path

    def checksum(self) -> str:
        subprocess.run(["blockdev", "--flushbufs", self.path], check=True)
        return hashlib.sha256(self.image.read_bytes()).hexdigest()

    def signatures(self) -> str:
        return sh("wipefs", "--no-act", self.path)

    def partition(self, length: int = 40960) -> str:
        """Make one on it, without a table on the disk: the kernel's own doing, see addpart(8)."""
        sh("addpart", self.path, "1", "2048", str(length))
        made = f"{self.path}p1"
        if not Path(made).exists():
            number = Path(f"/sys/class/block/{made.removeprefix('/dev/')}/dev").read_text().strip()
            sh("mknod", made, "b", *number.split(":"))
        return made

    def forget_partition(self) -> None:
        if Path(f"{self.path}p1").exists():
            subprocess.run(["delpart", self.path, "1"], check=False, capture_output=True)
            Path(f"{self.path}p1").unlink(missing_ok=True)

    def close(self) -> None:
        self.forget_partition()
        sh("losetup", "--detach", self.path)


@contextlib.contextmanager
def new_device(image: Path, size: int = 32 * 1024**2, *options: str) -> Iterator[Device]:
    """A blank device of so many bytes; the options are losetup's."""
    with image.open("wb") as file:
        file.truncate(size)
    with contextlib.closing(Device(sh("losetup", "--find", "--show", *options, str(image)).strip(), image)) as made:
        yield made


@contextlib.contextmanager
def tmpfs(path: Path, size: str) -> Iterator[Path]:
    """A small file system of its own."""
    path.mkdir(exist_ok=True)
    sh("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path))
    try:
        yield path
    finally:
        sh("umount", str(path))


def refused(lab: Laboratory, device: Device, text: str) -> str:
    """Why a study is; in the meantime no byte of the device may change."""
    before = device.checksum()
    with pytest.raises(StudyError) as error:
        lab.execute(text)
    assert device.checksum() == before and not lab.out.exists() and lab.leftovers() == []
    return str(error.value)


@contextlib.contextmanager
def process_that_is_up(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that says ``up``, and ends when its input does."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=PLAIN) as other:
        assert other.stdin is not None and other.stdout is not None and other.stdout.readline() == b"up\n"
        try:
            yield other
        finally:
            other.stdin.close()
            other.wait()


@contextlib.contextmanager
def mounted(device: str, path: Path) -> Iterator[None]:
    """Read-only: a file system that is mounted to be written goes on writing by itself for a while."""
    path.mkdir(exist_ok=True)
    sh("mount", "--read-only", device, str(path))
    try:
        yield
    finally:
        sh("umount", str(path))


@contextlib.contextmanager
def mounted_elsewhere(device: str, path: Path) -> Iterator[None]:
    """In another mount namespace."""
    path.mkdir(exist_ok=True)
    script = f"mount --read-only {device} {path} && echo up && read _"
    with process_that_is_up("unshare", "--mount", "--propagation", "private", "sh", "-c", script):
        yield


@contextlib.contextmanager
def underneath(device: str) -> Iterator[None]:
    """Another loop device."""
    above = sh("losetup", "--find", "--show", device).strip()
    try:
        yield
    finally:
        sh("losetup", "--detach", above)
