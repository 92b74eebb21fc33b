"""Guests that nobody starts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from storlab.images.image import Image
from storlab.nodes.kinds.vm.command import Files, GuestSpec
from storlab.nodes.kinds.vm.hardware import Hardware

FILES = Files(Path("/run/vm.qmp"), Path("/run/vm.agent"), Path("/out/console.log"))


def image(layers: int = 2) -> Image:
    """An image that exists by name alone."""
    return Image(
        name="none",
        kernel=Path("/image/kernel"),
        initramfs=Path("/image/initramfs"),
        layers=tuple(Path(f"/image/{number}.erofs") for number in range(layers)),
        release="6.12",
        programs=frozenset(),
        modules=frozenset(),
        filesystems=frozenset(),
        versions={},
    )


def guest(**given: Any) -> GuestSpec:
    """A guest; keys of ``Hardware`` or of ``GuestSpec``."""
    hardware = {key: given.pop(key) for key in list(given) if key in Hardware.model_fields}
    fields: dict[str, Any] = {"name": "vm", "image": image(), "initrd": Path("/cache/initrd"), "accelerator": "tcg"}
    return GuestSpec(hardware=Hardware.model_validate(hardware), **{**fields, **given})


def option(argv: list[str], name: str) -> list[str]:
    """All values of an option."""
    return [value for word, value in pairwise(argv) if word == name]
