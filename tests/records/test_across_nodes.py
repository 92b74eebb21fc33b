"""Several nodes as one: how fairly they share, which only several can, and how much each series varies."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from storlab.blockio.requests import UNITS, ratios, request_frame
from storlab.measurements import HISTOGRAM_COLUMNS, METRIC_COLUMNS, SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.probes.host_load import HostLoadProbe
from storlab.records.derived import imbalance, jain
from storlab.records.run_folder import TrialRecord
from storlab.records.stacked import Measured, across_nodes, rows_of, stacked
from storlab.records.tables import Tables, TrialTables
from storlab.records.within_trials import add_within_trials
from storlab.report.language.say import said
from storlab.tools.fio import declared as fio
from storlab.tools.fio.declared import declared
from storlab.workloads.files import options as files

shares = st.lists(st.floats(0, 1e12), min_size=1, max_size=40).filter(lambda values: max(values) > 0)


@given(shares, st.floats(1e-100, 1e100), st.randoms())
def test_jains_index_lies_between_one_nth_and_one_whatever_the_unit_and_the_order(
    values: list[float], factor: float, random: object
) -> None:
    index = jain(values)
    assert index is not None
    assert 1 / len(values) - 1e-12 <= index <= 1 + 1e-12
    shuffled = [value * factor for value in values]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    if max(shuffled) > 1e-300:  # not lost to the smallest floats
        assert jain(shuffled) == pytest.approx(index, rel=1e-6)


@given(st.integers(1, 50), st.floats(1e-300, 1e300))
def test_equal_shares_are_fair_and_one_that_has_all_is_not(nodes: int, share: float) -> None:
    assert jain([share] * nodes) == pytest.approx(1.0)
    assert jain([share] + [0.0] * (nodes - 1)) == pytest.approx(1 / nodes)


@given(shares.filter(lambda values: len(values) > 1))
def test_taking_from_the_richest_for_the_poorest_is_fairer(values: list[float]) -> None:
    poorest, *middle, richest = sorted(values)
    given_away = (richest - poorest) / 4
    before, after = jain(values), jain([poorest + given_away, *middle, richest - given_away])
    assert before is not None and after is not None
    assert after >= before - 1e-9


def test_the_share_of_k_among_n_is_k_over_n_and_many_trials_have_what_each_has() -> None:
    """Section 3: "if a user discriminates such that only k of n users get anything, the index is k/n"."""
    assert jain([20.0] * 20 + [0.0] * 80) == pytest.approx(0.2)
    trials = [of_jobs(a=1.0, b=3.0), of_jobs(a=1.0), of_jobs(a=2.0, b=2.0)]
    rows = pl.concat(stacked([(record(at), each) for at, each in enumerate(trials)], "load", "n").metrics)
    together = rows.filter(pl.col("node").is_null())
    for at, each in enumerate(trials):
        own = together.filter(trial=at).select(list(METRIC_COLUMNS))
        assert_frame_equal(own, across_nodes([each]), check_row_order=False)


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [1.0, math.nan], [math.inf, 1.0], [2.0, -1.0]])
def test_where_there_is_nothing_to_share_there_is_no_index(values: list[float]) -> None:
    assert jain(values) is None


def rated(**rates: float) -> Measurements:
    return Measurements(
        metric_frame(Value(name.replace("_", "."), rate, "B/s", "higher") for name, rate in rates.items()),
        declared=declared(),
    )


def found(nodes: list[Measurements]) -> dict[str, float]:
    return dict(across_nodes(nodes).select("metric", "value").iter_rows())


def test_several_nodes_have_the_fairness_of_whatever_all_of_them_share() -> None:
    nodes = [rated(bandwidth=3.0, write_bandwidth=3.0, iops=1.0), rated(bandwidth=1.0, iops=1.0)]
    assert found(nodes) == {
        "bandwidth": 4.0, "write.bandwidth": 3.0, "iops": 2.0, "bandwidth.fairness": pytest.approx(0.8),
        "bandwidth.imbalance": 3.0, "iops.fairness": pytest.approx(1.0), "iops.imbalance": 1.0,
    }  # fmt: skip
    assert found([rated(bandwidth=3.0)]) == {"bandwidth": 3.0}
    assert set(found([rated(bandwidth=1.0), rated(bandwidth=0.0)])) == {"bandwidth", "bandwidth.fairness"}
    assert imbalance([]) is imbalance([0.0]) is imbalance([1e308, 1e-308]) is None


def of_jobs(**jobs: float) -> Measurements:
    """Of one node, with its jobs' bandwidths."""
    rows = [Value("bandwidth", value, "B/s", "higher", "sum", job) for job, value in jobs.items()]
    together = Value("bandwidth", sum(jobs.values()), "B/s", "higher")
    return Measurements(metric_frame([together, *rows]), declared=declared())


def test_jobs_of_all_nodes_share_what_the_nodes_share_in_ratios_with_a_direction() -> None:
    rows = across_nodes([of_jobs(a=9.0), of_jobs(a=9.0)]).filter(pl.col("metric") != "bandwidth")
    assert rows.rows() == [
        (None, "bandwidth.fairness", 1.0, "1", "higher", "none"),
        (None, "bandwidth.imbalance", 1.0, "1", "lower", "none"),
        (None, "bandwidth.jobs.fairness", 1.0, "1", "higher", "none"),
        (None, "bandwidth.jobs.imbalance", 1.0, "1", "lower", "none"),
    ]
    assert found([of_jobs(a=1.0, b=3.0)]) == {
        "bandwidth": 4.0, "bandwidth.jobs.fairness": pytest.approx(0.8), "bandwidth.jobs.imbalance": 3.0,
    }  # fmt: skip
    both = found([of_jobs(a=1.0, b=3.0), of_jobs(a=2.0, b=2.0)])
    assert both["bandwidth.fairness"] == 1.0
    assert both["bandwidth.jobs.fairness"] == pytest.approx(64 / (4 * 18))
    assert "bandwidth.jobs.fairness" not in found([of_jobs(a=1.0)])


@given(shares)
def test_an_imbalance_is_1_or_more_and_the_index_is_never_below_what_it_allows(values: list[float]) -> None:
    ratio, index = imbalance(values), jain(values)
    if ratio is not None and index is not None:
        assert ratio >= 1
        assert index >= 4 * (1 / (1 + ratio)) * (ratio / (1 + ratio)) - 1e-9  # the least of all with this ratio


def slow(*latencies: float, binned: bool = True) -> Measurements:
    """Of one node, with its operations' 99th percentile, and their histogram where it has one."""
    bins = pl.DataFrame(
        [(None, "latency", latency, latency * 1.01, 1) for latency in latencies], schema=HISTOGRAM_COLUMNS, orient="row"
    )
    told = Value("latency.p99", max(latencies), "s", "lower", "merge" if binned else "none")
    return Measurements(metric_frame([told]), histograms=bins if binned else bins.clear(), declared=declared())


def test_a_percentile_of_all_nodes_is_that_of_all_their_operations_where_all_have_histograms() -> None:
    assert found([slow(*[1.0] * 99), slow(*[1.0] * 100, 9.0)]) == {"latency.p99": pytest.approx(1.005)}
    assert found([slow(1.0, 2.0), slow(3.0, binned=False)]) == {}
    assert found([slow(1.0, 2.0), rated(bandwidth=1.0)])["latency.p99"] == pytest.approx(2.01)


def requested(*rows: tuple[str, int, int]) -> Measurements:
    """Of one node: direction, length and number of requests that begin where a unit does."""
    requests = request_frame(
        (*("vda", way, "", length, 1 << 20, None, count), *(count * -(-length // unit) for unit in UNITS))
        for way, length, count in rows
    )
    return Measurements(metric_frame(ratios(requests)), requests=requests)


def test_a_share_of_several_nodes_is_of_all_their_requests_and_no_mean_of_shares() -> None:
    together = found([requested(("write", 16384, 1)), requested(("write", 4096, 999), ("read", 4096, 1))])
    assert together["write.aligned.16k"] == 1 / 1000
    assert together["write.size"] == (16384 + 999 * 4096) / 1000
    assert together["write.aligned.16k.bytes"] == 16384 / (16384 + 999 * 4096)
    assert together["write.unit.amplification.16k"] == 1000 * 16384 / (16384 + 999 * 4096)
    assert together["read.aligned.4k"] == 1


of_a_node = st.lists(
    st.tuples(st.sampled_from(["read", "write"]), st.sampled_from([512, 4096, 20480, 65536]), st.integers(1, 10**6)),
    max_size=5,
)


@given(st.lists(of_a_node, min_size=2, max_size=4))
def test_ratios_of_several_nodes_are_those_of_one_that_did_all_of_it(nodes: list[list[tuple[str, int, int]]]) -> None:
    alone = requested(*(row for rows in nodes for row in rows))
    assert found([requested(*rows) for rows in nodes]) == found([alone])


def record(trial: int = 1) -> TrialRecord:
    return TrialRecord(trial, trial, 1, {}, "done")


LOAD = (*fio.declared(), *files.declared())


def sampled(declared: tuple[MetricSpec, ...] = LOAD, **series: list[float]) -> Measurements:
    """Series by name, ``__`` for a dot, a sample a second."""
    rows = [
        (job, metric, float(second), value, "B/s" if "bandwidth" in name else "s" if "latency" in name else "1/s")
        for name, values in series.items()
        for job, metric in [("a" if name.startswith("job_") else None, name.removeprefix("job_").replace("__", "."))]
        for second, value in enumerate(values, start=1)
    ]
    return Measurements(series=pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row"), declared=declared)


def added(by_node: dict[str, Measurements], source: str = "load", whiskers: float = 1.5) -> TrialTables:
    tables = rows_of([Measured(record(), source, by_node)])
    add_within_trials(tables, whiskers)
    return tables


def metrics_of(tables: TrialTables) -> pl.DataFrame:
    return pl.concat(tables.metrics)


RISING = [float(value) for value in range(100, 112)]


def test_a_series_of_throughput_gets_its_variability_in_the_right_units() -> None:
    rows = metrics_of(added({"n": sampled(write__bandwidth=RISING)}))
    found = {
        (row["node"], row["metric"]): (row["value"], row["unit"], row["better"], row["across"])
        for row in rows.iter_rows(named=True)
    }
    for node in ("n", None):
        variance = found[node, "write.bandwidth.variance"]
        assert variance == (pytest.approx(np.var(RISING)), "B²/s²", "lower", "none")
        assert found[node, "write.bandwidth.sigma"][:2] == (pytest.approx(np.std(RISING)), "B/s")
        assert found[node, "write.bandwidth.cv"][:2] == (pytest.approx(np.std(RISING) / np.mean(RISING)), "1")
        assert found[node, "write.bandwidth.outliers"][:2] == (0.0, "1")
        assert found[node, "write.bandwidth.longest_stall"][:2] == (0.0, "s")
    assert len(found) == 10


def test_outliers_begin_where_the_whiskers_of_the_study_end_which_the_metric_says() -> None:
    for whiskers, count in ((1.5, 1.0), (3.0, 0.0)):
        tables = added({"n": sampled(write__iops=[*RISING, 126.0])}, whiskers=whiskers)
        rows = metrics_of(tables).filter(pl.col("node").is_null(), metric="write.iops.outliers")
        assert (rows["value"].to_list(), tables.examined[0].found.outliers) == ([count], count)
        declared = Tables({}, (), parts=[tables], whiskers=whiskers).declared()["load"]
        assert declared.find("write.iops.outliers").whiskers == whiskers


def test_only_throughput_of_all_jobs_in_series_that_are_long_enough_counts() -> None:
    one = sampled(iops=RISING, write__iops=RISING, write__latency=RISING, job_write__iops=RISING)
    assert {name.removesuffix(".cv") for name in metrics_of(added({"n": one}))["metric"] if name.endswith(".cv")} == {
        "write.iops"
    }
    two = sampled(iops=RISING, write__iops=RISING, read__iops=RISING)
    names = {name.removesuffix(".cv") for name in metrics_of(added({"n": two}))["metric"] if name.endswith(".cv")}
    assert names == {"iops", "write.iops", "read.iops"}
    assert not [frame for frame in added({"n": sampled(write__iops=RISING[:9])}).metrics if frame.height]
    probed = sampled(HostLoadProbe().declares(), disk__target__write__bandwidth=RISING)
    assert not [frame for frame in added({"n": probed}, "probe:host-load").metrics if frame.height]
    assert metrics_of(added({})).is_empty()


def test_several_nodes_together_are_the_sum_of_their_series_where_all_have_it() -> None:
    falling = RISING[::-1]
    rows = metrics_of(added({"n": sampled(iops=RISING), "m": sampled(iops=[*falling, 5.0])}))
    together = rows.filter(pl.col("node").is_null(), pl.col("metric") == "iops.variance")
    assert together["value"].to_list() == [0.0]
    rows = metrics_of(added({"n": sampled(iops=RISING), "m": sampled(bandwidth=RISING)}))
    assert rows.filter(pl.col("node").is_null()).is_empty()


def test_warnings_are_said_once_over_all_trials_and_of_one_series_a_source() -> None:
    noise = np.random.default_rng(1).standard_normal((6, 200))
    values = 100 + noise
    values[1:, 120:] += 30
    trials = [(record(at + 1), sampled(iops=row.tolist(), bandwidth=row.tolist())) for at, row in enumerate(values)]
    tables = Tables({}, ())
    tables.parts.append(stacked(trials, "load", "n"))
    add_within_trials(tables.parts[0])
    assert said(tables.warnings()) == ("load, iops in 5 of 6 trials: the level changes within the trial, once",)


def test_many_trials_at_once_get_what_each_gets_by_itself() -> None:
    draw = np.random.default_rng(5)
    trials = []
    for trial in range(1, 8):
        loads, probed = {}, {}
        for node in ("a", "b")[: 1 + trial % 2]:
            noise = (1000 + 50 * draw.standard_normal(9 if trial == 3 else 40)).tolist()
            each = sampled(write__iops=noise, read__iops=noise[::-1], latency=noise, mkdir__rate=noise[:20])
            loads[node] = Measurements() if trial == 5 else each
            probed[node] = sampled(HostLoadProbe().declares(), iops=noise)
        trials.append([Measured(record(trial), "load", loads), Measured(record(trial), "probe:disk", probed)])

    at_once = rows_of([group for groups in trials for group in groups])
    alone = [rows_of(groups) for groups in trials]
    for tables in (at_once, *alone):
        add_within_trials(tables)
    assert at_once.examined == [each for tables in alone for each in tables.examined]
    rows = pl.concat([metrics_of(tables) for tables in alone])
    assert metrics_of(at_once).equals(rows)
    assert rows.height > 100
    assert at_once.examined


def test_where_a_level_falls_it_is_known_how_much_was_written_until_then() -> None:
    cliff = np.repeat([800.0, 160.0], 100)
    tables = added({"n": sampled(write__iops=cliff.tolist(), write__bandwidth=(cliff * 4096).tolist())})
    (fall,) = next(each.found.changes for each in tables.examined if each.metric == "write.iops")
    assert (fall.t, fall.before, fall.after) == (100.0, 800.0, 160.0)
    assert fall.moved == 100 * 800 * 4096
