"""``storlab trace --locks``: waits for this machine's kernel locks, live, as a table at the end, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import orjson
from rich.console import RenderableType
from rich.text import Text

from storlab.cli.trace.screen import Options, Screen, plain_table, rows_for
from storlab.probes.locks.metrics import LINES, UNKNOWN, Line, Seen, Started, Tally, Waiter, by_caller
from storlab.report.language.format import quantity

_ABOVE = 5  # lines that are not of single callers
_OWN: tuple[Waiter, ...] = ("own",)
_WAITERS: dict[str, tuple[Waiter, ...]] = {"command": _OWN, "kernel": ("kernel",), "others": ("other",)}


class Waits(Screen[Line]):
    """Who waited, the longest first."""

    first: ClassVar = Started

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.seen = Seen()

    def decode(self, chunk: bytes, source: str) -> list[Line]:
        return LINES.decode_all(chunk, source)

    def add(self, line: Any) -> bool:
        self.seen.add(line)
        return self.seen.counts is not None and not self.complete

    @property
    def complete(self) -> bool:
        return self.seen.counts is not None and self.seen.counts.final

    def doing(self) -> str:
        return "watching waits for locks of the kernel"

    def warnings(self) -> Iterable[str]:
        return self.seen.warnings()

    def document(self) -> str:
        """Times in s, callers with the longest time first.

        Of a command's trace the waits of the command, of threads of the kernel, and of all others too.
        """
        counts = self.seen.counts
        found: dict[str, object] = {"elapsed": self.seen.elapsed}
        if counts is not None:
            parts = {name: by_caller(counts, waiters) for name, waiters in _WAITERS.items()} if self.apart else {}
            callers = []
            for caller, tally in by_caller(counts).items():
                entry = {"caller": caller.function, "module": caller.module, "lock": caller.type, **_entry(tally)}
                entry["locks"] = tally.locks
                entry |= {name: _entry(part.get(caller, Tally())) for name, part in parts.items()}
                entry["times"] = [[lower / 1e9, upper / 1e9, n] for (lower, upper), n in sorted(tally.times.items())]
                callers.append(entry)
            lost = {name: getattr(counts.lost, name) for name in ("full", "begun", "ends", "locks", "missed")}
            found |= {"callers": callers, "waiting": counts.waiting, "lost": lost}
        return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()

    def parts(self, width: int, height: int, ended: bool) -> Iterator[RenderableType]:
        counts = self.seen.counts
        every = by_caller(counts) if counts is not None else {}
        own = by_caller(counts, _OWN) if counts is not None and self.apart else None
        heading = Text("Waits for locks of the kernel", style="bold", no_wrap=True)
        ends = "" if ended else "; Ctrl-C ends it"
        yield heading.append(f"   {self.seen.elapsed:.1f} s{ends}", style="not bold dim")
        count, time = sum(each.count for each in every.values()), sum(each.time for each in every.values())
        yield Text(f"{count:,} waits by {len(every):,} callers, {quantity(time, 's')} in all")
        if not every:
            return
        yield Text()
        room = rows_for(height, _ABOVE, ended)
        further = ["of the command", "time"] if own is not None else []
        table = plain_table(("who waited", "lock"), ["waits", "slept", "time", "mean", "locks", *further])
        for caller, tally in list(every.items())[:room]:
            module = f" [{caller.module}]" if caller.module else ""
            cells = [f"{tally.count:,}", f"{tally.slept:,}", quantity(tally.time, "s")]
            cells += [quantity(tally.time / tally.count, "s") if tally.count else "", f"{tally.locks:,}"]
            if own is not None:
                mine = own.get(caller, Tally())
                cells += [f"{mine.count:,}", quantity(mine.time, "s")]
            table.add_row(Text(f"{caller.function or UNKNOWN}{module}"), caller.type, *cells)
        yield table
        if len(every) > room:
            yield Text(f"… and {len(every) - room} more", style="dim")


def _entry(tally: Tally) -> dict[str, object]:
    return {"waits": tally.count, "slept": tally.slept, "time": tally.time}
