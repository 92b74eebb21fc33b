"""A kernel's modules made ready for guests: unpacked, without those for hardware that no guest has, indexed."""

from __future__ import annotations

import gzip
import lzma
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from storlab.errors import ImageError
from storlab.images import commands, cpio, recipe
from storlab.images.bootstrap import erofs_command
from storlab.images.modules import Modules, module_name, read_modules

ORDER = "modules/order"
_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.decompress, ".gz": gzip.decompress}


def unpack_module(path: Path, log: Path) -> bytes:
    """A module's ELF file, however it is compressed."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        return commands.run(["zstd", "--decompress", "--stdout", "--quiet"], log, stdin=data)
    try:
        return _UNPACKERS.get(path.suffix, bytes)(data)
    except (lzma.LZMAError, OSError, EOFError) as error:
        raise ImageError(f"the kernel module {path} is damaged: {error}") from error


def is_dropped(path: str) -> bool:
    """Whether the recipe leaves this module out, unless another one needs it."""
    return path.startswith(recipe.DROPPED_MODULES) and not path.startswith(recipe.KEPT_MODULES)


def prepare(source: Path, base: Path, log: Path, index: Path | None = None) -> Modules:
    """Copy ``source`` (``…/lib/modules/<release>``) to ``base``/usr/lib/modules, unpacked, trimmed and indexed.

    ``index``: the folder that has ``source``'s index (modules.dep), where that is another.
    """
    release = source.name
    all_modules = read_modules(index or source)
    kept = all_modules.closure(path for path in all_modules.needs if not is_dropped(path))
    target = base / "usr" / "lib" / "modules" / release
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda path: _copy(source, target, path, log), sorted(kept)))
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    depmod(base, release, log)
    return read_modules(target)


def _copy(source: Path, target: Path, path: str, log: Path) -> None:
    inside = target / f"{path.partition('.ko')[0]}.ko"
    inside.parent.mkdir(parents=True, exist_ok=True)
    inside.write_bytes(unpack_module(source / path, log))


def depmod(base: Path, release: str, log: Path) -> None:
    """Index the modules in ``base``/usr/lib/modules. depmod looks in /lib, which in a guest is a link there."""
    link = base / "lib"
    link.symlink_to("usr/lib")
    try:
        commands.run(["depmod", "--basedir", str(base), release], log)
    finally:
        link.unlink()


def initramfs(modules: Modules, folder: Path, wanted: Iterable[str], log: Path) -> bytes:
    """What the guest's agent loads before it has a root: ``modules/order``, a file name a line, and those files."""
    order = modules.load_order(wanted)
    files = {f"modules/{module_name(path)}.ko": unpack_module(folder / path, log) for path in order}
    names = "".join(f"{module_name(path)}.ko\n" for path in order)
    return cpio.archive({ORDER: names.encode(), **files})


def pack(tree: Path, target: Path, key: str, log: Path) -> None:
    """An EROFS image of a layer, all of it root's."""
    commands.run(erofs_command(str(target), str(tree), key, root_owned=True), log)


def unmerge(tree: Path) -> None:
    """Move the modules from /usr/lib to /lib, for a root file system where that is a folder of its own."""
    (tree / "usr" / "lib").rename(tree / "lib")
    (tree / "usr").rmdir()
