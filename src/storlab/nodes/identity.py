"""Which node it is, also for another process of Storlab's, later: how it is reached, and on which machine it is."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Protocol

from storlab.errors import NodeError

_BOOT = "/proc/sys/kernel/random/boot_id"
_MACHINE = ("/etc/machine-id", "/sys/class/dmi/id/product_uuid")


@dataclass(frozen=True)
class Machine:
    """A machine, and which of its boots. ``id`` is machine-id(5), else its firmware's, else empty."""

    id: str
    boot: str

    def is_same(self, other: Machine) -> bool:
        """Whether it is the same machine, in whatever boot."""
        return self.id == other.id if self.id and other.id else self.boot == other.boot


@dataclass(frozen=True)
class NodeIdentity:
    """What a journal says of a node. ``name`` is unique in its run; ``address`` is in its kind's own words.

    ``machine``: where it must be reached; of a virtual machine, the one that runs it. ``volatile``: what was set up on
    it ends with it.
    """

    name: str
    kind: str
    address: str
    machine: Machine
    volatile: bool = False


class Readable(Protocol):
    """A ``Node``, which has an identity."""

    async def read_text(self, path: str) -> str: ...


async def machine_of(node: Readable) -> Machine:
    """The machine on which a node's agent runs."""
    for path in _MACHINE:
        with contextlib.suppress(FileNotFoundError, NodeError):
            if identity := (await node.read_text(path)).strip():
                return Machine(identity, await boot_of(node))
    return Machine("", await boot_of(node))


async def boot_of(node: Readable) -> str:
    """The machine's boot id, see random(4)."""
    return (await node.read_text(_BOOT)).strip()
