"""sysbench 0.4 and 0.5, which print other lines: the same metrics, where they print them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.records.importers.sysbench import SysbenchImporter
from study.program import call

from .sysbench_files import (
    FILEIO,
    FILEIO_0_4,
    FILEIO_0_5,
    MEMORY_0_4,
    OLTP,
    OLTP_0_4,
    OLTP_0_5,
    one,
    parts,
    series,
    values,
)


def test_fileio_of_0_4_has_what_it_prints_and_its_counts_by_its_time() -> None:
    measured = one(FILEIO_0_4)
    assert measured.warnings == ()
    assert measured.facts["version"] == "0.4.12"
    assert (measured.facts["mode"], measured.facts["block size"]) == ("random r/w", "16Kb")
    found = values(measured)
    assert found == pytest.approx(
        {
            "bandwidth": 15.625 * 2**20,
            "read.bandwidth": 9.375 * 2**20,
            "write.bandwidth": 6.25 * 2**20,
            "iops": 1000.0,
            "read.iops": 600.0,
            "write.iops": 400.0,
            "fsync.rate": 639.36,
            "events": 100000,
            "time": 100.0,
            "latency.min": 0.00002,
            "latency.mean": 0.00313,
            "latency.max": 0.18125,
            "latency.p95": 0.01175,
            "latency.sum": 312.5,
            "threads.events.mean": 25000.0,
            "threads.events.stddev": 41.5,
            "threads.time.mean": 78.125,
            "threads.time.stddev": 0.25,
        }
    )
    assert found.keys() == {name.replace("p99", "p95") for name in values(one(FILEIO))}
    assert SysbenchImporter().primary_of(parts(FILEIO_0_4), {}) == "bandwidth"


@pytest.mark.parametrize(("unit", "factor"), [(b"Kb", 2**10), (b"Mb", 2**20), (b"Gb", 2**30), (b"b", 1)])
def test_sizes_of_0_4_are_in_the_unit_that_stands_there(unit: bytes, factor: int) -> None:
    text = FILEIO_0_4.replace(b"15.625Mb/sec", b"15.625%s/sec" % unit).replace(b"937.5Mb", b"937.5" + unit)
    assert values(one(text))["bandwidth"] == pytest.approx(15.625 * factor)
    assert values(one(text))["read.bandwidth"] == pytest.approx(9.375 * factor)


def test_oltp_of_0_4_and_0_5_has_the_metrics_of_1_0() -> None:
    for text in (OLTP_0_4, OLTP_0_5):
        measured = one(text)
        assert measured.warnings == ()
        missing = {"reconnects"} if text is OLTP_0_4 else set()
        assert values(measured).keys() == values(one(OLTP)).keys() - missing
    found = values(one(OLTP_0_4))
    assert (found["tps"], found["qps"], found["errors"]) == (400.0, 420019 / 50, 1)
    assert (found["queries"], found["queries.read"], found["latency.sum"]) == (420019, 280014, 399.5)
    found = values(one(OLTP_0_5))
    assert (found["tps"], found["errors"], found["reconnects"]) == (799.96, 1, 52)
    assert (found["latency.max"], found["latency.p95"]) == pytest.approx((0.11275, 0.0358))


def test_the_intervals_of_0_5_are_series() -> None:
    measured = one(OLTP_0_5)
    names = {"tps", "read.qps", "write.qps", "latency.p95", "errors.rate", "reconnects.rate"}
    assert set(measured.series["metric"]) == names
    assert series(measured, "tps") == [(5.0, 810.2), (10.0, 790.4), (15.0, 799.4)]
    assert series(measured, "write.qps")[1] == (10.0, 3161.6)
    assert series(measured, "latency.p95")[0] == pytest.approx((5.0, 0.03525))
    assert series(measured, "reconnects.rate")[2] == (15.0, 10.4)
    measured = one(FILEIO_0_5)
    assert measured.warnings == ()
    assert set(measured.series["metric"]) == {"bandwidth", "read.bandwidth", "latency.p99"}
    assert series(measured, "read.bandwidth") == [(3.0, 7.25 * 2**20), (6.0, 8.38 * 2**20)]
    assert {"write.iops", "write.bandwidth", "fsync.rate"}.isdisjoint(values(measured))


def test_other_builds_of_0_5_print_other_intervals() -> None:
    early = re.sub(rb", errors: .*", b"", OLTP_0_5)
    early = (
        early.replace(b", reads:", b", reads/s:").replace(b"writes:", b"writes/s:").replace(b", response", b" response")
    )
    assert set(one(early).series["metric"]) == {"tps", "read.qps", "write.qps", "latency.p95"}
    assert series(one(early), "tps") == series(one(OLTP_0_5), "tps")
    micro = OLTP_0_5.replace(b"35.25ms (95%)", b"35250.00us (95%)")
    assert series(one(micro), "latency.p95")[0] == pytest.approx((5.0, 0.03525))
    assert series(one(micro), "latency.p95")[1:] == series(one(OLTP_0_5), "latency.p95")[1:]


def test_memory_of_0_4_counts_events_and_has_its_options() -> None:
    measured = one(MEMORY_0_4)
    assert values(measured)["eps"] == pytest.approx(1310720.0)
    assert (measured.facts["memory operation"], measured.facts["memory block"]) == ("write", "1K")


def test_a_damaged_interval_of_0_5_costs_only_itself() -> None:
    measured = one(OLTP_0_5.replace(b"tps: 790.40", b"tps: 79#.40"))
    assert [t for t, _ in series(measured, "tps")] == [5.0, 15.0]
    assert measured.warnings == ("1 of 3 lines of intervals are cut short or damaged; the others count",)


def test_of_a_run_of_0_5_without_its_closing_block_the_intervals_count() -> None:
    measured = one(OLTP_0_5[: OLTP_0_5.index(b"OLTP test statistics")])
    assert values(measured)["tps"] == pytest.approx((810.2 + 790.4 + 799.4) / 3)
    assert "it has no closing block" in measured.warnings[0]


def test_where_time_goes_back_the_line_is_named() -> None:
    text = OLTP_0_5.replace(b"[  15s]", b"[   5s]")
    line = text.splitlines().index(next(each for each in text.splitlines() if b"799.40" in each)) + 1
    with pytest.raises(ParseError, match=rf"^x\.txt:{line}: goes back in time"):
        parts(text)


def test_a_run_that_counted_no_event_failed() -> None:
    failed = (
        FILEIO_0_4.replace(b"events:              100000", b"events:              0")
        .replace(b"Threads started!\n", b"Threads started!\nFATAL: Failed to read file! file: 3 pos: 8192\n")
        .replace(b"           0.02ms", b"18446744073709.55ms")
    )
    found = parts(FILEIO_0_4 + failed)
    assert [part.status for part in found] == ["done", "failed"]
    assert found[1].reason == "FATAL: Failed to read file! file: 3 pos: 8192"
    assert found[1].measured.metrics.is_empty()


def test_runs_of_all_versions_are_reported_together(tmp_path: Path) -> None:
    files = []
    for name, text in (("0.4", OLTP_0_4), ("0.5", OLTP_0_5), ("1.0", OLTP)):
        files.append(tmp_path / f"{name}.txt")
        files[-1].write_bytes(text)
    run = tmp_path / "run"
    imported = call("import", "sysbench", *map(str, files), "--factor", "version=0.4,0.5,1.0", "--out", str(run))
    assert "3 trials of 3 cells" in imported.output, imported.message
    assert call("report", str(run)).status == 0


@given(
    st.binary(max_size=60),
    st.integers(0, len(OLTP_0_5)),
    st.integers(0, 40),
    st.sampled_from([FILEIO_0_4, OLTP_0_4, MEMORY_0_4, FILEIO_0_5, OLTP_0_5]),
)
def test_damage_is_read_or_refused_and_never_fails_otherwise(new: bytes, at: int, length: int, text: bytes) -> None:
    try:
        found = parts(text[:at] + new + text[at + length :])
    except ParseError:
        return
    for part in found:
        for frame in (part.measured.metrics, part.measured.series):
            assert frame["value"].is_finite().all()
