"""What confined programs have beyond what all of them have: a list by load or tool, which the agent gives nothing but.

By default none has a capability (capabilities(7)); the tables of ``docs/reference/confinement.md`` are these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storlab.nodes.node import Confinement, Node


@dataclass(frozen=True)
class Privileges:
    """Capabilities, and requests of ioctl(2) beyond those of all; ``why`` completes "It has them because it …"."""

    capabilities: tuple[str, ...] = ()
    ioctls: tuple[str, ...] = ()
    why: str = ""


NONE = Privileges()

LOADS: Mapping[str, Privileges] = {
    "bonnie": Privileges(("CAP_SETGID", "CAP_SETUID"), why="sets the user that it is to run as, even if it is root"),
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
        why="gives files to other users, becomes these, and looks at what root may do",
    ),
}
"""By kind of workload. Of any other, and of a study's commands: nothing."""

TOOLS: Mapping[str, Privileges] = {
    "mkfs": Privileges(("CAP_SYS_ADMIN",), why="sets the block size of its device (`mkfs.xfs`)"),
    "server": Privileges(("CAP_SETGID", "CAP_SETUID"), why="becomes a user that nobody else is, and has none then"),
    "qemu-img": Privileges(("CAP_DAC_READ_SEARCH",), why="reads an image that may be another user's"),
}
"""Programs of layers that are confined because a study words their arguments or input."""

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
    network: bool = False,
) -> Confinement:
    """What confines a program on this node. ``visible``: what it must see of folders that may be hidden from it.

    ``flushed``: devices whose cache is emptied before it starts.

    ``network``: it is a client of a server that it reaches over its node's. A node that has a network for the run alone
    shares it in any case.
    """
    guest = node.identity.volatile
    given = IN_A_GUEST if guest else privileges
    network = network or guest or node.identity.kind in OWN_NETWORKS
    return Confinement(
        writable,
        devices,
        visible=visible,
        flushed=flushed,
        capabilities=given.capabilities,
        ioctls=given.ioctls,
        network=network,
        mounts_only=guest,
    )
