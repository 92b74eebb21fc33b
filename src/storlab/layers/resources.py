"""The things that layers take and give, each on a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

Format = Literal["raw", "qcow2"]


@dataclass(frozen=True)
class Resource:
    """Something storage-like on a node. ``node`` is the node's name."""

    node: str
    kind: ClassVar[str] = "Resource"


@dataclass(frozen=True)
class File(Resource):
    """A regular file. ``size`` in bytes: of the disk that it holds, which for ``raw`` is the file's own.

    ``backing`` is the raw file that holds what this one does not, where there is such a file.
    """

    path: str
    size: int
    format: Format = "raw"
    backing: str | None = None
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


@dataclass(frozen=True)
class Export(Resource):
    """A disk that an NBD server offers. ``server`` is its address as QEMU writes it, ``export`` its name there.

    ``{"type": "unix", "path": …}`` or ``{"type": "inet", "host": …, "port": "10809"}``; ``size`` in bytes.
    """

    server: Mapping[str, str]
    export: str
    size: int
    kind: ClassVar[str] = "Export"
