"""What is brought to another machine: this Storlab, with the libraries that it has here, in their very versions.

A machine whose Python is of the same minor version gets the installed files. For any other, uv or pip fetches wheels
for it here, of the same versions. Nothing is downloaded over there.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from storlab.errors import UserError
from storlab.extras import MODULES
from storlab.remote.version import own_files
from storlab.text import one_line

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NOT_BROUGHT = ("__pycache__",)
_PLATFORM = "manylinux_2_28_{machine}"
_LONGEST = 600  # s


@dataclass(frozen=True)
class Wanted:
    """What a machine has, or is to have: ``(3, 12)``, ``x86_64``."""

    python: tuple[int, int]
    machine: str

    @property
    def is_as_here(self) -> bool:
        return self.python == sys.version_info[:2] and self.machine == os.uname().machine


def distributions() -> dict[str, importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    extras = [requirement for extra in MODULES for requirement in _requirements("storlab", extra)]
    left = [*_requirements("storlab"), *extras]
    while left:
        name = left.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that isn't installed, or what another Python or system would need
        left += _requirements(name)
    return found


def _requirements(name: str, extra: str = "") -> list[str]:
    """Their names. What a marker excludes is not installed, or does no harm."""
    names = []
    for written in importlib.metadata.distribution(name).requires or ():
        requirement, _, marker = written.partition(";")
        if ("extra ==" in marker) == bool(extra) and (not extra or re.search(rf"extra == ['\"]{extra}['\"]", marker)):
            match = _NAME.match(requirement.strip())
            assert match is not None
            names.append(match[0])
    return names


@contextmanager
def packed_for(wanted: Wanted) -> Iterator[list[tuple[str, Path]]]:
    """Files of a site-packages folder: names in it, and where they lie here. Raises ``UserError``."""
    own = [(f"storlab/{name}", path) for name, path in own_files()]
    if wanted.is_as_here:
        yield [*_installed(), *own]
        return
    with tempfile.TemporaryDirectory(prefix="storlab-wheels-") as folder:
        fetch_wheels(wanted, Path(folder))
        fetched = ((str(path.relative_to(folder)), path) for path in Path(folder).rglob("*") if path.is_file())
        yield [*((name, path) for name, path in fetched if _is_brought(name)), *own]


def _installed() -> Iterator[tuple[str, Path]]:
    for distribution in distributions().values():
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and _is_brought(str(file)) and path.is_file():
                yield str(file), path


def _is_brought(name: str) -> bool:
    return not any(part in _NOT_BROUGHT for part in name.split("/")) and not name.endswith(".pth")


def fetch_wheels(wanted: Wanted, folder: Path) -> None:
    """Unpack wheels of the versions that are installed here. Raises ``UserError`` with what went wrong."""
    pins = [f"{name}=={distribution.version}" for name, distribution in sorted(distributions().items())]
    version, platform = "{}.{}".format(*wanted.python), _PLATFORM.format(machine=wanted.machine)
    common = ["--quiet", "--no-deps", "--target", str(folder), "--python-version", version, "--only-binary", ":all:"]
    if uv := find_uv():
        argv = [uv, "pip", "install", *common, "--python-platform", f"{wanted.machine}-manylinux_2_28"]
    else:
        argv = [sys.executable, "-m", "pip", "install", *common, "--platform", platform]
    _run([*argv, *pins], f"no wheels for Python {version} on {wanted.machine} could be had")


def find_uv() -> str | None:
    return os.environ.get("UV") or shutil.which("uv")


def fetch_python(machine: str, folder: Path) -> Path:
    """A Python of uv's for a machine that has none, in ``folder``. Raises ``UserError``."""
    version = "{}.{}".format(*sys.version_info[:2])
    uv = find_uv()
    if uv is None:
        raise UserError("uv could bring one, but it is not installed here")
    build = f"cpython-{version}-linux-{machine}-gnu"
    _run([uv, "python", "install", "--quiet", "--no-bin", "--install-dir", str(folder), build], "uv could bring none")
    found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink() and path.name[0] != ".")
    if len(found) != 1:
        raise UserError("uv could bring none: it installed something else")
    return found[0]


def _run(argv: list[str], failed: str) -> None:
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{failed}: {one_line(str(error))}") from None
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        raise UserError(f"{failed}: {one_line(lines[-1])[:300] if lines else f'status {ended.returncode}'}")


def write_tar(stream: IO[bytes], parts: list[tuple[str, Path]]) -> None:
    """Files by their names, as tar(1) unpacks them: nobody's in particular, and readable. Raises ``OSError``."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, path in parts:
            archive.add(path, name, recursive=False, filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry
