"""Guest images: what virtual machines boot."""

from __future__ import annotations

from collections.abc import Sequence

from storlab.doctor.check import Check, missing, ok, warn
from storlab.doctor.machine import Machine
from storlab.doctor.virtual import GROUP
from storlab.images.manifest import Listed, list_images

_NAME = "guest image"
_BUILD = "storlab image build"


def checks(_: Machine) -> list[Check]:
    """One line for all of them."""
    return [judge(list_images())]


def judge(images: Sequence[Listed]) -> Check:
    """``images``: all that are in the cache."""
    current = [image for image in images if image.current]
    says = "; ".join(map(_describe, current or images))
    if current:
        return ok(_NAME, GROUP, says)
    if images:
        return warn(_NAME, GROUP, f"{says}; of another version of Storlab, and not used", _BUILD)
    return missing(_NAME, GROUP, "none is built", _BUILD)


def _describe(image: Listed) -> str:
    size = sum(image.sizes.values()) / (1 << 20)
    return f"{image.name} (kernel {image.versions.get('kernel', image.release)}), {size:.0f} MiB"
