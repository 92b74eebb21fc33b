"""Probe ``host-load`` on the samples of a real trial, and of damaged files."""

from __future__ import annotations

from pathlib import Path

import orjson
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.measurements import Measurements
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.procfs import CPU_STATES
from storlab.probes.sampling import NAME, read_samples
from storlab.probes.subject import Subject

GOLDEN = (Path(__file__).parent / "golden" / "host-load.jsonl").read_bytes()
WINDOW = Window(3058.01741922, 3060.4604619220004)
LOOP0 = Subject(group="host", disks=("loop0",))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / NAME).write_bytes(GOLDEN)
    return tmp_path


@pytest.fixture
def measured(raw: Path) -> Measurements:
    return HostLoadProbe().parse(ProbeRecord(raw, WINDOW, LOOP0))


def values(measured: Measurements) -> dict[str, float]:
    return dict(measured.metrics.select("metric", "value").iter_rows())


def test_the_golden_trial_gives_these_numbers(measured: Measurements) -> None:
    expected = orjson.loads((Path(__file__).parent / "golden" / "host-load.json").read_bytes())
    assert values(measured) == pytest.approx(expected)
    assert measured.warnings == ()


def test_shares_of_cpu_time_add_up_to_one(measured: Measurements) -> None:
    shares = [value for name, value in values(measured).items() if name.removeprefix("cpu.") in CPU_STATES]
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) >= 0.0


def test_what_disks_did_is_the_difference_of_their_counters(raw: Path, measured: Measurements) -> None:
    def sectors_written(line: int) -> int:
        text = orjson.loads(GOLDEN.split(b"\n")[line])["contents"][2]
        return int(next(row for row in text.splitlines() if " loop0 " in row).split()[9])

    assert values(measured)["disk.target.bytes_written"] == (sectors_written(4) - sectors_written(1)) * 512


def test_work_of_the_cpus_is_counted_in_seconds_without_idleness_and_what_was_stolen(measured: Measurements) -> None:
    """By hand: user 97858 − 97394, system 15550 − 15528, softirq 355 − 350, each a hundredth of a second."""
    found = values(measured)
    assert found["cpu.busy.time"] == pytest.approx(4.64 + 0.22 + 0.05)
    assert found["cpu.kernel.time"] == pytest.approx(0.22 + 0.05)
    assert found["context_switches"] == 8401047 - 8363642
    assert found["interrupts"] == 1403276 - 1392714


def test_the_size_of_a_request_is_that_of_all_requests_together(measured: Measurements) -> None:
    found = values(measured)
    assert found["disk.target.write_size"] == found["disk.target.bytes_written"] / found["disk.target.writes"]


def test_a_disk_that_was_not_read_has_no_size_of_reads(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(GOLDEN.replace(b"loop0 82585", b"loop0 82580"))
    found = values(HostLoadProbe().parse(ProbeRecord(tmp_path, WINDOW, LOOP0)))
    assert found["disk.target.reads"] == 0
    assert "disk.target.read_size" not in found


def test_a_series_has_a_point_a_second_and_begins_with_the_measured_phase(measured: Measurements) -> None:
    times = measured.series.filter(pl.col("metric") == "cpu.user")["t"].to_list()
    assert times == pytest.approx([0.969, 1.969, 2.444], abs=0.001)


def test_the_disk_under_test_goes_by_one_name_in_all_trials(measured: Measurements) -> None:
    names = set(values(measured))
    assert "disk.target.writes" in names
    assert not any(name.startswith("disk.loop0.") for name in names)


@given(st.integers(0, len(GOLDEN)))
def test_a_file_cut_off_by_a_crash_gives_what_was_whole(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    raw = tmp_path_factory.mktemp("cut")
    (raw / NAME).write_bytes(GOLDEN[:length])
    whole = GOLDEN[:length].count(b"\n")
    if whole == 0 and GOLDEN[:length] != GOLDEN.split(b"\n")[0]:
        with pytest.raises(ParseError):
            read_samples(raw)
        return
    assert len(read_samples(raw)) == max(whole - 1, 0)
    HostLoadProbe().parse(ProbeRecord(raw, WINDOW, LOOP0))


@given(st.integers(0), st.binary(max_size=20), st.integers(0, 60))
def test_a_damaged_file_is_read_or_named_with_the_line(
    tmp_path_factory: pytest.TempPathFactory, place: int, other: bytes, length: int
) -> None:
    raw = tmp_path_factory.mktemp("damaged")
    at = place % len(GOLDEN)
    (raw / NAME).write_bytes(GOLDEN[:at] + other + GOLDEN[at + length :])
    try:
        HostLoadProbe().parse(ProbeRecord(raw, WINDOW, LOOP0))
    except ParseError as error:
        assert f"{NAME}:" in str(error)


@pytest.mark.parametrize("line", [b"[]", b"7", b'{"t": 1}', b'{"t": [], "late": 0, "contents": []}', b'{"t"', b"null"])
def test_a_line_that_is_no_sample_is_named(raw: Path, line: bytes) -> None:
    (raw / NAME).write_bytes(GOLDEN + line + b"\n")
    with pytest.raises(ParseError, match=f"{NAME}:6: is no sample"):
        read_samples(raw)


@pytest.mark.parametrize("head", [b"", b"[]\n", b'{"paths": 5}\n', b'{"path": []}\n', b"\xff\n"])
def test_a_file_without_its_head_is_named(raw: Path, head: bytes) -> None:
    (raw / NAME).write_bytes(head + b"".join(GOLDEN.splitlines(keepends=True)[1:]))
    with pytest.raises(ParseError, match=f"{NAME}:"):
        read_samples(raw)


def test_too_few_samples_are_a_warning_not_a_number(raw: Path) -> None:
    (raw / NAME).write_bytes(b"".join(GOLDEN.splitlines(keepends=True)[:2]))
    measured = HostLoadProbe().parse(ProbeRecord(raw, WINDOW, Subject(group="host")))
    assert measured.metrics.is_empty()
    assert measured.warnings == ("host-load: too few samples in the measured phase",)
