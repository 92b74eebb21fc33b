"""Single requests as rows of text, in the columns of the BPF tools, for terminals of 80 columns or of 120 and more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storlab.blockio.alignment import joint_alignment
from storlab.blockio.trace_output import SECTOR, Event
from storlab.units import printable

_WIDE = 120
_HEADINGS = ("DISK", "OPS", "FLAGS", "LEN", "LBA", "PID", "COMM", "ALGN")
_LETTERS = {
    "preflush": "p",
    "fua": "f",
    "sync": "s",
    "meta": "m",
    "prio": "i",
    "readahead": "r",
    "background": "b",
    "atomic": "a",
    "swap": "w",
}
_SHORT = {
    "secure_erase": "erase",
    "write_zeroes": "zeroes",
    "zone_append": "zappend",
    "zone_open": "zopen",
    "zone_close": "zclose",
    "zone_finish": "zfinish",
    "zone_reset": "zreset",
    "zone_reset_all": "zrstall",
}


@dataclass(frozen=True)
class EventForm:
    """How rows are laid out. ``short``: flags are letters. An operation's name is cut where it has no room."""

    widths: tuple[int, ...]  # of all columns but the last, which ends the line
    short: bool

    @property
    def heading(self) -> str:
        """The names of the columns; ``LBA`` is the offset in bytes, as blkalgn prints it."""
        return self._line(_HEADINGS)

    @property
    def legend(self) -> str | None:
        """What the letters mean, where there are any."""
        letters = ", ".join(f"{letter} {flag}" for flag, letter in _LETTERS.items())
        return f"flags: {letters}" if self.short else None

    def row(self, event: Event) -> str:
        """One request."""
        disk, operation, flags, length, sector, pid, comm, _ = event
        alignment = joint_alignment(length, sector * SECTOR)
        name = operation if len(operation) <= self.widths[1] else _SHORT.get(operation, operation)
        shown = "-" if alignment is None else str(alignment)
        cells = (disk, name, self._flags(flags), length, sector * SECTOR, pid, printable(comm), shown)
        return self._line(map(str, cells))

    def rows(self, events: Iterable[Event]) -> str:
        """Many requests, a line each."""
        return "".join(f"{self.row(event)}\n" for event in events)

    def _flags(self, flags: str) -> str:
        if not flags:
            return "-"
        if not self.short and len(flags) <= self.widths[2]:
            return flags
        return "".join(_LETTERS.get(flag, "?") for flag in flags.split("+"))  # of all nine, names fill a line

    def _line(self, cells: Iterable[str]) -> str:
        *others, last = cells
        return " ".join([*(cell.ljust(width) for cell, width in zip(others, self.widths, strict=True)), last]).rstrip()


_NAMES = EventForm((10, 12, 31, 10, 16, 8, 15), short=False)
_SYMBOLS = EventForm((9, 7, 5, 8, 14, 7, 15), short=True)


def event_form(width: int | None) -> EventForm:
    """The form for a terminal so wide; ``None``: for no terminal."""
    return _NAMES if width is None or width >= _WIDE else _SYMBOLS
