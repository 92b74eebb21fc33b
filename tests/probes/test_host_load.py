"""Probe ``host-load`` and the kernel counters that it reads: golden files of a real machine and trial, and rubbish."""

from __future__ import annotations

from pathlib import Path

import orjson
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import ParseError
from storlab.findings.runs import TooFewSamples
from storlab.measurements import Measurements
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.procfs import (
    CPU_STATES,
    DiskCounters,
    parse_activity,
    parse_cpu,
    parse_disk_stat,
    parse_diskstats,
    parse_loadavg,
    parse_pressure,
)
from storlab.probes.sampling import NAME, read_samples
from storlab.probes.subject import Interface, Subject, of_machine

from . import write_samples

TRIAL = (Path(__file__).parent / "golden" / "host-load.jsonl").read_bytes()
WINDOW = Window(3058.01741922, 3060.4604619220004)
LOOP0 = Subject(group="host", disks=("loop0",))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / NAME).write_bytes(TRIAL)
    return tmp_path


@pytest.fixture
def measured(raw: Path) -> Measurements:
    return HostLoadProbe().parse(ProbeRecord(raw, WINDOW, LOOP0))


def test_the_golden_trial_gives_these_numbers_and_shares_of_cpu_time_add_up_to_one(measured: Measurements) -> None:
    expected = orjson.loads((Path(__file__).parent / "golden" / "host-load.json").read_bytes())
    assert measured.totals() == pytest.approx(expected)
    assert measured.warnings == ()
    shares = [value for name, value in measured.totals().items() if name.removeprefix("cpu.") in CPU_STATES]
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) >= 0.0
    # By hand: user 97858 − 97394, system 15550 − 15528, softirq 355 − 350, each a hundredth of a second.
    found = measured.totals()
    assert found["cpu.busy.time"] == pytest.approx(4.64 + 0.22 + 0.05)
    assert found["cpu.kernel.time"] == pytest.approx(0.22 + 0.05)
    assert found["context_switches"] == 8401047 - 8363642
    assert found["interrupts"] == 1403276 - 1392714


def test_disks_are_counted_by_differences_under_one_name(raw: Path, measured: Measurements) -> None:
    def sectors_written(line: int) -> int:
        text = orjson.loads(TRIAL.split(b"\n")[line])["contents"][2]
        return int(next(row for row in text.splitlines() if " loop0 " in row).split()[9])

    assert measured.totals()["disk.target.bytes_written"] == (sectors_written(4) - sectors_written(1)) * 512
    found = measured.totals()
    assert found["disk.target.write_size"] == found["disk.target.bytes_written"] / found["disk.target.writes"]
    names = set(measured.totals())
    assert "disk.target.writes" in names
    assert not any(name.startswith("disk.loop0.") for name in names)


def test_softirqs_are_counted_by_kind_and_are_of_all_nodes_that_share_a_kernel(tmp_path: Path) -> None:
    head = "                    CPU0       CPU1\n      NET_TX:  {0}  1\n      NET_RX:  {1} {1}\n       BLOCK:  x 1\n"
    write_samples(tmp_path, ["/proc/softirqs"], *((t, [head.format(t, 10 * t)]) for t in (1, 2, 5)))
    networked = {name: Subject(group=name, interfaces=(Interface(name="e", address="10.0.0.1"),)) for name in "ab"}
    measured = HostLoadProbe().parse(ProbeRecord(tmp_path, Window(1, 5), of_machine(networked, "a")))
    assert measured.totals() == {"softirqs.net_tx": 4, "softirqs.net_rx": 80}
    assert measured.warnings == (
        "host-load: a, b share one kernel, whose interrupts, softirqs and CPU time are of all",
    )
    assert not of_machine({"a": networked["a"], "host": Subject(group="host")}, "host").sharing


def test_a_disk_that_was_not_read_has_no_size_of_reads(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(TRIAL.replace(b"loop0 82585", b"loop0 82580"))
    found = HostLoadProbe().parse(ProbeRecord(tmp_path, WINDOW, LOOP0)).totals()
    assert found["disk.target.reads"] == 0
    assert "disk.target.read_size" not in found


def test_a_series_begins_with_the_phase_and_too_few_samples_are_a_warning_not_a_number(
    measured: Measurements, raw: Path
) -> None:
    times = measured.series.filter(pl.col("metric") == "cpu.user")["t"].to_list()
    assert times == pytest.approx([0.969, 1.969, 2.444], abs=0.001)
    (raw / NAME).write_bytes(b"".join(TRIAL.splitlines(keepends=True)[:2]))
    measured = HostLoadProbe().parse(ProbeRecord(raw, WINDOW, Subject(group="host")))
    assert measured.metrics.is_empty()
    assert measured.found == (TooFewSamples("host-load"),)


@given(st.integers(0, len(TRIAL)))
def test_a_file_cut_off_by_a_crash_gives_what_was_whole(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    raw = tmp_path_factory.mktemp("cut")
    (raw / NAME).write_bytes(TRIAL[:length])
    whole = TRIAL[:length].count(b"\n")
    if whole == 0 and TRIAL[:length] != TRIAL.split(b"\n")[0]:
        with pytest.raises(ParseError):
            read_samples(raw)
        return
    assert len(read_samples(raw)) == max(whole - 1, 0)
    HostLoadProbe().parse(ProbeRecord(raw, WINDOW, LOOP0))


HEADS = (b"", b"[]\n", b'{"paths": 5}\n', b'{"path": []}\n', b"\xff\n")
LINES = (b"[]", b"7", b'{"t": 1}', b'{"t": [], "late": 0, "contents": []}', b'{"t"', b"null")


@pytest.mark.parametrize(
    ("text", "where"),
    [(head + TRIAL.partition(b"\n")[2], ":") for head in HEADS]
    + [(TRIAL + line + b"\n", ":6: is no sample") for line in LINES],
)
def test_a_file_without_its_head_and_a_line_that_is_no_sample_are_named(raw: Path, text: bytes, where: str) -> None:
    (raw / NAME).write_bytes(text)
    with pytest.raises(ParseError, match=f"{NAME}{where}"):
        read_samples(raw)


GOLDEN = Path(__file__).parent / "golden"
LOADAVG = "2.54 3.31 4.08 3/164 28163\n"
STAT = (GOLDEN / "stat.txt").read_text()
DISKSTATS = (GOLDEN / "diskstats.txt").read_text()
PRESSURE = """some avg10=23.24 avg60=10.74 avg300=7.99 total=494317095
full avg10=8.51 avg60=5.62 avg300=3.74 total=200677422
"""


def test_the_kernels_counters_are_read_in_their_units_and_old_ones_lack_some() -> None:
    assert parse_loadavg(LOADAVG) == (2.54, 3.31, 4.08)
    states = parse_cpu(STAT)
    assert states["user"] == 541232
    assert states["steal"] == 1441
    assert list(states) == ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]
    assert parse_activity("cpu  1 2 3\nintr 1392714 0 9 0\nctxt 8363642\nbtime 1\n") == (1392714, 8363642)
    assert parse_activity("intr 5 0\n") is None
    assert parse_activity(f"intr {'9' * 30}\nctxt 1\n") is None
    assert parse_pressure(PRESSURE) == {"some": 494.317095, "full": 200.677422}
    disks = parse_diskstats(DISKSTATS)
    assert disks["loop0"] == DiskCounters(
        reads=2765246, bytes_read=233826835 * 512, writes=1208702, bytes_written=145762895 * 512, in_flight=1,
        busy=494.604, discards=833, flushes=609848, reads_merged=209, writes_merged=332378, read_time=295.806,
        write_time=1227.033, flush_time=178.686,
    )  # fmt: skip
    assert disks["loop0"].completed == 2765246 + 1208702 + 833 + 609848
    assert parse_diskstats(DISKSTATS)["vda"].discards == 0
    assert parse_diskstats(DISKSTATS)["vda"].flushes == 0


@pytest.mark.parametrize("many", ["9" * 400, "9" * 5000])
def test_numbers_that_no_kernel_counts_up_to_are_none(many: str) -> None:
    assert parse_loadavg(f"{many} inf 1 1/2 3\n") is None
    assert parse_cpu(f"cpu {many} 1 1 1\n") == {}
    assert parse_pressure(f"some total={many}\n") == {}
    assert parse_disk_stat(f"{many} " * 11) is None
