"""A running guest: QEMU as a command on this machine, its monitor, and the agent inside as a ``Node``."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import shutil
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient

from storlab.base.errors import NodeError, NodeLost
from storlab.base.waiting import cancelled, to_its_end
from storlab.images.cache import lock_file, storlab_cache
from storlab.nodes.agent import steps
from storlab.nodes.agent.connection import Connection
from storlab.nodes.answers import load_modules, understood
from storlab.nodes.console import MAX_CONSOLE, console_text, killed_for_memory, tail
from storlab.nodes.demands import NO_DEVICES
from storlab.nodes.kinds.vm.causes import Causes
from storlab.nodes.kinds.vm.command import Files, GuestSpec, Memory, command, start_among_own_files
from storlab.nodes.kinds.vm.emulator import UNCONFINED
from storlab.nodes.kinds.vm.qmp import Handover, execute, hang_up, ignore_shared_memory, migration_ends
from storlab.nodes.network import CARD, PREFIX
from storlab.nodes.node import Node
from storlab.nodes.process import Process

MAGIC = b"storlab-renew/1\n"
ENTROPY = 64  # bytes
BOOT = 180.0  # s, for a guest to boot; emulated, and beside many others
_HEARTBEAT = 1.0  # s
_END = 3.0  # s, for QEMU to obey `quit`; one that does not is killed


@dataclass
class Guest:
    """A guest that runs. ``boot_seconds``: from its start until the agent answered."""

    spec: GuestSpec
    node: Node
    qmp: QMPClient
    process: Process
    files: Files
    restored: bool
    causes: Causes
    boot_seconds: float
    argv: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        hardware, image = self.spec.hardware, self.spec.image
        pinning = {"cpus": hardware.pin, "numa": hardware.numa}
        return {
            "accelerator": self.spec.accelerator,
            "machine": hardware.machine,
            "cpu": self.spec.cpu,
            "cpus": hardware.cpus,
            **{name: each for name in ("sockets", "numa_nodes") if (each := getattr(hardware, name)) > 1},
            "memory": hardware.memory,
            "kernel": image.release,
            "kernel_args": hardware.kernel_args,
            "image": image.name,
            "root": "its disk" if self.spec.root else "the image",
            "boot": "restored" if self.restored else "cold",
            "boot_seconds": round(self.boot_seconds, 3),
            "pinning": {key: value for key, value in pinning.items() if value is not None},
            "qemu": self.spec.qemu,
            "confinement": self.spec.confinement.facts(),
            "command": shlex.join(self.argv),
            **({"gdb": str(self.files.gdb)} if self.files.gdb is not None else {}),
        }

    def console_tail(self) -> str:
        return tail(console_text(self.files.console))

    def console_size(self) -> int:
        try:
            return self.files.console.stat().st_size
        except OSError:
            return 0

    def complaint(self) -> str | None:
        killed = killed_for_memory(console_text(self.files.console))
        return killed and f"the guest {self.spec.name} ran out of memory, and its kernel killed {killed}"


@asynccontextmanager
async def running_guest(
    spec: GuestSpec, host: Node, files: Files, saved: Path | None, on_lost: Callable[[Guest], None]
) -> AsyncIterator[Guest]:
    """A guest for as long as the context lasts; a copy of ``saved``, or booted. Raises ``NodeError``.

    QEMU runs as a command of ``host``: it ends with that agent, and so with the controller, however either ends.
    ``on_lost`` is called where the guest is gone before the context ends.
    """
    began = time.monotonic()
    memory = Memory(saved / "memory", copied=spec.shared_memory) if saved is not None else None
    argv = command(spec, files, memory=memory, incoming=saved is not None)
    async with AsyncExitStack() as stack:
        process = await start_among_own_files(host, argv, spec, files, memory)
        stack.push_async_callback(process.end)
        causes = Causes(spec.name, process, files.console)
        qmp = await causes.monitor(files.qmp)
        stack.push_async_callback(_quit, qmp, process)
        causes.listen(qmp)
        stack.push_async_callback(causes.end)
        if saved is not None:
            await _restore(qmp, spec, saved)
        reader, writer = await asyncio.open_unix_connection(str(files.agent))
        writer.write(preamble())  # at the very last moment, since it carries the time
        connection = Connection(spec.name, reader, writer, patience=spec.hardware.silence, why=causes.name)
        stack.push_async_callback(connection.close)
        causes.on_disk_error = connection.give_up
        try:
            greeting = await connection.greet(BOOT)
        except NodeLost as error:
            raise NodeError(str(error)) from None
        node = Node(spec.name, connection, pid=greeting.pid, address=spec.card.address if spec.card else None)
        try:
            async with asyncio.timeout(BOOT):  # nobody watches over its heartbeat yet
                with understood(spec.name, "its network is set up"):
                    await _settle_in(node, spec)
        except TimeoutError:
            raise NodeError(f"node {spec.name}: its network was not set up within {BOOT:g} s") from None
        guest = Guest(spec, node, qmp, process, files, saved is not None, causes, time.monotonic() - began, tuple(argv))
        watching = asyncio.create_task(_watch(guest, on_lost), name=f"heartbeat of {spec.name}")
        stack.push_async_callback(cancelled, watching)
        yield guest


async def _restore(qmp: QMPClient, spec: GuestSpec, saved: Path) -> None:
    confined = spec.confinement.user is not None
    handover = Handover(qmp)
    state = str(saved / "state")
    await ignore_shared_memory(qmp)
    file = await handover.file(state, os.O_RDONLY) if confined else state
    await execute(qmp, "migrate-incoming", {"uri": f"file:{file}"})
    await migration_ends(qmp)
    devices = spec.all_devices.on_ports(spec.port_names()) if spec.hardware.machine == "q35" else spec.all_devices
    for name, arguments in devices.commands():
        await execute(qmp, name, await handover.arguments(arguments) if confined else arguments)
    await execute(qmp, "cont")


def preamble() -> bytes:
    """What a guest is told before anything else: the time, and entropy of its own, fresh for each guest.

    A guest that is a copy of a saved one has the clock and the random numbers of that one; and an emulated one has
    little entropy, and a clock that counts whole seconds. ``docs/reference/agent-protocol.md`` defines these bytes.
    """
    return MAGIC + struct.pack(">Q", time.time_ns()) + os.urandom(ENTROPY)


async def _settle_in(node: Node, spec: GuestSpec) -> None:
    await node.write("/proc/sys/kernel/hostname", spec.name.encode())
    if spec.card is None:
        return
    loaded = await load_modules(node, "virtio_net")
    if loaded is not None:
        loaded.check(node.name)
    lines = (
        f"link set dev {await _card(node, spec.card.mac)} name {CARD}",
        f"address add {spec.card.address}/{PREFIX} dev {CARD}",
        f"link set dev {CARD} up",
    )
    await node.run(["ip", "-batch", "-"], stdin="".join(f"{line}\n" for line in lines).encode())


async def _card(node: Node, mac: str) -> str:
    for _ in range(100):
        (cards,) = await node.carry_out(steps.names("/sys/class/net"))
        addresses = await node.texts(*(f"/sys/class/net/{card}/address" for card in cards.entries))
        if mac in addresses:
            return cards.entries[addresses.index(mac)]
        await asyncio.sleep(0.1)
    raise NodeError(f"node {node.name}: its network card {mac} did not appear")


async def _watch(guest: Guest, on_lost: Callable[[Guest], None]) -> None:
    """Ask the agent for its clock each second; one that is silent for too long counts as hung."""
    silence = guest.spec.hardware.silence
    connection = guest.node.connection
    while not connection.gone.is_set():
        try:
            async with asyncio.timeout(silence):
                await connection.ask("clock")
        except TimeoutError:
            connection.give_up(await guest.causes.hung(silence))
        except NodeLost:
            break
        if guest.console_size() > MAX_CONSOLE:
            connection.give_up(f"its console has more than {MAX_CONSOLE >> 20}M, and would fill the disk")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEARTBEAT):
                await connection.gone.wait()
    on_lost(guest)


async def _quit(qmp: QMPClient, process: Process) -> None:
    """End QEMU at once: nothing in a guest is worth a clean shutdown."""
    with contextlib.suppress(NodeError, TimeoutError):
        async with asyncio.timeout(_END):
            if process.ended is None:
                await execute(qmp, "quit")
            await process.rest()
    await to_its_end(hang_up(qmp))


# Guests that were booted once and saved, so that others start as copies of them.
#
# The memory lies in a file of its own, which copies map privately: nothing is read before it is touched, and what no
# copy writes is in this machine's memory once. QEMU's ``x-ignore-shared`` leaves memory out of the saved state.

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
