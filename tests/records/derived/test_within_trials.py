"""Variability as metrics, of which series, over several nodes; warnings over trials."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from storlab.formats.fio import declared as fio
from storlab.measurements import SERIES_COLUMNS, Measurements
from storlab.metrics import MetricSpec
from storlab.probes.host_load import HostLoadProbe
from storlab.records.derived.within_trials import add_within_trials
from storlab.records.run_folder import TrialRecord
from storlab.records.stacked import Measured, rows_of, stacked
from storlab.records.tables import Tables, TrialTables
from storlab.workloads.files import declared as files


def record(trial: int = 1) -> TrialRecord:
    return TrialRecord(trial, trial, 1, {}, "done")


LOAD = (*fio.declared(), *files.declared())


def measured(declared: tuple[MetricSpec, ...] = LOAD, **series: list[float]) -> Measurements:
    """Series by name, ``__`` for a dot, a sample a second."""
    rows = [
        (job, metric, float(second), value, "B/s" if "bandwidth" in name else "s" if "latency" in name else "1/s")
        for name, values in series.items()
        for job, metric in [("a" if name.startswith("job_") else None, name.removeprefix("job_").replace("__", "."))]
        for second, value in enumerate(values, start=1)
    ]
    return Measurements(series=pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row"), declared=declared)


def added(by_node: dict[str, Measurements], source: str = "load") -> TrialTables:
    tables = rows_of([Measured(record(), source, by_node)])
    add_within_trials(tables)
    return tables


def metrics(tables: TrialTables) -> pl.DataFrame:
    return pl.concat(tables.metrics)


RISING = [float(value) for value in range(100, 112)]


def test_a_series_of_throughput_gets_its_variability_in_the_right_units() -> None:
    rows = metrics(added({"n": measured(write__bandwidth=RISING)}))
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


def test_only_throughput_of_all_jobs_counts_and_a_total_only_where_it_adds_something() -> None:
    one = measured(iops=RISING, write__iops=RISING, write__latency=RISING, job_write__iops=RISING)
    assert {name.removesuffix(".cv") for name in metrics(added({"n": one}))["metric"] if name.endswith(".cv")} == {
        "write.iops"
    }
    two = measured(iops=RISING, write__iops=RISING, read__iops=RISING)
    names = {name.removesuffix(".cv") for name in metrics(added({"n": two}))["metric"] if name.endswith(".cv")}
    assert names == {"iops", "write.iops", "read.iops"}


def test_probes_and_short_series_have_none() -> None:
    assert not [frame for frame in added({"n": measured(write__iops=RISING[:9])}).metrics if frame.height]
    probed = measured(HostLoadProbe().declares(), disk__target__write__bandwidth=RISING)
    assert not [frame for frame in added({"n": probed}, "probe:host-load").metrics if frame.height]
    assert metrics(added({})).is_empty()


def test_several_nodes_together_are_the_sum_of_their_series_where_all_have_it() -> None:
    falling = RISING[::-1]
    rows = metrics(added({"n": measured(iops=RISING), "m": measured(iops=[*falling, 5.0])}))
    together = rows.filter(pl.col("node").is_null(), pl.col("metric") == "iops.variance")
    assert together["value"].to_list() == [0.0]
    rows = metrics(added({"n": measured(iops=RISING), "m": measured(bandwidth=RISING)}))
    assert rows.filter(pl.col("node").is_null()).is_empty()


def test_warnings_are_said_once_over_all_trials_and_of_one_series_a_source() -> None:
    noise = np.random.default_rng(1).standard_normal((6, 200))
    values = 100 + noise
    values[1:, 120:] += 30
    trials = [(record(at + 1), measured(iops=row.tolist(), bandwidth=row.tolist())) for at, row in enumerate(values)]
    tables = Tables({}, ())
    tables.parts.append(stacked(trials, "load", "n"))
    add_within_trials(tables.parts[0])
    assert tables.warnings() == ("load, iops in 5 of 6 trials: the level changes within the trial, once",)


def test_many_trials_are_looked_at_in_a_few_milliseconds_each() -> None:
    values = 100 + np.random.default_rng(1).standard_normal((100, 300))
    tables = stacked([(record(at + 1), measured(iops=row.tolist())) for at, row in enumerate(values)], "load", "n")
    add_within_trials(tables)
    assert len(tables.examined) == 100


def test_many_trials_at_once_get_what_each_gets_by_itself() -> None:
    draw = np.random.default_rng(5)
    trials = []
    for trial in range(1, 8):
        loads, probed = {}, {}
        for node in ("a", "b")[: 1 + trial % 2]:
            noise = (1000 + 50 * draw.standard_normal(9 if trial == 3 else 40)).tolist()
            each = measured(write__iops=noise, read__iops=noise[::-1], latency=noise, mkdir__rate=noise[:20])
            loads[node] = Measurements() if trial == 5 else each
            probed[node] = measured(HostLoadProbe().declares(), iops=noise)
        trials.append([Measured(record(trial), "load", loads), Measured(record(trial), "probe:disk", probed)])

    at_once = rows_of([group for groups in trials for group in groups])
    alone = [rows_of(groups) for groups in trials]
    for tables in (at_once, *alone):
        add_within_trials(tables)
    assert at_once.examined == [each for tables in alone for each in tables.examined]
    rows = pl.concat([metrics(tables) for tables in alone])
    assert metrics(at_once).equals(rows)
    assert rows.height > 100
    assert at_once.examined
