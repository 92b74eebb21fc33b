"""A virtiofsd for machines whose Debian has none that does, unpacked with its libraries and run by its own loader.

Debian 12 has the one in C, in a package of QEMU 7 that a QEMU from its backports replaces; the one in Rust comes with
Debian 13 and wants a newer C library.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from storlab.errors import ImageError, UserError
from storlab.images import bootstrap, commands, recipe
from storlab.images.cache import About, Cache, Part, cache_folder

Implementation = Literal["rust", "c"]

IMPLEMENTATIONS: tuple[Implementation, ...] = get_args(Implementation)

INSTALLED: dict[Implementation, tuple[str, ...]] = {
    "rust": ("/usr/libexec/virtiofsd", "/usr/local/libexec/virtiofsd"),
    "c": ("/usr/lib/qemu/virtiofsd",),
}
"""Where packages put it: Debian 13 and Fedora, Debian 12."""

_PROGRAM, _LOADER = "virtiofsd", "ld-linux-x86-64.so.2"
_SPACE = 300_000_000  # bytes while it is unpacked; what is kept is a tenth or less
_RECIPE = 1  # raised when what is made here changes
_LIBRARY = re.compile(r"^\t(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.M)  # a line of what the loader lists
_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class _Source:
    suite: str
    package: str
    path: str


_SOURCES: dict[Implementation, _Source] = {
    "rust": _Source("trixie", "virtiofsd", "usr/libexec/virtiofsd"),
    "c": _Source("bookworm", "qemu-system-common", "usr/lib/qemu/virtiofsd"),
}


def find_virtiofsd(implementation: Implementation) -> tuple[str, ...] | None:
    """The words before its options: of an installed one, else of the unpacked one; ``None`` where there is neither."""
    for path in INSTALLED[implementation]:
        if os.access(path, os.X_OK):
            return (path,)
    part = Cache(cache_folder()).part(_name(implementation))
    return _words(part.folder) if part is not None else None


async def unpack_virtiofsd(
    implementation: Implementation, told: Callable[[str], None] = lambda step: None, mirror: str = recipe.MIRROR
) -> Part:
    """Unpack it into the cache, where it is missing. Raises ``UserError``, ``MissingTool``, ``ImageError``."""
    if platform.machine() != "x86_64":
        raise UserError(f"virtiofsd is unpacked for x86-64 only, and this machine is {platform.machine()}")
    commands.need(bootstrap.PROGRAMS, "unpacking virtiofsd")
    cache, name = Cache(cache_folder()), _name(implementation)
    async with cache.locked(told):
        if cache.part(name) is None:
            with cache.making(name, _SPACE) as work:
                version = await _unpack(
                    _SOURCES[implementation], work, cache.path("logs") / f"{name}.log", told, mirror
                )
                cache.finish(work, About(versions={"virtiofsd": version}))
    return cache.finished(name)


def _name(implementation: Implementation) -> str:
    return f"virtiofsd-{implementation}-{_RECIPE}"


def _words(folder: Path) -> tuple[str, ...]:
    return (str(folder / _LOADER), "--library-path", str(folder), str(folder / _PROGRAM))


async def _unpack(source: _Source, work: Path, log: Path, told: Callable[[str], None], mirror: str) -> str:
    """Its version."""
    log.unlink(missing_ok=True)
    archive, root = work / "debian.tar", work / "debian"
    told(f"downloading {source.package} of Debian {source.suite}")
    argv = ["mmdebstrap", "--variant=extract", "--format=tar", f"--include={source.package}"]
    argv += [f"--architectures={recipe.ARCHITECTURE}", '--aptopt=APT::Install-Recommends "false"']
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.NOT_UNPACKED]
    line = f"deb [signed-by={recipe.KEYRING}] {mirror} {source.suite} main"
    await bootstrap.run_apart([*argv, source.suite, str(archive), line], work, log)
    told("keeping the program and its libraries")
    root.mkdir()
    commands.run(["tar", "-C", str(root), "--no-same-owner", "--exclude=./dev/*", "-xf", str(archive)], log)
    _keep(root, source.path, work, log)
    archive.unlink()
    for folder in (root, work / "tmp"):
        shutil.rmtree(folder, ignore_errors=True)
    said = commands.run([*_words(work), "--version"], log).decode(errors="replace")
    found = _VERSION.search(said)
    if found is None:
        raise ImageError(f"{source.package} of Debian {source.suite} has a virtiofsd that does not say its version")
    return found[0]


def _keep(root: Path, program: str, work: Path, log: Path) -> None:
    """The program, the loader, and the libraries that it lists, in one folder."""
    folders = [str(root / base / "x86_64-linux-gnu") for base in ("usr/lib", "lib") if (root / base).is_dir()]
    loader = next((path for path in root.glob(f"**/x86_64-linux-gnu/{_LOADER}")), None)
    if loader is None or not (root / program).is_file():
        raise ImageError(f"the package has no {program}, or its Debian no {_LOADER}. All output: {log}")
    listed = commands.run([str(loader), "--library-path", ":".join(folders), "--list", str(root / program)], log)
    for path in map(Path, _LIBRARY.findall(listed.decode(errors="replace"))):
        if path.is_relative_to(root):
            shutil.copyfile(path, work / path.name)
    for path, name in ((loader, _LOADER), (root / program, _PROGRAM)):
        shutil.copyfile(path, work / name)
        (work / name).chmod(0o755)
