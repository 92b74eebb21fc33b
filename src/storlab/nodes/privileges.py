"""What confined programs have beyond what all of them have: a list by load or tool, which the agent gives nothing but.

By default none has a capability (capabilities(7)); the tables of ``docs/reference/confinement.md`` are these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from storlab.base.programs import unused_user
from storlab.nodes.node import Confinement, Node


@dataclass(frozen=True)
class Privileges:
    """Capabilities, and whether io_uring(7) may be used; ``why`` completes "It has them because it …".

    ``as_root``: a load stays root, since it can't do without. Any other has its capabilities only where it can't be
    anybody else, for the file system of its target knows no other owner.
    """

    capabilities: tuple[str, ...] = ()
    io_uring: bool = False
    as_root: bool = False
    why: str = ""


NONE = Privileges()

LOADS: Mapping[str, Privileges] = {
    "bonnie": Privileges(("CAP_SETGID", "CAP_SETUID"), why="sets the user that it is to run as, which is root then"),
    "posix": Privileges(
        (
            "CAP_CHOWN",
            "CAP_DAC_OVERRIDE",
            "CAP_FOWNER",
            "CAP_FSETID",
            "CAP_KILL",
            "CAP_LINUX_IMMUTABLE",
            "CAP_SETGID",
            "CAP_SETUID",
        ),
        as_root=True,
        why="gives files to other users, becomes these, and looks at what root may do",
    ),
    "files": Privileges(as_root=True, why="empties the kernel's caches between phases, where it is asked to"),
    "fio": Privileges(io_uring=True, why="has an engine for it"),
}
"""By kind of workload. Of any other, and of a study's commands: nothing."""

_SERVER = Privileges(("CAP_SETGID", "CAP_SETUID"), why="becomes a user that nobody else is, and has none then")
TOOLS: Mapping[str, Privileges] = {
    "mkfs": Privileges(("CAP_SYS_ADMIN",), as_root=True, why="sets the block size of its device (`mkfs.xfs`)"),
    "server": _SERVER,
    "mariadb": replace(_SERVER, io_uring=True, why=f"{_SERVER.why}, and reads and writes by io_uring"),
    "virtiofsd": Privileges(
        (
            *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETUID"),
            *("CAP_SETPCAP", "CAP_SYS_CHROOT", "CAP_SYS_RESOURCE"),
        ),
        as_root=True,
        why="acts for every user of its guest; it gives up the last three before it has one",
    ),
    "vblade": Privileges(("CAP_NET_RAW",), as_root=True, why="receives and sends frames of Ethernet"),
    "qemu-nbd": Privileges(io_uring=True, why='has `aio = "io_uring"`'),
    "qemu-img": Privileges(("CAP_DAC_READ_SEARCH",), why="reads an image that may be another user's"),
}
"""Programs of layers that are confined because a study words their arguments, or a stranger their input."""

IN_A_GUEST = Privileges(
    (
        *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_KILL"),
        *("CAP_LEASE", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_SETFCAP"),
        *("CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN", "CAP_SYS_NICE", "CAP_SYS_PACCT"),
        *("CAP_SYS_RESOURCE", "CAP_SYS_TTY_CONFIG"),
    ),
    why="can harm nothing but its guest, which ends with the trial",
)
"""Of every program in a guest, whatever it is."""


SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/sys")
"""What any program needs to run: all that one sees, beside its own files, which is root and could read everybody's."""

OWN_NETWORKS = ("netns",)
"""Kinds of nodes on the controller's kernel whose network is the run's own."""


def confinement(
    node: Node,
    privileges: Privileges = NONE,
    *,
    writable: tuple[str, ...] = (),
    devices: tuple[str, ...] = (),
    visible: tuple[str, ...] = (),
    flushed: tuple[str, ...] = (),
    user: int | None = None,
    network: bool = False,
    bare: bool = False,
) -> Confinement:
    """What confines a program on this node. ``visible``: what it must see of folders that may be hidden from it.

    ``flushed``: devices whose cache is emptied before it starts. ``user``: whom it becomes, unless it has to stay root.

    ``network``: it is a client of a server that it reaches over its node's. A node that has a network for the run alone
    shares it in any case. ``bare``: of the machine's files it sees the system's programs and its own alone.
    """
    guest = node.identity.volatile
    given = IN_A_GUEST if guest else privileges
    network = network or guest or node.identity.kind in OWN_NETWORKS
    return Confinement(
        writable,
        devices,
        visible=(*SYSTEM, *visible) if bare else visible,
        flushed=flushed,
        capabilities=given.capabilities,
        user=None if guest or given.as_root else user,
        io_uring=given.io_uring,
        network=network,
        mounts_only=guest,
        bare=bare,
    )


def on_device(node: Node, *devices: str, privileges: Privileges = NONE) -> Node:
    """The node for a program that parses what is on devices, which a load may have written. A guest stays as it is.

    By default it is a user that nobody is, and has nothing but the devices.
    """
    if node.identity.volatile:
        return node
    return node.confined(confinement(node, privileges, devices=devices, user=unused_user()))
