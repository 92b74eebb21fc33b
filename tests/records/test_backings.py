"""Amplification at disks beneath other nodes' disks: of counters, and of whole trials."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.measurements import Measurements, Value, metric_frame
from storlab.probes.procfs import DiskCounters
from storlab.records.backings import asked_bytes, backing_metrics, counted, guest_disk_bytes, read_counters

counts = st.integers(0, 2**50)


def load(**values: float) -> Measurements:
    return Measurements(metric_frame(Value(name.replace("_", "."), value, "B") for name, value in values.items()))


def host_load(written: float, read: float) -> Measurements:
    names = {"disk.target.bytes_written": written, "disk.target.bytes_read": read}
    return Measurements(metric_frame(Value(name, value, "B") for name, value in names.items()))


def disk(written: int = 0, writes: int = 0, flushes: int = 0, read: int = 0, reads: int = 0) -> DiskCounters:
    return DiskCounters(reads, read, writes, written, 0, 0.0, 0, flushes)


def values(metrics: list[Value]) -> dict[str, float]:
    return {each.metric: each.value for each in metrics}


@given(counts, counts, counts, st.integers(1, 2**50), st.integers(1, 2**50))
def test_amplification_is_what_was_written_beneath_for_each_byte_above(
    before: int, written: int, read: int, asked: int, at_guests: int
) -> None:
    did = counted(disk(before, read=before), disk(before + written, read=before + read))
    metrics = values(
        backing_metrics(
            did,
            Counter({"write.bytes": asked, "read.bytes": asked}),
            Counter({"disk.target.bytes_written": at_guests, "disk.target.bytes_read": at_guests}),
            drain=0.5,
        )
    )
    assert metrics["backing.write.bytes"] == written
    assert metrics["backing.drain"] == 0.5
    assert metrics["write.amplification.backing"] == written / asked
    assert metrics["write.amplification.guest-disk"] == written / at_guests
    assert metrics["read.amplification.backing"] == read / asked
    assert metrics["read.amplification.guest-disk"] == read / at_guests


def test_a_ratio_to_what_is_unknown_or_nothing_is_left_out_and_the_counts_stand() -> None:
    did = counted(disk(), disk(4096, writes=1, flushes=2))
    assert values(backing_metrics(did, None, None, 0.1)) == {
        "backing.write.bytes": 4096,
        "backing.writes": 1,
        "backing.flushes": 2,
        "backing.read.bytes": 0,
        "backing.reads": 0,
        "backing.drain": 0.1,
    }
    nothing = backing_metrics(did, Counter({"write.bytes": 0}), Counter(), 0.1)
    assert not any("amplification" in name for name in values(nothing))


def test_bytes_of_all_workloads_above_are_added_and_one_that_keeps_silent_makes_them_unknown() -> None:
    writer, reader, silent = load(write_bytes=100.0, bytes=100.0), load(read_bytes=7.0, bytes=7.0), load(elapsed=3.0)
    assert asked_bytes([writer, writer, reader]) == Counter({"write.bytes": 200, "read.bytes": 7})
    assert asked_bytes([writer, silent]) is None
    assert guest_disk_bytes(host_load(8.0, 4.0)) == Counter(
        {"disk.target.bytes_written": 8, "disk.target.bytes_read": 4}
    )
    assert guest_disk_bytes(silent) is None


STAT = "  10 0 80 5  20 0 {sectors} 9  0 30 14  0 0 0 0  {flushes} 2\n"


def test_counters_are_read_as_the_kernel_wrote_them(tmp_path: Path) -> None:
    (tmp_path / "before.stat").write_text(STAT.format(sectors=160, flushes=3))
    (tmp_path / "after.stat").write_text(STAT.format(sectors=168, flushes=5))
    both = read_counters(tmp_path)
    assert both is not None
    assert counted(*both)["backing.write.bytes"] == 4096
    assert counted(*both)["backing.flushes"] == 2


@pytest.mark.parametrize("after", ["", "rubbish", STAT.format(sectors=1, flushes=0), None])
def test_counters_that_are_missing_damaged_or_ran_backwards_are_none(tmp_path: Path, after: str | None) -> None:
    (tmp_path / "before.stat").write_text(STAT.format(sectors=160, flushes=3))
    if after is not None:
        (tmp_path / "after.stat").write_text(after)
    assert read_counters(tmp_path) is None
