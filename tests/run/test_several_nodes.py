"""Four agents on this machine as four nodes: one start for all, and results of each and of all together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory
from storlab.measurements import merge_histograms
from storlab.percentiles import percentiles
from storlab.records.run_folder import RunFolder, TrialRecord

NODES = ["n-1", "n-2", "n-3", "n-4"]
STUDY = """
primary = "bandwidth"
stack = [{ layer = "directory" }]
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false }, prepare = [["touch", "{target}/of-{node}"]] }
[nodes.n]
count = 4
[workload.load]
fio = { rw = "randwrite", bs = "4k", ioengine = "psync", size = "1M", runtime = "400ms", time_based = true }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """One run for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        folder: Path = tmp_path_factory.mktemp("nodes")
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        lab = Laboratory(folder)
        lab.execute(STUDY)
        assert lab.leftovers() == []
        yield lab.run_folder


def the_trial(run: RunFolder) -> TrialRecord:
    (record,) = run.records()
    assert record.status == "done", record.reason
    return record


def test_all_start_at_one_instant_and_how_far_apart_they_really_did_is_recorded(run: RunFolder) -> None:
    record = the_trial(run)
    assert record.start_skew is not None
    assert 0.0 <= record.start_skew < 0.25
    starts = [node.start for name, node in record.nodes.items() if name in NODES]
    assert max(starts) - min(starts) == pytest.approx(record.start_skew, abs=0.01), "the clocks are one and the same"
    assert run.trials["start_skew"].to_list() == [record.start_skew]


def test_every_node_has_its_own_numbers_and_series(run: RunFolder) -> None:
    bandwidth = of_load(run).filter(metric="bandwidth")
    assert sorted(bandwidth["node"].drop_nulls()) == NODES
    series = run.series.filter(source="load", metric="write.bandwidth")
    assert sorted(series["node"].unique()) == NODES


@pytest.mark.parametrize("metric", ["bandwidth", "write.iops", "write.bytes"])
def test_sums_over_nodes_are_the_numbers_of_all_nodes_together(run: RunFolder, metric: str) -> None:
    rows = of_load(run).filter(metric=metric)
    each = rows.filter(pl.col("node").is_not_null())["value"]
    assert len(each) == len(NODES)
    assert rows.filter(pl.col("node").is_null())["value"].to_list() == [pytest.approx(each.sum())]


def test_percentiles_of_all_nodes_come_from_their_merged_histograms(run: RunFolder) -> None:
    metric = "write.latency.p99"
    together = of_load(run).filter(pl.col("node").is_null(), metric=metric)["value"].to_list()
    histograms = run.histograms.filter(pl.col("job").is_null(), source="load", metric="write.latency")
    assert sorted(histograms["node"].unique()) == NODES
    assert together == [pytest.approx(percentiles(merge_histograms(histograms), [99.0])[99.0])]


def test_the_word_node_stands_for_each_nodes_name(run: RunFolder) -> None:
    facts = the_trial(run).facts
    assert sorted(facts) == NODES, "each has its own stack, and `touch {target}/of-{node}` worked in each"


def test_the_host_is_watched_once_though_four_nodes_are_on_it(run: RunFolder) -> None:
    assert the_trial(run).probes["host-load"] == ["host"]


def of_load(run: RunFolder) -> pl.DataFrame:
    """The load's metrics, all jobs of a node together."""
    return run.metrics.filter(pl.col("job").is_null(), source="load")


def test_a_node_that_fails_is_named_with_its_own_reason_and_the_others_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lab = Laboratory(tmp_path)
    load = '["sh", "-c", "test {node} = n-3 || exec sleep 3600; sleep 0.2; echo no luck >&2; exit 5"]'
    study = STUDY[: STUDY.index("fio = {")] + f"command = {{ argv = {load} }}\n"
    lab.execute(study.replace("bandwidth", "elapsed"))
    (record,) = lab.records()
    assert record.status == "failed"
    assert record.reason is not None
    assert "status 5" in record.reason
    assert "no luck" in record.reason
    assert lab.leftovers() == []
