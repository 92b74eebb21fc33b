"""A real guest of this machine, for layers that need one: another kernel, or a disk plugged into it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from storlab.errors import MissingImage
from storlab.images.image import Image, find_image
from storlab.nodes.demands import Devices
from storlab.nodes.kinds.vm.accelerator import find_acceleration
from storlab.nodes.kinds.vm.command import Files, GuestSpec
from storlab.nodes.kinds.vm.guest import Guest, running_guest
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.kinds.vm.kind import initrd_with_agent
from storlab.nodes.node import Node


def image_with(*extras: str) -> Image:
    """The image, or a skipped test that says how to build it."""
    try:
        return find_image(frozenset(extras))
    except MissingImage as error:
        pytest.skip(str(error))


@asynccontextmanager
async def guest(
    host: Node, image: Image, name: str = "vm-1", disks: Sequence[Devices] = (), memory: str = "1G"
) -> AsyncIterator[Guest]:
    """A guest with these disks, cold."""
    initrd = initrd_with_agent(image)
    acceleration = await find_acceleration(image, initrd, host)
    hardware = Hardware.model_validate({"memory": memory, "start": "cold"})
    devices = Devices()
    for each in disks:
        devices += each
    spec = GuestSpec(name, hardware, image, initrd, acceleration.accelerator, devices)
    with tempfile.TemporaryDirectory(prefix="sl-guest-") as folder:
        files = Files(Path(folder) / "qmp", Path(folder) / "agent", Path(folder) / "console")
        async with running_guest(spec, host, files, None, lambda guest: None) as running:
            yield running
