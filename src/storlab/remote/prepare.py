"""Brings this Storlab to another machine, into a folder of its own in the user's home. Takes no root, and no internet.

The folder is built under another name and renamed once it has proved to work, so a broken link leaves nothing that
looks like it were there.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from storlab.base.errors import SshError, UserError
from storlab.base.programs import MODULES
from storlab.base.text import one_line
from storlab.base.waiting import reaped
from storlab.remote.host import PLACE, identity, own_files
from storlab.ssh.machine import Machine, connected, past_noise

# What is brought to another machine: this Storlab, with the libraries that it has here, in their very versions.
#
# A machine whose Python is of the same minor version gets the installed files. For any other, uv or pip fetches
# wheels for it here, of the same versions. Nothing is downloaded over there.

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


LEAST = (3, 11)
_NEWEST = 20
_MACHINES = ("x86_64", "aarch64")
_TIMEOUT = 600.0  # s
_LOOK = f"""
cd || exit 1
[ -f "{PLACE}/$1/ready" ] && echo "ready"
echo "free $(df --output=avail -B1 . | tail -1)"
for name in python3 $(i={LEAST[1]}; while [ $i -lt {_NEWEST} ]; do echo python3.$i; i=$((i + 1)); done); do
    for folder in /usr/bin /usr/local/bin "$HOME/.local/bin" $(dirname "$(command -v "$name" || echo /usr/bin/x)"); do
        [ -x "$folder/$name" ] && "$folder/$name" -I -c 'import sys, venv
print("python", *sys.version_info[:2], sys.executable)' 2>/dev/null
    done
done
true
"""
# $1 identity, $2 the Python to use; a tar of site-packages on standard input, and of a Python in folder python, if $2
# begins so.
_UNPACK = f"""
set -eu; umask 022
cd
mkdir -p {PLACE}; new=$(mktemp -d "{PLACE}/.new-XXXXXX"); trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
tar -x -f - -C "$new" --no-same-owner
case $2 in python/*) base=$HOME/{PLACE}/$1/$2; now=$new/$2;; *) base=$2; now=$2;; esac
"$now" -I -m venv --without-pip --symlinks "$new"
lib=$(echo "$new"/lib/python*/site-packages); rmdir "$lib"; mv "$new/site" "$lib"
if [ "$base" != "$now" ]; then
    ln -sf "$base" "$new/bin/python"; sed -i "s|^home = .*|home = $(dirname "$base")|" "$new/pyvenv.cfg"
fi
cat >"$new/bin/storlab" <<'END'
#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/python" -I -c 'from storlab.cli.entry import main; main()' "$@"
END
chmod 755 "$new/bin/storlab"
old="{PLACE}/$1"; rm -rf "$old"; mv "$new" "$old"
"$old/bin/python" -I -c 'import storlab.cli.main, storlab.run.executor, storlab.records.derive' >&2 ||
    {{ rm -rf "$old"; exit 1; }}
touch "$old/ready"
echo unpacked
"""


@dataclass(frozen=True)
class Prepared:
    """``place``: the folder there. ``python``: which one it uses. ``was_ready``: nothing was to be done."""

    place: str
    python: str
    was_ready: bool = False


async def prepare(name: str, notify: Callable[[str], None], *, again: bool = False) -> Prepared:
    """Bring this Storlab to a machine, unless it is there; if ``again``, in any case.

    Raises ``UserError`` where that can't be, and ``SshError``.
    """
    async with connected(name) as machine:
        if machine.architecture not in _MACHINES:
            raise UserError(f"{name}: Storlab runs on {' and '.join(_MACHINES)}, not on {machine.architecture}")
        if machine.architecture != os.uname().machine:
            raise UserError(
                f"{name} is {machine.architecture}, and the agent of this Storlab is for {os.uname().machine}: install "
                "Storlab there from its wheel"
            )
        said = (await machine.script(_LOOK, identity())).decode("utf-8", "replace").splitlines()
        if "ready" in said and not again:
            return Prepared(f"~/{PLACE}/{identity()}", "", was_ready=True)
        with ExitStack() as temporary:
            python, tree = await _python(name, machine, _pythons(said), notify, temporary)
            parts = temporary.enter_context(packed_for(Wanted(python.version, machine.architecture)))
            parts = [*((f"site/{name}", path) for name, path in parts), *tree]
            size = sum(path.stat().st_size for _, path in parts)
            free = next((int(line.split()[-1]) for line in said if re.fullmatch(r"free +\d{1,20}", line)), None)
            if free is not None and free < size * 1.2:
                raise UserError(f"{name}: {size >> 20} MB are needed in its home, and {free >> 20} MB are free")
            notify(f"Bringing Storlab {identity()} to {name}: {len(parts):,} files, {size >> 20} MB.")
            await _send(name, machine, python.path, parts)
        return Prepared(f"~/{PLACE}/{identity()}", python.path)


@dataclass(frozen=True)
class _Python:
    version: tuple[int, int]
    path: str


def _pythons(said: list[str]) -> list[_Python]:
    """Those that will do, the version of this machine's first: its files are here already. Then the newest."""
    here = Wanted((0, 0), os.uname().machine)
    found = []
    for line in said:
        if (match := re.fullmatch(r"python (3) (\d{1,2}) (/[^\0]{1,500})", line)) is not None:
            version = (int(match[1]), int(match[2]))
            if version >= LEAST:
                found.append(_Python(version, match[3]))
    return sorted(
        found, key=lambda each: (not Wanted(each.version, here.machine).is_as_here, -each.version[0], -each.version[1])
    )


async def _python(
    name: str, machine: Machine, found: list[_Python], notify: Callable[[str], None], temporary: ExitStack
) -> tuple[_Python, list[tuple[str, Path]]]:
    if found:
        return found[0], []
    least = ".".join(map(str, LEAST))
    notify(f"{name} has no Python {least} or newer; uv is asked for one.")
    folder = Path(temporary.enter_context(tempfile.TemporaryDirectory(prefix="storlab-python-")))
    try:
        tree = await asyncio.to_thread(fetch_python, machine.architecture, folder)
    except UserError as error:
        raise UserError(f"{name} has no Python {least} or newer with its module venv, and {error}") from None
    files = [(f"python/{path.relative_to(tree)}", path) for path in tree.rglob("*") if path.is_file()]
    version = next(
        (match for path in (tree / "bin").iterdir() if (match := re.fullmatch(r"python3\.(\d+)", path.name))), None
    )
    if version is None:
        raise UserError(f"{name} has no Python {least} or newer, and what uv brought is none")
    return _Python((3, int(version[1])), f"python/bin/{version[0]}"), files


async def _send(name: str, machine: Machine, python: str, parts: list[tuple[str, Path]]) -> None:
    """Raises ``SshError``, ``UserError``."""
    argv = machine.argv("sh", "-c", _UNPACK, "storlab", identity(), python, marked=True)
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=reading,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    os.close(reading)
    assert process.stdout is not None and process.stderr is not None
    sending = asyncio.create_task(asyncio.to_thread(_write, writing, parts))
    try:
        async with asyncio.timeout(_TIMEOUT):
            with contextlib.suppress(SshError):
                await past_noise(process.stdout)
            stdout, stderr = await asyncio.gather(process.stdout.read(1 << 16), process.stderr.read(1 << 16))
            status = await process.wait()
    except TimeoutError:
        raise SshError(f"{name}: it took more than {_TIMEOUT:g} s to bring Storlab there") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await reaped(process)
        await sending
    if status or b"unpacked" not in stdout:
        if not machine.connected:
            raise machine.lost()
        lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        raise UserError(f"{name}: Storlab could not be set up there: {one_line(lines[-1])[:300] if lines else status}")


def _write(descriptor: int, parts: list[tuple[str, Path]]) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as stream:
        write_tar(stream, parts)
