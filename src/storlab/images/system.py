"""The root file system of guests on a disk that is theirs to write to, in place of layers and memory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from storlab.errors import Unsupported
from storlab.images import commands, module_tree, recipe
from storlab.images.cache import About, Cache, cache_folder, remove_tree
from storlab.images.confined import run_on_strangers
from storlab.images.image import Image
from storlab.images.module_tree import read_modules
from storlab.images.own import kind_of, own_part

_LOCK = threading.Lock()  # several nodes ask at once, each on a thread; the first one makes it
_UUID = "5f0b1a9e-5c1d-4c57-9f3a-7d2f1c0de5e5"  # the same in all, so that equal images are equal files


def system_disk(image: Image, size: int) -> Path:
    """A sparse file of ``size`` bytes that holds all layers of an image as one ext4; made once for each size.

    mkfs.ext4(8) knows of a file's holes that they are zeros, so the kernel has no inode tables left to clear in the
    background. Raises ``Unsupported`` where this user can't make one, or not of such an image.
    """
    if os.geteuid() != 0:
        raise Unsupported("a root file system on a disk keeps the owners of its files only if root makes it")
    name = f"own-system-{recipe.digest([_layers(image), size])}"

    def make(work: Path, log: Path) -> About:
        commands.need(("fsck.erofs", "mkfs.ext4"), "a root file system on a disk")
        tree = _unpacked(image.layers, work, log)
        with (work / "root.img").open("wb") as file:
            file.truncate(size)
        options = ["-q", "-F", "-U", _UUID, "-E", f"hash_seed={_UUID}", "-d", str(tree)]
        run_on_strangers(["mkfs.ext4", *options, str(work / "root.img")], log, work)
        remove_tree(tree)
        return About()

    with _LOCK:
        return own_part(Cache(cache_folder()), name, make).folder / "root.img"


def system_initramfs(image: Image) -> Path:
    """The initramfs for guests with such a root: as the image's, with what ext4 needs."""
    name = f"own-early-{recipe.digest([_layers(image), recipe.EARLY_MODULES])}"

    def make(work: Path, log: Path) -> About:
        folder = _unpacked(image.layers[1:], work, log) / "usr/lib/modules" / image.release
        initramfs = image.initramfs.read_bytes()  # of a kernel without modules
        if folder.exists():
            initramfs = module_tree.initramfs(read_modules(folder), folder, (*recipe.EARLY_MODULES, "ext4"), log)
        (work / "initramfs").write_bytes(initramfs)
        remove_tree(work / "tree")
        return About()

    with _LOCK:
        return own_part(Cache(cache_folder()), name, make).folder / "initramfs"


def _unpacked(layers: tuple[Path, ...], work: Path, log: Path) -> Path:
    tree, above = work / "tree", work / "above"
    for layer in layers:
        if kind_of(layer) != "erofs":
            raise Unsupported(f"{layer} is no EROFS, and only that is put on a disk: name a folder as rootfs")
        run_on_strangers(["fsck.erofs", f"--extract={above if tree.exists() else tree}", str(layer)], log, work)
        if above.exists():
            commands.run(["cp", "--archive", "--", f"{above}/.", str(tree)], log)
            remove_tree(above)
    return tree


def _layers(image: Image) -> list[str]:
    """Their folders are named by what they were made of."""
    return [f"{layer.parent.name}/{layer.name}" for layer in image.layers]
