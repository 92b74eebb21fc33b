"""A kernel's modules made ready for guests: unpacked, without those for hardware that no guest has, indexed.

What ``depmod`` writes is read by modules.dep(5), modprobe.d(5) and Documentation/kbuild/kbuild.rst (modules.builtin).
"""

from __future__ import annotations

import gzip
import lzma
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from storlab.base.errors import ImageError
from storlab.images import recipe
from storlab.images.cache import remove_tree
from storlab.images.commands import run_on_strangers, unzstd
from storlab.images.debian import erofs_command

# A cpio archive as the kernel unpacks at boot ("newc"): Documentation/driver-api/early-userspace/buffer-format.rst.
#
# The kernel takes several, one after another, so that a launcher can append its own to one that was built before.

_FILE, _FOLDER = 0o100000, 0o040000
_TRAILER = "TRAILER!!!"
_MODE = 0o644
BLOCK = 512


def archive(files: Mapping[str, bytes], executable: frozenset[str] = frozenset(), empty: Iterable[str] = ()) -> bytes:
    """Files by their path without a leading slash; their folders come by themselves. Sorted, owned by root, time 0.

    ``empty``: further folders. Its length is a multiple of ``BLOCK``, so that another archive can follow.
    """
    above = {"/".join(path.split("/")[:depth]) for path in files for depth in range(1, path.count("/") + 1)}
    folders = sorted(above.union(empty))
    parts = [_entry(number, path, _FOLDER | 0o755, b"") for number, path in enumerate(folders, 1)]
    for number, path in enumerate(sorted(files), len(folders) + 1):
        mode = _FILE | (0o755 if path in executable else _MODE)
        parts.append(_entry(number, path, mode, files[path]))
    parts.append(_entry(0, _TRAILER, 0, b""))
    whole = b"".join(parts)
    return whole + b"\0" * (-len(whole) % BLOCK)


def _entry(inode: int, name: str, mode: int, data: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if mode & _FOLDER else 1
    # c_ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
    numbers = (inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + encoded
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


# What every kernel has that boots at all, without saying so in modules.builtin.modinfo.
_ALWAYS = frozenset({"devtmpfs", "proc", "ramfs", "sysfs", "tmpfs"})


def module_name(path: str) -> str:
    """``kernel/drivers/block/virtio-blk.ko.xz`` → ``virtio_blk``, as ``lsmod`` shows it."""
    return PurePosixPath(path).name.partition(".ko")[0].replace("-", "_")


@dataclass(frozen=True)
class Modules:
    """``needs``: path → paths that must be loaded before, as depmod orders them: the first needed last.

    ``soft``: name → names or aliases that should be loaded before, where they exist: libcrc32c fails without any of
    those that are called crc32c. ``aliases``: alias → names, without the patterns that stand for hardware.
    """

    needs: Mapping[str, tuple[str, ...]]
    builtin: frozenset[str] = frozenset()
    soft: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    filesystems: frozenset[str] = frozenset()

    @property
    def paths(self) -> dict[str, str]:
        return {module_name(path): path for path in self.needs}

    @property
    def names(self) -> frozenset[str]:
        """Every module that ``modprobe`` finds, whether it has to load it or not."""
        return self.builtin | frozenset(self.paths)

    def load_order(self, wanted: Iterable[str]) -> list[str]:
        """Paths of the wanted modules and all that they need, each after what it needs; built-in ones need no loading.

        Names that are neither are left out: kernels differ in what they have as modules.
        """
        paths = self.paths
        order: dict[str, None] = {}
        for name in wanted:
            for path in self._with_needs(name.replace("-", "_"), paths, frozenset()):
                order.setdefault(path)
        return list(order)

    def _with_needs(self, name: str, paths: Mapping[str, str], above: frozenset[str]) -> list[str]:
        path = paths.get(name)
        if path is None or name in above:
            return []
        order = []
        for needed in (*reversed(self.needs[path]), path):
            for soft in self.soft.get(module_name(needed), ()):
                for before in self.aliases.get(soft, (soft,)):
                    order += self._with_needs(before, paths, above | {name, module_name(needed)})
            order.append(needed)
        return order

    def closure(self, kept: Iterable[str]) -> frozenset[str]:
        kept = frozenset(kept)
        return kept.union(*(self.needs.get(path, ()) for path in kept))


def parse_needs(text: str) -> dict[str, tuple[str, ...]]:
    lines = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {path.strip(): tuple(needed.split()) for path, _, needed in lines}


def parse_builtin(text: str) -> frozenset[str]:
    return frozenset(module_name(line.strip()) for line in text.splitlines() if line.strip())


def parse_soft(text: str) -> dict[str, tuple[str, ...]]:
    """``modules.softdep``: ``softdep NAME pre: A B post: C``. What should come after is left out."""
    soft: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3 or words[0] != "softdep":
            continue
        before, where = [], ""
        for word in words[2:]:
            if word.endswith(":"):
                where = word
            elif where == "pre:":
                before.append(word.replace("-", "_"))
        name = words[1].replace("-", "_")
        soft[name] = (*soft.get(name, ()), *before)
    return soft


def parse_aliases(text: str) -> dict[str, tuple[str, ...]]:
    """``modules.alias``: ``alias ALIAS NAME``. An alias with a ``*`` in it stands for hardware, and is left out."""
    aliases: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "alias" and "*" not in words[1]:
            alias = words[1].replace("-", "_")
            aliases[alias] = (*aliases.get(alias, ()), words[2].replace("-", "_"))
    return aliases


def parse_filesystems(aliases: str, builtin_info: bytes) -> frozenset[str]:
    """Names ``mount -t`` takes: ``alias fs-xfs xfs`` in ``modules.alias``, ``ext4.alias=fs-ext4`` in the built-ins'."""
    words = (line.split() for line in aliases.splitlines())
    loadable = {line[1] for line in words if len(line) == 3 and line[0] == "alias"}
    entries = (entry.decode(errors="replace").partition("=") for entry in builtin_info.split(b"\0"))
    fixed = {value for key, _, value in entries if key.endswith(".alias")}
    return _ALWAYS | frozenset(name.removeprefix("fs-") for name in loadable | fixed if name.startswith("fs-"))


def read_modules(folder: Path) -> Modules:
    return Modules(
        parse_needs(_text(folder / "modules.dep")),
        parse_builtin(_text(folder / "modules.builtin")),
        parse_soft(_text(folder / "modules.softdep")),
        parse_aliases(_text(folder / "modules.alias")),
        parse_filesystems(_text(folder / "modules.alias"), _bytes(folder / "modules.builtin.modinfo")),
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace")


ORDER = "modules/order"
_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.decompress, ".gz": gzip.decompress}


def unpack_module(path: Path, log: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".zst":
        return unzstd(data, log)
    try:
        return _UNPACKERS.get(path.suffix, bytes)(data)
    except (lzma.LZMAError, OSError, EOFError) as error:
        raise ImageError(f"the kernel module {path} is damaged: {error}") from error


def is_dropped(path: str) -> bool:
    """Whether the recipe leaves this module out, unless another one needs it."""
    return path.startswith(recipe.DROPPED_MODULES) and not path.startswith(recipe.KEPT_MODULES)


def prepare(source: Path, base: Path, log: Path) -> Modules:
    """Copy ``source`` (``…/lib/modules/<release>``) to ``base``/usr/lib/modules, unpacked, trimmed and indexed."""
    release = source.name
    all_modules = read_modules(source)
    kept = sorted(all_modules.closure(path for path in all_modules.needs if not is_dropped(path)))
    target = base / "usr" / "lib" / "modules" / release

    def copy(path: str) -> None:
        inside = target / f"{path.partition('.ko')[0]}.ko"
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_bytes(unpack_module(source / path, log))

    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(copy, kept))
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    depmod(base, release, log)
    return read_modules(target)


def depmod(base: Path, release: str, log: Path) -> None:
    """Index the modules in ``base``/usr/lib/modules. depmod looks in /lib, which in a guest is a link there."""
    link = base / "lib"
    link.symlink_to("usr/lib")
    try:
        run_on_strangers(["depmod", "--basedir", str(base), release], log, base)
    finally:
        link.unlink()


def initramfs(modules: Modules, folder: Path, wanted: Iterable[str], log: Path) -> bytes:
    """What the guest's agent loads before it has a root: ``modules/order``, a file name a line, and those files."""
    order = modules.load_order(wanted)
    files = {f"modules/{module_name(path)}.ko": unpack_module(folder / path, log) for path in order}
    names = "".join(f"{module_name(path)}.ko\n" for path in order)
    return archive({ORDER: names.encode(), **files})


def with_added(layer: Path, added: Sequence[Path], release: str, work: Path, log: Path) -> Modules:
    """Modules beside those of a layer, in whose place they are where they have the same name; indexed together, since
    depmod needs to see all. ``work``/tree then holds them and the index, which is what the layer lacks.
    """
    merged, tree = work / "merged", work / "tree"
    run_on_strangers(["fsck.erofs", f"--extract={merged}", str(layer)], log, work)
    folder = merged / "usr" / "lib" / "modules" / release
    if not folder.is_dir():
        raise ImageError(
            f"{layer} has no modules of {release} in /usr/lib: its root must have /lib as a link to /usr/lib"
        )
    names = {path.name for path in added}
    for path in [path for path in folder.rglob("*.ko") if path.name in names]:
        path.unlink()
    (folder / "extra").mkdir(exist_ok=True)
    own = tree / "usr" / "lib" / "modules" / release
    (own / "extra").mkdir(parents=True)
    for module in added:
        for place in (folder, own):
            shutil.copyfile(module, place / "extra" / module.name)
    depmod(merged, release, log)
    for index in folder.glob("modules.*"):
        shutil.copyfile(index, own / index.name)
    modules = read_modules(folder)
    remove_tree(merged)
    return replace(modules, filesystems=modules.filesystems | {"zfs"})  # it has no alias fs-zfs


def make_layer(source: Path, wanted: Iterable[str], work: Path, key: str, log: Path, *, merged: bool = True) -> Modules:
    """``initramfs`` and ``modules.erofs`` in ``work``, of ``source`` (``…/lib/modules/<release>``). ``merged``: in the
    root file system, /lib is a link to /usr/lib.
    """
    tree = work / "tree"
    modules = prepare(source, tree, log)
    folder = tree / "usr" / "lib" / "modules" / source.name
    (work / "initramfs").write_bytes(initramfs(modules, folder, wanted, log))
    if not merged:
        (tree / "usr" / "lib").rename(tree / "lib")
        (tree / "usr").rmdir()
    pack(tree, work / "modules.erofs", key, log)
    remove_tree(tree)
    return modules


def pack(tree: Path, target: Path, key: str, log: Path) -> None:
    run_on_strangers(erofs_command(str(target), str(tree), key, root_owned=True), log, target.parent)
