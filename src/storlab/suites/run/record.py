"""What all parts of a run of a suite write to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from storlab.suites.environment import SuiteEnvironment
from storlab.suites.model import Attempt
from storlab.suites.places.place import Place, SuiteGuest
from storlab.suites.records import CONSOLES, LOG, Results
from storlab.suites.run.environment import record_difference
from storlab.suites.texts.zts import console_line


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
        """A fresh guest; where it is not what the run's first one was, that is on record. Raises ``NodeError``."""
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
