"""Layer ``mount``: the file system on the underlying disk as a directory, see mount(8)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from storlab.base.errors import CommandFailed, StorlabError, TrialError, Unsupported
from storlab.base.text import plain
from storlab.base.units import Size
from storlab.layers.base import Layer, LayerContext
from storlab.layers.fs.mkfs import MkfsLayer, OfDisks, of_another
from storlab.layers.resources import Dir, Disk
from storlab.layers.stack import Plan, PlannedLayer
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.privileges import on_device
from storlab.nodes.undo import RunPath, refuse_foreign, undo, until_free

# Loads that still have a file system mounted: they are confined to mount namespaces of their own.
#
# umount(8) doesn't know of these, and would take away the only path by which a file system that hangs can be reached.

_TRIES, _WAIT = 20, 0.1  # s between them


async def until_ended(node: Node, device: str) -> int | None:
    """A process that has ``device`` mounted even after a while: one that was just killed, or just starts, has not."""
    for _ in range(_TRIES):
        pid = await load_with(node, device)
        if pid is None:
            return None
        await asyncio.sleep(_WAIT)
    return pid


async def load_with(node: Node, device: str) -> int | None:
    """A process of an agent's that has ``device`` (``major:minor``) mounted in another namespace than the node's."""
    pids = await _one_of_each_namespace(node)
    paths = [f"/proc/{pid}/mountinfo" for pid in pids]
    read = await node.carry_out(*(steps.read(path) for path in paths), go_on=True)
    for pid, path, each in zip(pids, paths, read, strict=True):
        try:
            mounts = each.text if each.ok else await node.read_text(path)  # too much for one answer, or it has ended
            here = any(line.split(" ", 3)[2] == device for line in mounts.splitlines())
            if here and "/storlab-" in await node.read_text(f"/proc/{pid}/cgroup"):
                return pid
        except (FileNotFoundError, StorlabError):
            continue  # it has just ended
    return None


async def _one_of_each_namespace(node: Node) -> list[int]:
    """A process in each mount namespace, but for the agent's own."""
    (listed,) = await node.carry_out(steps.names("/proc"))
    pids = [int(name) for name in listed.entries if name.isascii() and name.isdigit()]
    found = await node.carry_out(*(steps.readlink(f"/proc/{pid}/ns/mnt") for pid in pids), go_on=True)
    namespaces = {pid: each.text for pid, each in zip(pids, found, strict=True) if each.ok}
    others = {namespace: pid for pid, namespace in namespaces.items() if namespace != namespaces.get(node.pid or 0)}
    return list(others.values())


_LAST = 50  # lines
# What is on a disk, a load or the maker of an image has left there: no program of root's, and no way to another disk.
_OF_A_STRANGER = ("nosuid", "nodev")
ENGLISH = {"LC_ALL": "C"}  # for mount(8), whose words tell what went wrong
# What mount(8) makes of ENODEV, EINVAL, EOPNOTSUPP, ENOSYS, EFBIG, EOVERFLOW and EPERM. Of a file system that is
# damaged or a server that is gone, kernels say EUCLEAN, EBADMSG, EIO, ENOENT, ENOTCONN and so on.
_REFUSED = re.compile(
    r"unknown filesystem type|wrong fs type, bad option|unknown parameter|unrecognized mount option|invalid argument"
    r"|not supported|unsupported|function not implemented|(file|value) too large|permission denied|not permitted"
    r"|must be superuser",
    re.I,
)
# EINVAL may be either: kernels log what it is about.
_DAMAGED = re.compile(
    r"corrupt|checksum|\bcrc\b|i/o error|magic|can't find|error loading journal|bad geometry|duplicate uuid"
    r"|unable to read|tag <.*> not found",
    re.I,
)
_UNSUPPORTED = re.compile(r"unsupported|not supported", re.I)
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
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue
        options = ",".join(dict.fromkeys([*fields[5].split(","), *rest[2].split(",")]))
        mounts.append(Mount(fields[2], unescaped(fields[4]), rest[0], unescaped(rest[1]), options))
    return mounts


def unescaped(text: str) -> str:
    """Space, tab, newline and backslash stand as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


@undo("mount.unmount", order=1)
async def unmount(node: Node, path: RunPath) -> str | None:
    """Unmount a path of Storlab's and remove the mount point."""
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
    return parse_mountinfo(await node.read_text("/proc/self/mountinfo"))


async def mount_under(node: Node, path: str) -> Mount | None:
    """The mount that a real path lies on; ``None`` where there is none: in a chroot, "/" need not be one."""
    inside = [m for m in await mounts_on(node) if f"{path}/".startswith(f"{m.path.rstrip('/')}/")]
    return max(reversed(inside), key=lambda m: len(m.path), default=None)  # the last of several on one path


async def filesystem_under(node: Node, path: str) -> str:
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


async def end_of_log(node: Node) -> str:
    """The kernel's last line so far, with its time; empty where the log may not be read."""
    (done,) = await node.carry_out(_last_line(node), go_on=True)
    return _of_log(done)


def _last_line(node: Node) -> steps.Step:
    return node.command(["sh", "-c", "dmesg | tail -n 1"])


def _of_log(done: steps.Done) -> str:
    return done.contents.decode(errors="replace").rstrip("\n")


async def kernel_says(node: Node, says: re.Pattern[str], since: str) -> str:
    """Of the kernel's lines after ``since``, or all where that is "", the newest that matches, or "": mount(8) itself
    gives no reason.

    What it said before may be of another file system, as devices of that name come and go.
    """
    log = await node.run(["dmesg"], check=False)
    lines = log.stdout.decode(errors="replace").splitlines()[-_LAST if since else 0 :]
    if since and since in lines:
        lines = lines[lines.index(since) + 1 :]
    lines = [_STAMP.sub("", line) for line in lines]
    return next((plain(line) for line in reversed(lines) if says.search(line)), "")


def about(disk: str, options: Sequence[str]) -> re.Pattern[str]:
    """The kernel's lines on a file system on ``disk``, or on these options: what it does not take of them, most file
    systems say of no disk (``fs/fs_parser.c``, "Unknown parameter", "Bad value for").
    """
    names = [option.strip().partition("=")[0] for each in options for option in each.split(",")]
    taken = "|".join(re.escape(name) for name in names if name)
    of_options = (
        rf"|\b(?:unknown parameter|bad value for|unrecognized mount option) ['\"](?:{taken})\b" if taken else ""
    )
    return re.compile(rf"\({re.escape(disk)}\)(?!.*\bunmounting filesystem){of_options}", re.I)


def words_of(error: CommandFailed) -> str:
    """What mount(8) says of a failure, without where else to look."""
    lines = [line.strip() for line in error.detail.splitlines()[1:]]
    return "; ".join(line for line in lines if line and not line.startswith("dmesg(1)")) or str(error)


def is_refusal(error: CommandFailed, kernel: str) -> bool:
    """Whether a mount failed because this kernel does not do such a thing, as it will not the next time either.

    ``kernel``: what it logged. Anything else went wrong this once, such as damage, or a server that is gone.
    """
    if not _REFUSED.search(error.detail.partition("\n")[2]):
        return False
    return bool(_UNSUPPORTED.search(kernel)) or not _DAMAGED.search(kernel)


async def mount_attached(
    node: Node, kind: str, words: Sequence[str], says: re.Pattern[str], *, since: str | None = None, **options: Any
) -> None:
    """Mount a file system of this ``kind`` with these ``words`` for mount(8).

    ``says``: the lines of the kernel's log that are about it, logged after ``since``, by default from now on;
    ``options`` are those of ``Node.run``. Raises ``Unsupported`` where this kernel refuses, else ``CommandFailed``.
    """
    before = await end_of_log(node) if since is None else since
    try:
        await node.run(["mount", "-t", kind, *words], env=ENGLISH, **options)
    except CommandFailed as error:
        kernel = await kernel_says(node, says, before)
        said = f"node {node.name}: {kind} can't be mounted: {kernel or words_of(error)}"
        raise (Unsupported(said) if is_refusal(error, kernel) else CommandFailed(said, error.detail)) from None


async def _is_made(node: Node, disk: Disk) -> bool:
    """Whether the superblock is there, and intact as far as libblkid looks: of none, kernels say EINVAL, too."""
    argv = ["blkid", "--probe", "--match-tag", "TYPE", "--output", "value", disk.path]
    found = await on_device(node, disk.path).run(argv, check=False)
    return found.stdout.decode(errors="replace").strip() == disk.filesystem


class MountLayer(PlannedLayer[Disk, Dir]):
    """Mounts the underlying file system, on a directory of Storlab's own: without setuid programs and devices."""

    layer: Literal["mount"] = "mount"
    options: OfDisks = Field((), description='[Mount options](options.md): "noatime,discard" or a list.')

    compared: ClassVar = ("filesystem", "options")
    undoes: ClassVar = (unmount,)

    def needs(self) -> Needs:
        return Needs(programs=("mount", "umount"), root="mounts")

    def check_above(self, below: Layer | None) -> str | None:
        if isinstance(below, MkfsLayer):
            return of_another(self.options, below.type)
        return 'there is no file system below it to mount: put { layer = "mkfs", type = "ext4" } before it'

    def plan(self, below: Disk, context: LayerContext) -> Plan:
        assert below.filesystem is not None
        node, path = context.node, context.path("mnt")
        further = (f"{option}={path}" for option, path in below.beside)
        options = ",".join([*_OF_A_STRANGER, *self.options, *further])
        argv = ["mount", "-t", below.filesystem, "-o", options, below.path, path]

        async def explained(error: CommandFailed, done: Sequence[steps.Done]) -> Exception:
            says = about(below.name, self.options)
            kernel = (await kernel_says(node, says, _of_log(done[1]))).replace(f" ({below.name})", "")
            reason = kernel or words_of(error)
            if is_refusal(error, kernel) and await _is_made(node, below):
                return Unsupported(f"the kernel does not mount it: {reason}")
            what = f"node {node.name}: {below.filesystem} on {below.path} can't be mounted"
            return CommandFailed(f"{what}: {reason}", error.detail)

        return Plan(
            Dir(node.name, path, disks=below.all_names),
            (steps.make_directory(path, parents=True), _last_line(node), node.command(argv, env=ENGLISH)),
            (("mount.unmount", {"path": path}),),
            explain=explained,
        )

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        return await mount_facts(context.node, resource.path)


# Layer ``overlayfs``: an image below, a container's own layer above it, as container engines mount them.
#
# Documentation/filesystems/overlayfs.rst in the kernel's sources. What is written to a file of the image is copied up
# first: as a clone where the underlying file system can (XFS, Btrfs), else byte by byte.

_SAYS = re.compile("^overlayfs")
_IMAGE = 'head --bytes="$2" /dev/urandom | split --bytes="$3" --suffix-length=6 --numeric-suffixes - "$1/"'


class OverlayfsLayer(Layer[Dir, Dir]):
    """An overlayfs on the underlying directory. Its lower layer has an image of files, in the folder `image`."""

    layer: Literal["overlayfs"] = "overlayfs"
    files: int = Field(0, ge=0, le=900_000, strict=True, description="How many files the image has.")
    size: Size = Field(16 * 1024, ge=1, description="Bytes of each of them.")
    metacopy: bool | None = Field(
        None, description="Copy up metadata alone until data are written; by default as the kernel does."
    )

    undoes: ClassVar = (unmount,)

    def needs(self) -> Needs:
        return Needs(programs=("mount", "umount", "split"), filesystems=("overlay",), root="mounts")

    async def set_up(self, below: Dir, context: LayerContext) -> Dir:
        folders = {name: f"{below.path}/{name}" for name in ("lower", "upper", "work")}
        image, merged = f"{folders['lower']}/image", context.path("merged")
        await context.register_undo("mount.unmount", path=merged)
        await context.node.run(["mkdir", "--parents", "--", merged, image, folders["upper"], folders["work"]])
        if self.files:
            numbers = (str(self.files * self.size), str(self.size))
            await context.node.run(["sh", "-c", _IMAGE, "image", image, *numbers])
        options = [f"{name}dir={path}" for name, path in folders.items()]
        if self.metacopy is not None:
            options.append(f"metacopy={'on' if self.metacopy else 'off'}")
        await mount_attached(context.node, "overlay", ["-o", ",".join(options), "overlay", merged], _SAYS)
        return Dir(below.node, merged, disks=below.disks)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        return await mount_facts(context.node, resource.path)
