"""Runs a study, or resumes one: round after round, until the answer is sound."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from msgspec.structs import replace

from storlab.analysis.stopping import Rule, decide, to_rest
from storlab.analysis.summary import Summary, to_json
from storlab.base.errors import RecordsError, StorlabError, UserError
from storlab.base.waiting import to_its_end
from storlab.findings import AnyFinding, Stopped
from storlab.findings.runs import Interrupted, RoundsAssigned, Unreachable
from storlab.records.derive import derive, tables_of_study
from storlab.records.files import write_durably
from storlab.records.held import HeldFolder, new_run_folder
from storlab.records.kept import write_tables
from storlab.records.manifest import Manifest, Rest, write_manifest
from storlab.records.run_folder import RunFolder
from storlab.records.tables import Tables
from storlab.run.beginning import begin_run, new_manifest, new_run_id, nodes_of, now
from storlab.run.build import Setups
from storlab.run.limits import AS_PLANNED, NO_LIMITS, Assignment, Extent, Limits, refuse_other_rule
from storlab.run.merging import assigned_of, assignment_of, set_aside_begun_elsewhere
from storlab.run.observer import Interrupts, Observer
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.run.planning.design import design_of, rule_of, summary_of
from storlab.run.planning.horizon import aiming_at, within_budget
from storlab.run.planning.order import PlannedTrial, due, time_left, trial_times
from storlab.run.planning.plan import Plan, make_plan
from storlab.run.planning.wants import refuse_unpermitted
from storlab.run.recovery.journal import Journal, refuse_others
from storlab.run.recovery.reclaim import (
    alone,
    changes_settings,
    is_missing,
    taken,
    tear_down,
    tear_down_rest,
    unrecorded,
)
from storlab.run.recovery.temporary import forget_run, remember_run
from storlab.run.session import Session, open_session
from storlab.run.trial.trials import Trials
from storlab.study.study import Study
from storlab.version import __version__

_HOPELESS = 2  # rounds
_TABLES_EVERY = 30.0  # s; whoever looks into a long run finds tables, and short rounds don't pay for them

Ending = Literal["complete", "failures", "nothing measured", "unreachable", "interrupted"]


T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """How a run ended. ``left_behind`` is what could not be torn down, in words; empty as it should be."""

    folder: RunFolder
    ending: Ending
    summary: Summary
    tables: Tables
    left_behind: tuple[str, ...] = ()


async def run_study(
    study: Study,
    folder: Path,
    seed: int,
    rounds: tuple[int, int],
    observer: Observer,
    permissions: Permissions = NO_PERMISSIONS,
    limits: Limits = NO_LIMITS,
    assignment: Assignment | None = None,
) -> Outcome:
    """Run a study into a new folder, or the rounds of it that are assigned to this machine.

    Raises ``UserError``, with nothing done, where it can't be run here.
    """
    run = new_run_id()
    interrupts = Interrupts(observer.notify)
    with interrupts.listening():
        async with open_session(run, observer.notify, permissions) as session:
            last = rounds if assignment is None else assignment.planned
            plan = await make_plan(study, session, seed, last, assignment.order if assignment else "together")
            plan.refuse_empty()
            await session.claim_devices()
            async with alone(run, folder, changes_settings(study, permissions), observer.notify):
                with new_run_folder(folder) as holding:
                    refuse_others(folder)  # a folder that was there: better now than when what it set up is torn down
                    manifest = await new_manifest(run, session, plan, limits)
                    begin_run(holding, assigned_of(manifest, assignment, rounds, plan.study))
                    tables = tables_of_study(holding.run.manifest, plan.study)
                    return await _Executor(holding, plan, session, observer, interrupts, tables, limits).execute()


async def resume_run(
    folder: Path, observer: Observer, extent: Extent = AS_PLANNED, permissions: Permissions = NO_PERMISSIONS
) -> Outcome:
    """Go on with a run that was killed, interrupted or too short: what stands is torn down, finished trials are kept.

    Evidence stays what it is however many rounds are added, and for whatever reason: it is anytime-valid.
    """
    interrupts = Interrupts(observer.notify)
    with interrupts.listening(), taken(folder, permissions) as holding:
        records = holding.run
        manifest = records.manifest
        refuse_other_rule(extent, manifest.until, [rest.cell for rest in manifest.rests])
        assignment = assignment_of(manifest, extent)
        _refuse_other_confinement(manifest, permissions)
        study = manifest.study()
        refuse_unpermitted(study, permissions)  # before anything is done for a run of somebody else's
        async with (
            open_session(manifest.run, observer.notify, permissions) as session,
            alone(manifest.run, folder, changes_settings(study, permissions), observer.notify),
        ):
            await _tear_down_rest(records, session, observer)
            session.devices = {(each.machine, each.path): each.device for each in manifest.devices}
            tables = derive(holding.named)  # which names its files in what it says
            begun = max((record.round for record in tables.records), default=0)
            rounds = extent.of(manifest.rounds, begun)
            last = rounds if assignment is None else assignment.planned
            plan = await make_plan(study, session, manifest.seed, last, manifest.order)
            _refuse_poorer(plan, tables, folder)
            if set_aside_begun_elsewhere(records, plan, tables.records, session.machines_of(())[0], observer.notify):
                tables = derive(holding.named)
            await session.claim_devices()
            until = extent.until or manifest.until
            going_on = replace(manifest, finished=None, stopped=None, spent=False, rounds=rounds, until=until)
            write_manifest(records.path, replace(going_on, horizon=aiming_at(manifest.horizon, rounds[1], begun)))
            limits = Limits(manifest.gates, manifest.minutes, until, manifest.optional)
            return await _Executor(holding, plan, session, observer, interrupts, tables, limits).execute()


def _refuse_other_confinement(manifest: Manifest, permissions: Permissions) -> None:
    """A run's numbers are of one kind; and that its loads are not confined is said by whoever resumes it."""
    if manifest.unconfined and not permissions.unconfined:
        raise UserError("the run was made with --unconfined: say so again, if you trust its study and who wrote it")
    if permissions.unconfined and not manifest.unconfined:
        raise UserError("the loads of this run were confined: leave out --unconfined, or start a new run")


def _refuse_poorer(plan: Plan, tables: Tables, folder: Path) -> None:
    """Cells that could be measured when the run began are not given up because something is missing now."""
    measured = {record.cell for record in tables.records if record.status == "done"}
    missing = dict.fromkeys(
        each for cell in sorted(measured & set(plan.unsupported)) for each in plan.unsupported[cell]
    )
    if missing:
        raise UserError(
            f"{folder}: the run has measured what this machine no longer can: {'; '.join(missing)}. "
            "Put that right and resume again, or start a new run"
        )


async def _tear_down_rest(records: RunFolder, session: Session, observer: Observer) -> None:
    with Journal(records.journal) as journal:
        result = await tear_down_rest(journal, session)
        journal.note("resume", did=result.did)
    for did in result.did:
        observer.notify(f"Cleaned up after the interrupted run: {did}.")
    if result.failed:
        raise StorlabError(f"cannot tear down what an earlier run set up: {'; '.join(result.failed)}")


class _Executor:
    """One execution, from the session that is up to the last record."""

    def __init__(
        self,
        holding: HeldFolder,
        plan: Plan,
        session: Session,
        observer: Observer,
        interrupts: Interrupts,
        tables: Tables,
        limits: Limits,
    ) -> None:
        manifest = holding.run.manifest
        plan = dataclasses.replace(plan, assigned=manifest.assigned)
        self._held, self._run, self._study, self._plan = holding, holding.named, plan.study, plan
        self._session, self._observer, self._interrupts, self._tables = session, observer, interrupts, tables
        self._cells = {cell.number: cell for cell in plan.study.cells}
        # Rounds that are added are for what is still open: a run is not held to them where nothing is.
        least = min(plan.rounds[0], manifest.rest_from or plan.rounds[0])
        self._limits, self._rule = limits, rule_of(plan.study, (least, plan.rounds[1]), limits)
        self._first = 1
        if plan.assigned is not None:  # all of them, whatever they say: nobody here knows the others
            self._first = plan.assigned[0]
            self._rule = Rule("rounds", *[plan.rounds[1] - self._first + 1] * 2)
        self._rests, self._may_rest = tuple(manifest.rests), manifest.rest_from is not None
        self._horizon = manifest.horizon
        self._began, self._rounds_here = time.monotonic(), 0
        self._remaining: int | None = None
        self._spent = False
        self._stopped: AnyFinding | None = None
        self._written = time.monotonic()
        self._finished = False
        self._unreachable: tuple[str, ...] = ()
        self._left: tuple[str, ...] | None = None  # until all is torn down that can be
        self._setups: Setups | None = None
        self._summary: Summary  # as the run has ended

    @property
    def _ended(self) -> set[int]:
        return {record.trial for record in self._tables.records}

    @property
    def _resting(self) -> list[int]:
        return [rest.cell for rest in self._rests]

    async def execute(self) -> Outcome:
        remember_run(self._session.run, self._run.path)
        with Journal(self._held.run.journal) as journal:
            journal.note("begin", storlab=__version__, pid=os.getpid())
            self._session.begin(journal, self._study.model.scratch)
            self._interrupts.stage = "trials"
            try:
                try:
                    await self._rounds(journal)
                    self._finished = not self._interrupts.finish and not self._unreachable
                finally:
                    self._interrupts.stage = "teardown"
                    await to_its_end(self._end(journal))
            except asyncio.CancelledError:
                if not self._interrupts.at_once:
                    raise
            except RecordsError:
                self._held.refuse_moved()  # else its own records can't be read
                raise
            except OSError as error:
                self._held.refuse_moved(missing=is_missing(error, self._run.path))
                raise unrecorded(error, self._run.path, len(self._ended), self._left or ()) from None
            finally:
                if self._left == ():
                    forget_run(self._session.run)
            self._held.refuse_moved()
        return self._outcome()

    async def _rounds(self, journal: Journal) -> None:
        self._setups = Setups(self._session, journal, self._run.path, self._held.by_descriptor)
        records = (self._held, self._tables, journal)
        trials = Trials(
            self._plan, self._session, self._setups, *records, self._observer, self._interrupts, self._time_left
        )
        self._observer.run_begins(self._plan, str(self._run.path), len(self._ended))
        begun = max((record.round for record in self._tables.records), default=0)
        for number in range(self._first, self._plan.rounds[1] + 1):
            # Rounds that a merged run lacks are run: that is no question of the rule, which looks at all that there is.
            if number > begun and await self._enough(number - 1):
                return
            order = self._begin_round(number, journal)
            if not order:
                self._stopped = Stopped(number - 1, "resting")
                return
            new = not self._ended.issuperset(planned.number for planned in order)
            await trials.run(order)
            self._rounds_here += new
            if trials.unreachable:
                self._unreachable = tuple(trials.unreachable.values())
                self._stopped = Unreachable(tuple(trials.unreachable), self._unreachable)
                return
            if self._interrupts.finish:
                return
            if time.monotonic() - self._written > _TABLES_EVERY:
                await _apart(self._write_tables)
        await self._enough(self._plan.rounds[1])

    async def _enough(self, round_number: int) -> bool:
        if round_number < self._first:
            return False
        summary = await _apart(self._summarise)
        decision = decide(summary, self._rule)
        if decision.stop:
            self._observer.round_ends(round_number, summary, decision, None)
            assigned = self._plan.assigned
            self._stopped = decision.why if assigned is None else RoundsAssigned(*assigned)
            return True
        self._remaining = decision.remaining
        cells = [cell.number for cell in self._plan.supported if cell.number not in self._resting]
        self._observer.round_ends(round_number, summary, decision, self._time_left(round_number + 1, cells))
        if self._is_spent(round_number) or self._is_hopeless(round_number):
            return True
        decided = sorted(to_rest(summary, self._rule).items()) if self._may_rest else ()
        new = [Rest(cell, round_number, why) for cell, why in decided if cell not in self._resting]
        horizon = within_budget(self._horizon, round_number, self._allowed(round_number))
        if new or horizon != self._horizon:
            self._rests, self._horizon, folder = (*self._rests, *new), horizon, self._held.run
            write_manifest(folder.path, replace(folder.manifest, rests=self._rests, horizon=horizon))
        if new:
            self._observer.cells_rest(round_number, [self._cells[rest.cell] for rest in new])
        return False

    def _begin_round(self, number: int, journal: Journal) -> list[PlannedTrial]:
        order = due(self._plan.order(number), self._rests)
        if not self._ended.issuperset(planned.number for planned in order):
            cells = [planned.cell for planned in order if planned.cell not in self._plan.unsupported]
            journal.note("round begins", round=number, due=cells, resting=self._resting)
            self._observer.round_begins(number, len(cells))
        return order

    def _allowed(self, round_number: int) -> int:
        """How many more rounds the budget allows, as long as those so far; 0 where that is not known."""
        if self._limits.minutes is None or not self._rounds_here or self._plan.assigned:
            return 0
        a_round = (time.monotonic() - self._began) / 60 / self._rounds_here
        return min(int(self._limits.minutes / a_round) - self._rounds_here, self._plan.rounds[1] - round_number)

    def _is_spent(self, round_number: int) -> bool:
        """Whether one more round, as long as those so far, would exceed the budget."""
        if not self._rounds_here:  # a run that is resumed, and may take a round's time at least
            return False
        minutes = (time.monotonic() - self._began) / 60
        if self._limits.minutes is None or minutes * (1 + 1 / self._rounds_here) <= self._limits.minutes:
            return False
        self._spent = True
        self._stopped = Stopped(round_number, "budget", limit=self._limits.minutes)
        return True

    def _is_hopeless(self, round_number: int) -> bool:
        """Whether no trial has succeeded in the last rounds, so that more would only take time."""
        last = [record.status for record in self._tables.records if record.round > round_number - _HOPELESS]
        if self._rounds_here < _HOPELESS or not last or "done" in last:
            return False
        self._stopped = Stopped(round_number, "hopeless", limit=_HOPELESS)
        return True

    def _time_left(self, round_number: int, rest: list[int]) -> tuple[float, float] | None:
        least, most = self._plan.rounds[0] - round_number, self._plan.rounds[1] - round_number
        if self._remaining is not None:
            least = max(least, min(self._remaining - 1, most))
        plan = self._plan
        known = trial_times(plan.supported, self._tables.records, side_by_side=plan.side_by_side).items()
        times = {cell: time for cell, time in known if cell not in self._resting}
        left = time_left(times, rest, (max(least, 0), max(most, 0)))
        if left is None or self._limits.minutes is None:
            return left
        budget = max(0.0, self._limits.minutes * 60 - (time.monotonic() - self._began))
        return min(left[0], budget), min(left[1], budget)

    def _summarise(self, *, ended: bool = False) -> Summary:
        known = (self._limits, self._rests, self._plan.emulated, self._horizon)
        design = design_of(self._study, self._stopped, self._tables.warnings(), *known)
        return summary_of(design, self._tables, ended=ended)

    def _write_tables(self) -> None:
        write_tables(self._held.run, self._tables)
        self._written = time.monotonic()

    async def _end(self, journal: Journal) -> None:
        if self._setups is not None:
            try:
                await self._setups.tear_down_all()
            except StorlabError as error:  # the journal has all of it
                self._observer.notify(f"could not be torn down in order: {error}")
        self._session.try_again()  # what could not be reached may be back
        result = await tear_down(journal, self._session)
        self._left = tuple(result.failed)
        if not self._finished and self._stopped is None:
            self._stopped = Interrupted("interrupted" if self._interrupts.finish else "broke off")
        journal.note("end", finished=self._finished, left_behind=result.failed)
        if not self._held.is_whole:
            return  # it was removed: there is nothing to write into
        await _apart(self._write_tables)
        self._summary = await _apart(partial(self._summarise, ended=True))
        write_durably(self._held.run.summary, to_json(self._summary))
        finished = now() if self._finished else None
        manifest = self._held.run.manifest
        nodes = {**manifest.nodes, **nodes_of(self._session)}
        write_manifest(
            self._held.run.path,
            replace(manifest, finished=finished, stopped=self._stopped, spent=self._spent, nodes=nodes),
        )

    def _outcome(self) -> Outcome:
        failed = any(record.status == "failed" for record in self._tables.records)
        if self._plan.assigned is None:
            nothing = self._summary.answers_nothing
        else:  # what it was asked for are trials: questions are those of the whole run
            nothing = not any(record.status == "done" for record in self._tables.records)
        ending: Ending = "failures" if failed else "nothing measured" if nothing else "complete"
        ending = "unreachable" if self._unreachable else ending
        ending = "interrupted" if self._interrupts.finish else ending
        return Outcome(self._run, ending, self._summary, self._tables, self._left or ())


async def _apart(work: Callable[[], T]) -> T:
    """In a thread, for it may take seconds: meanwhile signals are answered and nodes are heard. It is never left."""
    return await to_its_end(asyncio.to_thread(work))
