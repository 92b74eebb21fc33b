"""Which node it is, also for another process of Storlab's, later: how it is reached, and on which machine it is."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec

from storlab.base.errors import NodeError

_BOOT = "/proc/sys/kernel/random/boot_id"
_ID = re.compile(r"[0-9A-Fa-f-]{32,36}")
_MACHINE = ("/etc/machine-id", "/sys/class/dmi/id/product_uuid")


_Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{0,128}$")]


@dataclass(frozen=True)
class Machine:
    """A machine, and which of its boots. ``id`` is machine-id(5), else its firmware's, else empty."""

    id: _Id
    boot: _Id

    def is_same(self, other: Machine) -> bool:
        return self.id == other.id if self.id and other.id else self.boot == other.boot


@dataclass(frozen=True)
class NodeIdentity:
    """What a journal says of a node. ``name`` is unique in its run; ``address`` is in its kind's own words.

    ``machine``: where it must be reached; of a virtual machine, the one that runs it. ``volatile``: what was set up on
    it ends with it.
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.+-]{1,255}$")]
    kind: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    address: Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$", max_length=4096)]
    machine: Machine
    volatile: bool = False


class Readable(Protocol):
    """A ``Node``, which has an identity."""

    async def read_text(self, path: str) -> str: ...


async def machine_of(node: Readable) -> Machine:
    for path in _MACHINE:
        with contextlib.suppress(FileNotFoundError, NodeError):
            if _ID.fullmatch(identity := (await node.read_text(path)).strip()):
                return Machine(identity, await boot_of(node))
    return Machine("", await boot_of(node))


async def boot_of(node: Readable) -> str:
    """The machine's boot id, see random(4). Raises ``NodeError`` where that is no such id."""
    boot = (await node.read_text(_BOOT)).strip()
    if not _ID.fullmatch(boot):
        raise NodeError(f"the boot id of a node is {boot[:80]!r}, which the kernel gives to none")
    return boot
