"""A part: a Debian kernel, the initramfs that gets it to its root, and its modules as a layer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from storlab.errors import ImageError
from storlab.images import commands, module_tree, recipe, vmlinux
from storlab.images.apt import Apt, newest
from storlab.images.cache import Cache, Part, remove_tree
from storlab.images.module_tree import Modules

_SPACE = 1 << 30


@dataclass(frozen=True)
class KernelPackage:
    """``release`` is what ``uname -r`` says: 6.12.117+deb12-amd64."""

    release: str
    version: str

    @property
    def common(self) -> str:
        """The release without its flavour, as the packages of headers have it."""
        return self.release.removesuffix(f"-{recipe.ARCHITECTURE}")


def newest_kernel(apt: Apt) -> KernelPackage:
    """The newest of the recipe's series that the mirror has."""
    names = [name for name in apt.search(recipe.KERNEL_SEARCH) if recipe.KERNEL.fullmatch(name)]
    package = newest(apt.show(names), re.compile(".*")) if names else None
    if package is None:
        raise ImageError(f"the Debian mirror has no kernel {recipe.KERNEL_SEARCH} in {recipe.SUITE}-backports")
    return KernelPackage(package["Package"].removeprefix("linux-image-"), package["Version"])


async def kernel_part(cache: Cache, apt: Apt, kernel: KernelPackage, told: Callable[[str], None]) -> Part:
    """Download it and make of it what guests need, unless that was done before."""
    key = recipe.digest([recipe.kernel_recipe(), kernel.release, kernel.version])
    name = f"kernel-{key}"
    if (found := cache.part(name)) is not None:
        return found
    told(f"kernel: downloading {kernel.release}")
    wanted = (f"linux-image-{kernel.release}", kernel.version)
    (package,) = await apt.download([wanted], cache.path("downloads/packages"))
    log = cache.path("logs") / "kernel.log"
    with cache.making(name, _SPACE) as work:
        told("kernel: unpacking it and choosing its modules")
        await asyncio.to_thread(_make, cache, package, kernel, work, key, log)
    return cache.finished(name)


def _make(cache: Cache, package: Path, kernel: KernelPackage, work: Path, key: str, log: Path) -> None:
    unpacked, tree = work / "unpacked", work / "tree"
    commands.run(["dpkg-deb", "--extract", str(package), str(unpacked)], log)
    place = unpacked / "usr" / "lib" / "modules"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        (unpacked / "lib" / "modules").rename(place)
        remove_tree(unpacked / "lib")
    write_kernel(unpacked / "boot" / f"vmlinuz-{kernel.release}", work / "kernel", log)
    module_tree.depmod(unpacked, kernel.release, log)
    modules = module_tree.prepare(place / kernel.release, tree, log)
    folder = tree / "usr" / "lib" / "modules" / kernel.release
    (work / "initramfs").write_bytes(module_tree.initramfs(modules, folder, recipe.EARLY_MODULES, log))
    module_tree.pack(tree, work / "modules.erofs", key, log)
    remove_tree(unpacked)
    remove_tree(tree)
    cache.finish(work, about_modules(kernel.release, modules) | {"versions": {"kernel": kernel.version}})


def about_modules(release: str, modules: Modules) -> dict[str, object]:
    """For part.json."""
    return {"release": release, "modules": sorted(modules.names), "filesystems": sorted(modules.filesystems)}


def write_kernel(source: Path, target: Path, log: Path) -> None:
    """The ELF kernel in ``source`` where QEMU can boot that, else ``source`` itself. Raises ``vmlinux.NotAKernel``."""
    image = source.read_bytes()
    try:
        elf = vmlinux.extract(image, lambda packed: commands.unzstd(packed, log))
    except vmlinux.NotAKernel:
        elf = b""  # packed in a way that we don't know; QEMU boots it as it is if it has the header
        vmlinux.payload(image)
    if vmlinux.boots_directly(elf):
        target.write_bytes(elf)
    elif image.startswith(vmlinux.ELF_MAGIC):
        raise vmlinux.NotAKernel("QEMU can't boot it: it was built without CONFIG_PVH; name its bzImage")
    else:
        target.write_bytes(image)
