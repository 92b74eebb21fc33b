"""Disks: ``backing``, what they did until a load was down, and ``stalls``, times without a completed operation."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import ParseError
from storlab.nodes.kinds.local import local_node
from storlab.probes.base import ProbeContext, ProbeRecord, Window
from storlab.probes.disks import BACKING, Look, StallsProbe, find_stalls, stood_still
from storlab.probes.sampling import Snapshot, read_samples
from storlab.probes.subject import Subject

from . import watched, write_samples

STAT = "  10 0 80 5  20 0 {sectors} 9  0 30 14  0 0 0 0  {flushes} 2\n"
BEFORE = STAT.format(sectors=160, flushes=3)
PATHS = {disk: f"/sys/class/block/{disk}/stat" for disk in ("sda", "sdb")}


def record(raw: Path, disks: tuple[str, ...], *looks: tuple[float, Mapping[str, str | None]]) -> ProbeRecord:
    write_samples(raw, [*PATHS.values()], *((t, [texts.get(disk) for disk in PATHS]) for t, texts in looks))
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
    with pytest.raises(ParseError, match="there are no counters of no-such-disk"):
        watched(BACKING, tmp_path, subject=Subject(group="host", end="below", disks=("no-such-disk",)))

    async def failing() -> None:
        async with local_node("host") as node:
            with pytest.raises(ZeroDivisionError):
                async with BACKING.watch(ProbeContext(node, tmp_path, Subject(group="host", disks=("sda",)))):
                    raise ZeroDivisionError

    asyncio.run(failing())
    assert len(read_samples(tmp_path)) == 1


VDB, NONE = Subject(group="vm", disks=("vdb",)), Subject(group="vm", disks=())

STEPS = st.lists(st.tuples(st.floats(0.01, 2.0), st.integers(0, 3), st.integers(0, 4)), max_size=40)


def looks(steps: list[tuple[float, int, int]]) -> list[Look]:
    """From time between looks, operations completed in it, operations in flight at its end."""
    times = accumulate((step[0] for step in steps), initial=100.0)
    completed = accumulate((step[1] for step in steps), initial=7)
    return [Look(*each) for each in zip(times, completed, [1, *(step[2] for step in steps)], strict=True)]


@given(STEPS, st.floats(-1000, 1000))
def test_stalls_are_times_without_completions(steps: list[tuple[float, int, int]], shift: float) -> None:
    seen = looks(steps)
    stalls = find_stalls(seen)
    assert sum(stall.length for stall in stalls) == pytest.approx(sum(step[0] for step in steps if step[1] == 0))
    for before, after in pairwise(stalls):
        assert before.start + before.length < after.start + 1e-9, "they do not overlap"
    assert {stall.start for stall in stalls} <= {look.t for look in seen}
    for stall in stalls:
        within = [look for look in seen if stall.start <= look.t <= stall.start + stall.length + 1e-9]
        assert stall.length > 0
        assert stall.waiting == all(look.in_flight > 0 for look in within)
    shifted = find_stalls([Look(look.t + shift, look.completed, look.in_flight) for look in seen])
    assert [stall.length for stall in shifted] == pytest.approx([stall.length for stall in stalls], abs=1e-6)


def write_looks(raw: Path, seen: list[Look]) -> None:
    stats = [(look.t, [f"{look.completed} 0 0 0 0 0 0 0 {look.in_flight} 0 0 0 0 0 0 0 0"]) for look in seen]
    write_samples(raw, ["/sys/class/block/vdb/stat"], *stats)


def test_waits_over_the_threshold_are_summed_and_idleness_is_told_apart(tmp_path: Path) -> None:
    steps = [(0.5, 1, 1), *[(0.5, 0, 2)] * 3, (0.5, 1, 0), *[(0.5, 0, 0)] * 8, (0.5, 3, 1), (0.5, 0, 1), (0.5, 1, 0)]
    write_looks(tmp_path, looks(steps))
    measured = StallsProbe().parse(ProbeRecord(tmp_path, Window(100.0, 200.0), VDB))
    assert measured.totals() == pytest.approx(
        {
            "stall.longest": 1.5, "stall.total": 1.5, "stall.count": 1.0, "idle.longest": 4.0,
            "machine.stall.longest": 0.001, "machine.stall.total": 0.0,
        }
    )  # fmt: skip


STEADY = [number / 10 for number in range(100)]


@pytest.mark.parametrize(
    ("clock", "seen", "still"),
    [
        (STEADY, [0.2 + t for t in STEADY], []),
        # The machine's clock went on while it stood still, or stood still with it, twice.
        ([*STEADY, *(70 + t for t in STEADY)], [*STEADY, *(70 + t for t in STEADY)], [60.1]),
        (STEADY, [t + 5 * (t > 2) + 120 * (t > 6) for t in STEADY], [5.1, 120.1]),
        (STEADY, [max(t, 4.0 if 1 < t < 4 else 0) for t in STEADY], []),  # the controller was busy
        (STEADY, [math.nan] * 100, []),
    ],
)
def test_a_machine_that_stood_still_is_noticed_by_its_clock_or_the_controller_s(
    clock: list[float], seen: list[float], still: list[float]
) -> None:
    samples = [Snapshot(t, 0.0, {}, at) for t, at in zip(clock, seen, strict=True)]
    assert [length for _, length in stood_still(samples, 1.0)] == pytest.approx(still)


def test_a_disk_that_freezes_before_it_has_a_request_stalls_from_the_first_one_on() -> None:
    """A load that waits for each request has none in flight for a moment, and the freeze may begin there."""
    frozen = looks([(0.05, 1, 0), (0.05, 0, 0), *[(0.05, 0, 1)] * 120, (0.05, 1, 0)])
    assert [(stall.waiting, round(stall.length, 6)) for stall in find_stalls(frozen)] == [(False, 0.1), (True, 5.95)]


def test_only_waits_within_the_measured_phase_count_and_without_a_disk_that_is_said(tmp_path: Path) -> None:
    write_looks(tmp_path, looks([(1.0, 1, 1)] * 3 + [(5.0, 0, 1)] + [(1.0, 1, 1)] * 3))
    measured = StallsProbe().parse(ProbeRecord(tmp_path, Window(108.0, 112.0), VDB))
    assert measured.totals()["stall.longest"] == 0.0
    (warning,) = StallsProbe().parse(ProbeRecord(tmp_path, Window(0.0, 1.0), NONE)).warnings
    assert "no underlying disk" in warning
    assert find_stalls([]) == []
    assert find_stalls([Look(1.0, 5, 1)]) == []
