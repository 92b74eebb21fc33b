"""What NFS keeps in text: exports as rpc.mountd(8) reads and the kernel lists them, and /proc/self/mountstats.

Sources: ``support/nfs/exports.c`` of nfs-utils, ``fs/nfsd/export.c`` and ``fs/nfs/super.c`` of the kernel.
"""

from __future__ import annotations

import re
from typing import Any

from storlab.text import number_or_text

_EXPORT = re.compile(r"(?P<path>\S+)\t(?P<client>[^\s(]+)\((?P<flags>[^)]*)\)")
_MOUNT = re.compile(r"device (?P<source>.+) mounted on (?P<path>\S+) with fstype nfs4? statvers=")
_SHOWN = frozenset(
    {"vers", "proto", "rsize", "wsize", "timeo", "retrans", "nconnect", "acregmin", "acregmax", "acdirmin", "acdirmax"}
)
_FLAGS = frozenset({"soft", "softerr", "hard", "noac", "sync", "nosharecache", "nolock", "nocto"})


def export_line(path: str, *, sync: bool, wdelay: bool) -> str:
    """A line of rpc.mountd's table: the whole directory for everybody, as the root of what NFS 4 serves (fsid=0)."""
    flags = ["rw", "sync" if sync else "async", "wdelay" if wdelay else "no_wdelay", "insecure"]
    flags += ["no_root_squash", "no_all_squash", "no_subtree_check"]  # loads run as root
    escaped = "".join(char if char > " " and char not in '\\"#' else f"\\{ord(char):03o}" for char in path)
    return f"{escaped}\t*({','.join(flags)},fsid=0,anonuid=65534,anongid=65534,sec=sys)\n"


def export_flags(line: str) -> list[str]:
    return line.rpartition("(")[2].rstrip(")\n").split(",")


def default_block_size(memory: int) -> int:
    """What a kernel with so many bytes of memory takes at most in one read or write, where nobody says.

    It decides that once and then keeps it: ``nfsd_get_default_max_blksize`` in fs/nfsd/nfssvc.c.
    """
    size = 1024**2
    while size > memory // 4096 and size >= 16 * 1024:
        size //= 2
    return size


def parse_exports(text: str) -> dict[str, tuple[str, ...]]:
    """``/proc/fs/nfsd/exports``: path → the flags with which the kernel serves it. What is no such line is skipped."""
    found = (_EXPORT.match(line) for line in text.splitlines())
    return {_unescaped(each["path"]): tuple(each["flags"].split(",")) for each in found if each is not None}


def parse_mountstats(text: str, path: str) -> dict[str, Any]:
    """Of ``/proc/self/mountstats`` what the mount on ``path`` really has; nothing where it is no mount of NFS.

    Sizes in bytes, ``timeo`` in tenths of a second, ``connections``: how many there are to the server.
    """
    here = False
    facts: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("device "):
            begun = _MOUNT.match(line)
            here = begun is not None and _unescaped(begun["path"]) == path
            if here:
                facts = {"connections": 0, "flags": []}
            continue
        key, separator, value = line.strip().partition(":")
        if not here or not separator:
            continue
        if key == "opts":
            facts |= _options(value.strip())
        elif key == "xprt" and value.split():
            facts["connections"] += 1
            facts["transport"] = value.split()[0]
    return facts


def _options(text: str) -> dict[str, Any]:
    words = [option.partition("=") for option in text.split(",")]
    found = {name: number_or_text(value) for name, sign, value in words if sign and name in _SHOWN}
    return {**found, "flags": sorted(name for name, sign, _ in words if not sign and name in _FLAGS)}


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
