"""Every attack has a laboratory of its own, and attacks devices that it made itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.devices import Device, new_device


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
