"""What is derived from several sources of a trial: amplification, and counts for each transaction and request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import derived
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import TARGET, MetricSpec, Value
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.share_requests import ALL, PER_OPERATION, ShareRequestsProbe
from storlab.probes.tcp.probe import TcpProbe
from storlab.records.derived import (
    asked_bytes,
    backing_amplification,
    changed_settings,
    disk_bytes,
    in_memory,
    moved_bytes,
    per_transaction,
    watched_above,
)
from storlab.records.run_folder import ChangedSetting, TrialRecord
from storlab.report.language.say import say
from storlab.tools.fio.declared import declared

HOST_LOAD = HostLoadProbe().declares()
numbers = st.integers(0, 2**50)
some = st.integers(1, 2**50)


def load(**by_name: float) -> Measurements:
    found = (Value(name.replace("_", "."), value, "B") for name, value in by_name.items())
    return Measurements(metric_frame(found), declared=declared())


def host_load(written: float, read: float) -> Measurements:
    names = {"disk.target.bytes_written": written, "disk.target.bytes_read": read}
    return Measurements(metric_frame(Value(name, value, "B") for name, value in names.items()), declared=HOST_LOAD)


def by_name(metrics: list[Value]) -> dict[str, float]:
    return {each.metric: each.value for each in metrics}


@given(numbers, numbers, some, some, some, some)
def test_amplification_is_what_was_moved_underneath_for_each_byte_above(
    written: int, read: int, asked_to_write: int, asked_to_read: int, to_disk: int, from_disk: int
) -> None:
    backing = Counter(write=written, read=read)
    asked = Counter(write=asked_to_write, read=asked_to_read)
    assert by_name(backing_amplification(backing, asked, Counter(write=to_disk, read=from_disk))) == {
        "write.amplification.backing": written / asked_to_write, "write.amplification.guest-disk": written / to_disk,
        "read.amplification.backing": read / asked_to_read, "read.amplification.guest-disk": read / from_disk,
    }  # fmt: skip


def test_a_ratio_to_what_is_unknown_or_nothing_is_left_out() -> None:
    backing = Counter(write=4096, read=0)
    assert backing_amplification(backing, None, None) == []
    assert backing_amplification(backing, Counter(write=0), Counter()) == []
    writer, reader, silent = load(write_bytes=100.0, bytes=100.0), load(read_bytes=7.0, bytes=7.0), load(elapsed=3.0)
    asked = asked_bytes([writer, writer, reader])
    assert asked is not None and (asked["write"], asked["read"]) == (200, 7)
    assert asked_bytes([writer, silent]) is None
    assert moved_bytes([writer, silent], host_load(8.0, 4.0)) == Counter()
    assert moved_bytes([writer], host_load(800.0, 4.0))["write", "disk"] == 800
    assert disk_bytes(host_load(8.0, 4.0)) == Counter(write=8, read=4)
    assert disk_bytes(silent) is None


LEVELS = {1: {"bs": "4k"}, 2: {"bs": "64k"}, 3: {"bs": "1M"}}


def warned(way: str, cells: Mapping[int, Sequence[float]]) -> list[str]:
    rows = [
        {"cell": cell, "node": None, "source": "storage", "metric": f"{way}.amplification", "value": value}
        for cell, values in cells.items()
        for value in values
    ]
    frame = pl.DataFrame(rows, schema_overrides={"node": pl.String})
    return [say(found).partition(":")[0] for found in in_memory(frame, LEVELS)]


@pytest.mark.parametrize(
    ("way", "cells", "sentence"),
    [
        ("write", {1: [1.0], 2: [0.9]}, None),
        ("write",
         {1: [1.0], 2: [0.2, 0.1, 0.9]},
         "When the load ended, only 20 % of what was written (bs=64k) had reached the disk"),
        ("write",
         {1: [0.0], 2: [0.499]},
         "When the load ended, only 0 % to 50 % of what was written had reached the disk"),
        ("read", {1: [0.2], 2: [0.11]}, None),
        ("read", {1: [1.0], 2: [0.05], 3: [0.001]}, "read (bs=64k and bs=1M), only 0.1 % to 5 % came from the disk"),
        ("read",
         {1: [0.0], 2: [0.0], 3: [0.0], 4: [0.0], 5: [1.0]},
         "read in 4 of 5 cells, only 0 % came from the disk"),
    ],
)  # fmt: skip
def test_cells_whose_bytes_were_not_at_the_disk_are_named(
    way: str, cells: Mapping[int, Sequence[float]], sentence: str | None
) -> None:
    found = warned(way, cells)
    assert len(found) == (sentence is not None)
    assert sentence is None or found[0].endswith(sentence)


LOAD = Measurements(metric_frame([Value("transactions", 1000, "1")]))
FLUSHES, BYTES = f"disk.{TARGET}.flushes", f"disk.{TARGET}.bytes_written"


def watched(**counted: float) -> Measurements:
    names = {"flushes": FLUSHES, "written": BYTES, "cpu": "cpu.busy.time"}
    return Measurements(metric_frame(Value(names[name], number, "1") for name, number in counted.items()))


def costs(
    at_load: list[Measurements], below: dict[str, Measurements], above: dict[str, set[str]] | None = None
) -> dict[str, float]:
    known = {node: (above or {}).get(node, set()) for node in below}
    found = per_transaction([LOAD], at_load, below, known)
    return {each.metric.removesuffix(".per-transaction"): each.value for each in found}


def test_disks_count_once_where_they_stand_on_each_other_by_their_machines() -> None:
    below = {"host": watched(written=8_400_000, flushes=1010), "db": watched(written=8_000_000, flushes=1000)}
    found = costs([watched(cpu=2.0)], below, {"host": {"db"}})
    assert found == pytest.approx({"bytes_written": 8000, "flushes": 1.0, "cpu.time": 0.002})
    assert costs([], {"db": watched(cpu=1.0), "host": watched(flushes=1010)}, {"host": {"db"}})["flushes"] == 1.01
    assert costs([], {"one": watched(flushes=400), "two": watched(flushes=600)}) == {"flushes": 1.0}
    assert costs([watched(flushes=500)], {"host": watched(flushes=1010)}) == {"flushes": 0.5}
    assert per_transaction([LOAD, watched(cpu=1.0)], [watched(flushes=1)], {}, {}) == []
    machine = {"client": "c", "db": "d", "other": "d", "host": "h"}
    standing = {"host": ["db", "client", "gone"], "other": ["client"]}
    assert watched_above(standing, machine) == {"host": {"other"}, "other": set()}


def seen(**numbers: float) -> Measurements:
    values = {name.replace("_", "."): number for name, number in numbers.items()}
    return Measurements(metrics=metric_frame(Value(name, number, "1") for name, number in values.items()))


CLIENT = seen(requests=10, segments_sent=12, bytes_sent=480, bytes_received=1_310_720, segments_received=25)
STORE = seen(segments_sent=910, bytes_sent=1_320_720, bytes_retransmitted=10_000, bytes_received=480)


def test_segments_of_both_ends_and_of_all_clients_are_added_up() -> None:
    assert derived(TcpProbe(), [CLIENT], others=[STORE]) == {"segments.per-request": 92.2}
    both = seen(segments_sent=1820, bytes_sent=2 * 1_310_720, bytes_received=960)
    assert derived(TcpProbe(), [CLIENT, CLIENT], others=[both]) == {"segments.per-request": 92.2}
    no_requests = seen(segments_sent=1, bytes_sent=480, bytes_received=1_310_720)
    assert derived(TcpProbe(), [no_requests], others=[STORE]) == {}


@pytest.mark.parametrize(
    "below",
    [[],
     [seen(segments_sent=910, bytes_sent=1_310_720, bytes_received=96_000)],
     [seen(segments_sent=1820, bytes_sent=2_621_440, bytes_received=480)]],
    ids=["not watched", "serves others as well", "is served itself"],
)  # fmt: skip
def test_where_the_other_end_is_not_known_there_is_no_number(below: list[Measurements]) -> None:
    assert derived(TcpProbe(), [CLIENT], others=below) == {}


def changing(trial: int, **settings: tuple[str, str]) -> TrialRecord:
    """``settings``: before and after."""
    changed = [ChangedSetting("host", name, before, after, before) for name, (before, after) in settings.items()]
    return TrialRecord(trial=trial, round=1, cell=1, levels={"fs": "xfs"}, status="done", changed=changed)


def test_each_number_of_trials_is_that_of_the_settings_beside_it() -> None:
    records = [changing(1, a=("1", "2"), b=("1", "2")), changing(2, b=("1", "3")), changing(3, c=("", "2"))]
    assert [*map(say, changed_settings(records))] == [
        "fs=xfs: 1 trial changed a from 1 to 2, which was put back",
        "fs=xfs: 2 trials changed b from 1 to 2 (not in all alike), which was put back",
        "fs=xfs: 1 trial changed c from nothing to 2, which was put back",
    ]


READ, WRITE, BOTH = (MetricSpec(f"{way}ios", "1", quantity="operations") for way in ("read.", "write.", ""))
EVENTS = MetricSpec("events", "1", quantity="operations")


def counted(*values: tuple[MetricSpec, float]) -> Measurements:
    specs = tuple(spec for spec, _ in values)
    return replace(Measurements(metric_frame([spec.value(value) for spec, value in values])), declared=specs)


def test_requests_of_all_nodes_are_divided_by_the_operations_of_all_loads_where_all_is_known() -> None:
    loads = [counted((READ, 30), (WRITE, 10)), counted((EVENTS, 10))]
    probe, name = ShareRequestsProbe(), PER_OPERATION.name
    assert derived(probe, [counted((ALL, 60)), counted((ALL, 40))], loads) == {name: 2.0}
    assert derived(probe, [counted((ALL, 40))], [counted((READ, 30), (BOTH, 40))]) == {name: 1.0}
    nothing = counted((MetricSpec("elapsed", "s"), 1.0))
    assert derived(probe, [counted((ALL, 40))], [counted((EVENTS, 1)), nothing]) == {}
    assert derived(probe, [counted((ALL, 40)), nothing], [counted((EVENTS, 1))]) == {}
    assert derived(probe, [], [counted((EVENTS, 1))]) == {}
