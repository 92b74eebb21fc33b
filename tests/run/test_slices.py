"""Cells that work in turn: how turns are drawn up, what is measured in them, what is refused, and how all ends."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import storlab
from laboratory import Laboratory, in_a_loop, wait_until
from laboratory.devices import new_device
from laboratory.samples import sample
from storlab.nodes.kinds.local import local_node
from storlab.run.trial.slices import SlicedWork, Slices, timetable
from storlab.workloads.base import read_turns
from storlab.workloads.fio.options import Job, Option
from storlab.workloads.fio.sliced import unsliceable

LOAD = 'rw = "randwrite", bs = "4k", direct = 1, ioengine = "libaio", iodepth = 4, size = "8M", runtime = "1s"'
LOAD += ", time_based = true"


def study(load: str = LOAD, slices: str = "0.1s", more: str = "") -> str:
    return sample(__file__, "cases/slices.toml", slices=slices, more=more, load=load)


NOT_FIO = study().replace(f"fio = {{ {LOAD} }}", 'command = { argv = ["true"] }').replace("bandwidth", "elapsed")


TURNS = st.tuples(st.integers(0, 3), st.integers(1, 8))


@given(st.dictionaries(st.integers(1, 9), TURNS, min_size=1, max_size=6), st.integers())
def test_one_works_at_a_time_and_each_gets_all_its_turns(wanted: dict[int, tuple[int, int]], seed: int) -> None:
    slots = timetable(wanted, 0.25, 0.005, 100.0, random.Random(seed))
    assert Counter(slot.cell for slot in slots) == {cell: sum(turns) for cell, turns in wanted.items()}
    assert all(before.end < after.begin for before, after in pairwise(slots))
    assert [slot.after for slot in slots] == [0, *(slot.cell for slot in slots[:-1])]
    warm = {cell: warm_up for cell, (warm_up, _) in wanted.items()}
    assert Counter(slot.cell for slot in slots[: sum(warm.values())]) == Counter(warm)


def test_the_order_of_turns_differs_from_cycle_to_cycle() -> None:
    slots = timetable({1: (0, 40), 2: (0, 40)}, 0.25, 0.005, 0.0, random.Random(1))
    first = [slots[at].cell for at in range(0, 80, 2)]
    assert 8 <= first.count(1) <= 32


@pytest.mark.needs("root")
def test_cells_work_in_turn_and_what_they_did_is_measured_by_the_time_for_which_they_worked(lab: Laboratory) -> None:
    outcome = lab.execute(study(more='warm_up = "0.2s"'))
    records = lab.records()
    assert (outcome.ending, [record.status for record in records]) == ("complete", ["done"] * 6), records
    # A machine that is busy may let a slice begin after its end: it has no time then, and is left out.
    assert all(7 <= (record.slices or 0) <= 10 for record in records)
    assert all(0.6 < (record.measured or 0.0) < 3.0 for record in records)
    for number in (1, 2):
        folders = [lab.run_folder.trial_folder(record.trial) for record in records if record.round == number]
        turns = [read_turns(folder / "host" / "load") for folder in folders]
        every = sorted((turn, each) for each, of in enumerate(turns) if of is not None for turn in of.turns)
        assert len(every) == 3 * 12
        both = sum(max(one[0][1] - other[0][0], 0.0) for one, other in pairwise(every))
        assert both < 0.3 * sum(end - begin for (begin, end), _ in every), "one at a time, as far as it can be held"
        assert len({(one[1], other[1]) for one, other in pairwise(every)}) > 3, "in changing orders"
    metrics = storlab.open_run(lab.out).metrics.filter(pl.col("job").is_null(), pl.col("node") == "host")
    for _, rows in metrics.group_by("trial"):
        value = dict(zip(rows["metric"], rows["value"], strict=True))
        assert value["slices"] >= 7
        assert value["slices.left_out"] <= 4 * 10, "at most the queue's depth in each slice"
        assert value["write.bandwidth"] == pytest.approx(value["write.iops"] * 4096)
        assert value["write.iops"] * value["slices.active"] < value["write.ios"], "the warm-up is among the amounts"
        assert value["write.latency.max"] < 1.0, "no latency has the time in it for which it was held"
        assert 0.9 < value["write.amplification"] < 1.2, "amounts are those of the whole load, at both ends"
        assert not any(name.startswith(("cpu.", "stall", "load.", "pressure.")) for name in value)


@pytest.mark.needs("root")
def test_cells_can_work_at_the_same_time(lab: Laboratory) -> None:
    lab.execute(study(more='warm_up = "0.2s"').replace('slices = "0.1s"', "parallel = true"))
    records = lab.records()
    assert [(record.status, record.slices) for record in records] == [("done", 1)] * 6, records
    turns = [read_turns(lab.run_folder.trial_folder(record.trial) / "host" / "load") for record in records[:3]]
    windows = [of.measured[0] for of in turns if of is not None]
    assert len(windows) == 3
    assert min(end for _, end in windows) - max(begin for begin, _ in windows) > 0.5, "most of the time together"


@pytest.mark.needs("root")
def test_a_cell_that_fails_does_not_hold_up_the_others(lab: Laboratory) -> None:
    text = study().replace('{ layer = "loop" }', '{ layer = "loop", sector_size = "{rate}" }')
    outcome = lab.execute(text.replace('levels = ["a", "b", "c"]', 'levels = ["512", "4k", "16k"]'))
    assert outcome.ending == "failures"
    found = {(record.levels["rate"], record.status) for record in lab.records()}
    assert found == {("512", "done"), ("4k", "done"), ("16k", "failed")}
    reasons = {record.reason or "" for record in lab.records() if record.status == "failed"}
    assert all("Invalid argument" in reason for reason in reasons), reasons


@pytest.mark.needs("root")
def test_a_run_that_is_killed_in_its_slices_goes_on_and_leaves_nothing(lab: Laboratory) -> None:
    process = lab.start_run(study(LOAD.replace("1s", "3s")))
    assert wait_until(lambda: process.poll() is not None or _fios(lab) >= 3, 60)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.wait()
    outcome = lab.go_on()
    assert outcome.ending == "complete" and [record.status for record in lab.records()] == ["done"] * 6


def _fios(lab: Laboratory) -> int:
    """Loads that were started, each of several processes."""
    return sum(any(word.endswith("job.fio") for word in words) for words in lab.commands().values()) // 2


@in_a_loop
async def test_a_load_that_waits_for_the_others_to_take_turns_is_ended_where_its_trial_is() -> None:
    cell: Any = SimpleNamespace(number=1, timeout=60.0, trial=SimpleNamespace(warm_up=0.0))
    load: Any = SimpleNamespace(workload=SimpleNamespace(duration=lambda _: 1.0))
    async with local_node("host") as node:
        command = await node.start(["sh", "-c", "cat /proc/self/stat; sleep 3600 & wait"])
        place: Any = SimpleNamespace(node=node)
        work = SlicedWork(Slices({1, 2}, 0.1, seed=1), cell)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await work.done([(load, place)], [command], {"host": await node.clock()})
        assert command.ended is not None


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (study('rw = "write", size = "8M", ioengine = "psync"'), "workload.*give it runtime and time_based"),
        (study(LOAD.replace("direct = 1", "direct = 0")), "workload.*direct = 1, or fsync"),
        (study(f"{LOAD}, rate_iops = 100"), "workload.*rate_iops paces it by the clock"),
        (study(f"{LOAD}, number_ios = 100"), "workload.*number_ios makes it end after an amount of work"),
        (study(f"{LOAD}, stonewall = true"), "workload.*stonewall gives it phases of its own"),
        (NOT_FIO, "no log of single operations"),
        (study(slices="10ms"), "from 0.05 s to 60 s"),
        (study(more="parallel = true"), "write one of them"),
    ],
    ids=lambda value: value.rpartition(".*")[2].replace(" ", "-") if len(value) < 80 else "",
)
def test_what_can_not_work_in_slices_is_refused_with_the_reason(lab: Laboratory, text: str, reason: str) -> None:
    result = lab.storlab("plan", lab.study(text))
    assert result.status == 2 and re.search(reason, result.stderr, re.DOTALL), result


@pytest.mark.needs("root")
def test_a_device_that_several_cells_would_have_at_once_is_refused(lab: Laboratory) -> None:
    with new_device(lab.folder / "disk", 64 * 1024**2) as device:
        stack = '{ layer = "file", size = "64M" }, { layer = "loop" }'
        text = study().replace(stack, f'{{ layer = "device", path = "{device.path}" }}')
        whole = lab.storlab("plan", lab.study(text.replace('slices = "0.1s"', "")))
        result = lab.storlab("plan", lab.study(text))
    assert whole.status == 0, str(whole)
    assert (result.status, "or leave out [trial] slices" in result.stderr) == (2, True), str(result)


def test_safe_writes_to_what_writes_later_are_refused_and_reads_are_not() -> None:
    shared: dict[str, Option] = {"runtime": "1s", "time_based": True, "direct": 1}
    assert "zpool writes some of it" in unsliceable([Job("w", {**shared, "rw": "randwrite", "fsync": 1})], "zpool")
    assert unsliceable([Job("r", {**shared, "rw": "randread"})], "zpool") == ""
