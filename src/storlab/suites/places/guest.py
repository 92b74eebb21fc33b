"""One guest for a suite: its disks, and what is prepared in it once."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from storlab.base.amounts import plural
from storlab.base.errors import NodeError, NodeLost, StorlabError, TrialError, UserError
from storlab.base.units import size_text
from storlab.layers.attach.attachment import VirtioBlkLayer, disk_with_serial, serial_of
from storlab.layers.resources import File
from storlab.nodes.demands import NO_DEMANDS, Demands
from storlab.nodes.kind import Prepared
from storlab.nodes.kinds.vm.kind import VmKind
from storlab.nodes.node import Node
from storlab.run.planning.space import available_memory
from storlab.suites.places.place import HOLD, UDEVD, Booted, Place, SuiteGuest, loss_of, measure, set_up_suite

OWN_TESTS = "/usr/local/share/storlab-suite"
"""Where the user's own tests lie in a guest."""
_MOST_TESTS = 256 * 1024**2  # bytes of them
_PREPARED_IN = 300.0  # s, in an emulated guest on a busy machine
_SET_UP_HOST = """
set -e
umask 022
printf '127.0.0.1 localhost\\n127.0.1.1 %s\\n' "$(cat /proc/sys/kernel/hostname)" > /etc/hosts
mkfs.ext4 -q -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "$1"
mkdir -p "$2"
mount "$1" "$2"
chmod 1777 "$2"
"""
_PIPES = 'mkdir -p "$1" && mkfifo -m 0666 "$1/held" "$1/released"'
_SETTLE = """
udevadm trigger --action=add --subsystem-match=block
udevadm trigger --action=add --sysname-match=zfs
udevadm settle --timeout=120
"""


@dataclass(kw_only=True)
class GuestMaker(Place):
    """Opens guests for one run of a suite. ``tests``: a folder of this machine with the user's own tests; ``number``:
    of guests that are there at the same time; ``hold``: tests that fail can be held.
    """

    spec: VmKind
    tests: Path | None = None
    number: int = 1
    hold: bool = False

    async def open(self, name: str, folder: Path) -> SuiteGuest:
        needs, session = self.adapter.needs(), self.session
        files, demands = await self._disks(name)
        node = await session.open(name, "guest", self.spec, demands, folder)
        guest = SuiteGuest(node, name, {}, 1.0, files)
        try:
            async with asyncio.timeout(_PREPARED_IN):
                devices = [await _disk(node, f"suite-{number}") for number in range(_attached(needs.disks) + 1)]
                await node.run(["sh", "-c", _SET_UP_HOST, "sh", devices[-1], needs.place])
                for module in needs.modules:
                    await node.run(["modprobe", module])
                guest.udev = await node.start([UDEVD])
                await node.run(["sh", "-c", _SETTLE])
                if self.tests is not None:
                    place = self.adapter.testdir
                    archive = await asyncio.to_thread(packed, self.tests)
                    await node.run(["mkdir", "--parents", place])
                    await node.run(["tar", "--extract", "--directory", place], stdin=archive)
                disks = usable(devices[:-1], needs.disks)
                guest.blank = tuple(disks) if needs.blank else ()
                given = {"DISKS": " ".join(each.removeprefix("/dev/") for each in disks), "FILEDIR": needs.place}
                if self.hold:
                    await node.run(["sh", "-c", _PIPES, "sh", HOLD])  # before the set-up names the callback
                    given["HOLD"] = HOLD
                guest.variables = await set_up_suite(node, needs, given)
                await measure(guest)
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
        await self.session.end(guest.node)
        await self.session.host.run(["rm", "--force", "--", *guest.disks])

    async def refuse_lacking(self) -> None:
        available = available_memory(await self.session.host.read_text("/proc/meminfo"))
        needed = self.number * self.spec.memory_needed()
        if available is not None and needed > available:
            raise UserError(
                f"{plural(self.number, 'guest')} of {size_text(self.spec.memory)}, and QEMU's own memory, take up "
                f"{size_text(needed // 1024**2 * 1024**2)}, but this machine has only {available // 1024**2}M left: "
                "write a smaller --memory or fewer --guests"
            )
        prepared = await self._prepared()
        if lacks := prepared.lacks(self.node_needs):
            raise UserError("; ".join(lacks))

    async def booted(self) -> Booted:
        facts = (await self._prepared()).facts()
        return Booted(self.spec.memory, str(facts.get("image", "")), str(facts.get("accelerator", "")))

    async def _prepared(self) -> Prepared:
        return await self.session.prepare("guest", self.spec, self.node_needs)

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


def packed(folder: Path) -> bytes:
    """A folder as a tar archive, its files owned by root. Raises ``UserError`` if it is no folder, or too large."""
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
