"""Running the programs that images are built with. What they print goes to a log, which the error names."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import orjson

from storlab.base.errors import ImageError, MissingTool
from storlab.base.programs import agent_path, search_path, unused_user
from storlab.base.waiting import reaped

PATH = search_path()
_PACKAGES = {
    "apt-config": "apt", "apt-get": "apt", "depmod": "kmod", "dpkg-deb": "dpkg", "fsck.erofs": "erofs-utils",
    "mkfs.erofs": "erofs-utils", "mmdebstrap": "mmdebstrap", "setpriv": "util-linux", "strip": "binutils", "tar": "tar",
    "unshare": "util-linux", "zstd": "zstd",
}  # fmt: skip
_GRACE = 30.0  # seconds: mmdebstrap removes its folder when it is told to end
_LOOK = 0.05  # seconds between two looks whether it has ended

# What a line of a log means, in the words of a user. The first that is found decides.
_CAUSES = (
    (re.compile(r"No space left on device|not enough free space", re.I), "there is no space left{on}"),
    (
        re.compile(
            r"Temporary failure|Could not (?:resolve|connect)|Unable to connect|Connection (?:failed|refused|timed out)"
            r"|Failed to fetch|Some index files failed to download",
            re.I,
        ),
        "the Debian mirror can't be reached; check the network, or name another with --mirror",
    ),
    (
        re.compile(r"invalid signature|NO_PUBKEY|not signed", re.I),
        "the mirror's signature can't be checked; install the package debian-archive-keyring",
    ),
    (
        re.compile(r"Release file .* is expired", re.I),
        "the mirror's lists have expired: name another with --mirror; for one that stands still on purpose, set "
        "Acquire::Check-Valid-Until in apt.conf(5)",
    ),
    (
        re.compile(r"newuidmap|/etc/subuid|unprivileged user namespace|unshare\(\) failed", re.I),
        "this user may not make user namespaces, which building without root needs; run it as root",
    ),
)


def find(program: str) -> str | None:
    return shutil.which(program, path=PATH)


def need(programs: Sequence[str], what: str = "building a guest image") -> None:
    """Raises ``MissingTool`` unless all of these are installed."""
    missing = [program for program in programs if find(program) is None]
    if missing:
        packages = " ".join(sorted({_PACKAGES.get(program, program) for program in missing}))
        raise MissingTool(f"{what} needs {', '.join(missing)}; apt-get install {packages}")


def run(
    argv: Sequence[str],
    log: Path,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    within: Sequence[str] = (),
) -> bytes:
    """Run a short command; its standard output. ``within``: words before it that it runs by. Raises ``ImageError``."""
    with log.open("ab") as errors:
        errors.write(f"$ {shlex.join(argv)}\n".encode())
        errors.flush()
        ended = subprocess.run(
            [*within, *argv], input=stdin, stdout=subprocess.PIPE, stderr=errors, env=_environment(env)
        )
    if ended.returncode != 0:
        raise failure(argv[0], ended.returncode, log)
    return ended.stdout


async def follow(
    argv: Sequence[str],
    log: Path,
    seen: Callable[[str], None] = lambda line: None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a long command; ``seen`` gets every line that it prints. Raises ``ImageError``; ends it when cancelled."""
    with log.open("ab") as file:
        file.write(f"$ {shlex.join(argv)}\n".encode())
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_environment(env),
            limit=1 << 20,
            start_new_session=True,  # Ctrl-C is ours to pass on
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                file.write(line)
                file.flush()
                seen(line.decode(errors="replace").rstrip())
            status = await process.wait()
        finally:
            await _end(process)
    if status != 0:
        # The program that a user would name: not the ones that only set the stage for it.
        told = next((word for word in argv if word in _PACKAGES and word not in ("setpriv", "unshare")), argv[0])
        raise failure(told, status, log)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it and all that it started, and wait until that is done, even while we are being cancelled."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    # Not by wait(): that waits for the pipe as well, which a child that missed the signal may hold open.
    while process.returncode is None and time.monotonic() < deadline:
        try:
            await asyncio.sleep(_LOOK)
        except asyncio.CancelledError:
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await reaped(process)


def failure(program: str, status: int, log: Path) -> ImageError:
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        text = ""
    return ImageError(f"nothing was built: {cause(text, program, status, log)}. All output: {log}")


def cause(text: str, program: str, status: int, log: Path) -> str:
    last = text.rpartition("\n$ ")[2]
    for pattern, meaning in _CAUSES:
        if pattern.search(last):
            return meaning.format(on=f" on the file system of {log.parent.parent}; free 4 GB and build again")
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    lines = [line.strip() for line in last.splitlines()[1:] if line.strip()]
    telling = next((line for line in lines if line.startswith(("E:", "error:"))), lines[-1] if lines else "")
    return f"{program} {ended}{telling and f' ({telling})'}"


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "PATH": PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **(more or {})}


# Running programs on what a stranger may have made: images of file systems, trees to pack, modules.
#
# Each has parsers in C for all of that, so a hole in one must be worth nothing. It runs confined by the agent, in no
# network, and writes to its output alone. Where Storlab is root, one that only reads is a user that nobody else is,
# who may open any file and has no other privilege; one that has to keep the owners of files stays root, with what
# that takes.

CANNOT_CONFINE = "can't confine"
"""What the agent says where it can't."""
_READS = ("CAP_DAC_READ_SEARCH",)
_BECOMES = ("CAP_SETGID", "CAP_SETUID")
_KEEPS_OWNERS = (*_READS, "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID")


def run_on_strangers(argv: Sequence[str], log: Path, output: Path | None = None, stdin: bytes | None = None) -> bytes:
    """As ``commands.run``. ``output``: the only folder or file that it may write to; what it prints is returned."""
    return run(argv, log, stdin, within=_words(output))


def unzstd(packed: bytes, log: Path) -> bytes:
    return run_on_strangers(["zstd", "--decompress", "--stdout", "--quiet"], log, stdin=packed)


def _words(output: Path | None) -> list[str]:
    root = os.geteuid() == 0
    kept = () if not root else _KEEPS_OWNERS if output is not None else (*_READS, *_BECOMES)
    confinement = {"writable": [] if output is None else [str(output)], "capabilities": kept}
    confined = [str(agent_path()), "confine", orjson.dumps(confinement).decode()]
    return [*confined, *(_as_a_user() if root and output is None else [])]


def _as_a_user() -> list[str]:
    user = unused_user()
    reads = "-all,+dac_read_search"
    who = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return ["setpriv", *who, f"--inh-caps={reads}", f"--ambient-caps={reads}", "--"]
