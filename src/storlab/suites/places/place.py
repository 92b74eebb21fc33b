"""Where the scripts of a suite are run: a guest, or this machine, once it is prepared for them."""

from __future__ import annotations

import asyncio
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from storlab.base.errors import StorlabError
from storlab.base.waiting import cancelled, to_its_end
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs as NodeNeeds
from storlab.nodes.node import Node
from storlab.nodes.process import Process
from storlab.run.planning.space import available_memory
from storlab.run.session import Session
from storlab.suites.adapters.base import Adapter, Needs
from storlab.suites.model import Leak
from storlab.suites.places.invariants import State, look
from storlab.suites.records.folder import Here

UDEVD = "/lib/systemd/systemd-udevd"
_FORKS = 40
_LOOP = f'i=0; while [ "$i" -lt {_FORKS} ]; do /bin/true; i=$((i+1)); done'
_FORK = 0.001  # s, what fork and exec of a small program take on the machines that time-outs were written for
_MOST_SCALE = 4.0  # beyond that, most of a test's time is waiting, which takes no longer in a slow guest
_LIST = """
for c; do
    for p in $(find "$c" -name cgroup.procs -exec cat {} + 2> /dev/null); do
        printf '%s\t' "$c"
        cat "/proc/$p/comm"
    done
done
"""
# What is in use cannot be had exclusively, and stays. Partitions go with their table, once udev has looked at that.
_BLANK = """
for d; do
    blkdiscard "$d" && blockdev --rereadpt "$d" || :
done
udevadm settle --timeout=20
"""
HOLD = "/run/storlab-hold"
"""In a guest whose tests can be held: two pipes, and the callback that waits at them."""
_KILL = 'for c; do echo 1 > "$c/cgroup.kill" || :; done'


@dataclass
class SuiteGuest:
    """A guest, or this machine, that is prepared. ``variables``: of all scripts; ``scale``: how much longer than
    written they may take, as it was measured; ``disks``: files behind them on this machine, removed with a guest.
    """

    node: Node
    name: str
    variables: Mapping[str, str]
    scale: float
    disks: list[str]
    here: bool = False
    console: str = ""  # the name of the folder that has it
    blank: tuple[str, ...] = ()  # devices that are emptied between groups
    udev: Process | None = None
    state: State = field(default_factory=State)  # what the last group left
    seen: State = field(default_factory=State)  # at the last look, to which "unchanged" refers
    kept: dict[str, str] = field(default_factory=dict)  # cgroup in which something outlived its script → that script

    @property
    def called(self) -> str:
        return "this machine" if self.here else "its guest"

    @property
    def given_up(self) -> str:
        """What follows if a script can't even be killed."""
        return "so nothing more was run" if self.here else "so its guest was given up"


@dataclass(frozen=True)
class Booted:
    """What a place is, beyond what its kernel says. ``memory``: bytes."""

    memory: int
    image: str = ""
    accelerator: str = ""


@dataclass(kw_only=True)
class Place(ABC):
    """Opens what a run's scripts are run in. ``folder``: the run's; ``here``: what may be used of this machine."""

    session: Session
    adapter: Adapter
    folder: Path
    here: Here | None = None

    @property
    def node_needs(self) -> NodeNeeds:
        needs = self.adapter.needs()
        return NodeNeeds(programs=needs.programs, modules=needs.modules)

    def name(self, number: int) -> str:
        """What the first, second … of those side by side is called."""
        return f"guest-{number}"

    @abstractmethod
    async def open(self, name: str, folder: Path) -> SuiteGuest:
        """One that is ready for scripts; ``folder`` takes its console. Raises ``NodeError`` if it can't be had."""

    @abstractmethod
    async def close(self, guest: SuiteGuest) -> None:
        """End it, and remove what was set up for it."""

    @abstractmethod
    async def refuse_lacking(self) -> None:
        """Raise ``UserError`` if the suite can't be run there, ``MissingImage`` if there is no image."""

    @abstractmethod
    async def booted(self) -> Booted:
        """What it is, found out once."""

    async def recorded(self) -> Here | None:
        """What it uses of this machine, for the run's records."""
        return None


class GuestLost(StorlabError):
    """A guest is gone, or was given up. ``reason``: a sentence; ``hung``: a script could not even be killed."""

    def __init__(self, reason: str, *, hung: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.hung = reason, hung


def loss_of(node: Node, session: Session, otherwise: str) -> GuestLost:
    """What is known of a guest's end, from QEMU's events, how it ended, and its console."""
    told = next((loss.reason for loss in reversed(session.losses) if loss.node == node.instance), None)
    return GuestLost((told or node.lost or otherwise).removeprefix(f"node {node.name}: "))


async def set_up_suite(node: Node, needs: Needs, given: Mapping[str, str]) -> dict[str, str]:
    """Run the suite's own set-up, once; the variables of all scripts."""
    ended = await node.run(["bash", "-c", needs.set_up_script], env={**needs.given, **given})
    pairs = (each.partition("=") for each in ended.stdout.decode(errors="replace").split("\0") if "=" in each)
    return {key: value for key, _, value in pairs if key != "_"}


async def measure(guest: SuiteGuest) -> None:
    """Look at what scripts must leave as it is, and at how long a small program takes."""
    ended = await guest.node.run(["sh", "-c", _LOOP])
    guest.state = guest.seen = await look(guest.node)
    guest.scale = min(max(ended.elapsed / _FORKS / _FORK, 1.0), _MOST_SCALE)


async def restore_service(guest: SuiteGuest) -> str | None:
    """Start again what all scripts rely on, if one of them ended it; its name, if that was so."""
    if guest.udev is None:
        return None
    if not guest.udev.ended:
        # An agent tells of an end once nothing is left of it: by then the next script may run, and would be blamed.
        (there,) = await guest.node.carry_out(steps.look(f"/proc/{guest.udev.pid}"), go_on=True)
        if not there.missing:
            return None
    guest.udev = await guest.node.start([UDEVD])
    return posixpath.basename(UDEVD)


async def end_survivors(guest: SuiteGuest) -> list[Leak]:
    """End what scripts of a group left running; the names of these programs."""
    if not guest.kept:
        return []
    cgroups, guest.kept = guest.kept, {}
    listed = await guest.node.run(["sh", "-c", _LIST, "sh", *cgroups], check=False)
    await guest.node.run(["sh", "-c", _KILL, "sh", *cgroups], check=False)
    lines = (line.partition("\t") for line in listed.stdout.decode(errors="replace").splitlines())
    found = {(name, cgroups[cgroup]) for cgroup, _, name in lines if cgroup in cgroups and name}
    return [Leak("process", name, path) for name, path in sorted(found)]


async def blank_disks(guest: SuiteGuest) -> None:
    """Empty the suite's disks, but for those in use: else what a test finds there depends on which group ran before.

    The label of a pool that was exported makes `zpool create` refuse a disk, and guests take groups in any order.
    """
    if guest.blank:
        await guest.node.run(["sh", "-c", _BLANK, "sh", *guest.blank], check=False)


@dataclass
class Spare:
    """One guest in reserve: it takes the place of whichever guest is lost next.

    None is prepared before a guest has been lost: most runs lose none, and preparing one slows those at work.

    ``opened``: makes a guest of this name, ready for scripts; raises ``NodeError`` if it can't be had.
    """

    place: Place
    opened: Callable[[str], Awaitable[SuiteGuest]]
    _coming: asyncio.Task[SuiteGuest] | None = field(default=None, init=False)
    _made: int = field(default=0, init=False)

    async def prepare(self) -> None:
        """Begin to prepare the next, if none is there and this machine has the memory for one more."""
        if self._coming is not None or self.place.here is not None:
            return
        available = available_memory(await self.place.session.host.read_text("/proc/meminfo"))
        # As much again as it has: those at work have not filled their own yet.
        if available is not None and available <= 2 * (await self.place.booted()).memory:
            return
        self._made += 1
        self._coming = asyncio.ensure_future(self.opened(f"spare-{self._made}"))

    async def take(self) -> SuiteGuest | None:
        """The spare guest, waited for if it is being prepared; ``None`` if there is none, or it was lost."""
        if self._coming is None:
            return None
        coming, self._coming = self._coming, None  # another part of the run must not get it, too
        try:
            guest = await asyncio.shield(coming)
        except asyncio.CancelledError:
            await to_its_end(self._end(coming))
            raise
        except StorlabError:
            return None
        if guest.node.lost is None:
            return guest
        await self.place.close(guest)
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._coming is not None:
            coming, self._coming = self._coming, None
            await to_its_end(self._end(coming))

    async def _end(self, coming: asyncio.Task[SuiteGuest]) -> None:
        await cancelled(coming)
        if not coming.cancelled() and coming.exception() is None:
            with suppress(StorlabError):
                await self.place.close(coming.result())
