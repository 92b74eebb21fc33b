"""What vdbench writes, as its documentation and published results have it: flat file, summary and totals, as trials."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.odd_files import bounded
from storlab.tools.vdbench.runs import METRICS, done, is_flatfile

from . import GOLDEN, read, series

MIB = 2**20
FLAT = (GOLDEN / "vdbench-flatfile.html").read_text()
SUMMARY = (GOLDEN / "vdbench-summary.html").read_text()

parts_of = partial(read, "vdbench")


def test_a_flat_file_has_a_trial_for_each_run_and_its_intervals_are_series_also_across_midnight() -> None:
    mixed, writes = parts_of(FLAT)
    told = {"run": "rd1", "reqrate": "1000", "xfersize": "4096", "threads": "8", "rdpct": "70"}
    assert mixed.traits == told | {"seekpct": "100", "lunsize": "1"}
    assert (writes.traits["xfersize"], writes.traits["rdpct"]) == ("16384", "0")
    totals = mixed.measured.totals()
    assert (totals["iops"], totals["bandwidth"]) == pytest.approx((1002, 3.9141 * MIB))
    assert (totals["latency.mean"], totals["write.latency.max"]) == pytest.approx((0.4013e-3, 19.12e-3))
    assert (totals["cpu"], totals["queue.depth"], totals["read.share"]) == pytest.approx((0.043333, 0.4021, 0.702794))
    assert series(mixed.measured, "iops") == [(1.0, 840.0), (2.0, 1003.0), (3.0, 997.0), (4.0, 1006.0)]
    assert [time for time, _ in series(mixed.measured, "read.latency.mean")] == [1.0, 2.0, 3.0, 4.0]
    assert writes.measured.totals()["iops"] == 1950 and "it was cut short" in writes.measured.warnings[0]
    assert not {name for name in writes.measured.totals() if name.startswith("read.")} - {"read.share"}
    _, reads = parts_of(SUMMARY)
    assert not {name for name in reads.measured.totals() if name.startswith("write.")}


def test_a_summary_says_what_is_looped_over_and_totals_have_no_series_and_the_same_figures() -> None:
    one, eight = parts_of(SUMMARY)
    assert one.traits == {"run": "rd1", "reqrate": "1000", "elapsed": "4", "xfersize": "4k", "threads": "1"}
    assert (eight.traits["threads"], one.measured.warnings) == ("8", ("what only formats is left out: SD_format",))
    assert one.measured.totals()["iops"] == 1002
    assert series(one.measured, "iops") == [(1.0, 840.0), (2.0, 1003.0), (3.0, 997.0), (4.0, 1006.0)]
    lines = [line for line in SUMMARY.splitlines() if not line.startswith("10:24:3") or "avg" in line]
    assert [part.measured.totals() for part in parts_of("\n".join(lines))] == [
        part.measured.totals() for part in parts_of(SUMMARY)
    ]
    assert all(part.measured.series.is_empty() for part in parts_of("\n".join(lines)))
    (files,) = parts_of((GOLDEN / "vdbench-files.txt").read_bytes())
    assert series(files.measured, "rate") == [(5.0, 7876.0), (10.0, 10744.0), (15.0, 10751.0)]


@given(st.dictionaries(st.sampled_from(sorted(METRICS)), st.sampled_from([0.0, 1.0, 0.5])))
def test_a_way_that_did_nothing_has_no_times(numbers: dict[str, float]) -> None:
    found = done(numbers)
    assert found.items() <= numbers.items()
    for way, idle in (("read", 0), ("write", 1)):
        if numbers.get("read.share") == idle or numbers.get(f"{way}.iops") == 0:
            assert f"{way}.latency.mean" not in found
    if not any(numbers.get(name) for name in ("iops", "rate", "bandwidth")):
        assert not found


def test_a_run_that_did_nothing_failed_and_blank_lines_without_end_hold_nobody_up() -> None:
    text = FLAT.partition("23:59:57")[0] + "\n".join(
        line.replace("1002.0000     3.9141", "0.0000     0.0000") for line in FLAT.splitlines() if "avg_2-4" in line
    )
    (part,) = parts_of(text)
    assert (part.status, part.reason) == ("failed", "line 12: vdbench did no operation in rd1")
    for piece in (b"\n", b" ", b"tod ", b"tod\n", b" tod timestamp run \n"):
        with bounded(20):
            assert not is_flatfile((piece * 70_000)[:70_000])
