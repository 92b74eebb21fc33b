"""Ctrl-C, SIGTERM, and SIGHUP of a terminal that closes.

While a trial runs, the first Ctrl-C lets it finish; a second one, and the other signals, stop it at once. Before
anything is up, every signal ends Storlab at once. While all is being torn down, signals are only answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGINT, SIGTERM, and SIGHUP unless our caller had it ignored: what ``nohup`` starts outlives its terminal."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Within, all of these signals raise ``KeyboardInterrupt``: for what runs without an event loop."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class Interrupts:
    """What was asked for so far. ``notify`` is called, with a sentence for the user, when a signal came."""

    notify: Callable[[str], None]
    unit: str = "the running trial is finished first"
    stage: Literal["before", "trials", "teardown"] = "before"
    finish: bool = False
    at_once: bool = False
    _task: asyncio.Task[object] | None = field(default=None)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals for as long as the context lasts; ``at_once`` cancels the task that entered it."""
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        handled = ending_signals()
        for number in handled:
            loop.add_signal_handler(number, self._came, number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _came(self, number: signal.Signals) -> None:
        if self.stage == "teardown" or self.at_once:
            self._say("Everything is being torn down; please wait.")
        elif self.stage == "trials" and number == signal.SIGINT and not self.finish:
            self.finish = True
            self._say(f"Interrupted: {self.unit}. Ctrl-C again stops at once.")
        else:
            self.finish = self.at_once = True
            assert self._task is not None
            self._task.cancel()
            self._say("Stopping at once; everything is torn down.")

    def _say(self, sentence: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be what has gone
            self.notify(sentence)
