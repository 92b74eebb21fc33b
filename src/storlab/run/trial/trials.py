"""The trials of a round: one after the other, or side by side; each is recorded as soon as it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from storlab.base.waiting import all_of, to_its_end
from storlab.records import kept
from storlab.records.derive_trial import Done, derive_trials
from storlab.records.held import HeldFolder
from storlab.records.run_folder import TrialRecord, set_aside, write_trial
from storlab.records.tables import Tables
from storlab.run.build import Setups
from storlab.run.observer import Interrupts, Observer
from storlab.run.planning.order import PlannedTrial
from storlab.run.planning.plan import Plan
from storlab.run.recovery.journal import Journal
from storlab.run.session import Session
from storlab.run.trial.slices import Slices
from storlab.run.trial.trial import TrialRun
from storlab.run.trial.watch import Watch

TimeLeft = Callable[[int, list[int]], tuple[float, float] | None]
"""Of a round's number and the cells that are left in it: seconds that the run still takes, at least and at most."""


@dataclass
class Trials:
    """Runs what is due of each round, as far as it has not ended already."""

    plan: Plan
    session: Session
    setups: Setups
    held: HeldFolder
    tables: Tables
    journal: Journal
    observer: Observer
    interrupts: Interrupts
    time_left: TimeLeft
    unsupported: dict[int, tuple[str, ...]] = field(init=False)
    unreachable: dict[str, str] = field(default_factory=dict)
    """Why nodes could not be had, by name: without them, further trials would only fail, and so none is run."""

    def __post_init__(self) -> None:
        self._cells = {cell.number: cell for cell in self.plan.study.cells}
        self._watch = Watch(self.journal, self.session.permissions.unconfined)
        self._done: list[Done] = []  # of this round; not in the tables yet
        self.unsupported = dict(self.plan.unsupported)
        for record in self.tables.records:
            if record.status == "unsupported":
                self.unsupported.setdefault(record.cell, (record.reason or "",))

    async def run(self, order: Sequence[PlannedTrial]) -> None:
        """One round. Asked to finish, it runs no further trial."""
        ended = {record.trial for record in self.tables.records}
        left = [planned for planned in order if planned.number not in ended]
        try:
            if self.plan.side_by_side:
                await self._side_by_side(left)
            else:
                await self._one_after_the_other(left)
        finally:
            await to_its_end(asyncio.to_thread(self._fill_tables))  # nodes have to be listened to meanwhile

    async def _one_after_the_other(self, left: Sequence[PlannedTrial]) -> None:
        for position, planned in enumerate(left):
            if self.interrupts.finish:
                return
            if not self._is_unsupported(planned):
                if not await self._revived([planned]):
                    return
                trial = self._begin(planned, [other.cell for other in left[position:]])
                await self._run(planned, trial)
            following = left[position + 1 : position + 2]
            if not following or following[0].block != planned.block:
                await self._end_of_round()

    async def _side_by_side(self, left: Sequence[PlannedTrial]) -> None:
        """All at the same time, in slices or in competition."""
        able = [planned for planned in left if not self._is_unsupported(planned)]
        if not able or self.interrupts.finish:
            return
        if not await self._revived(able):
            return
        self.setups.forget_losses()
        cells = [planned.cell for planned in able]
        slices = Slices(set(cells), self.plan.slices, able[0].seed)
        trials = [self._begin(planned, cells, slices) for planned in able]
        await all_of(*(self._run(planned, trial) for planned, trial in zip(able, trials, strict=True)))
        await self._end_of_round()

    async def _revived(self, due: Sequence[PlannedTrial]) -> bool:
        """Whether the nodes of what is due are there, those that were lost again; else the run stops."""
        lost = await self.session.revive()
        names = (name for planned in due for _, name in self._cells[planned.cell].node_names())
        self.unreachable = {name: lost[name] for name in names if name in lost}
        return not self.unreachable

    async def _end_of_round(self) -> None:
        for reason in (await self.setups.end_of("round")).failed:
            self.observer.notify(f"could not be torn down: {reason}")

    def _begin(self, planned: PlannedTrial, rest: list[int], slices: Slices | None = None) -> TrialRun:
        cell = self._cells[planned.cell]
        self.held.refuse_moved()
        cut_short = self._make_folder(planned.number)
        self.observer.trial_begins(planned, cell, self.time_left(planned.round, rest))
        self.journal.note("trial begins", trial=planned.number, round=planned.round, cell=planned.cell)
        folder, named = (each.trial_folder(planned.number) for each in (self.held.run, self.held.named))
        proven = any(record.cell == planned.cell and record.status == "done" for record in self.tables.records)
        trial = TrialRun(
            planned, cell, self.session, self.setups, folder, named, self._watch, slices=slices, proven=proven
        )
        if cut_short:  # perhaps by what it did to the machine: a level must not look better for being run again
            said = f"trial {planned.number} was cut short and run again: what it measured at first isn't known"
            trial.warnings.append(f"{', '.join(cell.levels.values())}: {said}" if cell.levels else said)
        return trial

    async def _run(self, planned: PlannedTrial, trial: TrialRun) -> None:
        try:
            record = await trial.run()
            if record.reason is not None:
                record = replace(record, reason=record.reason.replace(str(trial.folder), str(trial.named)))
        finally:
            self.held.refuse_moved()  # whatever failed: that is why
        if record.status == "unsupported":
            self.unsupported[planned.cell] = (record.reason or "",)
        self._take_in(record)
        self.journal.note("trial ends", trial=planned.number, status=record.status)

    def _make_folder(self, trial: int) -> bool:
        """Whether there was one, of an attempt that was cut short."""
        folder = self.held.run.trial_folder(trial)
        cut_short = set_aside(folder)
        folder.mkdir(parents=True)
        return cut_short

    def _take_in(self, record: TrialRecord) -> None:
        folder = self.held.run.trial_folder(record.trial)
        write_trial(folder, record)
        self.tables.records.append(record)
        if record.status == "done":
            self._done.append(Done(folder, record, self._cells[record.cell]))
        self.observer.trial_ends(record)

    def _fill_tables(self) -> None:
        """All of a round at once: nobody asks earlier, the next trial need not wait, and together they take less."""
        done, self._done = self._done, []
        if done:
            came_from = {each.record.trial: kept.of_trial(each.folder, each.record) for each in done}
            self.tables.add(derive_trials(done, self.tables.whiskers), came_from)

    def _is_unsupported(self, planned: PlannedTrial) -> bool:
        """Recorded once a cell, so that its reason is in the results; later rounds pass over it."""
        if planned.cell not in self.unsupported:
            return False
        known = (record for record in self.tables.records if record.status == "unsupported")
        if not any(record.cell == planned.cell for record in known):
            self.held.run.trial_folder(planned.number).mkdir(parents=True, exist_ok=True)
            levels = dict(self._cells[planned.cell].levels)
            reason = "; ".join(self.unsupported[planned.cell])
            record = TrialRecord(planned.number, planned.round, planned.cell, levels, "unsupported", reason)
            record = replace(record, hosts=self.session.machines_of(()))
            self._take_in(record)
        return True
