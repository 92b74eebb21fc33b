"""Programs of another Debian than this machine's, unpacked with their libraries and run by their own loader.

What is downloaded is apt's to verify: the lists by Debian's signature, each package by its checksum in them.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from storlab.base.errors import ImageError, UserError
from storlab.images import commands, debian, recipe
from storlab.images.cache import About, Cache, Part, cache_folder
from storlab.images.debian import taken_over

_LOADER = "ld-linux-x86-64.so.2"
_LIBRARY = re.compile(r"^\t(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.M)  # a line of what the loader lists
_VERSION = re.compile(r"(?<=\s)\d+(?:\.\d+)+\S*")


@dataclass(frozen=True)
class Unpacked:
    """``name``: of its part of the cache; ``called``: by users; ``path``: of the program in ``package`` of ``suite``.

    ``beside``: other files and folders that it reads, each with the name that it gets beside the program. ``space``:
    bytes while it is unpacked; what is kept is much less.
    """

    name: str
    called: str
    suite: str
    package: str
    path: str
    space: int
    beside: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path | None:
        part = Cache(cache_folder()).part(self.name)
        return None if part is None else part.folder

    @property
    def words(self) -> tuple[str, ...] | None:
        return None if (folder := self.folder) is None else self.words_in(str(folder))

    def words_in(self, folder: str) -> tuple[str, ...]:
        return (f"{folder}/{_LOADER}", "--library-path", folder, f"{folder}/{Path(self.path).name}")


async def unpack(
    wanted: Unpacked, notify: Callable[[str], None] = lambda step: None, mirror: str = recipe.MIRROR
) -> Part:
    """Unpack it into the cache, where it is missing. Raises ``UserError``, ``MissingTool``, ``ImageError``."""
    if platform.machine() != "x86_64":
        raise UserError(f"{wanted.called} is unpacked for x86-64 only, and this machine is {platform.machine()}")
    commands.need((*debian.PROGRAMS, "apt-config"), f"unpacking {wanted.called}")
    cache = Cache(cache_folder())
    async with cache.locked(notify):
        if cache.part(wanted.name) is None:
            with cache.making(wanted.name, wanted.space) as work:
                log = cache.path("logs") / f"{wanted.name}.log"
                log.unlink(missing_ok=True)
                await _download(wanted, work, log, notify, mirror)
                notify("keeping the program and its libraries")
                cache.finish(work, About(versions={wanted.called: _keep_only(wanted, work, log)}))
    return cache.finished(wanted.name)


async def _download(wanted: Unpacked, work: Path, log: Path, notify: Callable[[str], None], mirror: str) -> None:
    notify(f"downloading {wanted.package} of Debian {wanted.suite}")
    acquire = work / "acquire.conf"
    acquire.write_text(taken_over(commands.run(["apt-config", "dump", "Acquire"], log).decode()), "utf-8")
    argv = ["mmdebstrap", "--variant=extract", "--format=tar", f"--include={wanted.package}"]
    argv += [f"--architectures={recipe.ARCHITECTURE}", f"--aptopt={acquire}"]
    argv += ['--aptopt=APT::Install-Recommends "false"']
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.NOT_UNPACKED]
    line = f"deb [signed-by={recipe.KEYRING}] {mirror} {wanted.suite} main"
    await debian.run_apart([*argv, wanted.suite, str(work / "debian.tar"), line], work, log)


def _keep_only(wanted: Unpacked, work: Path, log: Path) -> str:
    """Of all that was downloaded, what it takes to run the program; returns its version."""
    archive, root = work / "debian.tar", work / "debian"
    root.mkdir()
    commands.run(["tar", "-C", str(root), "--no-same-owner", "--exclude=./dev/*", "-xf", str(archive)], log)
    keep(wanted, root, work, log)
    archive.unlink()
    (work / "acquire.conf").unlink()
    for folder in (root, work / "tmp"):
        shutil.rmtree(folder, ignore_errors=True)
    said = commands.run([*wanted.words_in(str(work)), "--version"], log).decode(errors="replace")
    found = _VERSION.search(said)
    if found is None:
        raise ImageError(f"{wanted.package} of Debian {wanted.suite} has a {wanted.called} of no known version")
    return found[0]


def keep(wanted: Unpacked, root: Path, work: Path, log: Path) -> None:
    """Copy the program, what lies beside it, the loader and the libraries that it lists from ``root`` to ``work``."""
    folders = [str(root / base / "x86_64-linux-gnu") for base in ("usr/lib", "lib") if (root / base).is_dir()]
    loader = next((path for path in root.glob(f"**/x86_64-linux-gnu/{_LOADER}")), None)
    if loader is None or not (root / wanted.path).is_file():
        raise ImageError(f"the package has no {wanted.path}, or its Debian no {_LOADER}. All output: {log}")
    listed = commands.run([str(loader), "--library-path", ":".join(folders), "--list", str(root / wanted.path)], log)
    for path in map(Path, _LIBRARY.findall(listed.decode(errors="replace"))):
        if path.is_relative_to(root):
            shutil.copyfile(path, work / path.name)
    for path in (loader, root / wanted.path):
        shutil.copyfile(path, work / path.name)
        (work / path.name).chmod(0o755)
    for source, name in wanted.beside.items():
        copy = shutil.copytree if (root / source).is_dir() else shutil.copyfile
        (work / name).parent.mkdir(exist_ok=True)
        copy(root / source, work / name)


# A MySQL server, which is in no stable Debian: sid's, unpacked. It reads its messages and character sets as well.

_RECIPE = 1  # raised when what is made here changes

MYSQL = Unpacked(
    f"mysql-{_RECIPE}",
    "mysqld",
    "sid",
    "mysql-server-core",
    path="usr/sbin/mysqld",
    space=1_500_000_000,
    beside={
        "usr/share/mysql/english": "english",
        "usr/share/mysql/charsets": "charsets",
        # It loads this one at each start, and says so where it is missing.
        "usr/lib/mysql/plugin/component_reference_cache.so": "plugin/component_reference_cache.so",
    },
)


# A virtiofsd for machines whose Debian has none that does: the installed one, else one that is unpacked.
#
# Debian 12 has the one in C, in a package of QEMU 7 that a QEMU from its backports replaces; the one in Rust comes
# with Debian 13 and wants a newer C library.

Implementation = Literal["rust", "c"]

IMPLEMENTATIONS: tuple[Implementation, ...] = get_args(Implementation)

INSTALLED: dict[Implementation, tuple[str, ...]] = {
    "rust": ("/usr/libexec/virtiofsd", "/usr/local/libexec/virtiofsd"),
    "c": ("/usr/lib/qemu/virtiofsd",),
}
"""Where packages put it: Debian 13 and Fedora, Debian 12."""

CALLED = "virtiofsd"
_SPACE = 300_000_000  # bytes while it is unpacked; what is kept is a tenth or less

UNPACKED: dict[Implementation, Unpacked] = {
    "rust": Unpacked(
        f"virtiofsd-rust-{_RECIPE}", CALLED, "trixie", "virtiofsd", path="usr/libexec/virtiofsd", space=_SPACE
    ),
    "c": Unpacked(
        f"virtiofsd-c-{_RECIPE}",
        CALLED,
        "bookworm",
        "qemu-system-common",
        path="usr/lib/qemu/virtiofsd",
        space=_SPACE,
    ),
}


def find_virtiofsd(implementation: Implementation) -> tuple[str, ...] | None:
    """The words before its options: of an installed one, else of the unpacked one; ``None`` where there is neither."""
    for path in INSTALLED[implementation]:
        if os.access(path, os.X_OK):
            return (path,)
    return UNPACKED[implementation].words
