"""Guest images, as the rest of Storlab sees them: find one, build one, or make one of somebody's own kernel."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from storlab.base.errors import ImageError, MissingImage, Unsupported, UserError
from storlab.images import commands, module_tree, recipe
from storlab.images.cache import (
    About,
    Cache,
    ImageManifest,
    Part,
    cache_folder,
    forget_old,
    manifests,
    remove_tree,
    write_manifest,
)
from storlab.images.commands import run_on_strangers
from storlab.images.debian import PROGRAMS, Apt
from storlab.images.module_tree import read_modules
from storlab.images.own import OwnRoot, kind_of, own_kernel, own_part, own_root
from storlab.images.parts import (
    PREFIX,
    SOURCE,
    find_debian_kernel,
    kernel_part,
    newest_kernel,
    perf_part,
    root_part,
    zfs_part,
)
from storlab.images.zfs_tree import Base, Tree, read_tree, tree_parts

_PROGRAMS = (*PROGRAMS, "mkfs.erofs", "fsck.erofs", "depmod", "zstd")


@dataclass(frozen=True)
class Image:
    """What a guest boots; all paths exist.

    ``kernel`` is an ELF kernel where QEMU can boot that, else a bzImage. ``initramfs`` has ``modules/order`` and the
    modules that it names, but no ``/init``: the launcher appends the agent. ``layers`` are EROFS images, lowest first.
    ``programs`` are names on the root's PATH; ``modules`` what ``modprobe`` finds, with ``_`` for ``-``;
    ``filesystems`` what ``mount -t`` takes; ``versions`` those of packages, ``kernel`` and ``zfs`` among them.
    """

    name: str
    kernel: Path
    initramfs: Path
    layers: tuple[Path, ...]
    release: str
    programs: frozenset[str]
    modules: frozenset[str]
    filesystems: frozenset[str]
    versions: Mapping[str, str]


def find_image(extras: frozenset[str] = frozenset()) -> Image:
    """The newest image that has these extras. Raises ``MissingImage``."""
    check_extras(extras)
    cache = Cache(cache_folder())
    fitting = [found for found in manifests(cache) if extras <= found.extras and found.recipe == recipe.image_recipe()]
    for found in sorted(fitting, key=lambda found: found.built, reverse=True):
        if (image := _image(cache, found, extras)) is not None:
            return image
    wanted = f" with {', '.join(sorted(extras))}" if extras else ""
    options = "".join(f" --with {extra}" for extra in sorted(extras))
    minutes = "about five minutes" if extras else "about two minutes"
    raise MissingImage(
        f"there is no guest image{wanted} in {cache.folder}; `storlab image build{options}` makes one, in {minutes}"
    )


async def build_image(
    extras: frozenset[str], notify: Callable[[str], None] = lambda step: None, mirror: str = recipe.MIRROR
) -> Image:
    """Build what is missing of an image with the newest kernel that the mirror has; ``notify`` gets what is being done.

    Parts that are there are used again, whoever built them; one that was broken off is started over. Raises
    ``UserError`` for an unknown extra, ``MissingTool``, and ``ImageError`` where a step failed.
    """
    check_extras(extras)
    if platform.machine() != "x86_64":
        raise UserError(f"guest images are built for x86-64 only, and this machine is {platform.machine()}")
    commands.need(_PROGRAMS)
    cache = Cache(cache_folder())
    async with cache.locked(notify):
        with _disk_full(cache):
            manifest = await _build(cache, extras, notify, mirror)
            forget_old(cache)
    image = _image(cache, manifest, extras)
    if image is None:
        raise ImageError(f"the image {manifest.name} was removed while it was being built; build it again")
    return image


async def _build(cache: Cache, extras: frozenset[str], notify: Callable[[str], None], mirror: str) -> ImageManifest:
    logs = cache.path("logs")
    for log in logs.glob("*.log"):
        log.unlink()
    apt = Apt(cache.path("apt"), mirror, logs / "apt.log")
    notify("asking the Debian mirror for its newest kernel")
    await apt.update()
    kernel, zfs = newest_kernel(apt), apt.candidate(SOURCE)
    parts = {"kernel": await kernel_part(cache, apt, kernel, notify)}
    parts["root"] = await root_part(cache, apt, mirror, zfs, notify)
    if "perf" in extras:
        parts["perf"] = await perf_part(cache, apt, mirror, parts["root"], notify)
    if "zfs" in extras:
        parts["zfs"] = await zfs_part(cache, apt, mirror, kernel, parts["kernel"], zfs, notify)
    return write_manifest(cache, kernel.release, extras, parts)


@contextlib.contextmanager
def _disk_full(cache: Cache) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise ImageError(
            f"the guest image is not built: there is no space left on the file system of {cache.folder}; "
            "free 4 GB and build again"
        ) from error


def own_image(kernel: Path, modules: Path | None = None, rootfs: Path | None = None) -> Image:
    """An image of somebody's own kernel, a bzImage or vmlinux.

    ``modules``: its …/lib/modules/RELEASE; without, what a guest needs has to be built in. ``rootfs``: a folder, or an
    image of EROFS, ext4 or squashfs; without, that of the newest image here, for which ``MissingImage`` is raised.
    Raises ``UserError`` for what can't be booted.
    """
    commands.need(("mkfs.erofs", "depmod", "zstd"))
    cache = Cache(cache_folder())
    root = own_root(cache, rootfs) if rootfs else None
    return _with_kernel(own_kernel(cache, kernel, modules, root), root)


def debian_image(series: str, extras: frozenset[str] = frozenset()) -> Image:
    """The newest image with Debian's kernel of another series, or with its own if that is what is asked for.

    Raises ``MissingImage`` where either has to be made, and ``UserError`` for extras, which fit one kernel only.
    """
    if series == recipe.OWN_SERIES:
        return find_image(extras)
    if "zfs" in extras:
        raise UserError(
            f"the image's ZFS was built for its own kernel: not for {recipe.DEBIAN}{series}; leave kernel out"
        )
    return _with_kernel(find_debian_kernel(series), None)


def _with_kernel(part: Part, root: OwnRoot | None) -> Image:
    if root is None:
        debian = find_image()
        root = OwnRoot(debian.layers[0], debian.programs, merged=True)
        versions = {**debian.versions, **part.about.versions}
    else:
        versions = part.about.versions
    layer = part.folder / "modules.erofs"
    whose = "debian" if part.name.startswith(PREFIX) else "own"
    return Image(
        # Two builds of one release are two images, as whoever changes a kernel has them.
        name=f"{whose}-{part.about.release}-{recipe.digest([part.folder.name, root.image.parent.name])[:8]}",
        kernel=part.folder / "kernel",
        initramfs=part.folder / "initramfs",
        layers=(root.image, layer) if layer.exists() else (root.image,),
        release=part.about.release,
        programs=root.programs,
        modules=frozenset(part.about.modules),
        filesystems=frozenset(part.about.filesystems),
        versions=versions,
    )


def find_zfs_tree(folder: Path) -> Tree:
    """An OpenZFS tree that can be laid over an image. Raises ``UserError``."""
    with _usable(folder):
        return read_tree(folder.absolute())


def with_zfs_tree(image: Image, tree: Tree) -> Image:
    """The image with an OpenZFS tree laid over it: modules, commands, libraries and tests. Raises ``UserError``."""
    with _usable(tree.folder):
        return _with_zfs_tree(image, tree)


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # it is changed meanwhile, damaged, or another user's
        raise UserError(f"the tree {folder} can't be laid over a guest: {error}") from None


def _with_zfs_tree(image: Image, tree: Tree) -> Image:
    folder = tree.folder
    if len(image.layers) < 2:
        raise UserError(
            f"the tree {folder} needs the modules of the kernel that guests boot: name --kernel-modules, too"
        )
    libc = re.match(r"2\.(\d+)", image.versions.get("libc6", ""))
    base = Base(image.layers[1], image.release, int(libc[1]) if libc else None)
    parts = tree_parts(Cache(cache_folder()), tree, base)
    return replace(
        image,
        name=f"{image.name}+zfs-{recipe.digest([part.name for part in parts])[:8]}",
        layers=(*image.layers, parts[0].folder / "modules.erofs", parts[1].folder / "tree.erofs"),
        programs=image.programs | tree.programs,
        modules=frozenset(parts[0].about.modules),
        filesystems=frozenset(parts[0].about.filesystems),
        versions={**image.versions, "zfs": tree.version},
    )


def check_extras(extras: frozenset[str]) -> None:
    """Raises ``UserError`` for one that is not known."""
    for extra in sorted(extras - recipe.EXTRAS):
        raise UserError(f"there is no extra {extra!r} for guest images; there is: {', '.join(sorted(recipe.EXTRAS))}")


def _image(cache: Cache, manifest: ImageManifest, extras: frozenset[str]) -> Image | None:
    names = [manifest.parts[name] for name in ("root", "kernel", *sorted(extras))]
    parts = [part for name in names if (part := cache.part(name)) is not None]
    if len(parts) < len(names):
        return None
    root, kernel, *rest = parts
    versions: dict[str, str] = {}
    for part in parts:
        versions |= part.about.versions
    return Image(
        name=manifest.name,
        kernel=kernel.folder / "kernel",
        initramfs=kernel.folder / "initramfs",
        layers=(
            root.folder / "root.erofs",
            kernel.folder / "modules.erofs",
            *(part.folder / f"{extra}.erofs" for part, extra in zip(rest, sorted(extras), strict=True)),
        ),
        release=manifest.release,
        programs=frozenset(name for part in parts for name in part.about.programs),
        modules=frozenset(name for part in parts for name in part.about.modules),
        filesystems=frozenset(name for part in parts for name in part.about.filesystems),
        versions=versions,
    )


# The root file system of guests on a disk that is theirs to write to, in place of layers and memory.

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
