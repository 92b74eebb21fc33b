"""Layer ``mount``: the file system on the underlying disk as a directory, see mount(8)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from storlab.errors import CommandFailed, StorlabError, TrialError, Unsupported
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.holders import until_ended
from storlab.layers.fs.mkfs import MkfsLayer
from storlab.layers.resources import Dir, Disk, Resource
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import AtPath, refuse_foreign, undo, until_free
from storlab.text import plain

_LAST = 50  # lines
_STAMP = re.compile(r"^\[[^\]]*\]\s*")


@dataclass(frozen=True)
class Mount:
    """One mount. ``device`` is ``major:minor``; ``options`` are the mount's and the file system's together."""

    device: str
    path: str
    filesystem: str
    source: str
    options: str


def parse_mountinfo(text: str) -> list[Mount]:
    """All mounts, in order; lines that are none are skipped."""
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue
        options = ",".join(dict.fromkeys([*fields[5].split(","), *rest[2].split(",")]))
        mounts.append(Mount(fields[2], _unescape(fields[4]), rest[0], _unescape(rest[1]), options))
    return mounts


def _unescape(text: str) -> str:
    """Space, tab, newline and backslash stand as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


@undo("mount.unmount", arguments=AtPath)
async def unmount(node: Node, arguments: Mapping[str, Any]) -> str | None:
    """Unmount a path of Storlab's and remove the mount point."""
    path = arguments["path"]
    refuse_foreign(path)  # a link in it leads to no other mount: the kernel names mounts by their real paths
    done = None
    while mount := await mount_at(node, path):
        if (pid := await until_ended(node, mount.device)) is not None:
            raise StorlabError(f"{path}: target is busy: a load that can't be killed has it, process {pid}")
        if not await until_free(node, ["umount", "--", path]):
            await node.run(["umount", "--", path])  # which says why
        done = f"unmounted {path}"
    (removed,) = await node.carry_out(steps.remove_directory(path), go_on=True)
    return done or (f"removed {path}" if removed.ok else None)


async def mounts_on(node: Node) -> list[Mount]:
    """All of a node, in the order in which they were mounted."""
    return parse_mountinfo(await node.read_text("/proc/self/mountinfo"))


async def mount_under(node: Node, path: str) -> Mount | None:
    """The mount that a real path lies on; ``None`` where there is none: in a chroot, "/" need not be one."""
    inside = [m for m in await mounts_on(node) if f"{path}/".startswith(f"{m.path.rstrip('/')}/")]
    return max(reversed(inside), key=lambda m: len(m.path), default=None)  # the last of several on one path


async def filesystem_under(node: Node, path: str) -> str:
    """The name of the file system that a real path lies on."""
    mount = await mount_under(node, path)
    if mount is not None:
        return mount.filesystem
    return (await node.output("stat", "--file-system", "--format=%T", path)).strip()


async def mount_at(node: Node, path: str) -> Mount | None:
    """What is mounted on this path; of several, the lowest."""
    return next((mount for mount in await mounts_on(node) if mount.path == path), None)


async def mount_facts(node: Node, path: str) -> dict[str, Any]:
    """What the kernel says of the mount on this path. Raises ``TrialError`` where it is gone."""
    mount = await mount_at(node, path)
    if mount is None:
        raise TrialError(f"node {node.name}: nothing is mounted on {path} any more")
    return {"filesystem": mount.filesystem, "source": mount.source, "options": mount.options}


async def kernel_says(node: Node, says: re.Pattern[str]) -> str | None:
    """Of the kernel's last lines, the newest that matches, where they may be read: mount(8) itself gives no reason."""
    log = await node.run(["dmesg"], check=False)
    lines = [_STAMP.sub("", line) for line in log.stdout.decode(errors="replace").splitlines()[-_LAST:]]
    return next((plain(line) for line in reversed(lines) if says.search(line)), None)


def _split(value: object) -> object:
    return tuple(part for part in value.split(",") if part) if isinstance(value, str) else value


_OF_OTHER_DEVICES = {"device", "journal_dev", "journal_path", "logdev", "rtdev", "loop", "bind", "rbind", "move"}


def _of_one_device(options: tuple[str, ...]) -> tuple[str, ...]:
    """Nobody has checked what else these would use, or would mount in place of the disk."""
    for option in (part for each in options for part in each.split(",")):
        if option.strip().partition("=")[0].lower() in _OF_OTHER_DEVICES:
            raise ValueError(f"{option} is about another device or folder, and only the disk below is mounted")
    return options


MountOptions = Annotated[
    tuple[str, ...],
    BeforeValidator(_split, json_schema_input_type=str | tuple[str, ...]),
    AfterValidator(_of_one_device),
]
"""Options of mount(8): one string as mount takes it, or a list."""


class MountLayer(Layer):
    """Mounts the underlying file system, on a directory of Storlab's own."""

    layer: Literal["mount"] = "mount"
    options: MountOptions = Field((), description='Mount options: "noatime,discard" or a list.')

    takes: ClassVar = (Disk,)
    gives: ClassVar = Dir
    undoes: ClassVar = (unmount,)

    def needs(self) -> Needs:
        return Needs(programs=("mount", "umount"), root="mounts")

    def check_above(self, below: Layer | None) -> str | None:
        if isinstance(below, MkfsLayer):
            return None
        return 'there is no file system below it to mount: put { layer = "mkfs", type = "ext4" } before it'

    async def set_up(self, below: Resource | None, context: LayerContext) -> Dir:
        assert isinstance(below, Disk) and below.filesystem is not None
        path = context.path("mnt")
        await context.register_undo("mount.unmount", path=path)
        await context.node.carry_out(steps.make_directory(path, parents=True))
        options = ["-o", ",".join(self.options)] if self.options else []
        try:
            await context.node.run(["mount", "-t", below.filesystem, *options, below.path, path])
        except CommandFailed as error:
            says = re.compile(rf"\({re.escape(below.name)}\)(?!.*\bunmounting filesystem)", re.I)
            reason = (await kernel_says(context.node, says) or "").replace(f" ({below.name})", "")
            # We made this file system a moment ago: that it won't mount is the kernel's limit, not damage.
            raise Unsupported(f"the kernel does not mount it: {reason}" if reason else str(error)) from None
        return Dir(context.node.name, path, disk=below.name)

    async def facts(self, resource: Resource, context: LayerContext) -> dict[str, Any]:
        assert isinstance(resource, Dir)
        return await mount_facts(context.node, resource.path)
