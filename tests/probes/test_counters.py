"""Probe ``counters``: what it makes of counts, and that they are those of perf-stat(1)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from laboratory import Laboratory
from laboratory.studies import directory
from storlab.base.errors import ParseError
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.agent.protocol import Counted
from storlab.nodes.kinds.local import local_node
from storlab.probes.base import NOTES, ProbeRecord, Window
from storlab.probes.counters import CountersProbe, read_loads, read_output, write_loads
from storlab.probes.locks.metrics import read_output as read_locks
from storlab.probes.locks.probe import LocksProbe

from . import HERE, derived, watched

SECOND = 1_000_000_000
NO_PMU = "this machine shows no hardware counter (PMU) for it, as most virtual machines"
STARTED = {"event": "started", "cpus": 2, "without": {}, "monotonic_ns": 9 * SECOND, "realtime_ns": 1}
OPERATIONS = MetricSpec("write.ios", "1", quantity="operations")


def sample(second: float, busy: float = 0.0, **counts: int) -> dict[str, object]:
    ns = round(second * SECOND)
    return {"event": "sample", "final": False, "monotonic_ns": ns, "busy_ns": round(busy * SECOND), "counts": counts}


COUNTED = (
    sample(10, 1, cycles=100, instructions=50, context_switches=5),
    sample(20, 3, cycles=1100, instructions=2050, context_switches=25),
)


def printed(*rows: dict[str, object]) -> bytes:
    """All that the agent's program prints."""
    return b"".join(orjson.dumps(each) + b"\n" for each in (STARTED, *rows))


def record(raw: Path, rows: Sequence[dict[str, object]] = (), loads: Sequence[Counted] = ()) -> ProbeRecord:
    """As the probe leaves it, by default of a machine with a PMU."""
    (raw / CountersProbe.output).write_bytes(printed(*(rows or COUNTED)))
    (raw / NOTES).write_bytes(b"[]")
    write_loads(raw, loads or [Counted({"cycles": 500, "instructions": 250, "task_clock": SECOND}, {})])
    return ProbeRecord(raw, Window(10.0, 20.0), HERE)


def parsed(raw: Path, rows: Sequence[dict[str, object]] = (), loads: Sequence[Counted] = ()) -> Measurements:
    return CountersProbe().parse(record(raw, rows, loads))


def test_counts_of_the_machine_and_of_the_loads_stand_beside_each_other(tmp_path: Path) -> None:
    found = parsed(tmp_path)
    assert found.totals() == {
        "load.cpu.time": 1.0, "load.cycles": 500, "load.instructions": 250, "load.instructions.per-cycle": 0.5,
        "cycles": 1000, "instructions": 2000, "instructions.per-cycle": 2.0, "context_switches": 20, "cpu.time": 2.0,
    }  # fmt: skip
    assert found.warnings == ()
    rates = {metric: value for _, metric, _, value, _ in found.series.iter_rows()}
    assert rates == {"cycles.rate": 100.0, "instructions.rate": 200.0, "context_switches.rate": 2.0}


def test_what_was_not_counted_of_one_load_is_no_sum_of_the_others(tmp_path: Path) -> None:
    loads = [Counted({"cycles": 5, "page_faults": 2}, {}), Counted({"page_faults": 3}, {"cycles": NO_PMU})]
    found = parsed(tmp_path, loads=loads)
    assert found.totals()["load.page_faults"] == 5
    assert "load.cycles" not in found.totals()
    assert found.warnings == (f"counters: no CPU cycles: {NO_PMU}",)
    assert found.facts == {"without": {"cycles": NO_PMU}}


def test_without_the_program_there_are_the_loads_and_the_reason(tmp_path: Path) -> None:
    left = record(tmp_path)
    (tmp_path / CountersProbe.output).unlink()
    (tmp_path / NOTES).write_bytes(b'["counters: not allowed"]')
    found = CountersProbe().parse(left)
    assert found.totals()["load.cycles"] == 500
    assert found.warnings == ("counters: not allowed",)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "has not started: there is not one whole line"),
        ([sample(1)], "only the first line says when it started"),
        ([STARTED, STARTED], "only the first line says when it started"),
        ([STARTED, sample(2), sample(1)], "ran backwards"),
        ([STARTED, sample(1, cycles=2), sample(2, cycles=1)], "ran backwards"),
        ([STARTED, sample(1, cycles=2), sample(2)], "ran backwards"),
        ([STARTED | {"cpus": 0}], "is no line of the agent's"),
        ([STARTED, sample(1, guesses=1)], "is no line of the agent's"),
        ([STARTED, sample(1, cycles=-1)], "is no line of the agent's"),
    ],
)
def test_damaged_output_is_refused(lines: Sequence[dict[str, object]], said: str) -> None:
    with pytest.raises(ParseError, match=said):
        read_output([orjson.dumps(each) + b"\n" for each in lines])


def test_damaged_counts_of_loads_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loads.json").write_bytes(b'[{"counts": {"cycles": "many"}, "without": {}}]')
    with pytest.raises(ParseError, match="cannot read it"):
        read_loads(tmp_path)


def test_costs_are_for_each_operation_of_all_loads(tmp_path: Path) -> None:
    load = Measurements(metrics=metric_frame([OPERATIONS.value(250)]), declared=(OPERATIONS,))
    found = derived(CountersProbe(), [parsed(tmp_path)], [load, load])
    assert found["cycles.per-operation"] == 2.0
    assert found["load.cycles.per-operation"] == 1.0
    assert found["context_switches.per-operation"] == 0.04
    assert found["iops.per-busy-core"] == 250.0
    assert derived(CountersProbe(), [parsed(tmp_path)], [load, Measurements()]) == {}, (
        "one of the loads counts no operations"
    )
    assert derived(CountersProbe(), [], [load]) == {}


PLANTED = """
import mmap, os, time
for _ in range(200):
    time.sleep(0.0005)
room = mmap.mmap(-1, 4096 * 3000)
for page in range(3000):
    room[page * 4096] = 1
if os.fork() == 0:
    for _ in range(100):
        time.sleep(0.0005)
    os._exit(0)
os.wait()
"""


@pytest.mark.needs("root", "perf")
def test_counts_of_a_load_equal_those_of_perf_stat() -> None:
    """Page faults and voluntary switches are the program's own; what others take from it varies from run to run."""
    argv = [sys.executable, "-I", "-S", "-c", PLANTED]
    events = ["-e", "page-faults,context-switches,task-clock", "-x", ","]
    said = subprocess.run(["perf", "stat", *events, *argv], capture_output=True, text=True, check=True).stderr
    rows = (line.split(",") for line in said.splitlines() if "," in line)
    theirs = {row[2].partition(":")[0]: float(row[0]) for row in rows}

    async def counted() -> Counted | None:
        async with local_node("here") as node:
            return (await node.run(argv, count=True)).counted

    ours = asyncio.run(counted())
    assert ours is not None
    assert ours.counts["page_faults"] == pytest.approx(theirs["page-faults"], rel=0.02)
    assert ours.counts["context_switches"] >= 300
    assert ours.counts["context_switches"] == pytest.approx(theirs["context-switches"], rel=0.25, abs=50)
    assert ours.counts["task_clock"] == pytest.approx(theirs["task-clock"] * 1e6, rel=1.0)


@pytest.mark.needs("root")
def test_counters_begin_when_the_other_probes_have_begun(lab: Laboratory) -> None:
    """Which take time and CPU for it, as lock tracing does: nothing of that is among the counts."""
    lab.succeed(directory('command = { argv = ["true"] }', rest="[probes.counters]\n[probes.locks]"))
    (ours,) = lab.out.rglob(CountersProbe.output)
    (theirs,) = lab.out.rglob(LocksProbe.output)
    begun = read_output(ours.read_bytes().splitlines(keepends=True))[0].monotonic_ns
    assert begun > read_locks(theirs)[0].monotonic_ns
    assert begun < lab.records()[0].nodes["host"].start * 1e9


@pytest.mark.needs("root")
def test_a_machine_is_watched_while_it_works(tmp_path: Path) -> None:
    found = watched(CountersProbe(), tmp_path, "sh", "-c", "for i in 1 2 3 4 5; do sleep 0.01; done")
    assert found.totals()["context_switches"] >= 5
    assert found.totals()["cpu.time"] > 0
    assert all("PMU" in each or "perf_event_paranoid" in each for each in found.warnings)
