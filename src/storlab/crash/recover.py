"""What can be recovered from the image of a disk after a power cut: mounted here, asked, and checked.

It is mounted on this machine, so its kernel must know the file system, and the journal replays as it would at the next
boot. All that is set up for it is journalled like anything else of a run, and undone before the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from storlab.base.errors import CommandFailed, StorlabError, TimedOut, TrialError, Unsupported
from storlab.base.waiting import to_its_end
from storlab.crash.logged import Witnessed
from storlab.crash.results import Broken, Kind
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.loop import LoopLayer
from storlab.layers.database.base import DatabaseLayer
from storlab.layers.fs.mkfs import MkfsLayer
from storlab.layers.fs.mount import MountLayer
from storlab.layers.resources import Disk, File, Resource
from storlab.nodes.answers import understood
from storlab.nodes.node import Node, Process
from storlab.nodes.process import telling
from storlab.nodes.undo import Entry
from storlab.run.build import Built
from storlab.run.recovery.journal import Journal, Pending
from storlab.run.recovery.reclaim import tear_down
from storlab.run.session import Session
from storlab.run.trial.measure import end_all
from storlab.study.cells import Load
from storlab.tools.log_writes import WriteLog
from storlab.workloads.base import RunContext, Witness

# The loads of a set-up, and what was acknowledged while they ran, by where the log was then.

_LONGEST = 4096  # bytes of a line


@dataclass
class Acknowledged:
    """Numbers of commits that were acknowledged, each with the size of the log when word of it came, in bytes.

    Whatever makes a commit durable was logged before the guest heard that it was written; so it lies within that size,
    however long the word took.
    """

    witness: Witness
    log: Path
    commits: list[tuple[int, int]] = field(default_factory=list)
    _rest: bytes = b""

    def hear(self, data: bytes, at: float = 0.0) -> None:
        """A piece of what the load prints. Of several commits in it the last stands for all."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            raise TrialError(f"the load printed a line of more than {_LONGEST} bytes")
        numbers = [number for line in lines if (number := self.witness.acknowledged(line)) is not None]
        if numbers:
            self.commits.append((numbers[-1], self.log.stat().st_size))

    def positions(self, log: WriteLog) -> list[tuple[int, int]]:
        """After how many entries which commit was acknowledged, both ascending."""
        found: list[tuple[int, int]] = []
        for number, size in self.commits:
            found.append((log.before(size), max(number, found[-1][1] if found else 0)))
        return found


def context_of(load: Load, node: Node, target: Resource, folder: str, seed: int) -> RunContext:
    words: Mapping[str, str] = {**target.words(), "node": node.name, "round": "1", "trial": "1", "seed": str(seed)}
    return RunContext(node, target, folder, load.name, 0.0, seed, words)


Place = tuple[Load, RunContext]


async def prepare_loads(built: Built, session: Session, seed: int) -> list[Place]:
    """All that must be there before the loads begin, written back as far as the guests can see to it."""
    places = []
    for load in built.cell.loads:
        for target in load.on:
            for node in built.group(target.group):
                resource = built.stacks[node.name, target.chain].resource
                assert isinstance(resource, Resource)
                folder = f"{await session.scratch_on(node)}/crash-{load.name}"
                places.append((load, context_of(load, node, resource, folder, seed)))
    for load, place in places:
        await place.node.run(["mkdir", "--parents", "--", place.folder])
        with understood(place.node.name, f"preparing {load.name}"):
            await load.workload.prepare(place)
    for node in built.nodes.values():
        await node.run(["sync"])
    return places


async def run_loads(places: Sequence[Place], acknowledged: Acknowledged) -> None:
    """Run the load that commits to its end, and all others for as long. Raises ``TrialError`` where one fails."""
    started: list[tuple[Load, Node, Process]] = []
    try:
        for load, place in places:
            launch = await load.workload.launch(place)
            hear = acknowledged.hear if load.workload is acknowledged.witness else None
            process = await place.node.start(
                launch.argv, env=launch.env, cwd=launch.cwd, stdout_file=launch.stdout, on_output=hear
            )
            started.append((load, place.node, process))
        await _until_committed(started, acknowledged.witness)
    finally:
        await to_its_end(end_all([process for _, _, process in started]))


async def _until_committed(started: Sequence[tuple[Load, Node, Process]], witness: Witness) -> None:
    waiting = {asyncio.create_task(process.wait()): (load, node) for load, node, process in started}
    try:
        while True:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                load, node = waiting.pop(task)
                try:
                    task.result().check(node.name)
                except TrialError as error:
                    raise type(error)(f"load {load.name}: {error}", error.detail) from None
                if load.workload is witness:
                    return
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


_CHECKS = {
    "ext4": ("e2fsck", "-f", "-n"),
    "xfs": ("xfs_repair", "-n"),
    "btrfs": ("btrfs", "check", "--readonly"),
}
"""What looks for damage that mounting does not show, and changes nothing."""
_HARMLESS = ("nodev", "nosuid", "noexec")
"""A guest made the file system, so nothing in it is run or opened as a device here."""
_PATIENCE = 300.0  # s
_TRIES, _WAIT = 10, 2.0  # s between them


@dataclass(frozen=True)
class Recovery:
    """Recovers images of one set-up. ``folder`` is in the run's scratch on this machine, and there."""

    session: Session
    journal: Journal
    found: Witnessed
    folder: str
    seed: int

    async def broken(self, image: Path, acknowledged: int) -> Broken | None:
        """What a cut broke, of an image that is changed by being looked at; ``None``: nothing is.

        Raises ``StorlabError`` where that cannot be told.
        """
        entries: list[Pending] = []
        try:
            return await self._looked_at(image, acknowledged, entries)
        finally:
            await self._undo(entries)

    async def _looked_at(self, image: Path, acknowledged: int, entries: list[Pending]) -> Broken | None:
        host = self.session.host

        async def register(*announced: Entry) -> None:
            entries.extend(self.journal.register_all(host.identity, announced))

        def context(position: int) -> LayerContext:
            return LayerContext(host, self.folder, position, self.session.run, register)

        file = File(host.name, str(image), image.stat().st_size)
        loop = LoopLayer(sector_size=self.found.attachment.logical_block_size, direct_io=False)
        disk: Resource = await loop.set_up(file, context(0))
        resource = disk
        for position, layer in enumerate(self.found.above, start=1):
            if isinstance(layer, MkfsLayer):
                assert isinstance(resource, Disk)
                resource = replace(resource, filesystem=layer.type)
                continue
            try:
                resource = await _recovering(layer).set_up(resource, context(position))
            except TimedOut as error:  # it may be damaged, or the machine slow: that is no finding
                raise TrialError(f"after a cut, what is left could not be recovered in time: {error}") from None
            except (Unsupported, CommandFailed) as error:
                if isinstance(error, Unsupported) and not isinstance(layer, MountLayer):
                    raise  # this machine lacks something
                return _not_set_up(layer, error)
        place = context_of(self.found.load, host, resource, self.folder, self.seed)
        damage = await self.found.witness.broken(place, acknowledged)
        if damage is not None:
            return Broken(damage.kind, damage.text)
        assert isinstance(disk, Disk)
        await self._undo(entries[1:])  # all but the loop device
        return await self._checked(disk)

    async def _checked(self, disk: Disk) -> Broken | None:
        host = self.session.host
        for layer in self.found.above:
            if isinstance(layer, MkfsLayer):
                argv = _CHECKS[layer.type]
                if not (await host.run(["sh", "-c", 'command -v "$0"', argv[0]], check=False)).ok:
                    return None
                ended = await host.run([*argv, disk.path], check=False, timeout=_PATIENCE)
                if not ended.ok:
                    lines = (ended.stdout + ended.stderr).decode(errors="replace").strip().splitlines()
                    return Broken(
                        "unusable", f"{argv[0]} finds the file system damaged: {telling(lines or ['no output'])}"
                    )
        return None

    async def _undo(self, entries: list[Pending]) -> None:
        """Again for a while where it can't be: of one cut of hundreds a server may take longer to end."""
        numbers = {entry.number for entry in entries}
        for last in (False,) * _TRIES + (True,):
            result = await tear_down(self.journal, self.session, lambda entry: entry.number in numbers)
            if not result.failed:
                return
            if last:
                raise StorlabError(f"could not be torn down: {'; '.join(result.failed)}")
            await asyncio.sleep(_WAIT)


def _recovering(layer: Layer) -> Layer:
    """What stands for a layer where what it made before is recovered."""
    if isinstance(layer, MountLayer):
        return MountLayer(options=_HARMLESS)
    return layer.recovering() if isinstance(layer, DatabaseLayer) else layer


def _not_set_up(layer: Layer, error: StorlabError) -> Broken:
    """The file system is there where a database does not start on it: that finds its own pages damaged."""
    if isinstance(layer, MountLayer):
        return Broken("unusable", f"the file system does not mount: {error}")
    kind: Kind = "torn" if isinstance(layer, DatabaseLayer) else "unusable"
    return Broken(kind, f"{layer.layer} does not start: {error}")


async def refuse_other_versions(found: Witnessed, guest: Node, here: Node) -> None:
    """Raise ``StorlabError`` where a database of the guest's can't be recovered by that of this machine."""
    for layer in found.above:
        if isinstance(layer, DatabaseLayer):
            theirs, ours = await layer.version(guest), await layer.version(here)
            if _release(theirs) != _release(ours):
                raise StorlabError(
                    f"{layer.layer} is of version {theirs} in the guest and {ours} here, where it would have to recover"
                )


def _release(version: str) -> list[str]:
    """What has the same files: 10.11 of 10.11.19-MariaDB, 15 of 15.20."""
    return version.split("-")[0].split(".")[:-1]
