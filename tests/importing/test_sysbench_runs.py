"""Runs of sysbench: several in one file, of 1.1, with checkpoints; and both readers of its intervals, which agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab import open_run
from storlab.formats.sysbench.intervals import LAYOUTS, Test, alike, each, read_intervals
from study.program import call

from .test_sysbench import CHECKPOINTS, FILEIO, OLTP, one, parts, series, values


def test_several_runs_in_one_file_are_told_apart_and_intervals_of_sysbench_tpcc_have_a_colon_less() -> None:
    assert values(one(OLTP.replace(b"err/s: ", b"err/s "))) == values(one(OLTP))
    assert one(OLTP.replace(b"err/s: ", b"err/s ")).series.equals(one(OLTP).series)
    prepare = b"sysbench 1.0.17 (using bundled LuaJIT 2.1.0-beta2)\n\nCreating table 'sbtest1'...\n"
    found = parts(prepare + OLTP + OLTP.replace(b"(5374.40 per", b"(5000.00 per"))
    assert [values(part.measured)["tps"] for part in found] == [5374.40, 5000.00]


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
    found = values(measured)
    assert measured.warnings == ()
    assert (found["read.iops"], found["write.iops"], found["fsync.rate"]) == (1500.50, 1000.25, 3201.80)
    assert found["read.bandwidth"] == pytest.approx(23.45 * 2**20)
    assert found["bandwidth"] == pytest.approx((23.45 + 15.63) * 2**20)
    assert found["latency.max"] == values(one(FILEIO))["latency.max"]
    measured = one(re.sub(left_out, b"", as_1_1_prints(OLTP)))
    assert (measured.warnings, (values(measured)["time"], values(measured)["events"])) == ((), (43200.0514, 232174233))
    assert values(measured).keys() == values(one(OLTP)).keys()


def test_a_figure_that_stands_in_a_closing_block_twice_is_warned_of() -> None:
    (line,) = re.findall(rb"\n +sum: +[\d.]+", OLTP)
    (part,) = parts(OLTP.replace(line, line.replace(line.split()[-1], b"17.00") + line))
    assert any("lines are of another run" in warning for warning in part.found.warnings)
    assert not any("lines are of another run" in warning for warning in one(OLTP).warnings)


def test_a_report_at_a_checkpoint_is_not_taken_for_the_closing_block() -> None:
    measured = one(CHECKPOINTS)
    assert values(measured)["read.bandwidth"] == pytest.approx(7610.68 * 2**20)
    assert [t for t, _ in series(measured, "read.bandwidth")] == [1.0, 2.0, 3.0, 4.0]
    (warning,) = measured.warnings
    assert warning.startswith("it was asked to report at checkpoints")
    measured = one(CHECKPOINTS[: CHECKPOINTS.index(b"[ 4s ]")])
    assert [t for t, _ in series(measured, "read.bandwidth")] == [1.0, 2.0, 3.0]
    assert any("it has no closing block" in warning for warning in measured.warnings)


GOLDEN = Path(__file__).parent / "golden"


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
    assert damaged != body
    assert alike(damaged, 0, len(damaged), LAYOUTS["oltp"]) is None
    test, _, rows = read_intervals(damaged, 0, len(damaged))
    assert test == "oltp" and rows.height >= body.count(b"\n") - 1
