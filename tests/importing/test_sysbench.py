"""sysbench's text: all of what it printed, in base units, and nothing that it didn't; and runs of it in one file.

Two readers of its intervals, a fast one and a careful one, agree.
"""

import re
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab import open_run
from storlab.tools.cells import primary_of
from storlab.tools.sysbench.blocks import LAYOUTS, Test, alike, each, read_intervals
from storlab.tools.sysbench.importer import SysbenchImporter
from study.program import call

from . import GOLDEN, read, read_one, series

OLTP = (GOLDEN / "sysbench-oltp.txt").read_bytes()
FILEIO = (GOLDEN / "sysbench-fileio.txt").read_bytes()
RATE = (GOLDEN / "sysbench-rate.txt").read_bytes()
CHECKPOINTS = (GOLDEN / "sysbench-checkpoints.txt").read_bytes()
HISTOGRAM = (GOLDEN / "sysbench-histogram.txt").read_bytes()

parts, one = partial(read, "sysbench"), partial(read_one, "sysbench")

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
    assert len(series(measured, "reconnects.rate")) == 12 and measured.totals() == pytest.approx(TOTALS)


def test_means_are_known_better_than_printed_and_a_run_without_intervals_has_its_closing_block() -> None:
    assert b"avg:                                    0.04\n" in FILEIO
    assert one(FILEIO).totals()["latency.mean"] == pytest.approx(5894.34 / 156830 / 1000, rel=1e-9)
    no_sum = FILEIO[: FILEIO.index(b"sum:")]
    assert one(no_sum).totals()["latency.mean"] == pytest.approx(0.04e-3)
    assert [t for t, _ in series(one(OLTP), "tps")] == [2.0 * n for n in range(1, 13)]
    assert [t for t, _ in series(one(FILEIO), "bandwidth")] == [1.0, 2.0]
    text = OLTP[: OLTP.index(b"SQL statistics")] + b"FATAL: mysql_stmt_execute() returned error 2013\n" * 3
    assert "FATAL, 3 times; first: mysql_stmt_execute()" in " ".join(one(text).warnings)
    text = OLTP[: OLTP.index(b"[ 2s")] + OLTP[OLTP.index(b"SQL statistics") :]
    assert one(text).series.is_empty() and (one(text).warnings, one(text).totals()) == ((), one(OLTP).totals())


def test_fileio_is_in_bytes_with_its_options_and_seed_and_what_it_did_not_do_is_absent() -> None:
    measured = one(FILEIO)
    found = measured.totals()
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
    assert not {"write.bandwidth", "write.iops", "fsync.rate"} & measured.totals().keys()
    assert set(measured.series["metric"]) == {"bandwidth", "read.bandwidth", "latency.p99"}


def test_events_of_other_tests_are_counted_and_queue_lines_left_out() -> None:
    measured = one(RATE)
    assert measured.warnings == ()
    assert set(measured.series["metric"]) == {"eps"}  # --percentile=0: the 0.00 there is no latency
    assert not any(name.startswith("latency.p") for name in measured.totals())
    found = measured.totals()
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
    assert one(mixed).series.equals(one(OLTP).series) and one(mixed).totals() == one(OLTP).totals()
    assert one(OLTP.replace(b"\n", b"\r\n")).series.equals(one(OLTP).series)


def test_the_histogram_counts_every_event_and_holds_its_percentiles() -> None:
    measured = one(HISTOGRAM)
    found = measured.histograms
    assert (measured.warnings, found["metric"].unique().to_list()) == ((), ["latency"])
    assert found["count"].sum() == measured.totals()["events"] and (found["lower"] < found["upper"]).all()
    assert (found["upper"] <= found["lower"].shift(-1)).drop_nulls().all()
    assert found["upper"][0] > measured.totals()["latency.min"] - 5e-6  # which has two decimals of a millisecond
    assert found["lower"][-1] < measured.totals()["latency.max"] + 5e-6
    below = found.filter(pl.col("upper") < measured.totals()["latency.p95"] - 5e-6)["count"].sum()
    until = found.filter(pl.col("lower") < measured.totals()["latency.p95"] + 5e-6)["count"].sum()
    assert below <= 0.95 * measured.totals()["events"] <= until
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


def test_several_runs_in_one_file_are_told_apart_and_intervals_of_sysbench_tpcc_have_a_colon_less() -> None:
    assert one(OLTP.replace(b"err/s: ", b"err/s ")).totals() == one(OLTP).totals()
    assert one(OLTP.replace(b"err/s: ", b"err/s ")).series.equals(one(OLTP).series)
    prepare = b"sysbench 1.0.17 (using bundled LuaJIT 2.1.0-beta2)\n\nCreating table 'sbtest1'...\n"
    found = parts(prepare + OLTP + OLTP.replace(b"(5374.40 per", b"(5000.00 per"))
    assert [part.measured.totals()["tps"] for part in found] == [5374.40, 5000.00]


def test_a_run_that_counted_no_event_failed() -> None:
    events = next(line for line in FILEIO.splitlines() if b"number of events" in line)
    failed = FILEIO.replace(events, events.replace(events.split()[-1], b"0")).replace(
        b"Threads started!\n", b"Threads started!\nFATAL: Failed to read file! file: 3 pos: 8192\n"
    )
    found = parts(FILEIO + failed)
    assert [part.status for part in found] == ["done", "failed"]
    assert found[1].reason == "FATAL: Failed to read file! file: 3 pos: 8192" and found[1].measured.metrics.is_empty()


def test_runs_in_one_file_that_were_told_otherwise_are_not_repeats(tmp_path: Path) -> None:
    more = OLTP.replace(b"Number of threads: 128", b"Number of threads: 64")
    reads = re.sub(rb"( write:| other:) +\d+", rb"\1   0", OLTP)
    whole = tmp_path / "all.log"
    whole.write_bytes(OLTP + more + reads + more)
    run = tmp_path / "run"
    imported = call("import", "sysbench", str(whole), "--out", str(run))
    assert "4 trials of 3 cells" in imported.output, imported.message
    trials = open_run(run).trials.sort("trial").select("factor.threads", "factor.queries", "round")
    assert trials.rows() == [
        ("128", "read + write + other", 1),
        ("64", "read + write + other", 1),
        ("128", "read", 1),
        ("64", "read + write + other", 2),
    ]


def test_what_goes_with_the_files_names_is_no_further_factor(tmp_path: Path) -> None:
    for name, threads in (("few", b"8"), ("many", b"128")):
        (tmp_path / f"{name}.log").write_bytes(OLTP.replace(b"threads: 128", b"threads: " + threads))
    run = tmp_path / "run"
    imported = call("import", "sysbench", *map(str, tmp_path.glob("*.log")), "--out", str(run))
    assert imported.status == 0, imported.message
    assert [name for name in open_run(run).trials.columns if name.startswith("factor.")] == ["factor.file"]


EVENTS_1_1 = b"""
Throughput:
    events/s (eps):                      5374.3973
    time elapsed:                        43200.0514s
    total number of events:              232174233
"""

FILEIO_1_1 = b"""
Throughput:
         read:  IOPS=1500.50 23.45 MiB/s (24.58 MB/s)
         write: IOPS=1000.25 15.63 MiB/s (16.39 MB/s)
         fsync: IOPS=3201.80
"""


def as_1_1_prints(text: bytes) -> bytes:
    latency, fairness = text.index(b"\nLatency (ms)"), text.index(b"\nThreads fairness")
    if b"\nFile operations:" in text:
        return text[: text.index(b"\nFile operations:")] + FILEIO_1_1 + text[latency:fairness] + b"\n"
    return text[: text.index(b"\nGeneral statistics:")] + EVENTS_1_1 + text[latency:]


@pytest.mark.parametrize("intervals", [True, False])
def test_the_closing_block_of_sysbench_1_1_is_read(intervals: bool) -> None:
    left_out = rb"(?!)" if intervals else rb"\n\[ .*"
    measured = one(re.sub(left_out, b"", as_1_1_prints(FILEIO)))
    found = measured.totals()
    assert measured.warnings == ()
    assert (found["read.iops"], found["write.iops"], found["fsync.rate"]) == (1500.50, 1000.25, 3201.80)
    assert found["read.bandwidth"] == pytest.approx(23.45 * 2**20)
    assert found["bandwidth"] == pytest.approx((23.45 + 15.63) * 2**20)
    assert found["latency.max"] == one(FILEIO).totals()["latency.max"]
    measured = one(re.sub(left_out, b"", as_1_1_prints(OLTP)))
    assert (measured.warnings, (measured.totals()["time"], measured.totals()["events"])) == (
        (),
        (43200.0514, 232174233),
    )
    assert measured.totals().keys() == one(OLTP).totals().keys()


def test_a_figure_that_stands_in_a_closing_block_twice_is_warned_of() -> None:
    (line,) = re.findall(rb"\n +sum: +[\d.]+", OLTP)
    (part,) = parts(OLTP.replace(line, line.replace(line.split()[-1], b"17.00") + line))
    assert any("lines are of another run" in warning for warning in part.found.warnings)
    assert not any("lines are of another run" in warning for warning in one(OLTP).warnings)


def test_a_report_at_a_checkpoint_is_not_taken_for_the_closing_block() -> None:
    measured = one(CHECKPOINTS)
    assert measured.totals()["read.bandwidth"] == pytest.approx(7610.68 * 2**20)
    assert [t for t, _ in series(measured, "read.bandwidth")] == [1.0, 2.0, 3.0, 4.0]
    (warning,) = measured.warnings
    assert warning.startswith("it was asked to report at checkpoints")
    measured = one(CHECKPOINTS[: CHECKPOINTS.index(b"[ 4s ]")])
    assert [t for t, _ in series(measured, "read.bandwidth")] == [1.0, 2.0, 3.0]
    assert any("it has no closing block" in warning for warning in measured.warnings)


def body_of(name: str) -> bytes:
    lines = (GOLDEN / f"sysbench-{name}.txt").read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if line.startswith(b"[ ") and b"queue" not in line)


BODIES: dict[Test, bytes] = {"oltp": body_of("oltp"), "fileio": body_of("fileio"), "events": body_of("rate")}

tests = st.sampled_from(list(LAYOUTS))
numbers = st.one_of(
    st.integers(0, 10**9).map(lambda cents: f"{cents / 100:.2f}"),
    st.integers(0, 10**6).map(str),
    st.sampled_from(["", ".", "1.2.3", "5.", ".5", "-1.00", "nan", "inf", "1e3", " 7", "9" * 400]),
)


@st.composite
def lines(draw: st.DrawFn) -> tuple[Test, bytes]:
    """Lines of one layout whose numbers are mostly numbers, some of them with something put into it."""
    test = draw(tests)
    text = b""
    for at in range(draw(st.integers(1, 5))):
        names = {"t", "threads", "tps", "qps", "read", "write", "other", "percentile", "latency"}
        names |= {"errors", "reconnects", "fsync", "eps"}
        line = LAYOUTS[test].format_map({name: draw(numbers) for name in names} | {"t": f"{2 * at}"}).encode()
        if draw(st.integers(0, 9)) == 0:
            place = draw(st.integers(0, len(line)))
            line = line[:place] + draw(st.sampled_from([b"9", b" ", b".", b"s", b"/", b",", b"\n"])) + line[place:]
        text += line + b"\n"
    return test, text[: draw(st.integers(len(text) - 3, len(text)))]


def agree(body: bytes, test: Test) -> None:
    rows = alike(body, 0, len(body), LAYOUTS[test])
    if rows is not None:
        count, careful = each(body, LAYOUTS[test])
        assert count == rows.height and rows.equals(careful)


@pytest.mark.parametrize("test", list(LAYOUTS))
def test_what_sysbench_prints_is_read_by_the_fast_one(test: Test) -> None:
    rows = alike(BODIES[test], 0, len(BODIES[test]), LAYOUTS[test])
    assert rows is not None and rows.height == BODIES[test].count(b"\n")
    agree(BODIES[test], test)


@given(lines())
def test_both_readers_agree_on_lines_with_any_numbers(drawn: tuple[Test, bytes]) -> None:
    test, body = drawn
    agree(body, test)


@given(tests, st.binary(max_size=40), st.integers(0, 10**6), st.integers(0, 40) | st.just(10**9))
def test_both_readers_agree_on_damaged_and_truncated_lines(test: Test, new: bytes, place: int, length: int) -> None:
    body = BODIES[test]
    at = place % (len(body) + 1)
    agree(body[:at] + new + body[at + length :], test)


LEFT = {b"thds: ": b"th9ds: ", b" thds: ": b" thds9: ", b"(ms,": b"(ms7,", b" lat": b"5 lat", b"(r/w/o": b"(r/1w/o"}
LEFT |= {b"[ 2s": b"[1 2s", b"0.00\n": b"0.0.0\n", b"tps: 5409.01": b"tps: ", b"\n[ 6s": b"\nmysqld: [Note]\n[ 6s"}


@pytest.mark.parametrize("damage", LEFT.items(), ids=str)
def test_what_is_not_alike_is_left_to_the_careful_one(damage: tuple[bytes, bytes]) -> None:
    body = BODIES["oltp"]
    damaged = body.replace(*damage, 1)
    assert damaged != body and alike(damaged, 0, len(damaged), LAYOUTS["oltp"]) is None
    test, _, rows = read_intervals(damaged, 0, len(damaged))
    assert test == "oltp" and rows.height >= body.count(b"\n") - 1
