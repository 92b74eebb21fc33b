"""sysbench's text: all of what it printed, in base units, and nothing that it didn't."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.importing.cells import primary_of
from storlab.importing.importer import Part
from storlab.importing.sysbench import SysbenchImporter
from storlab.measurements import Measurements

GOLDEN = Path(__file__).parent / "golden"
OLTP = (GOLDEN / "sysbench-oltp.txt").read_bytes()
FILEIO = (GOLDEN / "sysbench-fileio.txt").read_bytes()
RATE = (GOLDEN / "sysbench-rate.txt").read_bytes()
CHECKPOINTS = (GOLDEN / "sysbench-checkpoints.txt").read_bytes()
HISTOGRAM = (GOLDEN / "sysbench-histogram.txt").read_bytes()


def parts(text: bytes) -> list[Part]:
    return list(SysbenchImporter().read(text, "x.txt", {}))


def one(text: bytes) -> Measurements:
    (part,) = parts(text)
    return part.measured


def values(measured: Measurements) -> dict[str, float]:
    return dict(measured.metrics.select("metric", "value").iter_rows())


def series(measured: Measurements, metric: str) -> list[tuple[float, float]]:
    return list(measured.series.filter(metric=metric).select("t", "value").iter_rows())


BANNER = b"sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)\n\n"


TOTALS = {
    "tps": 5374.40, "qps": 107488.22, "transactions": 232174309, "queries": 4643493200, "queries.read": 3250446290,
    "queries.write": 928697866, "queries.other": 464349044, "events": 232174309, "errors": 426, "reconnects": 0,
    "latency.mean": 5529015010.01 / 232174309 / 1000, "latency.min": 0.00309, "latency.max": 0.21124,
    "latency.p95": 0.03372, "latency.sum": 5529015.01001, "time": 43200.0172, "threads.events.mean": 1813861.7891,
    "threads.events.stddev": 2345.89, "threads.time.mean": 43195.4298, "threads.time.stddev": 0.06,
}  # fmt: skip


def test_oltp_is_read_as_it_was_printed() -> None:
    measured = one(OLTP)
    assert measured.warnings == ()
    told = {"report interval": "2 second", "random numbers from": "current time"}
    assert measured.facts == {"version": "1.0.17", "test": "oltp", "threads": 128, **told}
    assert series(measured, "tps")[:2] == [(2.0, 4903.39), (4.0, 5409.01)]
    names = ("read.qps", "write.qps", "other.qps", "latency.p95", "errors.rate")
    assert [series(measured, name)[0][1] for name in names] == pytest.approx([69198.36, 19648.52, 9870.21, 0.03559, 0])
    assert len(series(measured, "reconnects.rate")) == 12 and values(measured) == pytest.approx(TOTALS)


def test_means_are_known_better_than_printed_and_a_run_without_intervals_has_its_closing_block() -> None:
    assert b"avg:                                    0.04\n" in FILEIO
    assert values(one(FILEIO))["latency.mean"] == pytest.approx(5894.34 / 156830 / 1000, rel=1e-9)
    no_sum = FILEIO[: FILEIO.index(b"sum:")]
    assert values(one(no_sum))["latency.mean"] == pytest.approx(0.04e-3)
    assert [t for t, _ in series(one(OLTP), "tps")] == [2.0 * n for n in range(1, 13)]
    assert [t for t, _ in series(one(FILEIO), "bandwidth")] == [1.0, 2.0]
    text = OLTP[: OLTP.index(b"SQL statistics")] + b"FATAL: mysql_stmt_execute() returned error 2013\n" * 3
    assert "FATAL, 3 times; first: mysql_stmt_execute()" in " ".join(one(text).warnings)
    text = OLTP[: OLTP.index(b"[ 2s")] + OLTP[OLTP.index(b"SQL statistics") :]
    assert one(text).series.is_empty() and (one(text).warnings, values(one(text))) == ((), values(one(OLTP)))


def test_fileio_is_in_bytes_with_its_options_and_seed_and_what_it_did_not_do_is_absent() -> None:
    measured = one(FILEIO)
    found = values(measured)
    assert (found["read.bandwidth"], found["write.bandwidth"]) == (470.67 * 2**20, 313.78 * 2**20)
    assert found["bandwidth"] == pytest.approx((470.67 + 313.78) * 2**20)
    assert found["iops"] == pytest.approx(30122.57 + 20081.72)
    assert (found["fsync.rate"], found["latency.p99"]) == pytest.approx((2010.17, 0.0006))
    assert series(measured, "read.bandwidth")[0] == (1.0, 421.07 * 2**20)
    assert series(measured, "fsync.rate")[0] == (1.0, 1793.59)
    assert series(measured, "latency.p99")[0] == pytest.approx((1.0, 0.00069))
    assert [measured.facts[name] for name in ("seed", "mode", "block size")] == ["7", "random r/w", "16KiB"]
    assert primary_of(SysbenchImporter(), [parts(FILEIO)]) == "bandwidth"
    only_reads = FILEIO.replace(b"313.78", b"0.00").replace(b"20081.72", b"0.00").replace(b"2010.17", b"0.00")
    for number in (b"280.72", b"342.09", b"1793.59", b"2188.36"):
        only_reads = only_reads.replace(number, b"0.00")
    measured = one(only_reads)
    assert not {"write.bandwidth", "write.iops", "fsync.rate"} & values(measured).keys()
    assert set(measured.series["metric"]) == {"bandwidth", "read.bandwidth", "latency.p99"}


def test_events_of_other_tests_are_counted_and_queue_lines_left_out() -> None:
    measured = one(RATE)
    assert measured.warnings == ()
    assert set(measured.series["metric"]) == {"eps"}  # --percentile=0: the 0.00 there is no latency
    assert not any(name.startswith("latency.p") for name in values(measured))
    found = values(measured)
    assert (found["eps"], measured.facts["rate"]) == (found["events"] / found["time"], "500/sec")
    assert primary_of(SysbenchImporter(), [parts(RATE)]) == "eps"


def test_a_damaged_line_costs_only_itself_and_lines_of_other_programs_nothing() -> None:
    measured = one(OLTP.replace(b"tps: 5409.01", b"tps: 54#9.01"))
    assert [t for t, _ in series(measured, "tps")][:3] == [2.0, 6.0, 8.0]
    assert "1 of 12 lines of intervals" in measured.warnings[0]
    count = OLTP.count(b"\n[ ")
    measured = one(OLTP.replace(b"reconn/s: ", b"reconnected: "))
    assert measured.series.is_empty()
    assert measured.warnings == (
        f"none of its {count} lines of intervals is like those of sysbench: there are no series",
    )
    lines = OLTP.splitlines(keepends=True)
    mixed = b"".join(line + b"2026-11-21 mysqld: [Note] checkpoint / (12%)\n\n" for line in lines)
    assert one(mixed).series.equals(one(OLTP).series) and values(one(mixed)) == values(one(OLTP))
    assert one(OLTP.replace(b"\n", b"\r\n")).series.equals(one(OLTP).series)


def test_the_histogram_counts_every_event_and_holds_its_percentiles() -> None:
    measured = one(HISTOGRAM)
    found = measured.histograms
    assert (measured.warnings, found["metric"].unique().to_list()) == ((), ["latency"])
    assert found["count"].sum() == values(measured)["events"] and (found["lower"] < found["upper"]).all()
    assert (found["upper"] <= found["lower"].shift(-1)).drop_nulls().all()
    assert found["upper"][0] > values(measured)["latency.min"] - 5e-6  # which has two decimals of a millisecond
    assert found["lower"][-1] < values(measured)["latency.max"] + 5e-6
    below = found.filter(pl.col("upper") < values(measured)["latency.p95"] - 5e-6)["count"].sum()
    until = found.filter(pl.col("lower") < values(measured)["latency.p95"] + 5e-6)["count"].sum()
    assert below <= 0.95 * values(measured)["events"] <= until
    assert len(series(measured, "eps")) == HISTOGRAM.count(b"\n[ ")


def test_buckets_that_are_printed_alike_are_one_bin_unless_all_are_there() -> None:
    head, heading, rest = HISTOGRAM.partition(b"distribution ------------- count\n")
    end = rest[rest.index(b"\n \n") :]

    def bins(*lines: bytes) -> list[tuple[float, float, int]]:
        block = b"".join(b"%12s |*     %d\n" % (line, 7) for line in lines)
        return list(one(head + heading + block + end).histograms.select("lower", "upper", "count").iter_rows())

    assert bins(b"100000.000") == [pytest.approx((99.1, 100.9, 7), rel=1e-3)]
    ((lower, upper, count),) = bins(b"0.020", b"0.020")  # of three
    assert (lower, upper, count) == pytest.approx((19.3e-6, 20.4e-6, 14), rel=0.005)
    assert [count for _, _, count in bins(b"0.020", b"0.020", b"0.020")] == [7, 7, 7]


NOTHING = (
    b"",
    bytes(range(256)) * 50,
    b"\x7fELF\2\1\1" + bytes(4096),
    b'{"jobs": []}\n',
    b"[ 2s ] thds: 1 tps: none\n",
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, ": is no output of sysbench") for text in NOTHING),
        (BANNER + b"Creating file test_file.0\n", ": holds no result of sysbench, only what it prints"),
        (BANNER + b"FATAL: Cannot open file 'test_file.0'\n", ": holds no result of sysbench, which ended with"),
        (OLTP.replace(b"[ 6s ]", b"[ 1s ]"), ":15: goes back in time"),
    ],
)
def test_what_is_not_of_sysbench_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(ParseError) as refused:
        parts(text)
    assert str(refused.value).startswith(f"x.txt{says}")


cents = st.integers(0, 10**9).map(lambda number: number / 100)


@given(
    st.lists(st.tuples(*[cents] * 8), min_size=1, max_size=20),
    st.integers(1, 3600),
    st.integers(1, 99),
    st.integers(1, 999),
)
def test_what_was_written_is_read_back(
    rows: list[tuple[float, ...]], interval: int, percentile: int, threads: int
) -> None:
    text = "".join(
        f"[ {at * interval}s ] thds: {threads} tps: {tps:.2f} qps: {qps:.2f} (r/w/o: {r:.2f}/{w:.2f}/{o:.2f}) "
        f"lat (ms,{percentile}%): {lat:.2f} err/s: {err:.2f} reconn/s: {reconn:.2f}\n"
        for at, (tps, qps, r, w, o, lat, err, reconn) in enumerate(rows, start=1)
    )
    measured = one(text.encode())
    queries = ("tps", "qps", "read.qps", "write.qps", "other.qps")
    for column, name in enumerate((*queries, f"latency.p{percentile}", "errors.rate", "reconnects.rate")):
        scale = 1e-3 if "latency" in name else 1
        expected = [(float(at * interval), row[column] * scale) for at, row in enumerate(rows, start=1)]
        assert series(measured, name) == expected
