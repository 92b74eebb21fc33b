"""The interface of node kinds: what a kind says of itself, and the launcher that opens, ends and finds its nodes.

A kind is a file with two classes: its keys in a study's ``[nodes.NAME]``, and its launcher. Nothing outside ``nodes/``
asks which kind a node has.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import AfterValidator, Field

from storlab.base.errors import Unsupported, UserError
from storlab.base.reach import KernelSetting, Listens, OwnName
from storlab.model import Model
from storlab.nodes.answers import understood
from storlab.nodes.demands import Demands
from storlab.nodes.identity import NodeIdentity
from storlab.nodes.needs import Needs
from storlab.nodes.network import CARD, RunNetwork
from storlab.nodes.node import Node
from storlab.nodes.undo import Undo

Transport = Literal["hypervisor", "network"]
NetworkOf = Literal["run", "machine"]


class NodeKind(Model):
    """A kind of node. The fields of a subclass are its own keys in ``[nodes.NAME]``."""

    session: ClassVar[bool]
    """Opened once, for the whole run; else its nodes start and end with what is set up on them."""

    volatile: ClassVar[bool] = False
    """What is set up on such a node ends with it, and is not undone piece by piece."""

    here: ClassVar[bool] = False
    """It shares this machine's kernel, devices and disks."""

    transports: ClassVar[frozenset[Transport]] = frozenset()
    """Crossings that can end on such a node."""

    network_of: ClassVar[NetworkOf] = "run"
    """Whose network such nodes are on, if any: the run's own, which nobody else can reach, or that of their machine."""

    most_devices: ClassVar[int | None] = None
    """How many disks, shares and network cards can be plugged into it; ``None``: none are, or as many as one likes."""

    undoes: ClassVar[tuple[Undo, ...]] = ()
    """How to undo what its launcher announces."""

    kind: OwnName  # the kind's name in study files; a subclass narrows it to a literal with that default

    @property
    def served_at(self) -> bool:
        """Whether others can reach what such nodes serve over their network: they have an address there."""
        return "network" in self.transports

    @property
    def shaped(self) -> str | None:
        """The network interface that a study may change; ``None`` if it is a machine's own and the study names none."""
        return CARD if self.network_of == "run" else None

    def needs(self) -> Needs:
        """What this machine must have so that there can be such nodes."""
        return Needs()

    def memory_needed(self) -> int:
        """Bytes of this machine's memory that one such node takes."""
        return 0

    def start_time(self) -> float:
        """Seconds that one such node takes to start, as an estimate for plans."""
        return 0.0

    def image(self, needs: Needs) -> frozenset[str] | None:
        """What a guest image must have, beyond what all have, to boot such nodes; ``None`` where they need none."""
        return None

    @property
    def boots_anew(self) -> bool:
        """Of a kind whose nodes are there for the whole run: whether their machines boot once a round."""
        return False

    def copied_boot(self) -> str | None:
        """Which kernel, and how, such nodes are copies of one boot of; ``None`` where each boots by itself."""
        return None

    def kernel_series(self) -> str | None:
        """Of which of Debian's series the kernel is that such nodes boot, where it is not their image's own."""
        return None

    def number(self) -> int | None:
        """How many nodes these keys name, if they name them one by one; else ``None``: as many as ``count`` says."""
        return None

    def one(self, number: int) -> NodeKind:
        """What the node of this number is, from 0, if a group's nodes differ."""
        return self

    def describe(self) -> str:
        """One line for plan and report: ``512M, 1 CPU``."""
        return ""

    @classmethod
    @abstractmethod
    def launcher(cls, services: Services) -> Launcher[Any]:
        """A launcher of such nodes, for one run."""


class UndoJournal(Protocol):
    """The run's journal, as far as launchers need it."""

    def register(self, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> object:
        """Announce something that is about to be set up on a node."""


@dataclass(frozen=True)
class Loss:
    """Something that was lost before its time: when (monotonic), on which node (its ``instance``), and why.

    ``detail``: the last lines of its console.
    """

    at: float
    node: str
    reason: str
    detail: str = ""


@dataclass
class Services:
    """What a run offers to its launchers. ``host`` is this machine; ``journal`` is there once the run has a folder."""

    run: str
    journal: UndoJournal | None = None
    notify: Callable[[str], None] = lambda _: None
    on_loss: Callable[[Loss], None] = lambda _: None
    host: Node = field(init=False)
    network: RunNetwork = field(init=False)
    _taken: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network = RunNetwork(self.run, lambda: self.host, self.announce)

    def announce(self, undo: str, /, **arguments: Any) -> None:
        """Journal, durably, how to undo what is set up next on this machine, for this run as a whole."""
        assert self.journal is not None, "nothing is set up before the run has a journal"
        self.journal.register(self.host.identity, undo, arguments)

    def new_instance(self, name: str) -> str:
        """A name for a node that no other of this run has or had."""
        number = self._taken[name] = self._taken.get(name, 0) + 1
        return name if number == 1 else f"{name}+{number}"  # no name in a study has such a sign


class Prepared:
    """What was found out of a group's nodes while planning. A kind adds what its launcher needs to open them."""

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a reader of the results must know first."""
        return ()

    @property
    def emulated(self) -> bool:
        """Whether its nodes' instructions are emulated, so that speeds are those of the emulator."""
        return False

    def lacks(self, needs: Needs) -> list[str]:
        """What nodes that don't run yet will lack of ``needs``, in words."""
        return []

    def system_disk(self, size: int) -> Path:
        """A file, on the controller, that holds a disk of ``size`` bytes with the root file system of such nodes.

        It takes a while the first time. Raises ``Unsupported`` where they have none that could be copied.
        """
        raise Unsupported("nodes of this kind have no root file system that could be put on a disk")

    def facts(self) -> dict[str, Any]:
        return {}

    def lines(self) -> list[str]:
        return []


K = TypeVar("K", bound=NodeKind)


class Launcher(ABC, Generic[K]):
    """Opens the nodes of one kind in one run, and owns them."""

    def __init__(self, services: Services) -> None:
        self.services = services

    async def prepare(self, spec: K, needs: Needs) -> Prepared:
        """Look, while planning, whether such nodes can be had, and with what; ``needs``: all that is asked of them.

        Changes nothing but caches. Raises ``UserError`` with the ``key`` of the spec that is at fault.
        """
        return Prepared()

    async def stand_in(self, name: str, spec: K) -> Node | None:
        """A node that can be asked, while planning, what the node of this name has; ``None``: only ``Prepared`` knows.

        A node that is there for the whole run may be the very one.
        """
        return None

    @abstractmethod
    async def open(self, name: str, spec: K, prepared: Prepared, demands: Demands, folder: Path) -> Node:
        """A node, ready for commands; ``folder`` takes what it leaves to be read, such as a console.

        Raises ``NodeError``.
        """

    @abstractmethod
    async def end(self, node: Node) -> None:
        """End a node. Idempotent."""

    @abstractmethod
    async def close(self) -> None:
        """End all nodes."""

    async def boot(self, node: Node, spec: K) -> None:
        """Of nodes that ``boots_anew``: boot the machine, as ``spec`` says. The ``Node`` stays the same.

        Raises ``NodeError`` where it does not come back, and ``TrialError`` where it comes back as something else.
        """
        raise NotImplementedError(f"nodes of kind {spec.kind} are not booted")

    async def revive(self) -> dict[str, str]:
        """Of a kind whose nodes are there for the whole run: launch again what was lost, as the same ``Node``.

        Returns why nodes are still lost, by name, after as long as nodes of this kind are waited for.
        """
        return {}

    @abstractmethod
    async def reach(self, identity: NodeIdentity) -> Node | None:
        """The node of a journal's entry that is not among those that are open; ``None`` where it is gone for good.

        Raises ``NodeError`` where that is not known, as it can't be reached now.
        """


# Nodes whose network is that of their machine: which address others reach them at, and which interface may be
# changed.
#
# A study changes nothing of a machine's own network but one interface, which it names, and gives that back as it was.

# The way back to whoever logged in: an interface that it takes must stay as it is, or the machine may be lost.
_CONTROL = r"""
[ -n "$SSH_CONNECTION" ] || exit 0
set -- $SSH_CONNECTION
ip -o route get "$1" from "$3"; ip -o address show to "$3"
"""


def _plain(value: str) -> str:
    try:
        return str(ip_address(value))
    except ValueError:
        raise ValueError(f"{value!r} is no IP address: write it in numbers, such as 192.0.2.7") from None


IPAddress = Annotated[Listens, Field(max_length=45), AfterValidator(_plain)]


class MachineNetwork(Model):
    """What a study says of a machine's own network."""

    interface: Annotated[KernelSetting, Field(pattern=r"^[A-Za-z0-9_.:@+-]{1,15}$")] | None = Field(
        None,
        description="The network interface that has `address` and that `[network]` and `tcp` may change, and give back "
        "as it was. It must not be the one that Storlab's own connection takes.",
    )

    network_of: ClassVar[NetworkOf] = "machine"

    @property
    def shaped(self) -> str | None:
        return self.interface


async def check_machine_network(node: Node, address: str | None, interface: str | None) -> None:
    """Raise ``UserError`` with its ``key`` unless the address and the interface are this machine's, and may be used."""
    with understood(node.name, "looking at its addresses"):
        found = json.loads(await node.output("ip", "-j", "address", "show"))
        has = {
            str(card["ifname"]): [str(at["local"]) for at in card["addr_info"] if at["scope"] != "link"]
            for card in found
        }
    every = [one for name, ones in has.items() if name != "lo" for one in ones]
    if address is not None and address not in {one for ones in has.values() for one in ones}:
        raise UserError(f"node {node.name} has no address {address}: it has {', '.join(every) or 'none'}", ("address",))
    if interface is None:
        return
    if interface not in has:
        others = ", ".join(name for name in has if name != "lo") or "none"
        raise UserError(f"node {node.name} has no network interface {interface}: it has {others}", ("interface",))
    if interface == "lo":
        raise UserError("lo is the loopback, which everything on a machine uses: name another", ("interface",))
    if address not in has[interface]:
        own = has[interface]
        if not own:
            raise UserError(
                f"node {node.name}: {interface} has no address: give it one, or name another", ("interface",)
            )
        at = (
            f"others reach it at {address}, which {interface} does not have"
            if address
            else "others must reach it there"
        )
        raise UserError(f'node {node.name}: {at}: write address = "{own[0]}", too', ("interface",))
    if interface in (await node.output("sh", "-c", _CONTROL)).split():
        raise UserError(
            f"{interface} carries the connection by which node {node.name} is controlled: shaping it could lose the "
            "machine; name another interface",
            ("interface",),
        )
