"""What a probe watches on one node, and at which end of a chain that node is: kept with the probe's raw data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from storlab.base.errors import ParseError
from storlab.base.limits import RECORD
from storlab.base.reading import read_file
from storlab.metrics import END
from storlab.model import Model
from storlab.nodes.raw_folders import make_raw_folder

NAME = "subject.json"

End = Literal["load", "below"]
"""``load``: nothing else stands on the node. ``below``: the storage, or the whole machine, of other nodes is on it."""

Kind = Literal["machine", "disks", "interfaces", "pools", "processes", "server", "shares"]
"""What a node may have for probes to watch. Every node has its machine."""


class Interface(Model):
    """A card in the network among the nodes; ``peers`` are addresses of nodes that this one serves or is served by."""

    name: str
    address: str
    peers: tuple[str, ...] = ()


class ProcessGroup(Model):
    """A program and all its processes: the QEMU of a guest, or a server. ``pid`` is the first; ``cgroup`` a folder."""

    role: Literal["guest", "server"]
    pid: int
    cgroup: str | None = None


class Service(Model):
    """A server that runs on the node (``here``) or that it uses, at ``host:port`` or the path of a socket.

    ``dialect`` is what it speaks: ``nbd``, ``mysql``.
    """

    dialect: str
    address: str
    here: bool


RequestProtocol = Literal["fuse", "9p"]
"""How a kernel asks the server of a share, where its requests can be counted; virtiofs and sshfs are FUSE."""


class ShareMount(Model):
    """A share that a virtual machine has mounted. ``device``: its number as mountinfo has it, ``major:minor``."""

    protocol: RequestProtocol
    path: str
    device: str = Field(pattern=r"^\d{1,4}:\d{1,7}$")

    @property
    def number(self) -> int:
        """The same within the kernel, ``MKDEV`` in include/linux/kdev_t.h."""
        major, minor = self.device.split(":")
        return int(major) << 20 | int(minor)


class Subject(Model):
    """What there is to watch on one node. ``group`` is the node's in the study; ``host`` for this machine.

    ``disks``: the kernel's names of those under test or, at an end below, of those that the storage of the nodes
    ``above`` lies on; empty where there is storage but no known disk, ``None`` where there is no storage.
    ``sharing``: the nodes of a network that share this machine's kernel, where there are several.
    ``processes`` by name: of a guest, or of a server's program. ``shares``: of a virtual machine, whose kernel is
    Storlab's alone. ``pools``: ZFS's names of those that layers have made.
    """

    group: str
    end: End = "load"
    above: tuple[str, ...] = ()
    disks: tuple[str, ...] | None = None
    interfaces: tuple[Interface, ...] = ()
    processes: Mapping[str, ProcessGroup] = {}
    servers: tuple[Service, ...] = ()
    shares: tuple[ShareMount, ...] = ()
    sharing: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()

    @property
    def kinds(self) -> frozenset[Kind]:
        there: dict[Kind, bool] = {
            "machine": True,
            "disks": self.disks is not None,
            "interfaces": bool(self.interfaces),
            "pools": bool(self.pools),
            "processes": bool(self.processes),
            "server": bool(self.servers),
            "shares": bool(self.shares),
        }
        return frozenset(kind for kind, is_there in there.items() if is_there)

    def source(self, name: str) -> str:
        """The ``source`` of numbers from here: ``name`` where the load runs, else with the group: ``name@store``."""
        return name if self.end == "load" else f"{name}{END}{self.group}"


def of_machine(subjects: Mapping[str, Subject], group: str) -> Subject:
    """All nodes of one machine, by name, as one subject of ``group``. It is below where nodes of others stand on it."""
    guests = [name for each in subjects.values() for name, of in each.processes.items() if of.role == "guest"]
    above = tuple(dict.fromkeys(name for each in subjects.values() for name in each.above))
    below = any(name not in subjects for name in (*above, *guests)) or all(
        each.end == "below" for each in subjects.values()
    )
    end: End = "below" if below else "load"
    networked = [name for name, each in subjects.items() if each.interfaces]
    disks = [each.disks for each in subjects.values() if each.end == end and each.disks is not None]
    return Subject(
        group=group,
        end=end,
        above=above,
        disks=tuple(dict.fromkeys(disk for each in disks for disk in each)) if disks else None,
        interfaces=tuple(interface for each in subjects.values() for interface in each.interfaces),
        processes={name: of for each in subjects.values() for name, of in each.processes.items()},
        servers=tuple(dict.fromkeys(service for each in subjects.values() for service in each.servers)),
        shares=tuple(share for each in subjects.values() for share in each.shares),
        sharing=tuple(networked) if len(networked) > 1 else (),
        pools=tuple(dict.fromkeys(pool for each in subjects.values() for pool in each.pools)),
    )


def write_subject(raw: Path, subject: Subject) -> None:
    make_raw_folder(raw)
    (raw / NAME).write_text(subject.model_dump_json(exclude_defaults=True), "utf-8")


def read_subject(raw: Path) -> Subject:
    """Read it back. Raises ``ParseError``."""
    path = raw / NAME
    try:
        return Subject.model_validate_json(read_file(path, RECORD))
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror}", str(path), 1) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ParseError(f"is not a subject: {f'{where}: ' if where else ''}{first['msg']}", str(path), 1) from None
