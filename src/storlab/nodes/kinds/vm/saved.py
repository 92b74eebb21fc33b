"""Guests that were booted once and saved, so that others start as copies of them.

The memory lies in a file of its own, which copies map privately: nothing is read before it is touched, and what no
copy writes is in this machine's memory once. QEMU's ``x-ignore-shared`` leaves memory out of the saved state.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from storlab.errors import NodeError
from storlab.images.cache import lock_file, storlab_cache
from storlab.nodes.console import console_text
from storlab.nodes.demands import NO_DEVICES
from storlab.nodes.kinds.vm.causes import Causes
from storlab.nodes.kinds.vm.command import Files, GuestSpec, Memory, command
from storlab.nodes.kinds.vm.confinement import UNCONFINED
from storlab.nodes.kinds.vm.handover import Handover
from storlab.nodes.kinds.vm.own_files import start_among_own_files
from storlab.nodes.kinds.vm.qmp import execute, hang_up, ignore_shared_memory, migration_ends
from storlab.nodes.node import Node

_READY = "storlab-init: ready"
_BOOT = 180.0  # s
_REST = 1.0  # s: the kernel frees what it needed for booting, and its late work ends
_UNFINISHED = ".new"
_ABANDONED = 600.0  # s; whoever was making one for so long has died
_KEPT = 8  # saved guests, however large; beyond these, the ones not used for longest give way
_MOST = (
    4 * 1024**3
)  # bytes on the disk of all that are kept: a sweep of guests' shapes comes back to each in each round


async def saved_guest(spec: GuestSpec, host: Node, sockets: Path, notify: Callable[[str], None]) -> Path:
    """A folder with ``memory`` and ``state`` of a guest that ``spec`` can be a copy of, saved now where there is none.

    Raises ``NodeError``. ``notify`` gets a sentence where that is done. ``sockets``: a short path, see unix(7).
    """
    anywhere = spec.hardware.model_copy(update={"pin": None, "numa": None})
    generic = replace(
        spec,
        name="storlab",
        hardware=anywhere,
        devices=NO_DEVICES,
        card=None,
        within=(),
        confinement=UNCONFINED,
        shared_memory=False,
    )
    folder = storlab_cache() / "saved" / _fingerprint(generic)
    async with _locked(folder):
        if not (folder / "state").exists():
            notify("Booting a guest to make copies of it.")
            _forget_unfinished(folder.parent)
            try:
                await _save(replace(generic, confinement=spec.confinement), host, folder, sockets)
            except NodeError as error:
                reason = str(error).removeprefix(f"node {generic.name}: ")
                raise NodeError(f"node {spec.name}: no guest could be saved to make copies of: {reason}") from None
            _forget_oldest(folder.parent)
        os.utime(folder)
    return folder


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Only one process, and only one task in it, makes ``path`` at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        await lock_file(descriptor)
        yield
    finally:
        os.close(descriptor)


def _fingerprint(spec: GuestSpec) -> str:
    """All that the saved state depends on; the initial RAM disk's name tells its contents."""
    files = Files(Path("qmp"), Path("agent"), Path("console"))
    argv = command(spec, files, memory=Memory(Path("memory"), shared=True))
    own = [Path(spec.hardware.qemu)] if spec.hardware.own_qemu else []
    parts = [(path, path.stat()) for path in (spec.image.kernel, *spec.image.layers, *own)]
    stamps = [f"{path}:{stat.st_mtime_ns}:{stat.st_size}" for path, stat in parts]
    return hashlib.sha256("\0".join([spec.qemu, *argv, *stamps]).encode()).hexdigest()[:16]


async def _save(spec: GuestSpec, host: Node, folder: Path, sockets: Path) -> None:
    temporary = folder.with_name(f"{folder.name}{_UNFINISHED}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        await _boot_and_save(spec, host, temporary, sockets)
        # Written back now, and not while something is measured.
        await host.run(["sync", "--", str(temporary / "memory"), str(temporary / "state")])
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


async def _boot_and_save(spec: GuestSpec, host: Node, folder: Path, sockets: Path) -> None:
    memory = Memory(folder / "memory", shared=True)
    files = Files(sockets / f"{folder.name}.qmp", sockets / f"{folder.name}.agent", folder / "console.log")
    async with AsyncExitStack() as stack:
        argv = command(spec, files, memory=memory)
        process = await start_among_own_files(host, argv, spec, files, memory)
        stack.push_async_callback(process.end)
        causes = Causes(spec.name, process, files.console)
        qmp = await causes.monitor(files.qmp)
        stack.push_async_callback(hang_up, qmp)
        deadline = time.monotonic() + _BOOT
        while _READY not in console_text(files.console):
            if process.ended is not None or time.monotonic() > deadline:
                raise NodeError(await causes.name(f"node {spec.name}: it did not boot within {_BOOT:g} s"))
            await asyncio.sleep(0.05)
        await asyncio.sleep(_REST)
        await execute(qmp, "stop")
        await ignore_shared_memory(qmp)
        state = str(folder / "state")
        if spec.confinement.user is not None:
            state = await Handover(qmp).file(state, os.O_WRONLY | os.O_CREAT)
        await execute(qmp, "migrate", {"uri": f"file:{state}"})
        await migration_ends(qmp)
        await execute(qmp, "quit")


def _forget_unfinished(folder: Path) -> None:
    for path in folder.glob(f"*{_UNFINISHED}"):
        with contextlib.suppress(FileNotFoundError):  # it has just been finished
            if time.time() - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path, ignore_errors=True)


def _forget_oldest(folder: Path) -> None:
    """Copies that run keep the memory that they have mapped, also when its name is gone."""
    saved = [path for path in folder.iterdir() if path.suffix != _UNFINISHED and (path / "state").exists()]
    taken = 0
    for number, path in enumerate(sorted(saved, key=_last_used, reverse=True), start=1):
        taken += _allocated(path)
        if number > _KEPT and taken > _MOST:
            shutil.rmtree(path, ignore_errors=True)


def _last_used(saved: Path) -> float:
    try:
        return saved.stat().st_mtime
    except FileNotFoundError:  # another process has just forgotten it
        return 0.0


def _allocated(saved: Path) -> int:
    """Bytes of disk; memory that was never touched is a hole."""
    try:
        return sum(file.stat().st_blocks for file in saved.iterdir()) * 512
    except FileNotFoundError:
        return 0
