"""Who watches a run, and who interrupts it: Ctrl-C, SIGTERM, and SIGHUP of a terminal that closes.

While a trial runs, the first Ctrl-C lets it finish; a second one, and the other signals, stop it at once. Before
anything is up, every signal ends Storlab at once. While all is being torn down, signals are only answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from storlab.analysis.stopping import Decision
    from storlab.analysis.summary import Summary
    from storlab.records.run_folder import TrialRecord
    from storlab.run.planning.order import PlannedTrial
    from storlab.run.planning.plan import Plan
    from storlab.study.cells import Cell


class Observer:
    """Methods are called in the executor's own thread and must return at once. Here they watch and say nothing."""

    def run_begins(self, plan: Plan, folder: str, done: int) -> None:
        """``done``: trials that an earlier part of the run has finished already."""

    def round_begins(self, round_number: int, due: int) -> None:
        """``due``: so many cells are run in it."""

    def cells_rest(self, after: int, cells: Sequence[Cell]) -> None:
        """These are not run again ``after`` a round, for no open comparison needs them."""

    def trial_begins(self, planned: PlannedTrial, cell: Cell, left: tuple[float, float] | None) -> None:
        """``left``: seconds that the run still takes, at least and at most; ``None`` while that can't be told."""

    def trial_ends(self, record: TrialRecord) -> None:
        """A trial is recorded."""

    def round_ends(
        self, round_number: int, summary: Summary, decision: Decision, left: tuple[float, float] | None
    ) -> None:
        """All cells of a round have run. ``left``: as of ``trial_begins``, where it continues."""

    def notify(self, message: str) -> None:
        """Something that the user must know."""


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
