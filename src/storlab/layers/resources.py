"""The four things that layers take and give, each on a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Resource:
    """Something storage-like on a node. ``node`` is the node's name."""

    node: str
    kind: ClassVar[str] = "Resource"


@dataclass(frozen=True)
class File(Resource):
    """A regular file. ``size`` in bytes."""

    path: str
    size: int
    kind: ClassVar[str] = "File"


@dataclass(frozen=True)
class Disk(Resource):
    """A block device. ``ours``: all of its contents are Storlab's own; a device that the study names is not.

    ``filesystem`` is what ``mkfs`` made on it, ``None`` while it is raw. ``size`` in bytes.
    """

    path: str
    size: int
    ours: bool
    filesystem: str | None = None
    kind: ClassVar[str] = "Disk"

    @property
    def name(self) -> str:
        """The kernel's name: ``loop0``."""
        return self.path.removeprefix("/dev/")


@dataclass(frozen=True)
class Pool(Resource):
    """A storage pool that datasets and volumes are made in."""

    name: str
    kind: ClassVar[str] = "Pool"


@dataclass(frozen=True)
class Dir(Resource):
    """A directory that Storlab may fill. ``disk`` is the kernel's name of the device beneath, where there is one."""

    path: str
    disk: str | None = None
    kind: ClassVar[str] = "Dir"
