"""Probes: what they make of what they left, and watching this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import orjson

from storlab.measurements import Measurements
from storlab.nodes.kinds.local import local_node
from storlab.nodes.needs import lacks
from storlab.probes.base import Probe, ProbeContext, ProbeRecord, Seen, Window, operations
from storlab.probes.sampling import NAME
from storlab.probes.subject import Subject

HERE = Subject(group="here")


def watched(
    probe: Probe, raw: Path, *command: str, load: Callable[[], None] = lambda: None, subject: Subject = HERE
) -> Measurements:
    """What it measured of this machine, which has all that it needs, while a command ran or a load of the test's."""

    async def watching() -> None:
        async with local_node("here") as node:
            assert await lacks(node, probe.needs()) == []
            async with probe.watch(ProbeContext(node, raw, subject)):
                if command:
                    await node.run(command)
                await asyncio.to_thread(load)

    asyncio.run(watching())
    return probe.parse(ProbeRecord(raw, Window(0.0, 1e9), subject))


def derived(
    probe: Probe, nodes: Sequence[Measurements], loads: Sequence[Measurements] = (), others: Sequence[Measurements] = ()
) -> dict[str, float]:
    """What follows from what it saw on nodes where these loads ran, and on ``others`` below them."""
    seen = Seen(nodes, others, True, loads, operations(loads))
    return {each.metric: each.value for each in probe.derive(seen)}


def write_samples(raw: Path, paths: Sequence[str], *looks: tuple[float, Iterable[str | None]]) -> None:
    """What sampling leaves that looked into these files; each look has its time and what was in them."""
    lines: list[object] = [{"paths": paths, "interval": 1.0}]
    lines += [{"t": t, "late": 0.001, "contents": list(contents)} for t, contents in looks]
    (raw / NAME).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
