"""Which cells are due in a round: all, but for those that rest because no open comparison needs them any more.

A cell that rests is never run again, in this execution or in one that resumes the run: what rests is in the manifest,
durably, before the next round begins. The order of a round is drawn of all its cells and those that rest are passed
over, so a trial's number depends on seed, round and place alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storlab.analysis.resting import to_rest
from storlab.analysis.stopping import Rule
from storlab.analysis.summary import Summary
from storlab.records.manifest import Rest
from storlab.run.planning.order import PlannedTrial


class Schedule:
    """``rests``: as recorded. ``rule``: by which more of them are found; ``None`` where none are to rest."""

    def __init__(self, rests: Iterable[Rest], rule: Rule | None) -> None:
        self.rests, self._rule = tuple(rests), rule

    def due(self, order: Sequence[PlannedTrial]) -> list[PlannedTrial]:
        """What of a round is run."""
        after = {rest.cell: rest.after for rest in self.rests}
        return [planned for planned in order if planned.round <= after.get(planned.cell, planned.round)]

    @property
    def resting(self) -> list[int]:
        """The cells that rest."""
        return [rest.cell for rest in self.rests]

    def let_rest(self, summary: Summary, after: int) -> tuple[Rest, ...]:
        """Let cells rest ``after`` the last round of ``summary`` of which nothing more is asked; returns those."""
        decided = {} if self._rule is None else to_rest(summary, self._rule)
        new = tuple(Rest(cell, after, why) for cell, why in sorted(decided.items()) if cell not in self.resting)
        self.rests += new
        return new
