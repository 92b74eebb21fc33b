"""What ``storlab trace --locks`` shows: who waited, the longest first, as many as the terminal has room for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from storlab.probes.locks.metrics import UNKNOWN, Tally, by_caller
from storlab.probes.locks.output import Caller, Waiter
from storlab.report.language.format import quantity

if TYPE_CHECKING:
    from storlab.probes.locks.output import Seen

_ABOVE = 5  # lines that are not of single callers
_LEAST, _MOST = 3, 40  # callers


class LocksView:
    """Draws it as wide as the terminal is; ``ended``: nothing more comes."""

    def __init__(self, seen: Seen, ended: bool = False) -> None:
        self._seen, self._ended = seen, ended

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        seen = self._seen
        every = by_caller(seen.counts) if seen.counts is not None else {}
        command: tuple[Waiter, ...] = ("own",)
        own = by_caller(seen.counts, command) if seen.counts is not None and seen.apart else None
        text = Text("Waits for locks of the kernel", style="bold", no_wrap=True)
        ends = "" if self._ended else "; Ctrl-C ends it"
        yield text.append(f"   {seen.elapsed:.1f} s{ends}", style="not bold dim")
        count, time = sum(each.count for each in every.values()), sum(each.time for each in every.values())
        yield Text(f"{count:,} waits by {len(every):,} callers, {quantity(time, 's')} in all")
        if not every:
            return
        room = _MOST if self._ended else min(max(console.height - _ABOVE, _LEAST), _MOST)
        yield Text()
        yield _table(every, own, room)
        if len(every) > room:
            yield Text(f"… and {len(every) - room} more", style="dim")


def _table(every: Mapping[Caller, Tally], own: Mapping[Caller, Tally] | None, room: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("who waited", no_wrap=True, overflow="ellipsis")
    table.add_column("lock", no_wrap=True)
    columns = ["waits", "slept", "time", "mean", "locks", *(["of the command", "time"] if own is not None else [])]
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for caller, tally in list(every.items())[:room]:
        module = f" [{caller.module}]" if caller.module else ""
        cells = [f"{tally.count:,}", f"{tally.slept:,}", quantity(tally.time, "s")]
        cells += [quantity(tally.time / tally.count, "s") if tally.count else "", f"{tally.locks:,}"]
        if own is not None:
            mine = own.get(caller, Tally())
            cells += [f"{mine.count:,}", quantity(mine.time, "s")]
        table.add_row(Text(f"{caller.function or UNKNOWN}{module}"), caller.type, *cells)
    return table
