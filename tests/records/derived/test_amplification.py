"""Amplification at disks underneath other nodes' disks, from counts."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from storlab.formats.fio.declared import declared
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import Value
from storlab.probes.host_load import HostLoadProbe
from storlab.records.derived.amplification import asked_bytes, backing_amplification, disk_bytes, moved_bytes

HOST_LOAD = HostLoadProbe().declares()
counts = st.integers(0, 2**50)
some = st.integers(1, 2**50)


def load(**values: float) -> Measurements:
    found = (Value(name.replace("_", "."), value, "B") for name, value in values.items())
    return Measurements(metric_frame(found), declared=declared())


def host_load(written: float, read: float) -> Measurements:
    names = {"disk.target.bytes_written": written, "disk.target.bytes_read": read}
    return Measurements(metric_frame(Value(name, value, "B") for name, value in names.items()), declared=HOST_LOAD)


def values(metrics: list[Value]) -> dict[str, float]:
    return {each.metric: each.value for each in metrics}


@given(counts, counts, some, some, some, some)
def test_amplification_is_what_was_moved_underneath_for_each_byte_above(
    written: int, read: int, asked_to_write: int, asked_to_read: int, to_disk: int, from_disk: int
) -> None:
    backing = Counter(write=written, read=read)
    asked = Counter(write=asked_to_write, read=asked_to_read)
    assert values(backing_amplification(backing, asked, Counter(write=to_disk, read=from_disk))) == {
        "write.amplification.backing": written / asked_to_write,
        "write.amplification.guest-disk": written / to_disk,
        "read.amplification.backing": read / asked_to_read,
        "read.amplification.guest-disk": read / from_disk,
    }


def test_a_ratio_to_what_is_unknown_or_nothing_is_left_out() -> None:
    backing = Counter(write=4096, read=0)
    assert backing_amplification(backing, None, None) == []
    assert backing_amplification(backing, Counter(write=0), Counter()) == []


def test_bytes_of_all_workloads_above_are_added_and_one_that_keeps_silent_makes_them_unknown() -> None:
    writer, reader, silent = load(write_bytes=100.0, bytes=100.0), load(read_bytes=7.0, bytes=7.0), load(elapsed=3.0)
    asked = asked_bytes([writer, writer, reader])
    assert asked is not None and (asked["write"], asked["read"]) == (200, 7)
    assert asked_bytes([writer, silent]) is None
    assert moved_bytes([writer, silent], host_load(8.0, 4.0)) == Counter()
    assert moved_bytes([writer], host_load(800.0, 4.0))["write", "disk"] == 800
    assert disk_bytes(host_load(8.0, 4.0)) == Counter(write=8, read=4)
    assert disk_bytes(silent) is None
