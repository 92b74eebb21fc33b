"""One guest for a suite: its disks, what is prepared in it once, and what scripts leave in it."""

from __future__ import annotations

import asyncio
import io
import posixpath
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from storlab.errors import NodeError, NodeLost, StorlabError, TrialError, UserError
from storlab.layers.attach.attachment import VirtioBlkLayer, disk_with_serial, serial_of
from storlab.layers.resources import File
from storlab.nodes.demands import NO_DEMANDS, Demands
from storlab.nodes.kind import Prepared
from storlab.nodes.kinds.vm.kind import VmKind
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.process import Process
from storlab.run.session import Session
from storlab.run.suite.invariants import State, look
from storlab.run.suite.loss import loss_of
from storlab.suite.adapters.base import Adapter, Environment
from storlab.suite.model import Leak

OWN_TESTS = "/usr/local/share/storlab-suite"
"""Where the user's own tests lie in a guest."""
_MOST_TESTS = 256 * 1024**2  # bytes of them
_PREPARED_IN = 300.0  # s, in an emulated guest on a busy machine
_UDEVD = "/lib/systemd/systemd-udevd"
_SET_UP_HOST = """
set -e
umask 022
printf '127.0.0.1 localhost\\n127.0.1.1 %s\\n' "$(cat /proc/sys/kernel/hostname)" > /etc/hosts
mkfs.ext4 -q -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "$1"
mkdir -p "$2"
mount "$1" "$2"
chmod 1777 "$2"
"""
_SETTLE = """
udevadm trigger --action=add --subsystem-match=block
udevadm trigger --action=add --sysname-match=zfs
udevadm settle --timeout=120
"""
_FORKS = 40
_LOOP = f'i=0; while [ "$i" -lt {_FORKS} ]; do /bin/true; i=$((i+1)); done'
_FORK = 0.001  # s, what fork and exec of a small program take on the machines that time-outs were written for
_MOST_SCALE = 4.0  # beyond that, most of a test's time is waiting, which takes no longer in a slow guest
_LIST = """
for c; do
    for p in $(find "$c" -name cgroup.procs -exec cat {} + 2> /dev/null); do
        printf '%s\t' "$c"
        cat "/proc/$p/comm"
    done
done
"""
_KILL = 'for c; do echo 1 > "$c/cgroup.kill" || :; done'


@dataclass
class SuiteGuest:
    """A guest that is prepared. ``scale``: how much longer than written its scripts may take, as it was measured."""

    node: Node
    name: str
    environment: Environment
    scale: float
    disks: list[str]  # files on this machine
    udev: Process | None = None
    state: State = field(default_factory=State)  # what the last group left
    kept: dict[str, str] = field(default_factory=dict)  # cgroup in which something outlived its script → that script


@dataclass(frozen=True)
class GuestMaker:
    """Opens guests for one run of a suite. ``tests``: a folder of this machine with the user's own tests."""

    session: Session
    adapter: Adapter
    spec: VmKind
    folder: Path
    tests: Path | None = None

    async def open(self, name: str, folder: Path) -> SuiteGuest:
        """A guest, ready for scripts; ``folder`` takes its console. Raises ``NodeError`` where it can't be had."""
        needs, session = self.adapter.needs(), self.session
        files, demands = await self._disks(name)
        node = await session.open(name, "guest", self.spec, demands, folder)
        guest = SuiteGuest(node, name, Environment(), 1.0, files)
        try:
            async with asyncio.timeout(_PREPARED_IN):
                devices = [await _disk(node, f"suite-{number}") for number in range(_attached(needs.disks) + 1)]
                await node.run(["sh", "-c", _SET_UP_HOST, "sh", devices[-1], needs.place])
                for module in needs.modules:
                    await node.run(["modprobe", module])
                if needs.udev:
                    guest.udev = await node.start([_UDEVD])
                    await node.run(["sh", "-c", _SETTLE])
                if self.tests is not None:
                    await _send(node, self.tests, self.adapter.testdir)
                guest.environment = await self._environment(node, usable(devices[:-1], needs.disks))
                ended = await node.run(["sh", "-c", _LOOP])
                guest.state = await look(node)
                guest.scale = min(max(ended.elapsed / _FORKS / _FORK, 1.0), _MOST_SCALE)
        except TimeoutError:
            await self.close(guest)
            raise NodeError(f"{name}: it was not prepared within {_PREPARED_IN:g} s") from None
        except NodeLost as error:
            lost = loss_of(node, session, str(error))
            await self.close(guest)
            raise NodeError(lost.reason) from None
        except (TrialError, StorlabError):
            await self.close(guest)
            raise
        return guest

    async def close(self, guest: SuiteGuest) -> None:
        """End a guest, and remove its disks."""
        await self.session.end(guest.node)
        await self.session.host.run(["rm", "--force", "--", *guest.disks])

    def _needs(self) -> Needs:
        needs = self.adapter.needs()
        return Needs(programs=needs.programs, modules=needs.modules)

    async def refuse_lacking(self) -> None:
        """Raise ``UserError`` where no guest has what the suite needs; ``MissingImage`` where there is no image."""
        needs = self._needs()
        prepared = await self.prepared()
        if lacks := prepared.lacks(needs):
            raise UserError("; ".join(lacks))

    async def prepared(self) -> Prepared:
        """What guests boot from, found out once."""
        return await self.session.prepare("guest", self.spec, self._needs())

    async def _disks(self, name: str) -> tuple[list[str], Demands]:
        needs, host = self.adapter.needs(), self.session.host
        scratch = await self.session.scratch_on(host)
        sizes = [needs.disk_size] * _attached(needs.disks) + [needs.files]
        files = [f"{scratch}/{name}-disk-{number}" for number in range(len(sizes))]
        demands = NO_DEMANDS
        for number, (path, size) in enumerate(zip(files, sizes, strict=True)):
            await host.run(["rm", "--force", "--", path])  # of a guest of this name that was lost
            await host.run(["truncate", "--size", str(size), "--", path])
            # Nothing of a guest is needed after it, so its flushes may be ignored.
            layer = VirtioBlkLayer(cache="unsafe")
            demands |= layer.demands(File(host.name, path, size), f"suite-{number}")
        return files, demands

    async def _environment(self, node: Node, disks: list[str]) -> Environment:
        needs = self.adapter.needs()
        given = {
            "DISKS": " ".join(disk.removeprefix("/dev/") for disk in disks),
            "FILEDIR": needs.place,
            **needs.given,
        }
        ended = await node.run(["bash", "-c", needs.set_up], env=given)
        pairs = (each.partition("=") for each in ended.stdout.decode(errors="replace").split("\0") if "=" in each)
        return Environment({key: value for key, _, value in pairs if key != "_"})


def _attached(disks: int) -> int:
    return disks + 1 if disks else 0


def usable(devices: Iterable[str], wanted: int) -> list[str]:
    """So many of a guest's disks, by name. Not vde: ZFS's tests of vdev_zaps look for it in lines like "vdev_tree:"."""
    return [device for device in sorted(devices) if device != "/dev/vde"][:wanted]


async def _disk(node: Node, slot: str) -> str:
    for _ in range(200):
        if (disk := await disk_with_serial(node, serial_of(slot))) is not None:
            return f"/dev/{disk}"
        await asyncio.sleep(0.1)
    raise NodeError(f"node {node.name}: its disk {slot} did not appear")


async def _send(node: Node, tests: Path, place: str) -> None:
    """Copy a folder of this machine into a guest. Raises ``UserError`` where that can't be."""
    archive = await asyncio.to_thread(packed, tests)
    await node.run(["mkdir", "--parents", place])
    await node.run(["tar", "--extract", "--directory", place], stdin=archive)


def packed(folder: Path) -> bytes:
    """A folder as a tar archive, its files owned by root. Raises ``UserError`` where it is no folder, or too large."""
    kept = io.BytesIO()

    def owned(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        if kept.tell() + entry.size > _MOST_TESTS:
            raise UserError(f"{folder} holds more than {_MOST_TESTS >> 20} MiB, which is too much for a guest's memory")
        return entry if entry.isreg() or entry.isdir() or entry.issym() else None

    try:
        with tarfile.open(fileobj=kept, mode="w") as archive:
            archive.add(folder, ".", filter=owned)
    except OSError as error:
        raise UserError(f"cannot read {error.filename or folder}: {error.strerror}") from None
    return kept.getvalue()


async def restore_service(guest: SuiteGuest) -> str | None:
    """Start again what all scripts rely on, where one of them ended it; its name, where that was so."""
    if guest.udev is None or not guest.udev.ended:
        return None
    guest.udev = await guest.node.start([_UDEVD])
    return posixpath.basename(_UDEVD)


async def end_survivors(guest: SuiteGuest) -> list[Leak]:
    """End what scripts of a group left running; the names of these programs."""
    if not guest.kept:
        return []
    cgroups, guest.kept = guest.kept, {}
    listed = await guest.node.run(["sh", "-c", _LIST, "sh", *cgroups], check=False)
    await guest.node.run(["sh", "-c", _KILL, "sh", *cgroups], check=False)
    lines = (line.partition("\t") for line in listed.stdout.decode(errors="replace").splitlines())
    found = {(name, cgroups[cgroup]) for cgroup, _, name in lines if cgroup in cgroups and name}
    return [Leak("process", name, path) for name, path in sorted(found)]
