"""One trial: put up, prepare, precondition, settle, measure, gather, verify, take down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storlab.errors import DiskFull, StorlabError, TimedOut, TrialError, Unsupported
from storlab.layers.resources import Dir, Disk, Resource
from storlab.layers.stack import StandingStack
from storlab.nodes.node import Node
from storlab.nodes.waiting import all_of, to_its_end
from storlab.records.derive_trial import derive_trial, raw_folder
from storlab.records.tables import TrialTables
from storlab.records.trial_record import TrialRecord
from storlab.run.gather import fetch_folder, last_output
from storlab.run.measure import measure
from storlab.run.order import PlannedTrial
from storlab.run.session import Session
from storlab.run.stacks import Stacks, disk_of
from storlab.study.cells import Cell, Load
from storlab.workloads.base import Place, Workload

_FULL = 1024 * 1024  # bytes: with less, no file system does anything useful any more


@dataclass
class TrialRun:
    """The state of one trial while it runs."""

    planned: PlannedTrial
    cell: Cell
    session: Session
    stacks: Stacks
    folder: Path  # for raw records, on the controller
    phases: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    standing: dict[str, StandingStack] = field(default_factory=dict)
    facts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    guests: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def run(self) -> tuple[TrialRecord, TrialTables | None]:
        """Run it and take down what is not to be kept. Every failure becomes part of the record.

        Cancelled, it takes everything down and lets the cancellation go on.
        """
        began, started = time.monotonic(), datetime.now(UTC)
        record = TrialRecord(
            trial=self.planned.number,
            round=self.planned.round,
            cell=self.cell.number,
            levels=dict(self.cell.levels),
            status="failed",
            started=started.isoformat(timespec="microseconds"),
        )
        tables: TrialTables | None = None
        try:
            record, tables = await self._measured(record)
        except Unsupported as error:
            record = replace(record, status="unsupported", reason=str(error))
        except StorlabError as error:
            record = await self._failed(record, error)
        except FileNotFoundError as error:
            if error.errno is not None:  # of the controller's own, not a node's
                raise
            record = replace(record, reason=f"there is no {error} any more")
        finally:
            keep = self.cell.trial.keep_stacks and record.status == "done"
            if not keep:
                await to_its_end(self._take_down())
        duration = time.monotonic() - began
        record = replace(record, duration=duration, phases=self.phases, warnings=self.warnings)
        return replace(record, facts=self.facts, guests=self.guests), tables

    async def _measured(self, record: TrialRecord) -> tuple[TrialRecord, TrialTables]:
        timeout = self.cell.timeout
        work = asyncio.create_task(self._phases(record))
        watch = asyncio.create_task(self.session.hypervisor.until_one_is_lost())
        try:
            done, _ = await asyncio.wait([work, watch], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if work not in done:
                # What waits in a guest for a disk that is gone can't be stopped, but its guest can be ended.
                await to_its_end(self.stacks.end_guests())
        finally:
            await to_its_end(_cancelled(work, watch))
        if work in done:
            return work.result(), derive_trial(self.folder, work.result(), self.cell)
        if watch in done:
            watch.result()
        phase = next(reversed(self.phases), "put up")
        message = f"the trial was stopped at its time-out of {timeout:g} s, in the phase {phase!r}"
        raise TimedOut(message, last_output(self.folder))

    async def _failed(self, record: TrialRecord, error: StorlabError) -> TrialRecord:
        """The record with its reason: where a guest was lost first, all else may only follow from that."""
        detail = error.detail if isinstance(error, TrialError) else ""
        lost = self.session.hypervisor.first_lost
        if lost is None:
            return replace(record, reason=await self._reason(error), detail=detail)
        detail = "\n".join(filter(None, [detail, f"The end of its console:\n{lost.console}"]))
        return replace(record, reason=lost.reason, detail=detail)

    async def _phases(self, record: TrialRecord) -> TrialRecord:
        async with self._phase("put up"):
            await self._put_up()
        places = [(load, self._place(load, node)) for load in self.cell.loads for node in self._nodes(load)]
        async with self._phase("prepare"):
            await self._commands(self.cell.trial.prepare, "prepare")
            await all_of(*(self._prepare(load.workload, place) for load, place in places))
        async with self._phase("precondition"):
            await self._precondition()
        async with self._phase("settle"):
            await all_of(*(self._settle(node) for node in self._all_nodes()))
        async with self._phase("measure"):
            record = await self._measure(record, places)
        async with self._phase("verify"):
            await self._commands(self.cell.trial.verify, "verify")
        return record

    @asynccontextmanager
    async def _phase(self, name: str) -> AsyncIterator[None]:
        began = time.monotonic()
        self.phases[name] = 0.0  # the last key names the phase that runs
        try:
            yield
        finally:
            self.phases[name] = time.monotonic() - began

    def _folder(self, node: Node) -> str:
        """This trial's own folder on a node."""
        return f"{self.stacks.scratch[node.name]}/trial-{self.planned.number}-{node.name}"

    def _all_nodes(self) -> list[Node]:
        return [node for name in self.cell.nodes for node in self._group(name)]

    def _users(self) -> list[Node]:
        """The nodes that are for a load, and not only for serving others with disks."""
        serving = self.cell.serving
        return [node for name in self.cell.nodes if name not in serving for node in self._group(name)]

    def _group(self, name: str) -> list[Node]:
        return self.session.group(name, self.cell.nodes[name])

    def _nodes(self, load: Load) -> list[Node]:
        return [node for name in load.on for node in self._group(name)]

    async def _put_up(self) -> None:
        self.session.hypervisor.forget_lost()
        try:
            self.standing = await self.stacks.put_up(self.cell, self.folder)
        finally:
            self.facts = self.stacks.facts_so_far()
            self.guests = self.session.guest_facts()

    async def _take_down(self) -> None:
        began = time.monotonic()
        result = await self.stacks.take_down(self.cell)
        self.warnings += [f"could not be taken down: {reason}" for reason in result.failed]
        self.phases["take down"] = time.monotonic() - began

    def _place(self, load: Load, node: Node) -> Place:
        return self._place_named(load.name, node, self.cell.trial.warm_up)

    def _place_named(self, name: str, node: Node, warm_up: float) -> Place:
        target = self.standing[node.name].resource
        assert target is not None, "what serves others has no load"
        words = {
            "target": _path(target),
            "node": node.name,
            "round": str(self.planned.round),
            "trial": str(self.planned.number),
            "seed": str(self.planned.seed),
        }
        folder = f"{self._folder(node)}/{name}"
        memory = self.standing[node.name].memory if self.cell.trial.keep_stacks else None
        return Place(node, target, folder, name, warm_up, self.planned.seed, words, memory)

    @staticmethod
    async def _prepare(workload: Workload, place: Place) -> None:
        await place.node.run(["mkdir", "--parents", "--", place.folder])
        await workload.prepare(place)

    async def _commands(self, commands: Sequence[Sequence[str]], phase: str) -> None:
        for argv in commands:
            places = [self._place_named(phase, node, 0.0) for node in self._users()]
            try:
                await all_of(*(place.node.run([place.fill(word) for word in argv]) for place in places))
            except TrialError as error:
                raise type(error)(f"{phase}: {error}", error.detail) from None

    async def _precondition(self) -> None:
        workload = self.cell.precondition
        if workload is None:
            return
        places = [self._place_named("precondition", node, 0.0) for node in self._users()]
        await all_of(*(self._prepare(workload, place) for place in places))
        launches = [await workload.launch(place) for place in places]
        runs = (
            place.node.run(launch.argv, env=launch.env, cwd=launch.cwd)
            for place, launch in zip(places, launches, strict=True)
        )
        await all_of(*runs)
        for place in places:
            await fetch_folder(place.node, place.folder, raw_folder(self.folder, place.node.name, "precondition"))

    async def _settle(self, node: Node) -> None:
        settle = self.cell.trial.settle
        if settle.sync:
            await node.run(["sync"])
        if settle.drop_caches:
            if self.session.facts[node.name]["uid"] == 0:
                await node.write("/proc/sys/vm/drop_caches", b"3\n")
            else:
                self.warnings.append("caches were not dropped before measuring: that needs root")
        if settle.wait:
            await asyncio.sleep(settle.wait)

    async def _measure(self, record: TrialRecord, places: Sequence[tuple[Load, Place]]) -> TrialRecord:
        disks = {name: disk_of(standing.resource) for name, standing in self.standing.items()}
        users = {node.name for node in self._users()}
        measured = await measure(
            places,
            self.cell.probes,
            disks,
            self.session,
            self.folder,
            backings=await self.stacks.backings(self.cell),
            others=[node for node in self._all_nodes() if node.name not in users],
            processes=self.session.hypervisor.processes,
        )
        await all_of(*(node.run(["rm", "-rf", "--", self._folder(node)]) for node in self._all_nodes()))
        return replace(record, status="done", **measured)

    async def _reason(self, error: StorlabError) -> str:
        """The error in one sentence; a full disk is named as such, whoever noticed it and in whatever words."""
        if isinstance(error, DiskFull):
            return str(error)
        for name in self.standing:
            if await self._is_full(name):
                return f"{error} (the file system of {self.stacks.scratch[name]} is full)"
        for name, guest in self.session.hypervisor.guests.items():
            if killed := guest.killed_for_memory():
                return f"{error} (the guest {name} ran out of memory, and its kernel killed {killed})"
        return str(error)

    async def _is_full(self, name: str) -> bool:
        node = self.session.nodes.get(name)
        if node is None:  # a guest that was ended at the trial's time-out
            return False
        try:
            listing = await node.output("df", "--output=avail", "-B1", self.stacks.scratch[name])
            return int(listing.split()[-1]) < _FULL
        except (StorlabError, ValueError, IndexError):
            return False


def _path(target: Resource) -> str:
    assert isinstance(target, Dir | Disk), "checked when the study was loaded"
    return target.path


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # marked as seen
