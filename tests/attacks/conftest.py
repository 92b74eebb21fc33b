"""Every attack has a laboratory of its own, and attacks devices that it made itself."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from laboratory import Laboratory


def sh(*argv: str) -> str:
    """A command that must succeed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Device:
    """A loop device of the test's own, standing for a disk of the user's."""

    path: str
    image: Path

    def checksum(self) -> str:
        """Of all its contents."""
        subprocess.run(["blockdev", "--flushbufs", self.path], check=True)
        return hashlib.sha256(self.image.read_bytes()).hexdigest()

    def partition(self, length: int = 40960) -> str:
        """Make one on it, without a table on the disk: the kernel's own doing, see addpart(8)."""
        sh("addpart", self.path, "1", "2048", str(length))
        made = f"{self.path}p1"
        if not Path(made).exists():
            number = Path(f"/sys/class/block/{made.removeprefix('/dev/')}/dev").read_text().strip()
            sh("mknod", made, "b", *number.split(":"))
        return made

    def forget_partition(self) -> None:
        """Remove it again, if there is one."""
        if Path(f"{self.path}p1").exists():
            subprocess.run(["delpart", self.path, "1"], check=False, capture_output=True)
            Path(f"{self.path}p1").unlink(missing_ok=True)

    def close(self) -> None:
        """Detach it, with its partition."""
        self.forget_partition()
        sh("losetup", "--detach", self.path)


@contextlib.contextmanager
def new_device(image: Path, size: int = 32 * 1024**2) -> Iterator[Device]:
    """A blank device of so many bytes."""
    with image.open("wb") as file:
        file.truncate(size)
    with contextlib.closing(Device(sh("losetup", "--find", "--show", str(image)).strip(), image)) as made:
        yield made


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """Storlab in an empty folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with contextlib.closing(Laboratory(tmp_path)) as made:
        yield made


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A blank device."""
    with new_device(tmp_path / "disk.img") as made:
        yield made


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[Device]:
    """Another one of the same size."""
    with new_device(tmp_path / "spare.img") as made:
        yield made
