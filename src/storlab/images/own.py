"""Images of somebody's own kernel, modules and root file system: what kernel developers measure.

What has to be made of them lies in the cache under the digest of their contents, so an unchanged kernel costs nothing.
EROFS, ext2/3/4 and squashfs images are looked into without mounting them, by the tools that make them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from storlab.base.errors import ImageError, MissingTool, UserError
from storlab.images import commands, module_tree, recipe, vmlinux
from storlab.images.cache import UNUSED, About, Cache, Part
from storlab.images.commands import CANNOT_CONFINE, run_on_strangers
from storlab.images.debian import erofs_command
from storlab.images.module_tree import Modules, parse_filesystems, read_modules
from storlab.images.parts import about_modules, write_kernel

Kind = Literal["erofs", "ext4", "squashfs"]
_FOLDERS = ("boot", "dev", "etc", "home", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr", "var")
_OF_THIS_MACHINE = (Path("/"), *(Path("/", name) for name in _FOLDERS))
"""Folders all of which nobody means guests to have."""
PATH_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")

# Offset and bytes of magic numbers: include/uapi/linux/magic.h and the file systems' headers.
_MAGIC: dict[Kind, tuple[int, bytes]] = {
    "erofs": (1024, b"\xe2\xe1\xf5\xe0"),
    "ext4": (1024 + 56, b"\x53\xef"),
    "squashfs": (0, b"hsqs"),
}
_TOOLS: dict[Kind, tuple[str, str]] = {
    "erofs": ("dump.erofs", "erofs-utils"),
    "ext4": ("debugfs", "e2fsprogs"),
    "squashfs": ("unsquashfs", "squashfs-tools"),
}


def kind_of(image: Path) -> Kind:
    """Which file system an image holds. Raises ``UserError`` where it is none that guests can have as their root."""
    with image.open("rb") as file:
        head = file.read(2048)
    for kind, (offset, magic) in _MAGIC.items():
        if head[offset : offset + len(magic)] == magic:
            return kind
    raise UserError(f"{image} holds no file system that a guest can boot from; there are: {', '.join(_MAGIC)}")


def programs_in_folder(root: Path) -> frozenset[str]:
    found: set[str] = set()
    for name in PATH_FOLDERS:
        try:
            entries = list(os.scandir(_inside(root, name)))
        except OSError:
            continue
        # A link counts, wherever it leads.
        found |= {
            each.name for each in entries if each.is_symlink() or (each.is_file() and each.stat().st_mode & 0o111)
        }
    return frozenset(found)


def has_merged_usr(root: Path) -> bool:
    return (root / "lib").is_symlink()


def programs_in_image(image: Path, log: Path) -> frozenset[str]:
    """As ``programs_in_folder``, but for what is executable: an image's tools tell names only."""
    list_folder, parse = _LISTERS[_readable(image)]
    found: set[str] = set()
    for name in PATH_FOLDERS:
        found |= set(parse(_ask(list_folder(image, name), log), name))
    return frozenset(found - {".", ".."})


def image_has_merged_usr(image: Path, log: Path) -> bool:
    list_folder, parse = _LISTERS[_readable(image)]
    # A link has no entries of its own; /lib as a folder has at least the loader.
    return not parse(_ask(list_folder(image, "lib"), log), "lib")


def _readable(image: Path) -> Kind:
    kind = kind_of(image)
    program, package = _TOOLS[kind]
    if commands.find(program) is None:
        raise MissingTool(f"{image} can't be looked into without {program}; apt-get install {package}")
    return kind


def _ask(argv: list[str], log: Path) -> str:
    """Its output; nothing where it has no such folder, which each of these programs says in its own way."""
    try:
        return run_on_strangers(argv, log).decode(errors="replace")
    except ImageError as error:
        if CANNOT_CONFINE in str(error):
            raise
        return ""


def parse_dump_erofs(text: str, folder: str) -> list[str]:
    """``dump.erofs --ls``: ``NID TYPE FILENAME`` below a heading; types 1 and 7 are files and links (dirent.h)."""
    return re.findall(r"^\s*\d+\s+[17]\s+(\S.*)$", text, re.MULTILINE)


def parse_debugfs(text: str, folder: str) -> list[str]:
    """``debugfs -R 'ls -p …'``: ``/inode/mode/uid/gid/name/size/``."""
    rows = (line.split("/") for line in text.splitlines() if line.startswith("/"))
    return [row[5] for row in rows if len(row) >= 7 and row[2].startswith(("10", "12"))]


def parse_unsquashfs(text: str, folder: str) -> list[str]:
    """``unsquashfs -l``: one path a line, the folder that was asked for and those above it among them."""
    begin = f"squashfs-root/{folder}/"
    names = [line.removeprefix(begin) for line in text.splitlines() if line.startswith(begin)]
    return [name for name in names if "/" not in name]


_LISTERS: dict[Kind, tuple[Callable[[Path, str], list[str]], Callable[[str, str], list[str]]]] = {
    "erofs": (lambda image, name: ["dump.erofs", "--ls", f"--path=/{name}", str(image)], parse_dump_erofs),
    "ext4": (lambda image, name: ["debugfs", "-R", f"ls -p /{name}", str(image)], parse_debugfs),
    "squashfs": (lambda image, name: ["unsquashfs", "-l", "-max-depth", "4", str(image), name], parse_unsquashfs),
}


def _inside(root: Path, name: str) -> Path:
    """A folder below ``root``, with the links that lead to it understood as they are in the guest."""
    for depth in range(1, len(Path(name).parts) + 1):
        part = root.joinpath(*Path(name).parts[:depth])
        if part.is_symlink():
            target = part.readlink()
            base = root / target.relative_to("/") if target.is_absolute() else part.parent / target
            return base.joinpath(*Path(name).parts[depth:])
    return root / name


@dataclass(frozen=True)
class OwnRoot:
    """A root file system: an image file, the names of programs on its PATH, and whether its /lib is /usr/lib."""

    image: Path
    programs: frozenset[str]
    merged: bool


def own_kernel(cache: Cache, kernel: Path, modules: Path | None, root: OwnRoot | None) -> Part:
    """A part like that of a Debian kernel. ``root``: where it is not ours, it may be another file system than EROFS."""
    if not kernel.is_file():
        raise UserError(f"there is no kernel at {kernel}; name its bzImage or vmlinux")
    if modules is not None and not (modules / "modules.dep").is_file():
        raise UserError(
            f"{modules} has no modules.dep, so it is no folder of a kernel's modules; name …/lib/modules/RELEASE, as "
            "`make modules_install INSTALL_MOD_PATH=…` makes it; for an unpacked package, run `depmod --basedir` first"
        )
    wanted = (*recipe.EARLY_MODULES, *(recipe.OWN_ROOT_MODULES if root else ()))
    merged = root is None or root.merged
    # The folder that the kernel was built in, if it still lies there (arch/x86/boot/bzImage), says what is built in.
    trees = (folder for folder in [*kernel.resolve().parents][:4] if (folder / "modules.builtin.modinfo").is_file())
    builtin = modules or next(trees, None)
    contents = [
        digest_of_file(kernel),
        modules and _of_tree(modules),
        str(builtin),
        wanted,
        merged,
        recipe.kernel_recipe(),
    ]
    key = recipe.digest(contents)

    def make(work: Path, log: Path) -> About:
        try:
            write_kernel(kernel, work / "kernel", log)
        except vmlinux.NotAKernel as error:
            raise UserError(f"{kernel} is no kernel that a guest can boot: {error}") from None
        release = vmlinux.release(kernel.read_bytes())
        if modules is None:
            (work / "initramfs").write_bytes(module_tree.archive({module_tree.ORDER: b""}))
            known = read_modules(builtin) if builtin else Modules({}, filesystems=parse_filesystems("", b""))
            return about_modules(release, known, kernel=release)
        if release not in (modules.name, "unknown"):
            raise UserError(f"{kernel} is {release}, and can't load the modules of {modules.name} in {modules}")
        known = module_tree.make_layer(modules, wanted, work, key, log, merged=merged)
        return about_modules(modules.name, known, kernel=modules.name)

    return own_part(cache, f"own-kernel-{key}", make)


def own_root(cache: Cache, root: Path) -> OwnRoot:
    if root.is_file():
        with log_of(cache) as log:
            found = programs_in_image(root, log), image_has_merged_usr(root, log)
        return OwnRoot(root.resolve(), *found)
    if not root.is_dir():
        raise UserError(f"there is no root file system at {root}; name a folder, or an EROFS, ext4 or squashfs image")
    if any(each.exists() and root.samefile(each) for each in _OF_THIS_MACHINE):
        raise UserError(f"{root} is this machine's own: name a folder of its own, such as debootstrap makes")
    key = recipe.digest([_of_tree(root), recipe.TIMESTAMP])

    def make(work: Path, log: Path) -> About:
        run_on_strangers(erofs_command(str(work / "root.erofs"), str(root), key), log, work)
        return About(programs=(*sorted(programs_in_folder(root)),))

    part = own_part(cache, f"own-root-{key}", make)
    return OwnRoot(part.folder / "root.erofs", frozenset(part.about.programs), has_merged_usr(root))


def own_part(cache: Cache, name: str, make: Callable[[Path, Path], About]) -> Part:
    """A part of somebody's own: ``make`` makes it in a folder, with a log, if it is not there yet. Of the others,
    those go that were not used for long.
    """
    part = cache.used(name)
    if part is None:
        with log_of(cache) as log, cache.making_alongside(name) as work:
            cache.finish(work, make(work, log))
        cache.sweep("own-", frozenset({name}), UNUSED)
        part = cache.finished(name)
    return part


@contextlib.contextmanager
def log_of(cache: Cache) -> Iterator[Path]:
    """For what programs print; kept where one failed, because the error names it."""
    log = cache.path("logs/own") / f"{os.getpid()}.log"
    yield log
    log.unlink(missing_ok=True)


def digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _of_tree(root: Path) -> str:
    digest = hashlib.sha256()
    for path in _walk(root):
        status = path.lstat()
        kept = [os.fsencode(path.relative_to(root)), status.st_mode, status.st_uid, status.st_gid]
        digest.update(repr(kept).encode())
        if stat.S_ISLNK(status.st_mode):
            digest.update(os.fsencode(path.readlink()) + b"\0")
        elif stat.S_ISREG(status.st_mode):
            digest.update(digest_of_file(path).encode())
    return digest.hexdigest()


def _walk(root: Path) -> Iterator[Path]:
    for entry in sorted(root.iterdir()):
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry)
