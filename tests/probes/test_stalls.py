"""Probe ``stalls``: times without a completed operation."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.probes.base import ProbeRecord, Window
from storlab.probes.sampling import NAME
from storlab.probes.stalls import Look, StallsProbe, find_stalls
from storlab.probes.subject import Subject

VDB, NONE = Subject(group="vm", disks=("vdb",)), Subject(group="vm", disks=())

STEPS = st.lists(st.tuples(st.floats(0.01, 2.0), st.integers(0, 3), st.integers(0, 4)), max_size=40)


def looks(steps: list[tuple[float, int, int]]) -> list[Look]:
    """From time between looks, operations completed in it, operations in flight at its end."""
    times = accumulate((step[0] for step in steps), initial=100.0)
    completed = accumulate((step[1] for step in steps), initial=7)
    return [Look(*each) for each in zip(times, completed, [1, *(step[2] for step in steps)], strict=True)]


@given(STEPS, st.floats(-1000, 1000))
def test_stalls_are_the_times_between_looks_without_completions(
    steps: list[tuple[float, int, int]], shift: float
) -> None:
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


def write(raw: Path, seen: list[Look]) -> None:
    lines = [orjson.dumps({"paths": ["/sys/class/block/vdb/stat"], "interval": 0.05})]
    for look in seen:
        stat = f"{look.completed} 0 0 0 0 0 0 0 {look.in_flight} 0 0 0 0 0 0 0 0"
        lines.append(orjson.dumps({"t": look.t, "late": 0.001, "contents": [stat]}))
    (raw / NAME).write_bytes(b"\n".join(lines) + b"\n")


def test_waits_over_the_threshold_are_summed_and_idleness_is_told_apart(tmp_path: Path) -> None:
    steps = [(0.5, 1, 1), *[(0.5, 0, 2)] * 3, (0.5, 1, 0), *[(0.5, 0, 0)] * 8, (0.5, 3, 1), (0.5, 0, 1), (0.5, 1, 0)]
    write(tmp_path, looks(steps))
    measured = StallsProbe().parse(ProbeRecord(tmp_path, Window(100.0, 200.0), VDB))
    assert dict(measured.metrics.select("metric", "value").iter_rows()) == pytest.approx(
        {
            "stall.longest": 1.5, "stall.total": 1.5, "stall.count": 1.0, "idle.longest": 4.0,
            "machine.stall.longest": 0.001,
        }
    )  # fmt: skip


def test_only_waits_within_the_measured_phase_count_and_without_a_disk_that_is_said(tmp_path: Path) -> None:
    write(tmp_path, looks([(1.0, 1, 1)] * 3 + [(5.0, 0, 1)] + [(1.0, 1, 1)] * 3))
    measured = StallsProbe().parse(ProbeRecord(tmp_path, Window(108.0, 112.0), VDB))
    assert dict(measured.metrics.select("metric", "value").iter_rows())["stall.longest"] == 0.0
    (warning,) = StallsProbe().parse(ProbeRecord(tmp_path, Window(0.0, 1.0), NONE)).warnings
    assert "no underlying disk" in warning
    assert find_stalls([]) == []
    assert find_stalls([Look(1.0, 5, 1)]) == []
