"""Parts: ZFS's modules, compiled for one kernel, and the layer that adds them to its others.

Compiling takes minutes, so it depends on nothing but the kernel's and ZFS's versions and how it is done.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from storlab.images import commands, module_tree, recipe
from storlab.images.apt import Apt
from storlab.images.bootstrap import EXCHANGE, Bootstrap
from storlab.images.cache import Cache, Part, remove_tree
from storlab.images.kernel import KernelPackage, about_modules
from storlab.images.module_tree import read_modules

SOURCE = "zfs-dkms"
_SPACE = 3 << 29
_MODULES = ("spl.ko", "zfs.ko")

# Headers and source are unpacked, not installed: their packages depend on the whole kernel, and on dkms.
_UNPACK = f"""
for package in "$1{EXCHANGE}"/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar --directory="$1" --extract --keep-directory-symlink
done
"""


async def zfs_part(
    cache: Cache, apt: Apt, mirror: str, kernel: KernelPackage, base: Part, zfs: str, told: Callable[[str], None]
) -> Part:
    """The layer, over the modules of ``base``, the kernel's part."""
    key = recipe.digest([base.name, kernel.release, kernel.version, zfs, recipe.zfs_recipe()])
    name = f"zfs-{key}"
    if (found := cache.part(name)) is not None:
        return found
    compiled = await _compiled(cache, apt, mirror, kernel, zfs, told)
    log = cache.path("logs") / "zfs-layer.log"
    with cache.making(name, _SPACE) as work:
        told("ZFS: adding the modules to the kernel's")
        await asyncio.to_thread(_make, cache, base, compiled, kernel.release, zfs, work, key, log)
    return cache.finished(name)


async def _compiled(
    cache: Cache, apt: Apt, mirror: str, kernel: KernelPackage, zfs: str, told: Callable[[str], None]
) -> Part:
    key = recipe.digest([kernel.release, kernel.version, zfs, recipe.zfs_recipe()])
    name = f"zfs-modules-{key}"
    if (found := cache.part(name)) is not None:
        return found
    told(f"ZFS: compiling {zfs} for {kernel.release}, once, some minutes")
    wanted = [
        (f"linux-headers-{kernel.release}", kernel.version),
        (f"linux-headers-{kernel.common}-common", kernel.version),
        (f"linux-kbuild-{kernel.common}", kernel.version),
        (SOURCE, zfs),
    ]
    packages = await apt.download(wanted, cache.path("downloads/packages"))
    compile_it = f"set -- {shlex.quote(kernel.release)} {shlex.quote(kernel.common)}\n{recipe.script('build-zfs.sh')}"
    with cache.making(name, _SPACE) as work:
        bootstrap = Bootstrap(
            packages=recipe.ZFS_TOOLS,
            apt=apt,
            mirror=mirror,
            archives=cache.path("downloads/zfs"),
            fetched=packages,
            outside=[_UNPACK],
            inside=[compile_it],
            results={module: work / module for module in _MODULES},
        )
        await bootstrap.run(work, cache.path("logs") / "zfs.log", lambda step: told(f"ZFS: {step}"))
        remove_tree(work / "tmp")
        cache.finish(work, {"release": kernel.release, "versions": {"zfs": zfs}})
    return cache.finished(name)


def _make(cache: Cache, base: Part, compiled: Part, release: str, zfs: str, work: Path, key: str, log: Path) -> None:
    """depmod needs to see all modules; of its result, the layer holds what the kernel's own layer doesn't."""
    merged, tree = work / "merged", work / "tree"
    commands.run(["fsck.erofs", f"--extract={merged}", str(base.folder / "modules.erofs")], log)
    folder = merged / "usr" / "lib" / "modules" / release
    (folder / "extra").mkdir()
    for module in _MODULES:
        shutil.copyfile(compiled.folder / module, folder / "extra" / module)
    module_tree.depmod(merged, release, log)
    added = tree / "usr" / "lib" / "modules" / release
    shutil.copytree(folder / "extra", added / "extra")
    for index in folder.glob("modules.*"):
        shutil.copyfile(index, added / index.name)
    modules = read_modules(folder)
    module_tree.pack(tree, work / "zfs.erofs", key, log)
    remove_tree(merged)
    remove_tree(tree)
    about = about_modules(release, modules)
    about["filesystems"] = sorted({*modules.filesystems, "zfs"})  # it has no alias fs-zfs
    cache.finish(work, about | {"versions": {"zfs": zfs}})
