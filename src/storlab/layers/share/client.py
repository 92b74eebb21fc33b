"""What all mounts of a share have in common: keys, limits, how they are cut off and undone.

A mount over a server that is gone makes whoever touches it wait. So every command here has a limit, looks at no path
that the mount is on, and is followed by a forced and a lazy unmounting where the polite one does not get through.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from storlab.base.errors import CommandFailed, StorlabError, TimedOut, TrialError, Unsupported
from storlab.base.units import Duration, Size
from storlab.layers.base import Crossing, Layer, LayerContext
from storlab.layers.fs.mount import Mount, load_with, mount_at
from storlab.layers.resources import Dir, Share
from storlab.layers.server.running import Reachable
from storlab.nodes.agent import steps
from storlab.nodes.demands import Demands
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunPath, refuse_foreign, undo

_POLITE = 60.0  # s, for what is still to be written to reach a server that answers
_FORCED = 5.0
_FORCINGS, _BETWEEN = 6, 0.5  # s
_ROUNDS = 30  # of these: an SMB client needs 10 s for each 16 MiB that it has not written yet
_SLACK = 10.0  # s beyond ``give_up`` for a mount, which takes several requests
_FILESYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"})
# No helper and no look at the path: both would ask the server, which may be the reason for this.
_UMOUNT = ("umount", "--internal-only", "--no-canonicalize")

# Since Linux 6.4: all requests of this mount fail, those to come as well. By force, umount(8) ends only those that wait
# just now, and writing back starts hundreds of others, each of which a killed load waits for until it has timed out.
_SHUT_NFS = 'if [ -e "/sys/fs/nfs/$1/shutdown" ]; then echo 1 > "/sys/fs/nfs/$1/shutdown"; fi'

CLIENTS: Mapping[str, str] = {"nfs": "nfs", "smb": "smb", "sftp": "sshfs", "virtiofs": "virtiofs"}
"""Protocol → the layer that mounts what is served by it."""


@undo("share.unmount", patience=400.0)
async def unmount_share(node: Node, path: RunPath) -> str | None:
    """Unmount a share from a path of Storlab's, whatever became of its server, and remove the mount point."""
    refuse_foreign(path)
    done = None
    while (mount := await mount_at(node, path)) is not None:
        if mount.filesystem not in _FILESYSTEMS:
            raise StorlabError(f"{path} is a mount of {mount.filesystem}, which is no share: left alone")
        if await load_with(node, mount.device) is None and await _umount(node, _POLITE, path):
            done = f"unmounted {path}"
            continue
        for _ in range(_ROUNDS):
            await let_go(node, path)
            if (pid := await load_with(node, mount.device)) is None:
                break
        else:
            raise StorlabError(f"{path}: a load that can't be killed has it, process {pid}")
        if await mount_at(node, path) is not None:
            await _umount(node, _FORCED, "--lazy", path)
        if await mount_at(node, path) is not None:
            raise StorlabError(f"{path} can't be unmounted, not even by force")
        done = f"unmounted {path} by force"
    (removed,) = await node.carry_out(steps.remove_directory(path), go_on=True)
    return done or (f"removed {path}" if removed.ok else None)


async def let_go(node: Node, path: str) -> None:
    """End what waits for the server, again and again: what a load has written goes there in the background.

    The mount stays where something still uses it.
    """
    if (mount := await mount_at(node, path)) is not None and mount.filesystem.startswith("nfs"):
        await node.run(["sh", "-c", _SHUT_NFS, "shut", mount.device], check=False)
    for attempt in range(_FORCINGS):
        if attempt:
            await asyncio.sleep(_BETWEEN)
        await _umount(node, _FORCED, "--force", path)
        if await mount_at(node, path) is None:
            return


async def _umount(node: Node, limit: float, *words: str) -> bool:
    return (await node.run([*_UMOUNT, *words], check=False, timeout=limit)).ok


class ShareClient(Crossing[Share, Dir]):
    """A mount of a share that another node serves."""

    read_ahead: Size = Field(128 * 1024, ge=0, multiple_of=4096, description="How far buffered reads look ahead.")
    give_up: Duration = Field(10.0, gt=0, description="A server that is silent for longer is given up.")

    transport: ClassVar = "network"
    undoes: ClassVar = (unmount_share, *Reachable.undoes)
    protocol: ClassVar[str]

    def check_above(self, below: Layer | None) -> str | None:
        served = getattr(below, "protocol", self.protocol)
        if below is None or served == self.protocol:
            return None
        right = f': write {{ layer = "{CLIENTS[served]}" }}' if served in CLIENTS else ""
        return f"it mounts what is served by {self.protocol}, and layer {below.layer} serves by {served}{right}"

    def needs(self) -> Needs:
        return Reachable.needs | Needs(programs=("mount", "umount"), root="mounts")

    def demands(self, below: Share, slot: str) -> Demands:
        return Demands(network=True)

    async def set_up(self, below: Share, context: LayerContext) -> Dir:
        if below.protocol != self.protocol:
            raise TrialError(f"node {context.node.name}: layer {self.layer} can't mount a share of {below.protocol}")
        path = context.path(self.layer)
        await Reachable.watch(below, context, self.give_up)
        await context.register_undo("share.unmount", path=path)
        await context.node.carry_out(steps.make_directory(path, parents=True))
        await self.mount(below, path, context)
        return Dir(context.node.name, path)

    @abstractmethod
    async def mount(self, share: Share, path: str, context: LayerContext) -> None:
        """Mount it on this path, which is journalled, and set its read-ahead. Raises ``TrialError``."""

    async def sever(self, resource: Dir, context: LayerContext) -> None:
        await let_go(context.node, resource.path)

    async def mounted(self, argv: Sequence[str], share: Share, context: LayerContext, **options: Any) -> None:
        """Run mount(8), and say in one sentence what of which server could not be mounted, and why."""
        node = context.node
        what = f"node {node.name}: can't mount {share.words()['target']} of node {share.node}"
        try:
            await node.run(argv, timeout=self.give_up + _SLACK, **options)
        except TimedOut as error:
            reason = f"the server did not answer within {self.give_up + _SLACK:g} s"
            raise TimedOut(f"{what}: {reason}", error.detail) from None
        except CommandFailed as error:
            said = [line for line in error.detail.splitlines()[1:] if not line.startswith("Refer to the mount")]
            raise CommandFailed(f"{what}: {'; '.join(said) or error}", error.detail) from None

    async def mount_of(self, path: str, context: LayerContext) -> Mount:
        mount = await mount_at(context.node, path)
        if mount is None:
            raise TrialError(f"node {context.node.name}: nothing is mounted on {path} any more")
        return mount


async def read_ahead_at(node: Node, bdi: str, wanted: int | None = None) -> int:
    """The read-ahead of a mount in bytes, after it was set. Raises ``TrialError`` where it did not take.

    ``bdi``: its name in /sys/class/bdi, see Documentation/ABI/testing/sysfs-class-bdi in the kernel's sources.
    """
    path = f"/sys/class/bdi/{bdi}/read_ahead_kb"
    try:
        if wanted is not None:
            await node.write(path, b"%d\n" % (wanted // 1024))
        got = int(await node.read_text(path)) * 1024
    except FileNotFoundError:
        raise Unsupported(f"this kernel does not say how far the mount {bdi} reads ahead") from None
    if wanted is not None and got != wanted:
        raise TrialError(f"node {node.name}: read_ahead should be {wanted}, but the mount has {got}")
    return got


def option_of(mount: Mount, name: str) -> str | None:
    """The value of a mount option; ``""`` for one without, ``None`` where it is not there."""
    for option in mount.options.split(","):
        key, _, value = option.partition("=")
        if key == name:
            return value
    return None


def check_options(node: Node, mount: Mount, wanted: Mapping[str, str | int | None]) -> None:
    """Raise ``TrialError`` unless the mount has what the study asks for; ``None``: it asks for nothing."""
    for name, value in wanted.items():
        got = option_of(mount, name)
        if value is not None and got != str(value):
            has = "does not have it" if got is None else f"has {got}"
            raise TrialError(
                f"node {node.name}: {name} should be {value}, but the mount {has}; its server may allow less"
            )
