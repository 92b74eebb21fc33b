"""Kernel counters: golden files of a real machine, and rubbish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.probes.procfs import (
    DiskCounters,
    parse_activity,
    parse_cpu,
    parse_disk_stat,
    parse_diskstats,
    parse_loadavg,
    parse_pressure,
)

GOLDEN = Path(__file__).parent / "golden"
LOADAVG = "2.54 3.31 4.08 3/164 28163\n"
STAT = (GOLDEN / "stat.txt").read_text()
DISKSTATS = (GOLDEN / "diskstats.txt").read_text()
PRESSURE = """some avg10=23.24 avg60=10.74 avg300=7.99 total=494317095
full avg10=8.51 avg60=5.62 avg300=3.74 total=200677422
"""


def test_load_averages() -> None:
    assert parse_loadavg(LOADAVG) == (2.54, 3.31, 4.08)


def test_cpu_ticks_are_those_of_all_cpus_together() -> None:
    states = parse_cpu(STAT)
    assert states["user"] == 541232
    assert states["steal"] == 1441
    assert list(states) == ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]


def test_interrupts_and_context_switches_are_those_since_boot() -> None:
    assert parse_activity("cpu  1 2 3\nintr 1392714 0 9 0\nctxt 8363642\nbtime 1\n") == (1392714, 8363642)
    assert parse_activity("intr 5 0\n") is None
    assert parse_activity(f"intr {'9' * 30}\nctxt 1\n") is None


def test_pressure_is_in_seconds() -> None:
    assert parse_pressure(PRESSURE) == {"some": 494.317095, "full": 200.677422}


def test_disk_counters_are_bytes_operations_and_seconds() -> None:
    disks = parse_diskstats(DISKSTATS)
    assert disks["loop0"] == DiskCounters(
        reads=2765246,
        bytes_read=233826835 * 512,
        writes=1208702,
        bytes_written=145762895 * 512,
        in_flight=1,
        busy=494.604,
        discards=833,
        flushes=609848,
        reads_merged=209,
        writes_merged=332378,
        read_time=295.806,
        write_time=1227.033,
        flush_time=178.686,
    )
    assert disks["loop0"].completed == 2765246 + 1208702 + 833 + 609848


def test_kernels_before_4_18_have_neither_discards_nor_flushes() -> None:
    assert parse_diskstats(DISKSTATS)["vda"].discards == 0
    assert parse_diskstats(DISKSTATS)["vda"].flushes == 0


@pytest.mark.parametrize("many", ["9" * 400, "9" * 5000])
def test_numbers_that_no_kernel_counts_up_to_are_none(many: str) -> None:
    assert parse_loadavg(f"{many} inf 1 1/2 3\n") is None
    assert parse_cpu(f"cpu {many} 1 1 1\n") == {}
    assert parse_pressure(f"some total={many}\n") == {}
    assert parse_disk_stat(f"{many} " * 11) is None


PARSERS: list[tuple[Callable[[str], Any], str]] = [
    (parse_loadavg, LOADAVG),
    (parse_cpu, STAT),
    (parse_activity, STAT),
    (parse_pressure, PRESSURE),
    (parse_disk_stat, DISKSTATS.split("loop0")[1].split("\n")[0]),
    (parse_diskstats, DISKSTATS),
]


@pytest.mark.parametrize(("parse", "text"), PARSERS)
@given(other=st.text(), place=st.integers(0), length=st.integers(0, 60))
def test_no_text_and_no_damage_is_an_exception(
    parse: Callable[[str], Any], text: str, other: str, place: int, length: int
) -> None:
    parse(other)
    at = place % len(text)
    parse(text[:at] + other[:5] + text[at + length :])
    parse(text[:at])
