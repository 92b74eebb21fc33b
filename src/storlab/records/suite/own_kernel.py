"""The user's own kernel, which guests of a suite boot in place of the image's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OwnKernel:
    """Absolute paths of this machine. ``image``: a bzImage or vmlinux; ``modules``: its …/lib/modules/RELEASE;
    ``rootfs``: a root file system, as a folder or an image of one.
    """

    image: str
    modules: str | None = None
    rootfs: str | None = None
