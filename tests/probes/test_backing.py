"""Probe ``backing``: what disks did from before a load until all of it was down, from their counters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from storlab.errors import ParseError
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Node
from storlab.probes.backing import BACKING
from storlab.probes.base import ProbeContext, ProbeRecord, Window
from storlab.probes.sampling import NAME, read_samples
from storlab.probes.subject import Subject

STAT = "  10 0 80 5  20 0 {sectors} 9  0 30 14  0 0 0 0  {flushes} 2\n"
BEFORE = STAT.format(sectors=160, flushes=3)
PATHS = {disk: f"/sys/class/block/{disk}/stat" for disk in ("sda", "sdb")}


def record(raw: Path, disks: tuple[str, ...], *looks: tuple[float, Mapping[str, str | None]]) -> ProbeRecord:
    lines = [orjson.dumps({"paths": list(PATHS.values()), "interval": 0.0})]
    for t, texts in looks:
        lines.append(orjson.dumps({"t": t, "late": 0.0, "contents": [texts.get(disk) for disk in PATHS]}))
    (raw / NAME).write_bytes(b"\n".join(lines) + b"\n")
    return ProbeRecord(raw, Window(10.0, 20.0), Subject(group="host", end="below", above=("vm",), disks=disks))


def test_what_several_disks_did_meanwhile_is_added_up_and_the_drain_begins_where_the_load_ends(tmp_path: Path) -> None:
    after = {"sda": STAT.format(sectors=168, flushes=5), "sdb": STAT.format(sectors=162, flushes=3)}
    left = record(tmp_path, ("sda", "sdb"), (9.0, dict.fromkeys(PATHS, BEFORE)), (21.5, after))
    assert BACKING.parse(left).totals() == {
        "backing.write.bytes": 4096 + 1024, "backing.writes": 0, "backing.flushes": 2, "backing.read.bytes": 0,
        "backing.reads": 0, "backing.drain": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize("after", ["", "rubbish", STAT.format(sectors=1, flushes=0), None])
def test_counters_that_are_missing_damaged_or_ran_backwards_are_named(tmp_path: Path, after: str | None) -> None:
    left = record(tmp_path, ("sda",), (9.0, {"sda": BEFORE}), (21.5, {"sda": after}))
    with pytest.raises(ParseError, match="there are no counters of sda"):
        BACKING.parse(left)


def test_it_watches_only_what_others_stand_on_and_a_load_that_never_ended_has_no_counts(tmp_path: Path) -> None:
    assert BACKING.watches_at("below", {"machine", "disks"})
    assert not BACKING.watches_at("below", {"machine"})
    assert not BACKING.watches_at("load", {"machine", "disks"})
    with pytest.raises(ParseError, match="not read both before the load and after it"):
        BACKING.parse(record(tmp_path, ("sda",), (9.0, {"sda": BEFORE})))


def test_a_disk_that_is_not_there_does_no_harm_and_nothing_is_drained_where_the_load_fails(tmp_path: Path) -> None:
    subject = Subject(group="host", end="below", disks=("no-such-disk",))

    async def one(node: Node) -> None:
        async with BACKING.watch(ProbeContext(node, tmp_path, subject)):
            pass

    asyncio.run(on_host(one))
    with pytest.raises(ParseError, match="there are no counters of no-such-disk"):
        BACKING.parse(ProbeRecord(tmp_path, Window(0.0, 1.0), subject))

    async def one(node: Node) -> None:
        with pytest.raises(ZeroDivisionError):
            async with BACKING.watch(ProbeContext(node, tmp_path, Subject(group="host", disks=("sda",)))):
                raise ZeroDivisionError

    asyncio.run(on_host(one))
    assert len(read_samples(tmp_path)) == 1


async def on_host(use: Any) -> None:
    async with local_node("host") as node:
        await use(node)
