"""A guest held as a failing test left it: its user gets a shell in it, and what to attach to, until that is left.

Tests of ZFS clean up before they end. Their last callback for failures waits (``zts-set-up.sh``): so the shell finds
the pools that the test had. Of other tests, the shell comes once they have ended, before anything cleans up after them.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from storlab.base.errors import StorlabError
from storlab.base.reading import is_elf
from storlab.base.waiting import cancelled
from storlab.nodes.node import Node
from storlab.nodes.terminal import shell_on
from storlab.suites.places.place import HOLD, SuiteGuest

_HELD = 'read -r line < "$1/held"'
_RELEASE = 'echo > "$1/released"'
_SECTIONS = 'for m; do echo "$m $(cat "/sys/module/$m/sections/.text")"; done'
_BUILT = ("arch", "x86", "boot", "bzImage")
_DEBUG = "/usr/lib/debug"


def symbols_of(kernel: str | None, release: str, installed: str = _DEBUG) -> str | None:
    """A file of this machine that gdb takes symbols of a guest's kernel from, which no bzImage has: an ELF kernel
    itself, the vmlinux of the tree it was built in, or where Debian's and Fedora's packages install it.
    """
    places = [f"{installed}/boot/vmlinux-{release}", f"{installed}/lib/modules/{release}/vmlinux"]
    if kernel is not None:
        path = Path(kernel).resolve()
        places[:0] = [kernel, *([str(path.parents[3] / "vmlinux")] if path.parts[-4:] == _BUILT else [])]
    return next((place for place in places if is_elf(Path(place))), None)


@dataclass
class Hold:
    """For one run with one guest. ``consoles``: the folder with those of its guests; ``kernel``, ``tree``: of the
    user's own, which a debugger gets symbols from.
    """

    notify: Callable[[str], None]
    consoles: Path
    debug: bool = False
    kernel: str | None = None
    tree: str | None = None
    shell: Callable[[Node, str | None, str], Awaitable[int]] = shell_on
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _since: float | None = field(default=None, init=False)
    _before: float = field(default=0.0, init=False)
    _looked: bool = field(default=False, init=False)

    @property
    def seconds(self) -> float:
        """How long guests were held so far: nothing that tests are to be blamed for."""
        return self._before + (time.monotonic() - self._since if self._since is not None else 0.0)

    @asynccontextmanager
    async def watching(self, guest: SuiteGuest, name: str) -> AsyncIterator[None]:
        """While a script runs in it: should the script wait at its callback, its user gets the shell."""
        self._looked = False
        if guest.variables.get("TESTFAIL_CALLBACKS", "").endswith(f"{HOLD}/callback"):
            waiting = asyncio.create_task(self._wait(guest, name))
            try:
                yield
                async with self._lock:  # a test that was ended from the shell does not end the shell
                    pass
            finally:
                await cancelled(waiting)
        else:
            yield

    async def _wait(self, guest: SuiteGuest, name: str) -> None:
        while (await guest.node.run(["sh", "-c", _HELD, "sh", HOLD], check=False)).ok:
            if not self._looked:  # what fails while it cleans up is no news
                await self._open(guest, f"{name} fails, and has not cleaned up yet")
            await guest.node.run(["sh", "-c", _RELEASE, "sh", HOLD])

    async def ended(self, guest: SuiteGuest, name: str, why: str) -> None:
        """A script has ended, and did not pass: the shell, unless it was there before the script cleaned up."""
        if not self._looked and guest.node.lost is None:
            await self._open(guest, f"{name}: {why}")

    async def _open(self, guest: SuiteGuest, what: str) -> None:
        async with self._lock:
            self._looked, self._since = True, time.monotonic()
            try:
                for line in await self._about(guest) if self.debug else ():
                    self.notify(line)
                self.notify(f"{guest.name}: {what}. A shell in it; the run continues when it ends.")
                node = replace(guest.node, environment={**guest.node.environment, **guest.variables})
                await self.shell(node, None, f"Storlab: a shell in {guest.name}, with the suite's variables")
            except StorlabError as error:
                self.notify(f"{guest.name}: its shell ended: {error}")
            finally:
                self._before, self._since = self.seconds, None

    async def _about(self, guest: SuiteGuest) -> list[str]:
        """What a debugger attaches to; modules lie elsewhere each time they are loaded."""
        about = guest.node.about
        said = [f"QEMU is process {guest.node.process}; the console: {self.consoles / guest.console}/console.log"]
        if "gdb" in about:
            release = str(about["kernel"])
            symbols = symbols_of(self.kernel, release)
            if symbols is None:
                where = f"Debian's package linux-image-{release}-dbg has them"
                if self.kernel is not None:
                    where = f"in gdb, `file PATH` names the vmlinux that {self.kernel} was made of"
                said.append(f"no symbols of its kernel are here: {where}")
            words = ["gdb", *filter(None, [symbols]), "-ex", f"target remote {about['gdb']}"]
            for module, address in (await self._addresses(guest.node)).items() if self.tree else ():
                words += ["-ex", f"add-symbol-file {self.tree}/module/{module}.ko {address}"]
            said.append(shlex.join(words))
        return said

    async def _addresses(self, node: Node) -> dict[str, str]:
        found = await node.run(["sh", "-c", _SECTIONS, "sh", "spl", "zfs"], check=False)
        lines = (line.split() for line in found.stdout.decode(errors="replace").splitlines())
        return {words[0]: words[1] for words in lines if len(words) == 2}
