"""Booting another machine with a kernel, for one boot: who does it, how it is known to have happened, how it ends.

How a machine boots is its owner's matter: ``kexec``, ``grub-reboot``, a PXE server, a power switch. So a program of the
user's does it, ``PROGRAM ADDRESS RELEASE``: it arranges that the machine boots this kernel once, and sets the boot off;
without RELEASE, its usual kernel. That it boots the usual one from then on is what makes a kernel that panics harmless.

Nothing is taken on trust: the machine must be back with another boot id, the same machine id, and this release.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Self

from msgspec import Meta
from pydantic import Field, model_validator

from storlab.base.errors import NodeError, StorlabError, TrialError
from storlab.base.reach import OwnName, Program
from storlab.base.units import Duration
from storlab.model import Model
from storlab.nodes.identity import Machine
from storlab.nodes.node import Node
from storlab.nodes.undo import undo

RELEASE = r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,64}$"
"""What ``uname -r`` prints; at most 64 characters, see uname(2)."""
RELEASE_FILE = "/proc/sys/kernel/osrelease"

_ASKING = 300.0  # s, for the program to set a boot off
_LOOK = 1.0  # s, between two attempts to reach the machine
_REBOOT = "systemctl reboot 2>/dev/null || reboot"


_Program = Annotated[Program, Field(pattern=r"^/[^\x00]*$", max_length=4095)]
_Kernel = Annotated[str, Meta(pattern=RELEASE)]
_Release = Annotated[OwnName, Field(pattern=f"{RELEASE}|^$")]


class Bootable(Model):
    """The keys of a machine that programs of the user's boot, and whose console they show."""

    boot: _Program | None = Field(
        None,
        description="A program of yours that has one of these machines boot, called as `BOOT HOST RELEASE`; it needs "
        "`--allow code=BOOT`. They then boot once a round, and all cells of one boot follow each other.",
    )
    kernel: _Release = Field(
        "", description="The kernel that they boot, for one boot, as `uname -r` prints it. By default their usual one."
    )
    boot_time: Duration = Field(600.0, gt=0, le=7200, description="Within which they must be back.")
    console: _Program | None = Field(
        None,
        description="A program of yours that prints a machine's console for as long as it runs, called as `CONSOLE "
        "HOST`; it needs `--allow code=CONSOLE`. What it prints is kept and searched for panics.",
    )

    @property
    def boots_anew(self) -> bool:
        return self.boot is not None

    @model_validator(mode="after")
    def _booted(self) -> Self:
        if self.kernel and self.boot is None:
            raise ValueError(f'kernel = "{self.kernel}" takes a program that boots it: write boot = "/path/to/program"')
        return self


@dataclass(frozen=True)
class Booted:
    """A machine as it is now: which boot, and the kernel's release."""

    machine: Machine
    release: str


async def boot(
    host: Node,
    program: str,
    address: str,
    release: str,
    before: Machine,
    reach: Callable[[], Awaitable[Booted]],
    patience: float,
) -> Booted:
    """Have the machine at ``address`` boot ``release``, once; empty: its usual kernel. Returns what it is then.

    ``host``: this machine, on which the program runs. ``reach``: connects, and raises ``StorlabError`` as long as that
    can't be. Raises ``NodeError`` where the machine is not back within ``patience`` seconds, or is another one, and
    ``TrialError`` where it runs another kernel than was asked for.
    """
    asked = await host.run([program, address, release], check=False, timeout=_ASKING)
    if not asked.ok:
        said = asked.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else asked.describe()
        raise TrialError(f"{program} could not boot {address}: {reason}")
    now = await _back(address, before, reach, patience)
    if not now.machine.is_same(before):
        raise NodeError(f"another machine answers at {address} since it was booted: its machine id is another one")
    if release and now.release != release:
        raise TrialError(f"{address} was to boot Linux {release}, and came up with {now.release}: it fell back")
    return now


async def _back(address: str, before: Machine, reach: Callable[[], Awaitable[Booted]], patience: float) -> Booted:
    """The machine, once it has booted: one that still answers with the old boot id is on its way down."""
    end = time.monotonic() + patience
    why = "it still runs"
    while time.monotonic() < end:
        try:
            now = await reach()
        except StorlabError as error:
            why = str(error)
        else:
            if now.machine.boot != before.boot:
                return now
            why = "its boot id is the one from before"
        await asyncio.sleep(_LOOK)
    raise NodeError(f"{address} has not booted within {patience:g} s: {why}")


@undo("boot.back", outlives_boot=True)
async def boot_back(node: Node, release: _Kernel, kernels: list[_Kernel]) -> str | None:
    """Boot the machine again where it still runs a kernel that was booted for one boot: it comes up with its own."""
    running = (await node.read_text(RELEASE_FILE)).strip()
    if running == release or running not in kernels:
        return None
    ended = await node.run(["sh", "-c", _REBOOT], check=False)
    if not ended.ok:
        raise StorlabError(
            f"{node.name} still runs Linux {running}, which was booted for one boot, and does not reboot"
        )
    return f"booted {node.name} again, which ran Linux {running} for one boot"
