"""What all parts of a run write to, and what its guests are, for its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from storlab.base.record import to_json
from storlab.records.files import write_durably
from storlab.records.manifest import node_facts
from storlab.suites.model import Attempt, SuiteEnvironment
from storlab.suites.places.place import Place, SuiteGuest
from storlab.suites.records.folder import CONSOLES, ENVIRONMENT, LOG, Results
from storlab.suites.zts_text import console_line
from storlab.version import __version__

_VERSIONS = 'for m; do v=/sys/module/$m/version; if [ -r "$v" ]; then echo "$m $(cat "$v")"; fi; done'


async def environment_of(guest: SuiteGuest, place: Place) -> SuiteEnvironment:
    facts = node_facts("vm", await guest.node.facts({}))
    booted = await place.booted()
    modules = place.adapter.needs().modules
    ended = await guest.node.run(["sh", "-c", _VERSIONS, "sh", *modules])
    lines = (line.partition(" ") for line in ended.stdout.decode(errors="replace").splitlines())
    return SuiteEnvironment(
        kernel=facts.kernel.release if facts.kernel else "",
        modules={name: version for name, _, version in lines},
        image=booted.image,
        cpus=facts.cpus.online if facts.cpus else 0,
        memory=booted.memory,
        accelerator=booted.accelerator,
        storlab=__version__,
    )


async def record_difference(guest: SuiteGuest, place: Place, known: SuiteEnvironment | None, folder: Path) -> str:
    """In what a further guest differs from a run's first, in words; if so, what it is goes into its ``folder``.

    An image, kernel or module that is replaced while a run waits to be resumed is how that comes about.
    """
    if known is None:
        return ""
    found = await environment_of(guest, place)
    if differs := found.differences(known):
        write_durably(folder / ENVIRONMENT, to_json(found))
    return differs


@dataclass
class Record:
    """What all parts of a run write to: results, the log of all output, and whoever watches."""

    folder: Path
    results: Results
    watch: Callable[[Attempt], None]
    guests: int = 0
    printed: Callable[[bytes], None] | None = None
    stop: str = ""  # why no further test is begun
    environment: SuiteEnvironment | None = None  # that of the run's first guest

    def add(self, attempt: Attempt, runner: str) -> None:
        """One more result: durable first, then shown."""
        self.results.add(attempt)
        with (self.folder / LOG).open("ab") as log:
            log.write(console_line(attempt, runner).encode())
            own = self.folder / attempt.folder / "log"
            if attempt.folder and own.exists():
                with own.open("rb") as lines:
                    while piece := lines.read(1 << 20):
                        log.write(piece)
        self.watch(attempt)

    def next_guest(self) -> int:
        self.guests += 1
        return self.guests

    async def opened(self, place: Place, name: str, notify: Callable[[str], None]) -> SuiteGuest:
        """A fresh guest; if it is not what the run's first one was, that is on record. Raises ``NodeError``."""
        folder = self.folder / CONSOLES / f"{self.next_guest():03}-{name}"
        guest = await place.open(name, folder)
        try:
            differs = await record_difference(guest, place, self.environment, folder)
        except BaseException:
            await place.close(guest)
            raise
        if differs:
            notify(f"{name}: its environment is not that of the run's first guest: {differs}")
        guest.console = folder.name
        return guest
