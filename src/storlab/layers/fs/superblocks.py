"""What programs and the kernel say of a file system: dumpe2fs(8), xfs_info(8), btrfs(8), and sysfs of a Btrfs."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.nodes.privileges import on_device

_PLACED = ("log", "realtime")
_BIG_METADATA = 0x20  # btrfs_tree.h
Profile = Literal["single", "dup", "raid0", "raid1", "raid1c3", "raid1c4", "raid10", "raid5", "raid6"]
_ALLOCATED = ("data", "metadata", "system")

TELLING = {"ext4": ("dumpe2fs", "-h"), "xfs": ("xfs_info",), "btrfs": ("btrfs", "inspect-internal", "dump-super")}


async def facts_of(node: Node, kind: str, device: str) -> dict[str, Any]:
    argv = [*TELLING[kind], device]
    text = await on_device(node, device).output(*argv)
    if kind == "btrfs":
        found = parse_dump_super(text)
        return {"command": " ".join(argv), **found, **await profiles(node, found.get("fsid", ""))}
    return {"command": " ".join(argv), **(parse_xfs_info(text) if kind == "xfs" else parse_dumpe2fs(text))}


async def profiles(node: Node, identity: str) -> dict[str, Any]:
    """How what a mounted Btrfs has lies on its disks: ``{"profiles": {"data": "raid1", …}}``."""
    if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", identity):
        return {}
    folder = f"/sys/fs/btrfs/{identity}/allocation"
    listed = await node.carry_out(*(steps.names(f"{folder}/{kind}") for kind in _ALLOCATED), go_on=True)
    names = (
        (kind, [*set(each.entries) & {*get_args(Profile)}])
        for kind, each in zip(_ALLOCATED, listed, strict=True)
        if each.ok
    )
    found = {kind: " ".join(sorted(entries)) for kind, entries in names if entries}
    return {"profiles": found} if found else {}


def parse_dumpe2fs(text: str) -> dict[str, Any]:
    """``dumpe2fs -h``: lines ``Block size:               4096``."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, separator, value in pairs if separator and value.strip()}


def parse_xfs_info(text: str) -> dict[str, Any]:
    """``xfs_info``: sections ``data     =       bsize=4096   blocks=65536``; a line may continue its section."""
    facts: dict[str, Any] = {}
    section = ""
    for line in text.splitlines():
        head, separator, rest = line.partition("=")
        if not separator:
            continue
        section = head.strip().split(" ")[0] or section
        for word in f"{head.partition(' ')[2]} {rest}".replace(",", " ").split():
            name, _, value = word.partition("=")
            if value:
                facts[f"{section}.{name}"] = value
        if (where := rest.strip().partition("  ")[0]) and section in _PLACED:
            facts[f"{section}.place"] = where.split()[0] if where.split()[0] in ("internal", "none") else "external"
    return facts


def parse_dump_super(text: str) -> dict[str, Any]:
    """``btrfs inspect-internal dump-super``: lines ``nodesize\\t\\t16384``.

    ``chosen_flags`` are those that mkfs.btrfs set: at the first mount the kernel adds BIG_METADATA for nodes that
    exceed a page (btrfs_check_features), and on the disk it is there only from the next commit on.
    """
    facts: dict[str, Any] = {}
    for line in text.splitlines():
        words = line.split(None, 1)
        if len(words) == 2 and re.fullmatch(r"[a-z_.]+", words[0]):
            facts[words[0]] = words[1].strip()
    flags = str(facts.get("incompat_flags", ""))
    if re.fullmatch(r"0x[0-9a-f]{1,16}", flags):
        facts["chosen_flags"] = hex(int(flags, 16) & ~_BIG_METADATA)
    return facts
