"""Every test here has a laboratory of its own, and devices that it made itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory.devices import Device, new_device


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A blank device of 64 MiB."""
    with new_device(tmp_path / "disk.img", 64 * 1024**2, "--partscan") as made:
        yield made


@pytest.fixture
def short_path() -> Iterator[Path]:
    """An empty folder whose path leaves room for a socket's, which may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sl-") as folder:
        yield Path(folder)
