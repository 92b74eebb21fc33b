"""The parts of images: a kernel with its initramfs and modules, a root file system, ZFS's modules, and perf.

Each is made once, and depends on nothing but versions and how it is done: compiling ZFS takes minutes.
"""

from __future__ import annotations

import asyncio
import platform
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from storlab.base.errors import ImageError, MissingImage, UserError
from storlab.images import commands, module_tree, recipe, vmlinux
from storlab.images.cache import About, Cache, Part, cache_folder, remove_tree
from storlab.images.commands import unzstd
from storlab.images.debian import EXCHANGE, Apt, Bootstrap, erofs_command, newest
from storlab.images.module_tree import Modules

_KERNEL_SPACE = 1 << 30


@dataclass(frozen=True)
class KernelPackage:
    """``release`` is what ``uname -r`` says: 6.12.117+deb12-amd64."""

    release: str
    version: str

    @property
    def common(self) -> str:
        return self.release.removesuffix(f"-{recipe.ARCHITECTURE}")


def newest_kernel(apt: Apt) -> KernelPackage:
    names = [name for name in apt.search(recipe.KERNEL_SEARCH) if recipe.KERNEL.fullmatch(name)]
    package = newest(apt.show(names), re.compile(".*")) if names else None
    if package is None:
        raise ImageError(f"the Debian mirror has no kernel {recipe.KERNEL_SEARCH} in {recipe.SUITE}-backports")
    return KernelPackage(package["Package"].removeprefix("linux-image-"), package["Version"])


async def kernel_part(cache: Cache, apt: Apt, kernel: KernelPackage, notify: Callable[[str], None]) -> Part:
    """Download it and make of it what guests need, unless that was done before."""
    key = recipe.digest([recipe.kernel_recipe(), kernel.release, kernel.version])
    if (found := cache.part(name := f"kernel-{key}")) is not None:
        return found
    return await make_kernel_part(cache, apt, kernel, name, notify)


async def make_kernel_part(
    cache: Cache, apt: Apt, kernel: KernelPackage, name: str, notify: Callable[[str], None]
) -> Part:
    key = recipe.digest([recipe.kernel_recipe(), kernel.release, kernel.version])
    notify(f"kernel: downloading {kernel.release}")
    wanted = (f"linux-image-{kernel.release}", kernel.version)
    (package,) = await apt.download([wanted], cache.path("downloads/packages"))
    log = cache.path("logs") / "kernel.log"
    with cache.making(name, _KERNEL_SPACE) as work:
        notify("kernel: unpacking it and choosing its modules")
        await asyncio.to_thread(_make_kernel, cache, package, kernel, work, key, log)
    return cache.finished(name)


def _make_kernel(cache: Cache, package: Path, kernel: KernelPackage, work: Path, key: str, log: Path) -> None:
    unpacked = work / "unpacked"
    commands.run(["dpkg-deb", "--extract", str(package), str(unpacked)], log)
    place = unpacked / "usr" / "lib" / "modules"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        (unpacked / "lib" / "modules").rename(place)
        remove_tree(unpacked / "lib")
    write_kernel(unpacked / "boot" / f"vmlinuz-{kernel.release}", work / "kernel", log)
    module_tree.depmod(unpacked, kernel.release, log)
    modules = module_tree.make_layer(place / kernel.release, recipe.EARLY_MODULES, work, key, log)
    remove_tree(unpacked)
    cache.finish(work, about_modules(kernel.release, modules, kernel=kernel.version))


def about_modules(release: str, modules: Modules, **versions: str) -> About:
    return About(versions, release, modules=(*sorted(modules.names),), filesystems=(*sorted(modules.filesystems),))


def write_kernel(source: Path, target: Path, log: Path) -> None:
    """The ELF kernel in ``source`` where QEMU can boot that, else ``source`` itself. Raises ``vmlinux.NotAKernel``."""
    image = source.read_bytes()
    try:
        elf = vmlinux.extract(image, lambda packed: unzstd(packed, log))
    except vmlinux.NotAKernel:
        elf = b""  # packed in a way that we don't know; QEMU boots it as it is if it has the header
        vmlinux.payload(image)
    if vmlinux.boots_directly(elf):
        target.write_bytes(elf)
    elif image.startswith(vmlinux.ELF_MAGIC):
        raise vmlinux.NotAKernel("QEMU can't boot it: it was built without CONFIG_PVH; name its bzImage")
    else:
        target.write_bytes(image)


_ROOT_SPACE = 3 << 30

# Their contents come and go; the folders stay, to be mounted on.
_LEFT_OUT = r"^(proc|sys|dev|run|tmp|var/lib/apt/lists|var/cache/apt)/."


async def root_part(cache: Cache, apt: Apt, mirror: str, zfs: str, notify: Callable[[str], None]) -> Part:
    """``zfs``: the version of ZFS's programs, which must fit the modules."""
    key = recipe.digest([recipe.root_recipe(), zfs])
    if (found := cache.part(name := f"root-{key}")) is not None:
        return found
    notify("root file system: a Debian with fio, databases, file-system and network tools, about a minute")
    downloads = cache.path("downloads/packages")
    versions = [(package, zfs) for package in recipe.WITHOUT_DEPENDENCIES]
    apart = await apt.download(versions, downloads)
    with cache.making(name, _ROOT_SPACE) as work:
        bootstrap = Bootstrap(
            packages=recipe.packages(),
            apt=apt,
            mirror=mirror,
            archives=cache.path("downloads/root"),
            fetched=apart,
            outside=[recipe.script("finish-root.sh"), _pack(key)],
            results={file: work / file for file in ("root.erofs", "packages", "programs")},
        )
        await bootstrap.run(work, cache.path("logs") / "root.log", lambda step: notify(f"root file system: {step}"))
        remove_tree(work / "tmp")
        cache.finish(work, _about_packages(work))
    return cache.finished(name)


def _pack(key: str) -> str:
    """mkfs.erofs looks at the extended attributes even of what it leaves out: so a view without /proc."""
    view, target = f"$1{EXCHANGE}/view", f"$1{EXCHANGE}/root.erofs"
    command = erofs_command(target, view, key)
    words = [f'"{word}"' if "$1" in word else shlex.quote(word) for word in command]
    words.insert(1, shlex.quote(f"--exclude-regex={_LEFT_OUT}"))
    return f"""
set -eu
echo 'storlab: packing it as EROFS'
mkdir "{view}"
mount --bind "$1" "{view}"
{" ".join(words)}
umount "{view}"
"""


async def perf_part(cache: Cache, apt: Apt, mirror: str, root: Part, notify: Callable[[str], None]) -> Part:
    key = recipe.digest([root.name, recipe.perf_recipe()])
    if (found := cache.part(name := f"perf-{key}")) is not None:
        return found
    notify("perf: installing it and what it needs, about a minute")
    with cache.making(name, _ROOT_SPACE) as work:
        base = work / "base"
        base.write_text("".join(f"{package}\n" for package in sorted(root.about.versions)), "utf-8")
        tree, target = f"$1{EXCHANGE}/tree", f"$1{EXCHANGE}/perf.erofs"
        pack = " ".join(f'"{word}"' if "$1" in word else shlex.quote(word) for word in erofs_command(target, tree, key))
        bootstrap = Bootstrap(
            packages=recipe.PERF_PACKAGES,
            apt=apt,
            mirror=mirror,
            archives=cache.path("downloads/root"),
            fetched=[base],
            outside=[recipe.script("pack-perf.sh"), f"set -eu\n{pack}\n"],
            results={file: work / file for file in ("perf.erofs", "packages", "programs")},
        )
        await bootstrap.run(work, cache.path("logs") / "perf.log", lambda step: notify(f"perf: {step}"))
        remove_tree(work / "tmp")
        base.unlink()
        cache.finish(work, _about_packages(work))
    return cache.finished(name)


def _about_packages(work: Path) -> About:
    lines = (line.partition("\t") for line in (work / "packages").read_text("utf-8").splitlines())
    installed = {package.partition(":")[0]: version for package, _, version in lines}
    return About(installed, programs=tuple((work / "programs").read_text("utf-8").splitlines()))


SOURCE = "zfs-dkms"
_ZFS_SPACE = 3 << 29
_MODULES = ("spl.ko", "zfs.ko")

# Headers and source are unpacked, not installed: their packages depend on the whole kernel, and on dkms.
_UNPACK = f"""
for package in "$1{EXCHANGE}"/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar --directory="$1" --extract --keep-directory-symlink
done
"""


async def zfs_part(
    cache: Cache, apt: Apt, mirror: str, kernel: KernelPackage, base: Part, zfs: str, notify: Callable[[str], None]
) -> Part:
    key = recipe.digest([base.name, kernel.release, kernel.version, zfs, recipe.zfs_recipe()])
    if (found := cache.part(name := f"zfs-{key}")) is not None:
        return found
    compiled = await _compiled(cache, apt, mirror, kernel, zfs, notify)
    log = cache.path("logs") / "zfs-layer.log"
    with cache.making(name, _ZFS_SPACE) as work:
        notify("ZFS: adding the modules to the kernel's")
        await asyncio.to_thread(_add_zfs, cache, base, compiled, kernel.release, zfs, work, key, log)
    return cache.finished(name)


async def _compiled(
    cache: Cache, apt: Apt, mirror: str, kernel: KernelPackage, zfs: str, notify: Callable[[str], None]
) -> Part:
    key = recipe.digest([kernel.release, kernel.version, zfs, recipe.zfs_recipe()])
    if (found := cache.part(name := f"zfs-modules-{key}")) is not None:
        return found
    notify(f"ZFS: compiling {zfs} for {kernel.release}, once, some minutes")
    wanted = [
        (f"linux-headers-{kernel.release}", kernel.version),
        (f"linux-headers-{kernel.common}-common", kernel.version),
        (f"linux-kbuild-{kernel.common}", kernel.version),
        (SOURCE, zfs),
    ]
    packages = await apt.download(wanted, cache.path("downloads/packages"))
    compile_it = f"set -- {shlex.quote(kernel.release)} {shlex.quote(kernel.common)}\n{recipe.script('build-zfs.sh')}"
    with cache.making(name, _ZFS_SPACE) as work:
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
        await bootstrap.run(work, cache.path("logs") / "zfs.log", lambda step: notify(f"ZFS: {step}"))
        remove_tree(work / "tmp")
        cache.finish(work, About({"zfs": zfs}, kernel.release))
    return cache.finished(name)


def _add_zfs(cache: Cache, base: Part, compiled: Part, release: str, zfs: str, work: Path, key: str, log: Path) -> None:
    added = [compiled.folder / module for module in _MODULES]
    modules = module_tree.with_added(base.folder / "modules.erofs", added, release, work, log)
    module_tree.pack(work / "tree", work / "zfs.erofs", key, log)
    remove_tree(work / "tree")
    cache.finish(work, about_modules(release, modules, zfs=zfs))


# Further kernels of Debian's, beside that of the image: guests boot ``debian:6.1`` with the image's root.
#
# A series is unpacked once and stays: a kernel that a study compares with should not change because a newer one is
# out.

PREFIX = "debian-kernel-"
"""How their parts of the cache begin."""
_PROGRAMS = ("apt-config", "apt-get", "dpkg-deb", "mkfs.erofs", "depmod", "zstd")


def find_debian_kernel(series: str) -> Part:
    """The unpacked kernel of a series. Raises ``MissingImage``."""
    cache = Cache(cache_folder())
    part = cache.part(_name(series))
    if part is None:
        raise MissingImage(
            f"Debian's kernel {series} is not in {cache.folder}; `storlab image kernel {series}` unpacks it"
        )
    return part


async def unpack_debian_kernel(
    series: str, notify: Callable[[str], None] = lambda step: None, mirror: str = recipe.MIRROR
) -> Part:
    """Unpack the newest kernel of a series, where none of it is there.

    Raises ``UserError`` for a series that Debian doesn't have, ``MissingTool``, and ``ImageError``.
    """
    if not recipe.SERIES.fullmatch(series):
        raise UserError(f"{series} is no series of kernels: write two numbers, such as 6.1")
    if series == recipe.OWN_SERIES:
        raise UserError(f"{series} is the kernel of the guest image: `storlab image build` makes it")
    if platform.machine() != "x86_64":
        raise UserError(f"kernels are unpacked for x86-64 only, and this machine is {platform.machine()}")
    commands.need(_PROGRAMS, "unpacking a kernel")
    cache = Cache(cache_folder())
    async with cache.locked(notify):
        if (found := cache.part(_name(series))) is not None:
            return found
        apt = Apt(cache.path("apt"), mirror, cache.path("logs") / "apt.log")
        notify(f"asking the Debian mirror for its newest kernel {series}")
        await apt.update()
        return await make_kernel_part(cache, apt, _newest(apt, series), _name(series), notify)


def _newest(apt: Apt, series: str) -> KernelPackage:
    name = re.compile(rf"linux-image-({re.escape(series)}\.[\w.+-]+-amd64)")
    plain = [each for each in apt.search(rf"^linux-image-{re.escape(series)}\..*-amd64$") if name.fullmatch(each)]
    plain = [each for each in plain if not re.search(r"-(?:cloud|rt)-amd64$", each)]
    package = newest(apt.show(plain), name) if plain else None
    if package is None:
        raise ImageError(f"the Debian mirror has no kernel {series} in {recipe.SUITE} or its backports")
    return KernelPackage(package["Package"].removeprefix("linux-image-"), package["Version"])


def _name(series: str) -> str:
    return f"{PREFIX}{series}-{recipe.digest(recipe.kernel_recipe())}"
