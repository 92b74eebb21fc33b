"""Where a suite is run: a guest, or this machine, only if its user says by its name that it may be lost."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from storlab.base.amounts import plural
from storlab.base.errors import MissingTool, NodeError, NodeLost, SafetyError, StorlabError, TrialError, UserError
from storlab.base.units import size_text
from storlab.base.waiting import to_its_end
from storlab.layers.attach.attachment import VirtioBlkLayer, disk_with_serial, serial_of
from storlab.layers.block.device import refuse_changed, refuse_used
from storlab.layers.block.identity import DeviceIdentity, identify
from storlab.layers.resources import File
from storlab.nodes.demands import NO_DEMANDS, Demands
from storlab.nodes.kind import Prepared
from storlab.nodes.kinds.vm.kind import VmKind
from storlab.nodes.needs import Needs, lacks
from storlab.nodes.node import Node
from storlab.run.planning.space import available_memory
from storlab.run.recovery.undoing import remove_leftovers
from storlab.suites.adapters.zts import Zts, ZtsFile
from storlab.suites.places.place import (
    HOLD,
    UDEVD,
    Booted,
    Place,
    SuiteGuest,
    end_survivors,
    loss_of,
    measure,
    set_up_suite,
)
from storlab.suites.records.folder import Here

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


NAME = "here"
_LOAD = 'test -e "/sys/module/$1" || modprobe "$1"'
_LOOPS = Needs(programs=("losetup",), modules=("loop",))
_UNFIT = {"tmpfs": "memory", "ramfs": "memory", "zfs": "ZFS, under which the suite's own pools would deadlock"}
_KEPT = 1024**3  # bytes of the folder's disk that stay free


def refuse_unnamed(here: Here) -> None:
    """Raise ``UserError`` if another machine was named than this one."""
    name = socket.gethostname()
    if here.machine != name:
        raise UserError(
            f"--here {here.machine}: this machine is called {name}. Tests of file systems crash kernels, change "
            f"settings and destroy data: write --here {name} only if all of this machine may be lost"
        )


@dataclass(kw_only=True)
class HereMaker(Place):
    """Prepares this machine for one run of a suite. What it sets up is journalled; tests run where they lie."""

    here: Here
    _opened: SuiteGuest | None = None

    def name(self, number: int) -> str:
        return NAME

    async def refuse_lacking(self) -> None:
        refuse_unnamed(self.here)
        node, needs = self.session.host, self.adapter.needs()
        wanted = self.node_needs
        if needs.disks and not self.here.disks:
            wanted |= _LOOPS
        if lacking := await lacks(node, wanted):
            raise MissingTool(f"this machine can't run the suite: {'; '.join(map(str, lacking))}")
        await self._refuse_pools(node)
        await self._refuse_runner(node)
        await self._refuse_folder(node)
        if self.here.disks and len(self.here.disks) < needs.disks:
            raise UserError(
                f"--here: the suite needs {needs.disks} disks, and {len(self.here.disks)} "
                f"{'is' if len(self.here.disks) == 1 else 'are'} named: name more of them, or none for loop devices"
            )
        for path in self.here.disks:
            await self._checked(node, path)

    async def booted(self) -> Booted:
        facts = await self.session.host.facts({})
        return Booted(int(facts["memory"]["total_bytes"]))

    async def open(self, name: str, folder: Path) -> SuiteGuest:
        """This machine, with the suite's disks and files. Raises ``NodeError``, or ``UserError`` as before.

        If a test has ended Storlab's agent, another is started, and what was set up is there still.
        """
        node = self.session.host
        if node.lost is not None:
            await self.session.revive()
        if self._opened is None:
            self._opened = await self._set_up(node, name)
        self._opened.kept.clear()
        await measure(self._opened)
        return self._opened

    async def _set_up(self, node: Node, name: str) -> SuiteGuest:
        needs = self.adapter.needs()
        scratch = await self.session.scratch_on(node)
        place = f"{scratch}/files"
        # What is in it is tests' own, whoever runs them; the folder itself stays root's.
        await node.run(["chmod", "0711", scratch])
        await node.run(["install", "--directory", "--mode=1777", place])
        for module in needs.modules:
            await node.run(["sh", "-c", _LOAD, "sh", module])
        disks = [each.removeprefix("/dev/") for each in await self._disks(node, scratch)]
        self.session.announce(remove_leftovers.name, path=scratch)
        given = {"DISKS": " ".join(disks), "FILEDIR": place, "HERE": "yes"}
        return SuiteGuest(node, name, await set_up_suite(node, needs, given), 1.0, [], here=True)

    async def close(self, guest: SuiteGuest) -> None:
        """End what scripts left running; what was set up is torn down at the run's end, by its journal."""
        with contextlib.suppress(StorlabError):
            await to_its_end(end_survivors(guest))

    async def _disks(self, node: Node, scratch: str) -> list[str]:
        needs = self.adapter.needs()
        if self.here.disks or not needs.disks:
            return [await self._take(node, path) for path in self.here.disks]
        await node.run(["sh", "-c", _LOAD, "sh", "loop"])  # where no udev does
        devices = []
        for number in range(needs.disks):
            file = f"{scratch}/disk-{number}"
            self.session.announce("loop.detach", file=file)
            await node.run(["truncate", "--size", str(needs.disk_size), "--", file])
            devices.append((await node.output("losetup", "--find", "--show", "--nooverlap", file)).strip())
        return devices

    async def _take(self, node: Node, path: str) -> str:
        """A disk of the user's, empty, which no other run gets before this one's end."""
        device = await self._checked(node, path)
        await self.session.claims.claim(node, device)
        device = await self._checked(node, path)  # again, now that it is ours
        await node.run(["wipefs", "--all", "--quiet", device.path])
        return device.path

    async def _checked(self, node: Node, path: str) -> DeviceIdentity:
        device = await identify(node, path)
        known = next((each for each in self.here.devices if each.path == device.path), None)
        refuse_changed(node, path, known, device)
        # What is on it when a run is resumed, the run has put there.
        allowed = path in self.here.wipe or known is not None
        await refuse_used(node, path, device, None if allowed else f"Write --wipe {path}")
        return device

    async def recorded(self) -> Here:
        """With what the named disks are, by which they are known again when the run is resumed."""
        return replace(self.here, devices=tuple([await identify(self.session.host, path) for path in self.here.disks]))

    async def _refuse_runner(self, node: Node) -> None:
        """The ZFS Test Suite tests what users may do who are not root."""
        adapter = self.adapter
        if not isinstance(adapter, Zts | ZtsFile) or adapter.options.plain:
            return
        user = self.here.user
        if user == "root" or not (await node.run(["runuser", "-u", user, "--", "sudo", "-n", "true"], check=False)).ok:
            raise UserError(
                "--here: tests of the ZFS Test Suite are run by a user other than root who may use sudo without a "
                "password: be that user, and write `sudo --preserve-env storlab …`"
            )

    async def _refuse_folder(self, node: Node) -> None:
        """The folder for files must be on a disk, as loop devices and files that tests fill are there."""
        folder = self.here.files
        try:
            kind, block, free = (await node.output("stat", "--file-system", "--format=%T %S %a", "--", folder)).split()
        except TrialError:
            raise UserError(f"--here: there is no folder {folder} for the files of tests") from None
        if kind in _UNFIT:
            raise UserError(f"--here: {folder} is on {_UNFIT[kind]}; name a folder on a disk with another file system")
        if int(block) * int(free) < _KEPT:
            raise UserError(f"--here: {folder} has less than 1 GiB free: name a folder on another disk")

    async def _refuse_pools(self, node: Node) -> None:
        """Tests export, import and destroy pools: people lost theirs (openzfs/zfs#8756)."""
        if not (await node.run(["test", "-e", "/sys/module/zfs"], check=False)).ok:
            return
        listed = await node.run(["zpool", "list", "-H", "-o", "name"])
        others = sorted(set(listed.stdout.decode(errors="replace").split()) - set(self.here.keep))
        if others:
            raise SafetyError(
                f"--here: {'a pool is' if len(others) == 1 else 'pools are'} imported ({', '.join(others)}), and tests "
                "may destroy any that they find: export it, or name in KEEP those that the suite shall leave alone"
            )
