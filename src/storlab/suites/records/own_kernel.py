"""What guests of a suite boot that is the user's own: a kernel in place of the image's, and a source tree of ZFS."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OwnKernel:
    """Absolute paths of this machine. ``image``: a bzImage or vmlinux; ``modules``: its …/lib/modules/RELEASE;
    ``rootfs``: a root file system, as a folder or an image of one; ``tree``: of OpenZFS, configured and built.
    """

    image: str | None
    modules: str | None = None
    rootfs: str | None = None
    tree: str | None = None

    @property
    def keys(self) -> dict[str, object]:
        """As nodes of kind ``vm`` call them; a guest of a tree boots, since the next one is of another state of it."""
        keys = {"kernel": self.image, "modules": self.modules, "rootfs": self.rootfs, "zfs_tree": self.tree}
        return {**keys, **({"start": "cold"} if self.tree is not None else {})}
