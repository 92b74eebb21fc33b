"""An OpenZFS tree that was configured and built, as layers over a guest's root: nothing of it is installed.

Which of its files, and where each lies in a guest, is what ``scripts/zfs-tests.sh`` uses of a tree and what
``scripts/zfs-helpers.sh`` links, by OpenZFS 2.3.2; what libtool leaves in ``.libs`` by its manual.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from storlab.base.errors import UserError
from storlab.base.reading import is_elf, read_file
from storlab.images import commands, module_tree, recipe
from storlab.images.cache import About, Cache, Part, remove_tree
from storlab.images.commands import run_on_strangers
from storlab.images.own import digest_of_file, log_of
from storlab.images.parts import about_modules

SUITE = "usr/share/zfs"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_KEPT = 86400.0  # s, for which layers of a tree's earlier states are kept
_MOST_TEXT = 16 * 1024**2  # bytes of a file of the tree that is read as text
_MOST = 2 * 1024**3  # bytes of all its files
_OPAQUE = "trusted.overlay.opaque"
_NAME = re.compile(r"^Name:\s*zfs\s*$", re.MULTILINE)
_VERSION = re.compile(r"^(?:Version|Release):\s*(\S+)", re.MULTILINE)
_PLACE = re.compile(r"^export INSTALL_(?P<name>\w+)=(?P<path>/[\w./+-]*)$", re.MULTILINE)
_SCRIPTS = re.compile(r"ZFS_FILES='(?P<names>[^']*)'")
_VERMAGIC = re.compile(rb"vermagic=([\x21-\x7e]{1,200}) ")
_GLIBC = re.compile(rb"GLIBC_2\.(\d{1,3})\b")
_OBJECT = re.compile(r"(?:^|-)(?P<stem>[^-]+)\.l?o$")
_COMPILED = ("module", "lib", "cmd", "tests/zfs-tests/cmd")
_HOW = "./autogen.sh && ./configure && make"


@dataclass(frozen=True)
class Base:
    """What guests boot otherwise. ``modules``: the layer with the kernel's; ``glibc``: the root's 2.N, if known."""

    modules: Path
    release: str
    glibc: int | None = None


@dataclass(frozen=True)
class Tree:
    """A tree that can be used. ``files``: path in a guest → what lies there; ``modules``: by name."""

    folder: Path
    version: str
    modules: Mapping[str, Path]
    files: Mapping[str, Path]
    programs: frozenset[str]


def read_tree(folder: Path) -> Tree:
    """What it has for a guest. Raises ``UserError`` where it is none, is not built, or was changed since."""
    meta = _text(folder / "META")
    if not _NAME.search(meta):
        raise UserError(f"{folder} is no source tree of OpenZFS: it has no META that names zfs")
    common = _text(folder / "scripts/common.sh")
    if not common and not (folder / "config.status").is_file():
        raise UserError(f"{folder} was not configured: run {_HOW} there")
    modules = {path.stem: path for path in sorted((folder / "module").glob("*.ko"))}
    if "zfs" not in modules:
        raise UserError(
            f"{folder} has no module/zfs.ko: run make there; if it was configured with --with-config=user or without "
            "a kernel's headers, configure it again with --with-linux=… first"
        )
    programs = built(folder)
    if not {"zfs", "zpool"} <= programs.keys() or not common:
        raise UserError(
            f"the commands of {folder} are not built: run make there, configured without --with-config=kernel "
            "(trees before OpenZFS 2.2 lie differently, and can't be used this way)"
        )
    if (changed := stale(folder)) is not None:
        raise UserError(f"{changed} was changed after it was compiled: run make in {folder}")
    version = "-".join(_VERSION.findall(meta)[:2])
    names = _SCRIPTS.search(_text(folder / "tests/zfs-tests/include/commands.cfg"))
    for name in names["names"].split() if names else ():
        if name not in programs and "/" not in name and (script := folder / name).is_file():
            programs[name] = script
    return Tree(folder, version, modules, dict(_files(folder, programs, _places(common))), frozenset(programs))


def built(folder: Path) -> dict[str, Path]:
    """Programs that were compiled in a folder. Of one with shared libraries, libtool leaves a script to start it from
    the tree, and the program itself in ``.libs``.
    """
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.is_file(follow_symlinks=False) and entry.stat().st_mode & 0o111:
                real = folder / ".libs" / entry.name
                real = real if real.is_file() else Path(entry.path)
                if is_elf(real):
                    found[entry.name] = real
    return found


def stale(folder: Path) -> Path | None:
    """A source file that was changed after all of its objects were made; ``None`` where there is none."""
    for part in _COMPILED:
        for where, _, names in os.walk(folder / part):
            objects: dict[str, float] = {}
            for name in names:
                if found := _OBJECT.search(name):
                    made = (Path(where) / name).stat().st_mtime
                    objects[found["stem"]] = max(made, objects.get(found["stem"], 0.0))
            for name in names:
                stem, _, kind = name.rpartition(".")
                source = Path(where) / name
                if kind in ("c", "S") and stem in objects and source.stat().st_mtime > objects[stem]:
                    return source
    return None


def _places(common: str) -> dict[str, str]:
    """Where its configuration has helpers installed, without a first slash; /lib and the like as in a merged /usr."""
    named = ((each["name"], each["path"].strip("/")) for each in _PLACE.finditer(common))
    found = {name: path for name, path in named if path and ".." not in path.split("/")}
    return {
        name: f"usr/{path}" if path.split("/")[0] in ("bin", "lib", "sbin") else path for name, path in found.items()
    }


def _files(folder: Path, programs: Mapping[str, Path], places: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for name, path in programs.items():
        for place in ("usr/sbin", "usr/bin"):  # distributions differ in which of them has what
            yield f"{place}/{name}", path
    for path in sorted((folder / ".libs").glob("lib*.so*")):
        yield f"{_LIBRARIES}/{path.name}", path
    tests = folder / "tests/zfs-tests"
    for where in sorted({path.parent for path in (tests / "cmd").rglob("*.c")} | {tests / "cmd"}):
        for name, path in built(where).items():
            yield f"{SUITE}/zfs-tests/bin/{name}", path
    for name in ("callbacks", "include", "tests"):
        yield from _below(tests / name, f"{SUITE}/zfs-tests/{name}")
    yield from _below(folder / "tests/runfiles", f"{SUITE}/runfiles")
    yield from _below(folder / "tests/test-runner", f"{SUITE}/test-runner")
    yield from _below(folder / "cmd/zed/zed.d", f"{SUITE}/zed.d")
    yield from _below(folder / "cmd/zpool/zpool.d", f"{SUITE}/zpool.d")
    for source, name, place in (
        ("cmd/zpool/zpool.d", "SYSCONF_DIR", "zfs/zpool.d"),
        ("cmd/zpool/compatibility.d", "PKGDATA_DIR", "compatibility.d"),
        ("contrib/pyzfs/libzfs_core", "PYTHON_DIR", "libzfs_core"),
    ):
        if name in places:
            yield from _below(folder / source, f"{places[name]}/{place}")
    udev = built(folder / "udev")
    if "UDEV_DIR" in places:
        for name in ("vdev_id", "zvol_id"):
            if (helper := udev.get(name, folder / "udev" / name)).is_file():
                yield f"{places['UDEV_DIR']}/{name}", helper
    if "UDEV_RULE_DIR" in places:
        for rule in sorted((folder / "udev/rules.d").glob("*.rules")):
            yield f"{places['UDEV_RULE_DIR']}/{rule.name}", rule


def _below(folder: Path, target: str) -> Iterator[tuple[str, Path]]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted({*folders} - {".deps", ".libs", "__pycache__"})
        programs = built(Path(where))  # some tests have programs of their own beside them
        for name in sorted(names):
            path = Path(where) / name
            kind = stat.S_IFMT(path.lstat().st_mode)
            if not name.endswith((".in", ".o", ".lo", "~")) and kind in (stat.S_IFREG, stat.S_IFLNK):
                yield f"{target}/{path.relative_to(folder)}", programs.get(name, path)


def tree_parts(cache: Cache, tree: Tree, base: Base) -> tuple[Part, Part]:
    """The layer with its modules, indexed with the kernel's, and the one with all else. What was made of the same
    files is used again, so a change to a test packs only that. Raises ``UserError`` where it doesn't fit.
    """
    release = vermagic(tree.modules["zfs"])
    if release != base.release:
        raise UserError(
            f"the modules of {tree.folder} are for Linux {release}, and guests boot {base.release}: configure it with "
            f"--with-linux=… for {base.release} and make it again, or let guests boot its kernel by --kernel and "
            f"--kernel-modules, such as /boot/vmlinuz-{release} and /lib/modules/{release}"
        )
    total = sum(path.stat().st_size for path in {*tree.files.values()} if path.exists())
    if total > _MOST:
        raise UserError(f"{tree.folder} holds {total >> 20} MiB of commands and tests, which is more than guests get")
    names = [[name, digest_of_file(path)] for name, path in sorted(tree.modules.items())]
    first = recipe.digest([names, base.release, str(base.modules), recipe.TIMESTAMP])
    contents = [
        [target, "link", str(path.readlink())] if path.is_symlink()
        else [target, bool(path.stat().st_mode & 0o111), digest_of_file(path)]
        for target, path in sorted(tree.files.items())
    ]  # fmt: skip
    second = recipe.digest([contents, recipe.TIMESTAMP])
    modules, rest = f"own-zfs-modules-{first}", f"own-zfs-{second}"
    if (packed := cache.used(rest)) is None:
        _refuse_newer_glibc(tree, base)
    commands.need(("mkfs.erofs", "fsck.erofs", "depmod", "strip"), "using a source tree of ZFS")
    with log_of(cache) as log:
        if cache.used(modules) is None:
            with cache.making_alongside(modules) as work:
                _pack_modules(cache, tree, base, work, first, log)
        if packed is None:
            with cache.making_alongside(rest) as work:
                _pack_rest(cache, tree, work, second, log)
    cache.sweep("own-zfs-", frozenset({modules, rest}), _KEPT)
    return cache.finished(modules), cache.finished(rest)


def vermagic(module: Path) -> str:
    """The release of the kernel that a module was compiled for (include/linux/vermagic.h); empty where it says none."""
    with module.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return found[1].decode() if (found := _VERMAGIC.search(data)) else ""


def _refuse_newer_glibc(tree: Tree, base: Base) -> None:
    """Programs and libraries that were linked with a newer C library don't start with an older one."""
    if base.glibc is None:
        return
    for path in sorted({path for path in tree.files.values() if is_elf(path)}):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            needed = max((int(minor) for minor in _GLIBC.findall(data)), default=0)
        if needed > base.glibc:
            raise UserError(
                f"{path} needs glibc 2.{needed}, and guests have 2.{base.glibc}: build the tree on Debian 12, such as "
                "in a container, or give guests a root of your system by --kernel, --kernel-modules and --rootfs"
            )


def _pack_modules(cache: Cache, tree: Tree, base: Base, work: Path, key: str, log: Path) -> None:
    stripped = work / "stripped"
    stripped.mkdir()
    for name, path in tree.modules.items():
        run_on_strangers(["strip", "--strip-debug", "-o", str(stripped / f"{name}.ko"), str(path)], log, stripped)
    modules = module_tree.with_added(base.modules, sorted(stripped.iterdir()), base.release, work, log)
    module_tree.pack(work / "tree", work / "modules.erofs", key, log)
    for folder in (stripped, work / "tree"):
        remove_tree(folder)
    cache.finish(work, about_modules(base.release, modules, zfs=tree.version))


def _pack_rest(cache: Cache, tree: Tree, work: Path, key: str, log: Path) -> None:
    root, packed = work / "tree", dict[Path, Path]()
    for target in tree.files:
        (root / target).parent.mkdir(parents=True, exist_ok=True)
    # Links come last, so that nothing is written where one leads.
    for target, source in sorted(tree.files.items(), key=lambda each: each[1].is_symlink()):
        place = root / target
        if source in packed:
            os.link(packed[source], place)
        elif source.is_symlink():
            place.symlink_to(source.readlink())
        else:
            if is_elf(source):
                run_on_strangers(["strip", "--strip-debug", "-o", str(place), str(source)], log, place.parent)
            else:
                shutil.copyfile(source, place)
            place.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)
            packed[source] = place
    for name in ("zfs-tests", "runfiles", "test-runner"):
        # Else tests that the tree no longer has would still be there. Without root, they are.
        with contextlib.suppress(OSError):
            os.setxattr(root / SUITE / name, _OPAQUE, b"y")
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    module_tree.pack(root, work / "tree.erofs", key, log)
    remove_tree(root)
    cache.finish(work, About({"zfs": tree.version}, programs=(*sorted(tree.programs),)))


def _text(path: Path) -> str:
    try:
        return read_file(path, _MOST_TEXT).decode(errors="replace")
    except OSError:
        return ""
