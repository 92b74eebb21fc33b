"""What pgbench 15 printed, with its log: every number is that of its transactions."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import ParseError
from storlab.formats.pgbench.results import read_pgbench
from storlab.measurements import Measurements

SUMMARY = """\
pgbench (15.20 (Debian 15.20-0+deb12u1))
transaction type: <builtin: TPC-B (sort of)>
scaling factor: 1
query mode: simple
number of clients: 2
number of threads: 1
maximum number of tries: 1
duration: 4 s
number of transactions actually processed: 4
number of failed transactions: 0 (0.000%)
latency average = 5.824 ms
initial connection time = 6.565 ms
tps = 343.396895 (without initial connection time)
"""
LOG = b"""\
1 1 5181 0 1795437691 55649
0 1 8170 0 1795437691 58582
1 2 3278 0 1795437691 58941
0 2 1000000 0 1795437693 60000
"""


def totals(found: Measurements) -> dict[str, float]:
    return found.totals()


def test_a_log_has_the_latency_of_each_transaction() -> None:
    found = read_pgbench(SUMMARY, [LOG], "stdout")
    got = totals(found)
    assert got["transactions"] == 4 and got["tps"] == 343.396895 and got["errors"] == 0
    assert got["latency.mean"] == pytest.approx((5181 + 8170 + 3278 + 1_000_000) / 4 * 1e-6)
    assert (got["latency.min"], got["latency.max"]) == pytest.approx((0.003278, 1.0))
    assert got["latency.p50"] == pytest.approx(0.005185, rel=1e-3)
    assert found.histograms["count"].sum() == 4
    assert found.facts["version"] == "15.20" and found.facts["clients"] == "2"


def test_transactions_are_counted_in_each_whole_second_and_where_there_were_none() -> None:
    series = read_pgbench(SUMMARY, [LOG], "stdout").series
    assert series.select("t", "value").rows() == [(1.0, 3.0), (2.0, 0.0)]


def test_without_a_log_there_is_what_the_summary_says() -> None:
    found = read_pgbench(SUMMARY, [], "stdout")
    assert totals(found)["latency.mean"] == pytest.approx(0.005824)
    assert found.series.is_empty() and found.histograms.is_empty()


def test_lines_that_are_no_transactions_are_told_of() -> None:
    found = read_pgbench(SUMMARY, [LOG + b"1 3 failed 0 1795437693 60001\n1 4 skipped 0\n\xff\n"], "stdout")
    assert totals(found)["latency.max"] == 1.0
    assert found.warnings == ("3 lines of its log are no transactions that were done; the others count",)


@pytest.mark.parametrize("text", ["", "pgbench (15.20)\n", SUMMARY.replace("tps = ", "tips = ")])
def test_what_is_no_summary_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="no summary of pgbench"):
        read_pgbench(text, [LOG], "stdout")


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.randoms())
def test_percentiles_are_within_a_digit_of_the_third_place(times: list[int], choose: random.Random) -> None:
    ends = [1_795_437_691_000_000 + 10**9 + choose.randrange(10**7) for _ in times]
    log = "".join(
        f"0 {at} {time} 0 {end // 10**6} {end % 10**6}\n"
        for at, (time, end) in enumerate(zip(times, ends, strict=True))
    )
    found = read_pgbench(SUMMARY, [log.encode()], "stdout")
    bins = found.histograms
    assert bins["count"].sum() == len(times)
    for time in times:
        within = (pl.col("lower") <= time * 1e-6 * (1 + 1e-12)) & (time * 1e-6 * (1 - 1e-12) < pl.col("upper"))
        (row,) = bins.filter(within).select("lower", "upper").rows()[:1]
        assert row[1] - row[0] <= max(2e-6, time * 1e-6 / 99)
    middle = sorted(times)[(len(times) + 1) // 2 - 1] * 1e-6
    assert totals(found)["latency.p50"] == pytest.approx(middle, rel=0.011, abs=2e-6)
