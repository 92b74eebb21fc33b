"""One trial: set up, prepare, precondition, settle, measure, gather, verify, tear down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from storlab.base.errors import NodeLost, StorlabError, TimedOut, TrialError, Unsupported
from storlab.base.waiting import all_of, cancelled, to_its_end
from storlab.findings import Reported
from storlab.layers.block.identity import refuse_another
from storlab.layers.resources import Dir, Disk, Resource, Share
from storlab.layers.stack import BuiltStack
from storlab.nodes.accounts import Account
from storlab.nodes.answers import understood
from storlab.nodes.node import Node
from storlab.nodes.undo import remove_folder
from storlab.records.derive_trial import Done, parse_load, parse_loads
from storlab.records.run_folder import ChangedSetting, TrialRecord, raw_folder
from storlab.run.build import Built, Setups
from storlab.run.planning.order import PlannedTrial
from storlab.run.planning.wants import named_files
from storlab.run.session import Session
from storlab.run.trial.commands import TEMPORARY, make_folders, make_own, prove_written, reach, run_commands, settle
from storlab.run.trial.fetch import Allowance, fetch_folder, forget_attempt, keep_exit
from storlab.run.trial.limits import limiting
from storlab.run.trial.measure import (
    LoadSpan,
    compare_clocks,
    conclude,
    last_output,
    measure,
    start_together,
    wait_for_all,
)
from storlab.run.trial.reasons import out_of_memory, reason_of, server_logs
from storlab.run.trial.slices import SlicedWork, Slices
from storlab.run.trial.subjects import subjects_of
from storlab.run.trial.watch import Files, Watch
from storlab.study.cells import MAIN, Cell, Load
from storlab.workloads.base import RunContext, Served, Workload

T = TypeVar("T")

_AFTERMATH = 0.3  # s: clients may fail a moment before the agent reports that their server has ended
_AT_LAST = 5.0  # s, for facts of what has failed
_APART = 0.010  # s, between nodes that should have started together
_REST = 30.0  # s, for what is cancelled: commands that are stopped, and probes that end


@dataclass
class TrialRun:
    """The state of one trial while it runs."""

    planned: PlannedTrial
    cell: Cell
    session: Session
    setups: Setups
    folder: Path  # for raw records, on the controller, by the descriptor of the run's; ``named`` as others find it
    named: Path
    watch: Watch
    phases: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    built: Built = field(init=False)
    allowance: Allowance = field(default_factory=Allowance)
    span: LoadSpan = field(default_factory=LoadSpan)
    slices: Slices | None = None  # that it shares with the other trials of its round
    proven: bool = False  # an earlier trial of this cell was measured, so it is supported
    facts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    guests: dict[str, dict[str, Any]] = field(default_factory=dict)
    watched: Files = field(default_factory=dict)  # settings that its commands may change
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    changed: list[ChangedSetting] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.built = self.setups.begin(self.cell)

    async def run(self) -> TrialRecord:
        """Run it and tear down what is not to be kept. Every failure becomes part of the record.

        Cancelled, it tears everything down and lets the cancellation go on.
        """
        began, started = time.monotonic(), datetime.now(UTC)
        planned, levels = self.planned, dict(self.cell.levels)
        record = TrialRecord(planned.number, planned.round, self.cell.number, levels, "failed", block=planned.block)
        record = structs.replace(record, started=started)
        forget_attempt(self.folder)
        try:
            record = await self._measured(record)
        except Unsupported as error:
            if self.proven or self.setups.first_loss(self.built) is not None:  # something broke
                record = await self._failed(record, error)
            else:
                record = structs.replace(record, status="unsupported", reason=str(error))
        except StorlabError as error:
            record = await self._failed(record, error)
        except FileNotFoundError as error:
            if error.errno is not None:  # of the controller's own, not a node's
                raise
            record = structs.replace(record, reason=f"there is no {error} any more")
        finally:
            if self.slices is not None:
                self.slices.leave(self.cell.number)
            await to_its_end(self._tear_down(failed=record.status == "failed"))
        record = structs.replace(record, duration=time.monotonic() - began, phases=self.phases)
        record = structs.replace(record, warnings=list(map(Reported, self.warnings)))
        hosts = self.session.machines_of(self.built.nodes.values())
        return structs.replace(
            record, facts=self.facts, guests=self.guests, settings=self.settings, changed=self.changed, hosts=hosts
        )

    async def _measured(self, record: TrialRecord) -> TrialRecord:
        others = 1 if self.slices is None else self.slices.number  # that are set up, and work, at the same time
        await self._within(self.cell.trial.setup_timeout * others, "setting up", self._set_up())
        measured = await self._within(self.cell.timeout * others, "the trial", self._phases(record))
        parse_loads(Done(self.folder, measured, self.cell))  # a failure that only their output tells of is the trial's
        return measured

    async def _within(self, timeout: float, what: str, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives, unless it takes longer than ``timeout`` seconds, or something is lost meanwhile."""
        doing = asyncio.create_task(work)
        watch = asyncio.create_task(self.setups.until_lost(self.built))
        try:
            done, _ = await asyncio.wait([doing, watch], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if doing not in done:
                # What waits for a disk or a folder that is gone can't be stopped, but what it waits for can be.
                await to_its_end(self.setups.cut_off(self.built))
        finally:
            await to_its_end(self._at_rest(doing, watch))
        if doing in done:
            return doing.result()
        if watch in done:
            watch.result()
        phase = next(reversed(self.phases), "set up")
        message = f"{what} was stopped at its time-out of {timeout:g} s, in the phase {phase!r}"
        raise TimedOut(message, last_output(self.folder))

    async def _at_rest(self, *tasks: asyncio.Task[Any]) -> None:
        """Cancel them, and wait for their end; what waits for an answer that never comes is cut off from it."""
        stopping = asyncio.create_task(cancelled(*tasks))
        await asyncio.wait([stopping], timeout=_REST)
        if not stopping.done():
            await self.setups.cut_off(self.built)
        await stopping

    async def _failed(self, record: TrialRecord, error: StorlabError) -> TrialRecord:
        """The record with its reason: where something was lost first, all else may only follow from that."""
        detail, now = error.detail if isinstance(error, TrialError) else "", time.monotonic()
        if any(part.is_set_up for part in self.built.parts.values()):
            await asyncio.sleep(_AFTERMATH)
        loss = self.setups.first_loss(self.built)
        if loss is None and not isinstance(error, NodeLost):
            detail = "\n".join(filter(None, [detail, *server_logs(self.built)]))
            return structs.replace(record, reason=await reason_of(error, self.built, self.session), detail=detail)
        at, reason, log = loss or (now, await reason_of(error, self.built, self.session), "")
        if loss is not None and (memory := await out_of_memory(self.built)):
            reason = f"{reason} ({memory})"
        if (into := self.span.into(at)) is not None:
            reason = f"{reason} ({into:.1f} s into the load)"
        detail = "\n".join(filter(None, [detail, log]))
        return structs.replace(record, reason=reason, detail=detail, lost_after=into)

    async def _phases(self, record: TrialRecord) -> TrialRecord:
        targets = [(load, target) for load in self.cell.loads for target in load.on]
        where = [(load, node, target.chain) for load, target in targets for node in self.built.group(target.group)]
        places = [(load, await self._place(load, node, chain)) for load, node, chain in where]
        written = {(node.name, chain): node for _, node, chain in where}
        await self._refuse_other_devices()
        await self.watch.begin(self.built, self.session, self.watched)
        async with self._phase("prepare"):
            await self._commands(self.cell.trial.prepare, "prepare")
            await all_of(*(self._prepare(load.workload, place) for load, place in places))
        async with self._phase("precondition"):
            await self._precondition()
        async with self._phase("settle"):
            await self.built.read_facts()  # right before the load: commands may have set what the stack does not say
            self.facts, self.settings = self.built.facts(), await self.watch.now(self.watched)
            # What is written back on one end may be new to the other: whoever serves is flushed after its clients.
            for groups in self.cell.outward:
                await all_of(*(self._settle(node) for group in groups for node in self.built.group(group)))
            host = self.session.host  # guests may stand on its page cache, and not only on its QEMU
            parts = [part for part in self.built.parts.values() if part.node is host and part.stack.resources]
            if host.name not in self.built.nodes and parts:
                await self._settle(host)
        await self._refuse_other_devices()
        async with self._phase("measure"):
            record = await self._measure(record, places)
        async with self._phase("verify"):
            stacks, underlying = self.built.stacks, self.built.underlying
            await all_of(
                *(prove_written(node, stacks[place], underlying.get(place)) for place, node in written.items())
            )
            record = await self._verify(record)
            await self._commands(self.cell.trial.verify, "verify")
        return record

    async def _verify(self, record: TrialRecord) -> TrialRecord:
        """Look at what the loads had, where the study asks for that: results, as those of a load."""
        load = self.cell.verified
        if load is None:
            return record
        where = [(node, target.chain) for target in load.on for node in self.built.group(target.group)]
        places = [(load, await self._place(load, node, chain)) for node, chain in where]
        await all_of(*(self._prepare(load.workload, place) for _, place in places))
        clocks = await compare_clocks([place.node for _, place in places])
        starts = [(place.node, await load.workload.launch(place)) for _, place in places]
        ended = await wait_for_all(await start_together(starts, clocks, LoadSpan()))
        await conclude(places, ended)
        for (_, place), each in zip(places, ended, strict=True):
            raw = raw_folder(self.folder, place.node.name, load.name)
            await fetch_folder(place.node, place.folder, raw, self.allowance)
            keep_exit(raw, each)
            parse_load(load, self.folder, place.node.name)
        await self._remove_folders()
        return structs.replace(record, loads={**record.loads, load.name: [place.node.name for _, place in places]})

    async def _refuse_other_devices(self) -> None:
        """Right before anything writes: a device of the user's is still the one that was checked."""
        for part in self.built.parts.values():
            for disk in dict.fromkeys(each for each in part.stack.resources if isinstance(each, Disk)):
                if part.node is not None:
                    await refuse_another(part.node, disk.path, disk.device)

    @asynccontextmanager
    async def _phase(self, name: str) -> AsyncIterator[None]:
        began = time.monotonic()
        self.phases[name] = 0.0  # the last key names the phase that runs
        try:
            yield
        finally:
            self.phases[name] = time.monotonic() - began

    async def _folder(self, node: Node) -> str:
        return f"{await self.session.scratch_on(node)}/trial-{self.planned.number}-{node.name}"

    async def _set_up(self) -> None:
        if self.slices is None:
            self.setups.forget_losses()
        try:
            async with self._phase("set up"):
                await self.setups.set_up(self.built, self.named)
        finally:
            self.guests = {name: dict(node.about) for name, node in self.built.nodes.items() if node.about}

    async def _put_back(self) -> None:
        """What commands and loads changed. Of a trial that failed before its load, facts as far as they can be had."""
        try:
            self.changed = await self.watch.end(self.watched)
            if not self.facts and self.setups.first_loss(self.built) is None:
                async with asyncio.timeout(_AT_LAST):
                    await self.built.read_facts()
        except (StorlabError, FileNotFoundError, TimeoutError) as error:
            if self.facts:
                self.warnings.append(f"whether the trial changed settings is not known: {error or 'no answer in time'}")
        self.facts = self.facts or self.built.facts()

    async def _tear_down(self, *, failed: bool) -> None:
        began = time.monotonic()
        await self._put_back()
        result = await self.setups.tear_down(self.built, failed=failed)
        self.warnings += self.setups.parts.warnings
        self.warnings += [f"could not be torn down: {reason}" for reason in result.failed]
        self.phases["tear down"] = time.monotonic() - began

    async def _place(self, load: Load, node: Node, chain: str) -> RunContext:
        stack = self.built.stacks[node.name, chain]
        target, group = stack.resource, self.built.group_of(node.name)
        served, nodes = self._served(node.name, chain), tuple[str, ...]()
        if isinstance(target, Dir) and self.built.shares_directory(group, chain):
            if load.same_files:
                nodes = self._on_the_same(load, self.built.underlying[node.name, chain].resource)
            else:  # or nodes would overwrite each other's files
                target = replace(target, path=f"{target.path}/{node.name}")
                served = None if served is None else replace(served, path=f"{served.path}/{node.name}")
                await make_own(node, target.path)
        stack, warm_up, kind = replace(stack, resource=target), self.cell.trial.warm_up, load.workload.kind
        return replace(await self._context(load.name, node, stack, warm_up, kind), nodes=nodes, served=served)

    def _on_the_same(self, load: Load, below: Resource | None) -> tuple[str, ...]:
        """The nodes of a load whose directory is this one."""
        where = [(node.name, target.chain) for target in load.on for node in self.built.group(target.group)]
        found = [node for node, chain in where if (node, chain) in self.built.underlying]
        chains = dict(where)
        names = tuple(node for node in found if self.built.underlying[node, chains[node]].resource == below)
        return names if len(names) > 1 else ()

    def _served(self, node: str, chain: str) -> Served | None:
        """The directory that a node's is a share of, where its path is known."""
        below = self.built.underlying.get((node, chain))
        match None if below is None else below.resource:
            case Dir(node=name, path=path) | Share(node=name, name=path) if path.startswith("/"):
                on = self.session.host if name == self.session.host.name else self.built.nodes.get(name)
                return None if on is None else Served(on, path)
            case _:
                return None

    async def _context(self, name: str, node: Node, stack: BuiltStack, warm_up: float, kind: str) -> RunContext:
        target = stack.resource
        assert target is not None, "what serves others has no load"
        planned = self.planned
        numbers = {"round": planned.round, "trial": planned.number, "seed": planned.seed}
        words = {**target.words(), "node": node.name, **{word: str(number) for word, number in numbers.items()}}
        folder = f"{await self._folder(node)}/{name}"
        if not self.session.permissions.unconfined:
            node = self._confined(node, target, folder, kind)
        return RunContext(node, target, folder, name, warm_up, planned.seed, words, stack.memory)

    def _confined(self, node: Node, target: Resource, folder: str, kind: str) -> Node:
        """The node, for a load there: as a user that nobody else is, if it is root's and not in a guest."""
        root = self.session.facts[node.name]["uid"] == 0 and not node.identity.volatile
        user = Account.of_run(self.session.run, "load").user if root else None
        words = named_files(self.cell) if node.machine == self.session.host.machine else ()
        confined = reach(node, target, folder, kind, user, self.session.permissions.shown(words))
        return node.confined(confined, **dict.fromkeys(("TMPDIR", "HOME") if root else ("TMPDIR",), folder + TEMPORARY))

    async def _contexts(self, name: str, kind: str = "") -> list[RunContext]:
        """On every node that a load may be on: its own stack, or the further chain that a load uses."""
        chains = {target.group: target.chain for load in self.cell.loads for target in load.on}
        return [
            await self._context(name, node, self.built.stacks[node.name, chains.get(group, MAIN)], 0.0, kind)
            for group in self.cell.nodes
            if group not in self.cell.serving
            for node in self.built.group(group)
            if (node.name, chains.get(group, MAIN)) in self.built.stacks
        ]

    @staticmethod
    async def _prepare(workload: Workload, place: RunContext) -> None:
        await make_folders(place)
        with understood(place.node.name, f"preparing {place.name}"):
            await workload.prepare(place)

    async def _commands(self, commands: Sequence[Sequence[str]], phase: str) -> None:
        await run_commands(commands, phase, lambda: self._contexts(phase), self.folder)

    async def _precondition(self) -> None:
        workload = self.cell.precondition
        if workload is None:
            return
        places = await self._contexts("precondition", workload.kind)
        await all_of(*(self._prepare(workload, place) for place in places))
        launches = [await workload.launch(place) for place in places]
        runs = (
            place.node.run(launch.argv, env=launch.env, cwd=launch.cwd)
            for place, launch in zip(places, launches, strict=True)
        )
        await all_of(*runs)
        for place in places:
            raw = raw_folder(self.folder, place.node.name, "precondition")
            await fetch_folder(place.node, place.folder, raw, self.allowance)

    async def _settle(self, node: Node) -> None:
        as_root = self.session.facts[node.name]["uid"] == 0
        self.warnings += await settle(self.cell.trial.settle, node, self.built, as_root)

    async def _measure(self, record: TrialRecord, places: Sequence[tuple[Load, RunContext]]) -> TrialRecord:
        with understood(", ".join(self.built.nodes), "looking for what the loads stand on"):
            subjects = await subjects_of(self.built, self.session)
        nodes = {self.session.host.name: self.session.host, **self.built.nodes}
        work = None if self.slices is None else SlicedWork(self.slices, self.cell)
        # In slices, only those that can tell what is a load's own while others take turns with it.
        probes = {name: probe for name, probe in self.cell.probes.items() if work is None or probe.in_slices}
        midway = [each for part in self.built.parts.values() for each in await part.stack.midway()]
        limits = await limiting(places, self.facts)
        record = await measure(
            record, places, probes, subjects, nodes, self.folder, self.allowance, self.span, work, midway, limits
        )
        if work is not None:
            self.warnings += work.warnings()
        # Guests are compared past an emulated processor: what they started apart is recorded, and no network's doing.
        here, working = self.session.host.machine, self.built.nodes.values()
        if any(not each.identity.volatile and each.machine != here for each in working):
            self.warnings += _about_starts(record)
        await self._remove_folders()
        return record

    async def _remove_folders(self) -> None:
        folders = [(node, await self._folder(node)) for node in self.built.nodes.values()]
        await all_of(*(remove_folder(node, folder, itself=False) for node, folder in folders))


def _about_starts(record: TrialRecord) -> list[str]:
    """A warning if nodes may have started too far apart for a trial of all of them at once."""
    skew, error = record.start_skew or 0.0, record.start_skew_error or 0.0
    told = f"the nodes started {skew * 1e3:.1f} ms apart, ± {error * 1e3:.1f} ms, as exactly as their clocks could be "
    return [f"{told}compared over the network: their series are as far apart"] if skew + error > _APART else []
