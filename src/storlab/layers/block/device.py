"""Layer ``device``: a block device that exists already, with safeguards. All data on it will be lost.

It is refused while anything uses it (mounts in any mount namespace, swap, device-mapper, md, a loop device, a process
that has it open, anything that holds it exclusively) and while it carries a signature (file system, partition table,
RAID or LVM member), unless the study names it a second time in ``wipe``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.errors import SafetyError, UserError
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block.loop import loop_devices, signatures
from storlab.layers.block.queue import queue_facts
from storlab.layers.fs.mount import parse_mountinfo
from storlab.layers.resources import Disk, Resource
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node

_PASSING = ("systemd-udevd", "(udev-worker)")  # they look at every device that was written to, and let go again


class DeviceLayer(Layer):
    """A block device of this machine. The study names it; nothing else is ever touched."""

    layer: Literal["device"] = "device"
    path: str = Field(description="The device: /dev/nvme1n1, or a stable name under /dev/disk/by-id.")
    wipe: str | None = Field(None, description="The same path again, to allow that existing data are destroyed.")

    takes: ClassVar = (None,)
    gives: ClassVar = Disk

    def label(self) -> str:
        return self.path

    def needs(self) -> Needs:
        return Needs(programs=("blkid", "wipefs", "blockdev", "losetup"), root="a block device")

    def claims(self) -> str | None:
        return self.path

    async def check_node(self, node: Node) -> None:
        if not (await node.run(["test", "-b", self.path], check=False)).ok:
            raise UserError(f"node {node.name}: there is no block device {self.path}")
        if self.wipe is not None and self.wipe != self.path:
            raise SafetyError(
                f"wipe names {self.wipe} but the device is {self.path}: write the same path twice, or no wipe"
            )
        device = (await node.output("readlink", "--canonicalize", self.path)).strip()
        user = await _user_of(node, device)
        if user is not None:
            raise SafetyError(f"node {node.name}: {user}: Storlab does not touch it")
        signatures = await _signatures(node, self.path)
        if signatures and self.wipe is None:
            raise SafetyError(
                f"node {node.name}: {self.path} carries {' and '.join(signatures)}: its data would be lost. "
                f'Write wipe = "{self.path}" beside its path if that is what you want'
            )

    async def set_up(self, below: Resource | None, context: LayerContext) -> Disk:
        await self.check_node(context.node)  # again: much may have happened since the run was planned
        if self.wipe is not None:
            # wipefs opens the device exclusively, and so refuses one that came into use this very moment.
            await context.node.run(["wipefs", "--all", "--quiet", self.path])
        size = int(await context.node.output("blockdev", "--getsize64", self.path))
        device = (await context.node.output("readlink", "--canonicalize", self.path)).strip()
        return Disk(context.node.name, device, size, ours=False)

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, Disk)
        return {"device": resource.path, "size": resource.size, **await queue_facts(context.node, resource.name)}


async def _user_of(node: Node, device: str) -> str | None:
    """Who uses the device or a partition of it, in words; ``None`` where nobody does."""
    numbers = await _numbers_with_partitions(node, device)
    found = await _mounted(node, numbers)
    for name in numbers:
        holders = await node.run(["ls", f"/sys/class/block/{name}/holders"], check=False)
        if found is None and holders.stdout.strip():
            found = f"{name} is in use by {holders.stdout.decode().split()[0]}"
    swaps = (await node.read_text("/proc/swaps")).splitlines()[1:]
    swapping = {line.split()[0].rpartition("/")[2] for line in swaps if line.strip()} & set(numbers)
    if found is None and swapping:
        found = f"{swapping.pop()} is in use as swap"
    loops = {back.rpartition("/")[2]: loop for loop, back in await loop_devices(node) if back.startswith("/dev/")}
    for name in numbers:
        if found is None and name in loops:
            found = f"{name} is in use by {loops[name]}"
    if found is None and (process := await _process_with(node, device)):
        found = f"{device} is open in {process}"
    return found or await _held(node, device)


async def _mounted(node: Node, numbers: Mapping[str, str]) -> str | None:
    for name, number in numbers.items():
        argv = ["find", "/proc", "-maxdepth", "2", "-name", "mountinfo"]
        argv += ["-exec", "grep", "--no-filename", "--fixed-strings", f" {number} ", "{}", "+"]
        lines = (await node.run(argv, check=False)).stdout.decode(errors="replace")
        for mount in parse_mountinfo(lines):
            if mount.device == number:
                return f"{name} is mounted on {mount.path}"
    return None


async def _process_with(node: Node, device: str) -> str | None:
    argv = ["find", "/proc", "-mindepth", "3", "-maxdepth", "3", "-path", "/proc/[0-9]*/fd/*", "-lname", device]
    paths = (await node.run(argv, check=False)).stdout.decode(errors="replace").split()
    for pid in dict.fromkeys(path.split("/")[2] for path in paths):
        name = (await node.run(["cat", f"/proc/{pid}/comm"], check=False)).stdout.decode(errors="replace").strip()
        if name and name not in _PASSING:
            return f"process {pid} ({name})"
    return None


async def _held(node: Node, device: str) -> str | None:
    """Let the kernel say it: whoever has claimed the device, or one that overlaps it, keeps others from an O_EXCL open.

    This also finds what nothing above can see, such as a mount in a namespace without processes, or Btrfs's members.
    """
    opened = await node.run(["wipefs", "--all", "--no-act", "--quiet", device], check=False)  # exclusively; no writes
    if opened.ok:
        return None
    said = opened.stderr.decode(errors="replace").strip()
    if "resource busy" in said:
        return f"{device} is in use: something holds it, or a device that overlaps it, exclusively"
    return f"{device} can't be opened ({said})"


async def _numbers_with_partitions(node: Node, device: str) -> dict[str, str]:
    """Kernel name → ``major:minor``, of the device and of all its partitions."""
    name = device.rpartition("/")[2]
    listing = await node.output("find", f"/sys/class/block/{name}/", "-maxdepth", "2", "-name", "dev")
    return {path.split("/")[-2] or name: (await node.read_text(path)).strip() for path in listing.split()}


async def _signatures(node: Node, path: str) -> list[str]:
    """What lies on the device, in words: ``an ext4 signature``; partitions' contents count through their table."""
    listing = await node.run(["wipefs", "--no-act", "--json", path])
    return [f"a signature of {row['type']}" for row in signatures(listing.stdout)]
