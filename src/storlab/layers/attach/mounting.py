"""What mounts in guests have in common: the options that they got, and why the kernel refused one."""

from __future__ import annotations

import re

from storlab.layers.fs.mount import parse_mountinfo
from storlab.nodes.node import Node
from storlab.text import plain

_LINES = 20
_STAMP = re.compile(r"^\[[^\]]*\]\s*")


async def mount_options(node: Node, path: str) -> list[str]:
    """Of the mount on this path, those of its file system; empty where nothing is mounted."""
    mounts = parse_mountinfo(await node.read_text("/proc/self/mountinfo"))
    return next((mount.options.split(",") for mount in mounts if mount.path == path), [])


async def last_of_kernel(node: Node, *words: str) -> str | None:
    """The kernel's newest line that begins with one of these: mount(8) itself gives no reason."""
    ended = await node.run(["dmesg"], check=False)
    lines = [_STAMP.sub("", line) for line in ended.stdout.decode(errors="replace").splitlines()[-_LINES:]]
    return next((plain(line) for line in reversed(lines) if line.startswith(words)), None)
