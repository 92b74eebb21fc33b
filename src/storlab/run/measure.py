"""The measured phase: probes on, every command at one instant, probes off, everything gathered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypedDict

from storlab.measurements import PROBE
from storlab.nodes.node import Clock, Exit, Node
from storlab.probes.base import Post, Probe
from storlab.records.derive_trial import parse_load, raw_folder
from storlab.records.trial_record import BackingRecord, NodeRecord
from storlab.run.backing import Backing, drain
from storlab.run.barrier import Start, compare_clocks, start_skew, start_together, wait_for_all
from storlab.run.gather import fetch_folder, keep_exit
from storlab.run.session import Session
from storlab.study.cells import Load
from storlab.workloads.base import Place


class Measured(TypedDict):
    """Fields of the trial's record."""

    measured: float
    start_skew: float
    nodes: dict[str, NodeRecord]
    probes: dict[str, list[str]]
    loads: dict[str, list[str]]
    backings: list[BackingRecord]


async def measure(
    places: Sequence[tuple[Load, Place]],
    probes: Mapping[str, Probe],
    disks: Mapping[str, str | None],
    session: Session,
    folder: Path,
    *,
    backings: Sequence[Backing] = (),
    others: Sequence[Node] = (),
    processes: Mapping[str, int] | None = None,
) -> Measured:
    """Run all workloads at once; ``disks`` is the disk under test by node. Raw files go below ``folder``.

    ``backings`` are disks that the nodes' disks lie on: what is written to them until all is down is counted.
    ``others`` do no work and belong to the trial, so their machines are watched too. ``processes``: guests whose
    QEMU runs on this machine, with its process id.
    How each command ended is recorded, not judged: its workload's parser knows what a failure is.
    """
    working = list({place.node.name: place.node for _, place in places}.values())
    posts = {name: watchers(probe, working, session, others) for name, probe in probes.items()}
    guests = {session.host.name: processes or {}}
    clocks = await compare_clocks(list({node.name: node for node in _all(working, posts.values())}.values()))
    starts = [Start(place.node, await load.workload.launch(place)) for load, place in places]
    async with drain(backings, folder) as beneath:
        async with _watched(probes, posts, disks, backings, guests, folder):
            await beneath.before()
            commands = await start_together(starts, clocks)
            try:
                ended = await wait_for_all(commands)
            except BaseException:  # the trial's time-out: what was printed until then may say why
                for (load, place), command in zip(places, commands, strict=True):
                    if command.ended is not None:
                        keep_exit(raw_folder(folder, place.node.name, load.name), command.ended)
                raise
            beneath.load_ended()
        drained = await beneath.records()
    for (load, place), each in zip(places, ended, strict=True):
        raw = raw_folder(folder, place.node.name, load.name)
        await fetch_folder(place.node, place.folder, raw)
        keep_exit(raw, each)
    for (load, place), each in zip(places, ended, strict=True):
        if not each.ok and each.stopped_by is None:  # the others were stopped on its account: it has the reason
            parse_load(load, folder, place.node.name)
    exits = [(place.node, each) for (_, place), each in zip(places, ended, strict=True)]
    return Measured(
        measured=max(each.elapsed for each in ended),
        start_skew=start_skew(exits, clocks),
        nodes=_windows(exits, clocks, disks, session.machines),
        probes={name: [node.name for node in nodes] for name, nodes in posts.items()},
        loads=_nodes_of_loads(places),
        backings=drained,
    )


def watchers(probe: Probe, working: Sequence[Node], session: Session, others: Sequence[Node] = ()) -> list[Node]:
    """Where a probe watches: on every node that works, on the host, or once on each machine, the host among them.

    ``others`` are nodes that do no work; their machines are watched as well.
    """
    if probe.place() == "nodes":
        return list(working)
    if probe.place() == "host":
        return [session.host]
    by_machine = {session.machines[node.name]: node for node in reversed([*working, *others, session.host])}
    # The host stands for itself: on its machine, a node that is only another agent there gives way.
    by_machine[session.machines[session.host.name]] = session.host
    return list(by_machine.values())


@asynccontextmanager
async def _watched(
    probes: Mapping[str, Probe],
    posts: Mapping[str, Sequence[Node]],
    disks: Mapping[str, str | None],
    backings: Sequence[Backing],
    guests: Mapping[str, Mapping[str, int]],
    folder: Path,
) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for name, probe in probes.items():
            for node in posts[name]:
                raw = raw_folder(folder, node.name, PROBE + name)
                raw.mkdir(parents=True, exist_ok=True)
                beneath = tuple(backing.disk for backing in backings if backing.node.name == node.name)
                post = Post(node, raw, disks.get(node.name), beneath, guests.get(node.name, {}))
                await stack.enter_async_context(probe.watch(post))
        yield


def _windows(
    exits: Sequence[tuple[Node, Exit]],
    clocks: Mapping[str, Clock],
    disks: Mapping[str, str | None],
    machines: Mapping[str, str],
) -> dict[str, NodeRecord]:
    """The measured phase on each node's own clock; a node that only watched has that of all the others together."""
    here = [(node, ended.start - clocks[node.name].offset, ended) for node, ended in exits]
    whole = min(start for _, start, _ in here), max(start + ended.elapsed for _, start, ended in here)
    records = {}
    for name, clock in clocks.items():
        mine = [(start, ended) for node, start, ended in here if node.name == name]
        start = min((start for start, _ in mine), default=whole[0])
        end = max((start + ended.elapsed for start, ended in mine), default=whole[1])
        late = max((ended.late or 0.0 for _, ended in mine), default=0.0)
        records[name] = NodeRecord(
            start + clock.offset, end + clock.offset, machines[name], disks.get(name), clock.error, late
        )
    return records


def _nodes_of_loads(places: Sequence[tuple[Load, Place]]) -> dict[str, list[str]]:
    loads: dict[str, list[str]] = {}
    for load, place in places:
        loads.setdefault(load.name, []).append(place.node.name)
    return loads


def _all(working: Sequence[Node], posts: Iterable[Sequence[Node]]) -> list[Node]:
    return [*working, *(node for nodes in posts for node in nodes)]
