"""``storlab trace --locks``: waits for this machine's kernel locks, live, as a table at the end, or as JSON."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from storlab.agent_binary import agent_path
from storlab.cli.output import is_drawable, show_json, warn
from storlab.cli.status import OWN_FAULT
from storlab.cli.trace.own import own_group
from storlab.cli.trace.run import Interruptible, TraceChild, signals, tracing
from storlab.probes.locks.metrics import Tally, by_caller
from storlab.probes.locks.output import LINES, Line, Seen, Started, Waiter

if TYPE_CHECKING:
    from rich.live import Live

    from storlab.probes.locks.output import Counts

_INTERVAL = 1.0  # s
_WIDE = 132  # columns, where there is no terminal


@dataclass(frozen=True)
class LockOptions:
    """``interval`` and ``period`` in s."""

    json: bool = False
    interval: float | None = None
    period: float | None = None
    command: tuple[str, ...] = ()

    def arguments(self, live: bool) -> list[str]:
        """Of the agent's program."""
        interval = self.interval or (_INTERVAL if live else None)
        words = ["--interval", f"{interval:.6f}"] if interval is not None else []
        return words + (["--for", f"{self.period:.6f}"] if self.period is not None else [])


def run(options: LockOptions) -> int:
    """Watch until Ctrl-C, for the time that was asked for, or while the command runs; returns the exit status."""
    return asyncio.run(_watch(options))


async def _watch(options: LockOptions) -> int:
    live = not options.command and not options.json and is_drawable(sys.stdout)
    work = Interruptible()
    with signals(work.signalled), own_group() if options.command else nullcontext() as group:
        own = ["--cgroup", str(group.identity)] if group else []
        words = [str(agent_path()), "locks", *options.arguments(live), *own]
        async with tracing(words, LINES.decode_all) as tracer:
            seen = Seen(apart=group is not None)
            work.tracer = tracer
            seen.add(await tracer.started(Started))
            if not options.command:
                warn("storlab: watching waits for locks of the kernel; Ctrl-C ends it")
            with _live(seen) if live else nullcontext(_ticking(options, seen)) as tick:
                following = asyncio.create_task(_follow(tracer, seen, tick))
                command = options.command
                status = await work.command(command, group, aside=options.json) if command else 0
                if options.command or work.signal is not None:
                    tracer.end()
                await following
    _finish(options, seen)
    complete = seen.counts is not None and seen.counts.final
    return status if options.command or complete else OWN_FAULT


async def _follow(tracer: TraceChild[Line], seen: Seen, tick: Callable[[], None]) -> None:
    while lines := await tracer.lines():
        for line in lines:
            seen.add(line)
        if seen.counts is not None and not seen.counts.final:
            tick()


def _ticking(options: LockOptions, seen: Seen) -> Callable[[], None]:
    """Without a terminal something is shown in between only where an interval was asked for."""
    if options.interval is None:
        return lambda: None
    return (lambda: show_json(document(seen))) if options.json else (lambda: _print(options, seen))


@contextmanager
def _live(seen: Seen) -> Iterator[Callable[[], None]]:
    from rich.live import Live

    from storlab.cli.console import Console
    from storlab.cli.trace.locks_view import LocksView

    live: Live = Live(LocksView(seen), console=Console(live=True), auto_refresh=False, transient=True)
    with live:
        yield lambda: live.update(LocksView(seen), refresh=True)


def _print(options: LockOptions, seen: Seen) -> None:
    from storlab.cli.console import Console
    from storlab.cli.trace.locks_view import LocksView

    to = sys.stderr if options.command else sys.stdout
    Console(to, width=None if to.isatty() else _WIDE).print(LocksView(seen, ended=True))


def _finish(options: LockOptions, seen: Seen) -> None:
    if options.json:
        show_json(document(seen))
    else:
        _print(options, seen)
    for sentence in seen.warnings():
        warn(f"storlab: {sentence}")


_WAITERS: dict[str, tuple[Waiter, ...]] = {"command": ("own",), "kernel": ("kernel",), "others": ("other",)}


def document(seen: Seen) -> str:
    """All that was counted since the start as JSON: times in s, callers with the longest time first.

    Of a command's trace the waits of the command, of threads of the kernel, and of all others too.
    """
    counts = seen.counts
    found: dict[str, object] = {"elapsed": seen.elapsed}
    if counts is not None:
        parts = {name: by_caller(counts, waiters) for name, waiters in _WAITERS.items()} if seen.apart else {}
        callers = []
        for caller, tally in by_caller(counts).items():
            entry = {"caller": caller.function, "module": caller.module, "lock": caller.type, **_entry(tally)}
            entry["locks"] = tally.locks
            entry |= {name: _entry(part.get(caller, Tally())) for name, part in parts.items()}
            entry["times"] = [[lower / 1e9, upper / 1e9, n] for (lower, upper), n in sorted(tally.times.items())]
            callers.append(entry)
        found |= {"callers": callers, "waiting": counts.waiting, "lost": {**_lost(counts)}}
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()


def _entry(tally: Tally) -> dict[str, object]:
    return {"waits": tally.count, "slept": tally.slept, "time": tally.time}


def _lost(counts: Counts) -> dict[str, int | None]:
    lost = counts.lost
    named = {"full": lost.full, "begun": lost.begun, "ends": lost.ends, "locks": lost.locks, "missed": lost.missed}
    return dict(named)
