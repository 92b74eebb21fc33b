"""What the executor tells whoever watches it, such as the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from storlab.analysis.stopping import Continue, Stop
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
        self, round_number: int, summary: Summary, decision: Stop | Continue, left: tuple[float, float] | None
    ) -> None:
        """All cells of a round have run. ``left``: as of ``trial_begins``, where it continues."""

    def notify(self, message: str) -> None:
        """Something that the user must know."""
