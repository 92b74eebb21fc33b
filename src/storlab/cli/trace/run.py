"""Tracing from its start to what is shown at its end, with or without a command that is traced."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from storlab.cli.failure import OWN_FAULT
from storlab.cli.trace.child import TraceChild, send, tracing
from storlab.cli.trace.command import TraceOptions
from storlab.cli.trace.disks import notes_on
from storlab.nodes.agent_binary import agent_path
from storlab.run.interrupts import ending_signals

if TYPE_CHECKING:
    from storlab.cli.trace.screen import Screen

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells have it
_KILLED = 128  # and the signal's number, as shells have it
_LIVE_INTERVAL = 1.0  # s


def run(options: TraceOptions) -> int:
    """Trace until Ctrl-C, for the time that was asked for, or while the command runs; returns the exit status."""
    for sentence in notes_on(options.disks):
        print(f"storlab: {sentence}", file=sys.stderr)
    return asyncio.run(_trace(options, agent_path()))


async def _trace(options: TraceOptions, agent: Path) -> int:
    live = not (options.command or options.events or options.json) and _can_draw()
    interval = options.interval or (_LIVE_INTERVAL if live else None)
    work = Interruptible()
    with _signals(work.signalled):
        async with tracing(agent, options.arguments(interval)) as tracer:
            # Imported while the tracer attaches: Polars takes longer than that does.
            from storlab.cli.trace.screen import LiveScreen, Screen

            work.tracer = tracer
            started = await tracer.started()
            with (LiveScreen if live else Screen)(options, started) as screen:
                following = asyncio.create_task(_follow(tracer, screen, for_its_own_sake=not options.command))
                status = await work.command(options.command) if options.command else 0
                if options.command or work.signal is not None:
                    tracer.end()
                await following
            if work.began or not options.command:
                screen.finish()
            if not options.command and not screen.complete:
                return OWN_FAULT
    return status


def _can_draw() -> bool:
    """Whether standard output is a terminal on which what was printed can be replaced."""
    return sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")  # as Rich has it


async def _follow(tracer: TraceChild, screen: Screen, for_its_own_sake: bool) -> None:
    while lines := await tracer.lines():
        screen.show(list(lines))
        if screen.failure is not None and for_its_own_sake:
            tracer.end()  # nobody looks any more


class Interruptible:
    """What a signal ends: the command if there is one, else the tracing."""

    def __init__(self) -> None:
        self.tracer: TraceChild | None = None
        self.signal: signal.Signals | None = None  # the last
        self.began = False
        self._command: asyncio.subprocess.Process | None = None

    async def command(self, argv: tuple[str, ...]) -> int:
        """Run it with our own standard input and output; returns its status as a shell would."""
        if self.signal is not None:
            return _KILLED + self.signal
        try:
            self._command = await asyncio.create_subprocess_exec(*argv)
        except OSError as error:
            print(f"storlab: {argv[0]} can't be executed: {error.strerror}", file=sys.stderr)
            return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        self.began = True
        status = await self._command.wait()
        self._command = None
        return status if status >= 0 else _KILLED - status

    def signalled(self, number: signal.Signals) -> None:
        """A signal for us. What the terminal sends at Ctrl-C the command has got too, and ends as it likes."""
        first, self.signal = self.signal is None, number
        if self._command is not None:
            if number != signal.SIGINT or not first or not _in_foreground():
                send(self._command, number)
        elif self.tracer is not None:
            self.tracer.end()


def _in_foreground() -> bool:
    """Whether the terminal's Ctrl-C reaches this process and its children at once."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


@contextmanager
def _signals(handler: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = ending_signals()
    for number in handled:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
