"""Every attack has a laboratory of its own, and attacks devices that it made itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory.devices import Device, new_device


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
