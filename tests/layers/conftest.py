"""Every test here makes its own devices."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory.devices import Device, new_device

from .pair import Pair, Shop
from .sites import Ground, entered, ground_in


@pytest.fixture
def ground(runner: asyncio.Runner, short_path: Path) -> Iterator[Ground]:
    """A node of this machine, of which nothing may be left afterwards."""
    with entered(runner, ground_in(short_path)) as ground:
        yield ground


@pytest.fixture
def pair(shop: Shop) -> Pair:
    """A server and a client in one network, which all tests of a module share."""
    return shop.pair


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
