"""The measured phase: probes on, every command at one instant, probes off, everything gathered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from msgspec.structs import replace

from storlab.base.errors import TrialError
from storlab.base.waiting import all_of, to_its_end
from storlab.metrics import PROBE
from storlab.nodes.answers import understood
from storlab.nodes.node import Clock, Exit, Node, Process
from storlab.probes.base import Probe, ProbeContext
from storlab.probes.counters import write_loads
from storlab.probes.disks import BACKING
from storlab.probes.subject import Subject, of_machine, write_subject
from storlab.records.derive_trial import parse_load
from storlab.records.run_folder import NodeRecord, TrialRecord, raw_folder
from storlab.run.trial.fetch import Allowance, fetch_folder, keep_exit
from storlab.study.cells import HOST, Load
from storlab.workloads.base import Launch, RunContext

Place = tuple[Load, RunContext]
Midway = tuple[Node, float, Sequence[str]]
"""A command on a node, so many seconds after the loads began."""


@dataclass
class LoadSpan:
    """When the loads of a trial ran: seconds on the controller's monotonic clock."""

    began: float | None = None
    ended: float | None = None  # by themselves: not where one failed, which may be for what is lost

    def into(self, at: float) -> float | None:
        """Seconds from their start to a loss; ``None`` if no load ran then."""
        if self.began is None or at < self.began or (self.ended is not None and at > self.ended + _AFTERMATH):
            return None
        return at - self.began


_AFTERMATH = 0.5  # s: a load may end well of what is lost, before word of that has come
_LEAD = 0.02  # s, at least, from the decision to the start
_LEAD_PER_COMMAND = 0.01
_LEAD_PER_ROUND_TRIP = 20
_LEAD_OF_LIMITS = 0.5
Limiting = Callable[[str | None], Awaitable[None]]
"""Limits what runs in a cgroup."""


class Work(Protocol):
    """How loads work that do not simply run to their end: in slices. ``active``: seconds that were measured."""

    @property
    def active(self) -> float: ...
    @property
    def number(self) -> int: ...
    async def launch(self, load: Load, place: RunContext) -> Launch: ...
    async def done(
        self, places: Sequence[Place], commands: Sequence[Process], clocks: Mapping[str, Clock]
    ) -> list[Exit]: ...
    def keep(self, place: RunContext, raw: Path) -> None: ...


async def compare_clocks(nodes: Sequence[Node]) -> dict[str, Clock]:
    """How each node's clock relates to the controller's, by the node's name."""
    clocks = await all_of(*(node.clock() for node in nodes))
    return {node.name: clock for node, clock in zip(nodes, clocks, strict=True)}


def bounded(before: Mapping[str, Clock], after: Mapping[str, Clock]) -> dict[str, Clock]:
    """The clocks of before a load, each with what it may be off by until after it.

    A round trip bounds the error of each comparison, however unequal its two ways are; clocks also drift between.
    """
    return {
        name: clock
        if (later := after.get(name)) is None
        else Clock(clock.offset, max(clock.error, abs(later.offset - clock.offset) + later.error))
        for name, clock in before.items()
    }


def skew_error(names: Sequence[str], clocks: Mapping[str, Clock]) -> float:
    """By how much the skew between any two of these nodes may be wrong, in seconds."""
    errors = sorted((clocks[name].error for name in set(names)), reverse=True)
    return sum(errors[:2]) if len(errors) > 1 else 0.0


async def start_together(
    starts: Sequence[tuple[Node, Launch]],
    clocks: Mapping[str, Clock],
    span: LoadSpan,
    *,
    count: bool = False,
    limits: Mapping[int, Limiting] = MappingProxyType({}),
) -> list[Process]:
    """Prepare every command on its node and agree on an instant at which all of them, and ``span``, begin.

    One that is alone has nobody to wait for: it begins as soon as it can. With ``count``, it is known what the
    processes of each did. ``limits``, by number of a start, are set while it waits for its instant.
    """
    round_trip = 2 * max(clock.error for clock in clocks.values())
    lead = _LEAD + _LEAD_PER_COMMAND * len(starts) + _LEAD_PER_ROUND_TRIP * round_trip
    alone = len(starts) == 1 and not limits
    lead += (_LEAD_OF_LIMITS + _LEAD_PER_ROUND_TRIP * round_trip) * bool(limits)
    span.began = instant = time.monotonic() + (0.0 if alone else lead)

    async def start(number: int, node: Node, launch: Launch) -> Process:
        at = None if alone else instant + clocks[node.name].offset
        process = await node.start(
            launch.argv, env=launch.env, cwd=launch.cwd, stdout_file=launch.stdout, start_at=at, count=count
        )
        started.append(process)
        if number in limits:
            await limits[number](process.cgroup)
            if time.monotonic() > instant:
                raise TrialError(f"node {node.name}: its load began before it was limited: the node answers too slowly")
        return process

    started: list[Process] = []
    try:
        return await all_of(*(start(number, *each) for number, each in enumerate(starts)))
    except BaseException:
        await to_its_end(end_all(started))  # those that did start must not run on alone
        raise


def start_skew(exits: Sequence[tuple[Node, Exit]], clocks: Mapping[str, Clock]) -> float:
    """Latest minus earliest real start, in seconds, on the controller's clock."""
    starts = [ended.start - clocks[node.name].offset for node, ended in exits]
    return max(starts) - min(starts) if starts else 0.0


async def wait_for_all(processes: Sequence[Process]) -> list[Exit]:
    """Wait for every command. One that fails stops the others: its trial is lost, and time is dear."""
    tasks = [asyncio.create_task(process.wait()) for process in processes]
    stopped = False
    try:
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            failed = any(task.exception() is not None or not task.result().ok for task in done)
            if failed and not stopped:
                stopped = True
                running = [process for process, task in zip(processes, tasks, strict=True) if task in pending]
                await asyncio.gather(*(process.stop() for process in running), return_exceptions=True)
        return [task.result() for task in tasks]
    finally:
        await to_its_end(end_all(processes))
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _midway(
    commands: Sequence[Midway], clocks: Mapping[str, Clock], span: LoadSpan
) -> AsyncIterator[list[Process]]:
    """Have each node's agent start its commands at their instants, for as long as the context lasts."""
    waiting: list[Process] = []
    try:
        for node, after, argv in commands:
            at = (span.began or 0.0) + after + clocks[node.name].offset
            waiting.append(await node.start(argv, start_at=at))
        yield waiting
    finally:
        await to_its_end(end_all(waiting))


async def _judge_midway(commands: Sequence[Midway], processes: Sequence[Process], span: LoadSpan) -> None:
    """Raise ``TrialError`` where something that was to happen while the loads ran failed, or never came."""
    lasted = (span.ended or time.monotonic()) - (span.began or 0.0)
    for (node, after, _), process in zip(commands, processes, strict=True):
        if lasted < after:
            wanted = f"node {node.name}: what was to happen {after:g} s into the load never came"
            raise TrialError(
                f"{wanted}, for the load lasted {lasted:.1f} s: write a shorter `after`, or let it run longer"
            )
        (await process.wait()).check(node.name)


async def end_all(processes: Sequence[Process]) -> None:
    """Stop what still runs, and wait until all are at rest."""
    await asyncio.gather(*(process.end() for process in processes))


async def measure(
    record: TrialRecord,
    places: Sequence[tuple[Load, RunContext]],
    probes: Mapping[str, Probe],
    subjects: Mapping[str, Subject],
    nodes: Mapping[str, Node],
    folder: Path,
    allowance: Allowance,
    span: LoadSpan,
    work: Work | None = None,
    midway: Sequence[Midway] = (),
    limits: Mapping[int, Limiting] = MappingProxyType({}),
) -> TrialRecord:
    """Run all workloads at once; ``subjects`` and ``nodes`` by name: all that belong to the trial, loads or no.

    The record with what was seen of them; raw files go below ``folder``, as far as ``allowance`` reaches. ``span`` gets
    when they ran; ``midway`` happens while they do; ``limits`` are of places by number. How each command ended is
    recorded, not judged: its workload's parser knows what a failure is.
    """
    probes = {**probes, BACKING.kind: BACKING}
    machines = {name: node.machine for name, node in nodes.items()}
    watched = {name: watched_by(probe, subjects, machines) for name, probe in probes.items()}
    working = [place.node for _, place in places]
    watching = [nodes[name] for by_node in watched.values() for name in by_node]
    changing = [node for node, *_ in midway]
    clocks = await compare_clocks(list({node.name: node for node in (*working, *watching, *changing)}.values()))
    starts = [(place.node, await _launch(load, place, work)) for load, place in places]
    async with _watched(probes, watched, nodes, folder):
        count = any(probe.counts_loads for probe in probes.values())
        commands = await start_together(starts, clocks, span, count=count, limits=limits)
        try:
            async with _midway(midway, clocks, span) as changes:
                if work is None:
                    ended = await wait_for_all(commands)
                else:
                    ended = await work.done(places, commands, clocks)
                if all(each.ok for each in ended):
                    await _judge_midway(midway, changes, span)
        except BaseException:  # the trial's time-out: what was printed until then may say why
            await to_its_end(end_all(commands))
            for (load, place), command in zip(places, commands, strict=True):
                if command.ended is not None:
                    keep_exit(raw_folder(folder, place.node.name, load.name), command.ended)
            raise
        if all(each.ok or each.stopped_by is not None for each in ended):
            span.ended = time.monotonic()
    apart = [node for node in nodes.values() if node.name in clocks and node.machine != machines[HOST]]
    clocks = bounded(clocks, await compare_clocks(apart))
    await conclude(places, ended)
    for (load, place), each in zip(places, ended, strict=True):
        raw = raw_folder(folder, place.node.name, load.name)
        await fetch_folder(place.node, place.folder, raw, allowance)
        keep_exit(raw, each)
        if work is not None:
            work.keep(place, raw)
    exits = [(place.node, each) for (_, place), each in zip(places, ended, strict=True)]
    _keep_counted(probes, watched, machines, exits, folder)
    for (load, place), each in zip(places, ended, strict=True):
        if not each.ok and (
            each.stopped_by is None or work is not None
        ):  # the others were stopped on its account: it has the reason
            parse_load(load, folder, place.node.name)
    return replace(
        record,
        status="done",
        measured=max(each.elapsed for each in ended) if work is None else work.active,
        slices=None if work is None else work.number,
        start_skew=start_skew(exits, clocks),
        start_skew_error=skew_error([node.name for node, _ in exits], clocks),
        nodes=_windows(exits, clocks, subjects, machines),
        probes={name: list(by_node) for name, by_node in watched.items() if by_node},
        loads={load.name: [place.node.name for each, place in places if each is load] for load, _ in places},
    )


def _keep_counted(
    probes: Mapping[str, Probe],
    watched: Mapping[str, Mapping[str, Subject]],
    machines: Mapping[str, str],
    ended: Sequence[tuple[Node, Exit]],
    folder: Path,
) -> None:
    """Write what the loads on each machine did beside what a probe saw of that machine."""
    for name in (name for name, probe in probes.items() if probe.counts_loads):
        for watcher in watched[name]:
            here = [each for node, each in ended if node.machine == machines[watcher]]
            own = [each.counted for each in here if each.counted is not None]
            write_loads(raw_folder(folder, watcher, PROBE + name), own)


async def conclude(places: Sequence[Place], ended: Sequence[Exit]) -> None:
    """What loads do after their commands; nothing, where one of these failed."""
    if all(each.ok for each in ended):
        await all_of(*(load.workload.conclude(place) for load, place in places))


async def _launch(load: Load, place: RunContext, work: Work | None) -> Launch:
    with understood(place.node.name, f"preparing {load.name}"):
        return await (load.workload.launch(place) if work is None else work.launch(load, place))


def watched_by(probe: Probe, subjects: Mapping[str, Subject], machines: Mapping[str, str]) -> dict[str, Subject]:
    """What a probe watches, by node; a machine once, on one of its nodes. ``machines``: node → its machine."""
    if "machine" in probe.watches:
        by_machine: dict[str, dict[str, Subject]] = {}
        for name, subject in subjects.items():
            by_machine.setdefault(machines[name], {})[name] = subject
        # This machine itself is the one to watch it, rather than another agent that is on it, too.
        watchers = [HOST if HOST in nodes else next(iter(nodes)) for nodes in by_machine.values()]
        subjects = {
            name: of_machine(nodes, subjects[name].group)
            for name, nodes in zip(watchers, by_machine.values(), strict=True)
        }
    return {name: subject for name, subject in subjects.items() if probe.watches_at(subject.end, subject.kinds)}


@asynccontextmanager
async def _watched(
    probes: Mapping[str, Probe], watched: Mapping[str, Mapping[str, Subject]], nodes: Mapping[str, Node], folder: Path
) -> AsyncIterator[None]:
    """All probes watch; they begin and end side by side, so that none is late on another's account."""
    async with AsyncExitStack() as whole:

        async def watch(those: Sequence[tuple[str, str]]) -> AsyncExitStack:
            own = await whole.enter_async_context(AsyncExitStack())
            for name, node in those:
                raw = raw_folder(folder, node, PROBE + name)
                write_subject(raw, watched[name][node])
                context = ProbeContext(nodes[node], raw, watched[name][node])
                await own.enter_async_context(probes[name].watch(context))
            return own

        each = [(name, node) for name, by_node in watched.items() for node in by_node if name != BACKING.kind]
        last = [(name, node) for name, node in each if probes[name].begins_last]
        # Counted last before the load, and drained from the top of a chain to its bottom.
        below = sorted(watched[BACKING.kind].items(), key=lambda item: -len(item[1].above))
        began = await all_of(*(watch([one]) for one in each if one not in last))
        began += await all_of(*(watch([one]) for one in last), watch([(BACKING.kind, node) for node, _ in below]))
        yield
        await all_of(*(own.aclose() for own in began))


def _windows(
    exits: Sequence[tuple[Node, Exit]],
    clocks: Mapping[str, Clock],
    subjects: Mapping[str, Subject],
    machines: Mapping[str, str],
) -> dict[str, NodeRecord]:
    """The measured phase on each node's own clock; a node that only watched has that of all the others together."""
    here = [(node.name, ended.start - clocks[node.name].offset, ended) for node, ended in exits]
    whole = min(start for _, start, _ in here), max(start + ended.elapsed for _, start, ended in here)
    records = {}
    for name, clock in clocks.items():
        mine = [(start, ended) for node, start, ended in here if node == name]
        start = min((start for start, _ in mine), default=whole[0])
        end = max((start + ended.elapsed for start, ended in mine), default=whole[1])
        late = max((ended.late or 0.0 for _, ended in mine), default=0.0)
        disks = list(subjects[name].disks or ())
        records[name] = NodeRecord(start + clock.offset, end + clock.offset, machines[name], disks, clock.error, late)
    return records


_TAIL = 4096  # bytes


def last_output(folder: Path) -> str:
    """The end of what the commands of a trial printed, each with the place of its file."""
    files = [*sorted(folder.rglob("stderr")), *sorted(folder.rglob("stdout"))]
    texts = {path: path.read_bytes()[-_TAIL:].decode(errors="replace").strip() for path in files}
    return "\n".join(f"{path.relative_to(folder)}:\n{text}" for path, text in texts.items() if text)
