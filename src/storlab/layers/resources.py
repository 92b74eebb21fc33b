"""The things that layers take and give, each on a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from storlab.layers.block.identity import DeviceIdentity

Format = Literal["raw", "qcow2"]
Protocol = Literal["nbd", "iscsi", "nvme-tcp", "aoe"]
"""What network block devices speak."""


@dataclass(frozen=True)
class Resource:
    """Something storage-like on a node. ``node`` is the node's name.

    ``has_words``: the words in braces by which commands may name parts of it.
    """

    node: str
    kind: ClassVar[str] = "Resource"
    has_words: ClassVar[frozenset[str]] = frozenset()

    def words(self) -> dict[str, str]:
        """What stands for each of these words; a word for what this one lacks is left out."""
        return {}


@dataclass(frozen=True)
class _AtPath(Resource):
    path: str
    has_words: ClassVar[frozenset[str]] = frozenset({"target"})

    def words(self) -> dict[str, str]:
        return {"target": self.path}


@dataclass(frozen=True)
class File(_AtPath):
    """A regular file. ``size`` in bytes: of the disk that it holds, which for ``raw`` is the file's own.

    ``backing`` is the raw file that holds what this one does not, where there is such a file.
    """

    size: int
    format: Format = "raw"
    backing: str | None = None
    kind: ClassVar[str] = "File"


@dataclass(frozen=True)
class LoggedFile(File):
    """A raw file whose writes and flushes QEMU logs, if it is opened as a disk; nothing else may open it.

    ``log`` is the path of the log, see ``storlab.tools.log_writes``, and ``start`` that of a copy of the file as it
    was when the log was empty.
    """

    log: str = ""
    start: str = ""


@dataclass(frozen=True)
class Disk(_AtPath):
    """A block device. ``ours``: all of its contents are Storlab's own; a device that the study names is not.

    ``filesystem`` is what ``mkfs`` made on it, ``None`` while it is raw. ``size`` in bytes. ``device``: which of the
    user's devices it is, for those who are about to write to it. ``beside``: further disks that its file system is on,
    each with the option of mount(8) that names it: ``("logdev", "/dev/loop1")``.
    """

    size: int
    ours: bool
    filesystem: str | None = None
    device: DeviceIdentity | None = None
    beside: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "Disk"

    @property
    def fingerprint(self) -> str:
        """Of the user's device; empty for a disk of the run's own."""
        return self.device.fingerprint if self.device is not None else ""

    @property
    def name(self) -> str:
        """The kernel's name: ``loop0``."""
        return self.path.removeprefix("/dev/")

    @property
    def all_names(self) -> tuple[str, ...]:
        return (self.name, *(path.removeprefix("/dev/") for _, path in self.beside))


@dataclass(frozen=True)
class Swap(_AtPath):
    """A block device that its node swaps to."""

    kind: ClassVar[str] = "Swap"

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.path.removeprefix("/dev/")


@dataclass(frozen=True)
class PciDevice(Resource):
    """A disk's controller that no driver of its machine has. ``serial`` and ``size`` are those of its disk."""

    address: str
    serial: str
    size: int
    kind: ClassVar[str] = "PciDevice"


@dataclass(frozen=True)
class Pool(Resource):
    """A storage pool that datasets and volumes are made in."""

    name: str
    kind: ClassVar[str] = "Pool"
    has_words: ClassVar[frozenset[str]] = frozenset({"target"})

    def words(self) -> dict[str, str]:
        return {"target": self.name}


@dataclass(frozen=True)
class Dir(_AtPath):
    """A directory that Storlab may fill. ``disks`` are the kernel's names of the devices underneath.

    ``devices`` are the paths of block devices to which links in it lead, and which whoever uses it may write to.
    """

    disks: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    kind: ClassVar[str] = "Dir"


@dataclass(frozen=True)
class Export(Resource):
    """A disk that a node offers to others. ``server`` is its address, ``export`` its name there, ``size`` in bytes.

    Of NBD the address is as QEMU writes it: ``{"type": "unix", "path": …}`` or ``{"type": "inet", "host": …, "port":
    "10809"}``; of iSCSI and NVMe/TCP it is the latter, with the name of the target or subsystem; of AoE, which knows
    no such addresses, ``{"type": "ethernet", "mac": "525400000001", "host": …}`` with ``e7.0``, the shelf and slot.
    ``write_cache``: whether what is written can be lost in a cache until it is flushed. ``advertised``: what the server
    tells each client, where it was asked.
    """

    server: Mapping[str, str]
    export: str
    size: int
    protocol: Protocol = "nbd"
    write_cache: bool = True
    advertised: Mapping[str, Any] = field(default_factory=dict, compare=False)
    kind: ClassVar[str] = "Export"
    has_words: ClassVar[frozenset[str]] = frozenset({"target", "host", "port", "socket", "export"})

    @property
    def host(self) -> str:
        """The address of the node that serves it. Raises ``KeyError`` for one that is in no network."""
        return self.server["host"]

    def words(self) -> dict[str, str]:
        """``target`` is its URI: see the NBD project's ``doc/uri.md``, libiscsi's README and nvme(1)."""
        if self.server["type"] == "ethernet":
            return {"target": f"aoe:{self.export}", "export": self.export}
        if self.server["type"] == "unix":
            socket = self.server["path"]
            return {"target": f"nbd+unix:///{self.export}?socket={socket}", "socket": socket, "export": self.export}
        host, port = self.server["host"], self.server["port"]
        target = {
            "nbd": f"nbd://{host}:{port}/{self.export}",
            "iscsi": f"iscsi://{host}:{port}/{self.export}/0",
            "nvme-tcp": f"nvme+tcp://{host}:{port}/{self.export}",
        }[self.protocol]
        return {"target": target, "host": host, "port": port, "export": self.export}


@dataclass(frozen=True)
class Server(Resource):
    """A program that answers clients, such as a database. ``dialect`` is what it speaks: ``redis``, ``mysql``.

    It listens on a Unix socket, at a host and port, or both; ``database`` is the one to use, where it has several.
    ``disks`` are the kernel's names of its devices on the same node, where there are any; ``data``: what of a
    database was loaded into it, such as ``{"tables": 4, "rows": 50000}``.
    """

    dialect: str
    host: str | None = None
    port: int | None = None
    socket: str | None = None
    database: str = ""
    disks: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "Server"
    has_words: ClassVar[frozenset[str]] = frozenset({"target", "host", "port", "socket", "database"})

    def words(self) -> dict[str, str]:
        """``target`` is ``host:port``, or the socket where there is no other way."""
        address = {} if self.host is None else {"host": self.host, "port": str(self.port)}
        target = self.socket or "" if self.host is None else f"{self.host}:{self.port}"
        socket = {} if self.socket is None else {"socket": self.socket}
        database = {"database": self.database} if self.database else {}
        return {"target": target, **address, **socket, **database}


@dataclass(frozen=True)
class Share(Resource):
    """A directory that a file server offers by ``protocol``: ``nfs``, ``smb``, ``sftp`` or ``virtiofs``.

    ``name`` is what clients call it: a path or the name of a share. ``socket``: of a server that is not reached over a
    network, and so has neither ``host`` nor ``port``, the path of its Unix socket. ``access``: whatever else a
    client must know, a password or a key among it, so it is never shown or recorded.
    """

    protocol: str
    host: str
    port: int
    name: str
    access: Mapping[str, str] = field(default_factory=dict, repr=False)
    socket: str = field(default="", compare=False)  # several servers may offer the same directory
    kind: ClassVar[str] = "Share"
    has_words: ClassVar[frozenset[str]] = frozenset({"target", "host", "port", "share", "socket"})

    def words(self) -> dict[str, str]:
        """``target`` is its address as a URL, see RFC 2224 for that of NFS; or its socket, where it has no address."""
        if self.socket:
            return {"target": self.socket, "socket": self.socket, "share": self.name}
        target = f"{self.protocol}://{self.host}:{self.port}/{self.name.lstrip('/')}"
        return {"target": target, "host": self.host, "port": str(self.port), "share": self.name}


RESOURCE_WORDS: tuple[str, ...] = ("target", "host", "port", "socket", "export", "share", "database")
"""The words of all kinds of resource."""
