"""This machine as the place where a suite is run: only if its user says by its name that it may be lost."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from storlab.base.errors import MissingTool, SafetyError, StorlabError, TrialError, UserError
from storlab.base.waiting import to_its_end
from storlab.layers.block.device import refuse_changed, refuse_used
from storlab.layers.block.identity import DeviceIdentity, identify
from storlab.nodes.needs import Needs, lacks
from storlab.nodes.node import Node
from storlab.run.recovery.undoing import remove_leftovers
from storlab.suites.adapters.zts import Zts, ZtsFile
from storlab.suites.places.place import Booted, Place, SuiteGuest, end_survivors, measure, set_up_suite
from storlab.suites.records.folder import Here

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
