"""What pgbench 15 and 9.6 printed, and its logs, as trials: every number is that of its transactions."""

import random
import shutil
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory.samples import sample
from storlab.base.errors import ParseError
from storlab.tools.importer import Part
from storlab.tools.pgbench.importer import PgbenchImporter, read_pgbench

from . import GOLDEN, read, series

LOGS = ("pgbench_log.71", "pgbench_log.71.1")


def golden(name: str) -> Part:
    (part,) = read("pgbench", (GOLDEN / name).read_bytes())
    return part


def test_progress_lines_are_series() -> None:
    part = golden("pgbench-tpcb.txt")
    assert series(part.measured, "tps") == [(1.0, 789.6), (2.0, 828.7), (3.0, 1301.6), (4.0, 622.7)]
    assert [each for _, each in series(part.measured, "latency.mean")] == pytest.approx(
        [0.00483, 0.004753, 0.002968, 0.006591]
    )


def test_scripts_are_jobs_several_runs_trials_and_the_rate_is_that_without_connecting() -> None:
    part = golden("pgbench-scripts.txt")
    rows = part.measured.metrics.filter(metric="tps").select("job", "value").rows()
    scripts = {"1: <builtin: simple update>": 2120.579753, "2: <builtin: select only>": 1057.770176}
    assert rows == [(None, 3178.349929), *scripts.items()]
    text = b"".join((GOLDEN / f"pgbench-{name}.txt").read_bytes() for name in ("tpcb", "9.6", "tpcb"))
    rates = [part.measured.totals()["tps"] for part in read("pgbench", text)]
    assert rates == [893.814037, 400.112233, 893.814037]


def test_a_run_that_was_cut_short_failed_or_has_no_summary_is_told() -> None:
    text = (GOLDEN / "pgbench-tpcb.txt").read_bytes()
    (part,) = read("pgbench", text[: text.index(b"transaction type")])
    assert part.measured.totals()["tps"] == pytest.approx((789.6 + 828.7 + 1301.6 + 622.7) / 4)
    assert "it was cut short" in part.measured.warnings[0]
    (part,) = read("pgbench", text.replace(b"processed: 3552", b"processed: 0"))
    assert (part.status, part.reason) == ("failed", "pgbench did no transaction")
    for summary in ("", "pgbench (15.20)\n", SUMMARY.replace("tps = ", "tips = ")):
        with pytest.raises(ParseError, match="no summary of pgbench"):
            read_pgbench(summary, [LOG], "stdout")


@given(st.lists(st.integers(1, 10**4), min_size=1, max_size=9), st.floats(1, 60), st.booleans())
def test_progress_is_a_series_by_the_time_since_the_run_began(rates: list[int], step: float, epoch: bool) -> None:
    begun = 1.7e9 if epoch else 0.0
    lines = [f"progress: {begun + step * at:.3f} s, {rate}.0 tps, lat 1.000 ms" for at, rate in enumerate(rates, 1)]
    (part,) = read("pgbench", "\n".join(lines).encode())
    found = series(part.measured, "tps")
    if epoch and len(rates) == 1:
        assert found == []  # nobody knows since when
    else:
        assert [rate for _, rate in found] == rates
        assert [t for t, _ in found] == pytest.approx([step * at for at in range(1, len(rates) + 1)], abs=0.005)
    low, high = min(rates), max(rates)
    assert low * (1 - 1e-9) <= part.measured.totals()["tps"] <= high * (1 + 1e-9)


@pytest.mark.parametrize("own", LOGS)
def test_the_logs_of_all_threads_are_one_run(own: str, folder: Path) -> None:
    for name in (*LOGS, "pgbench_log.72"):
        shutil.copy(GOLDEN / (name if name in LOGS else LOGS[0]), folder / name)
    importer, text = PgbenchImporter(), (folder / own).read_bytes()
    others = [name for name in (*LOGS, "pgbench_log.72") if name != own]
    assert importer.beside(own, text, others) == [name for name in LOGS if name != own]
    (part,) = importer.read_beside(importer.read(text, own, {}), folder, str(folder / own))
    assert (part.measured.totals()["transactions"], part.measured.histograms["count"].sum()) == (40, 40)
    ends = [int(line.split()[4]) * 10**6 + int(line.split()[5]) for line in (text + _other(own)).splitlines()]
    begins = [end - int(line.split()[2]) for end, line in zip(ends, (text + _other(own)).splitlines(), strict=True)]
    assert part.measured.totals()["tps"] == pytest.approx(40 / ((max(ends) - min(begins)) * 1e-6))


def _other(own: str) -> bytes:
    return (GOLDEN / next(name for name in LOGS if name != own)).read_bytes()


def test_the_logs_beside_a_summary_count_where_they_have_as_many_transactions(folder: Path) -> None:
    summary = (GOLDEN / "pgbench-tpcb.txt").read_bytes()
    for name in LOGS:
        shutil.copy(GOLDEN / name, folder / name)
    importer = PgbenchImporter()
    for count, has in ((b"40", True), (b"3552", False)):
        (folder / "out.txt").write_bytes(summary.replace(b"processed: 3552", b"processed: " + count))
        text = (folder / "out.txt").read_bytes()
        assert importer.beside("out.txt", text, LOGS) == list(LOGS)
        (part,) = importer.read_beside(importer.read(text, "x", {}), folder, str(folder / "out.txt"))
        assert ("latency.p99" in part.measured.totals()) is has
        assert any("40 transactions and not its 3552" in each for each in part.measured.warnings) is not has
        assert part.measured.totals()["tps"] == 893.814037


def test_intervals_have_no_percentiles_and_a_sampled_log_tells_how_many_transactions_there_were() -> None:
    part = golden("pgbench-aggregate.log")
    assert series(part.measured, "tps") == [(2.0, 132.0), (3.0, 178.0)]  # the first and the last interval are not whole
    part = golden("pgbench-sampled.log")
    numbers: dict[str, int] = {}
    for line in (GOLDEN / "pgbench-sampled.log").read_text().splitlines():
        client, number, *_ = line.split()
        numbers[client] = max(numbers.get(client, 0), int(number))
    assert part.measured.totals()["transactions"] == sum(numbers.values()) > 30
    assert part.measured.series.filter(pl.col("metric") == "tps").is_empty()
    assert "a sample, of 30 of" in part.measured.warnings[0]


SUMMARY = sample(__file__, "cases/pgbench-summary.txt")
LOG = b"""\
1 1 5181 0 1795437691 55649
0 1 8170 0 1795437691 58582
1 2 3278 0 1795437691 58941
0 2 1000000 0 1795437693 60000
"""


def test_a_log_has_the_latency_of_each_transaction_and_those_of_each_whole_second_are_counted() -> None:
    found = read_pgbench(SUMMARY, [LOG], "stdout")
    got = found.totals()
    assert got["transactions"] == 4 and got["tps"] == 343.396895 and got["errors"] == 0
    assert got["latency.mean"] == pytest.approx((5181 + 8170 + 3278 + 1_000_000) / 4 * 1e-6)
    assert (got["latency.min"], got["latency.max"]) == pytest.approx((0.003278, 1.0))
    assert got["latency.p50"] == pytest.approx(0.005185, rel=1e-3) and found.histograms["count"].sum() == 4
    assert found.facts["version"] == "15.20" and found.facts["clients"] == "2"
    series = read_pgbench(SUMMARY, [LOG], "stdout").series
    assert series.select("t", "value").rows() == [(1.0, 3.0), (2.0, 0.0)]
    found = read_pgbench(SUMMARY, [], "stdout")
    assert found.totals()["latency.mean"] == pytest.approx(0.005824)
    assert found.series.is_empty() and found.histograms.is_empty()
    found = read_pgbench(SUMMARY, [LOG + b"1 3 failed 0 1795437693 60001\n1 4 skipped 0\n\xff\n"], "stdout")
    assert found.totals()["latency.max"] == 1.0
    assert found.warnings == ("3 lines of its log are no transactions that were done; the others count",)


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
    assert found.totals()["latency.p50"] == pytest.approx(middle, rel=0.011, abs=2e-6)
