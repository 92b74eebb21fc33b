"""Ctrl-C and SIGTERM: once, the trial that runs is finished; twice, or by SIGTERM, everything stops at once.

Either way all is torn down and recorded before Storlab ends.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Interrupts:
    """What was asked for so far. ``told`` is called, with a sentence for the user, when a signal came."""

    told: Callable[[str], None]
    finish: bool = False
    at_once: bool = False
    _task: asyncio.Task[object] | None = field(default=None)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals for as long as the context lasts; further ones during teardown are ignored."""
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _interrupted(self) -> None:
        if self.finish:
            self._stop()
            return
        self.finish = True
        self.told("Interrupted: the trial that runs is finished first. Ctrl-C again stops at once.")

    def _stop(self) -> None:
        if self.at_once:
            self.told("Everything is being taken down; please wait.")
            return
        self.finish = self.at_once = True
        self.told("Stopping at once; everything is taken down.")
        if self._task is not None:
            self._task.cancel()
