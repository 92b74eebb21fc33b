"""Every test here has a laboratory of its own, and devices that it made itself."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from laboratory import Laboratory


@dataclass(frozen=True)
class Device:
    """A loop device of the test's own, standing for a disk of the user's."""

    path: str
    image: Path

    def checksum(self) -> str:
        """Of all its contents."""
        subprocess.run(["blockdev", "--flushbufs", self.path], check=True)
        return hashlib.sha256(self.image.read_bytes()).hexdigest()

    def signatures(self) -> str:
        """What wipefs finds on it."""
        return sh("wipefs", "--no-act", self.path)


def sh(*argv: str) -> str:
    """A command that must succeed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """Storlab in an empty folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with contextlib.closing(Laboratory(tmp_path)) as made:
        yield made


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A blank device of 64 MiB."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 * 1024**2)
    path = sh("losetup", "--find", "--show", "--partscan", str(image)).strip()
    try:
        yield Device(path, image)
    finally:
        sh("losetup", "--detach", path)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """An empty folder whose path leaves room for a socket's, which may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sl-") as folder:
        yield Path(folder)
