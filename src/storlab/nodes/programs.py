"""The programs that Storlab drives: which Debian package has each, and how to ask its version.

Used for what layers and workloads need, for ``doctor``, and for the facts recorded of every node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """``package`` is Debian's name; ``version`` the arguments that make it print its version."""

    package: str
    version: tuple[str, ...] = ("--version",)


PROGRAMS: dict[str, Program] = {
    "blkid": Program("util-linux"),
    "blockdev": Program("util-linux"),
    "btrfs": Program("btrfs-progs"),
    "cp": Program("coreutils"),
    "dd": Program("coreutils"),
    "dumpe2fs": Program("e2fsprogs", ("-V",)),
    "fallocate": Program("util-linux"),
    "fio": Program("fio"),
    "ip": Program("iproute2", ("-V",)),
    "losetup": Program("mount"),
    "mkfs.btrfs": Program("btrfs-progs"),
    "mkfs.ext4": Program("e2fsprogs", ("-V",)),
    "mkfs.xfs": Program("xfsprogs", ("-V",)),
    "modprobe": Program("kmod"),
    "mount": Program("mount"),
    "nsenter": Program("util-linux"),
    "numactl": Program("numactl"),
    "qemu-img": Program("qemu-utils"),
    "qemu-nbd": Program("qemu-utils"),
    "qemu-system-x86_64": Program("qemu-system-x86"),
    "sync": Program("coreutils"),
    "truncate": Program("coreutils"),
    "umount": Program("mount"),
    "wipefs": Program("util-linux"),
    "xfs_info": Program("xfsprogs", ("-V",)),
    "zfs": Program("zfsutils-linux"),
    "zpool": Program("zfsutils-linux"),
}


def version_commands(names: Iterable[str]) -> dict[str, list[str]]:
    """Name → the argv that prints its version, in the form that ``Node.facts`` takes."""
    return {name: [name, *PROGRAMS.get(name, Program(name)).version] for name in sorted(set(names))}


def remedy(name: str) -> str:
    """How to get a missing program."""
    return f"apt-get install {PROGRAMS.get(name, Program(name)).package}"
