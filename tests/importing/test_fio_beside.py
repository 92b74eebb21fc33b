"""Logs that lie beside fio's output, and belong to it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from formats.fio.samples import PACK
from storlab import open_run
from study.program import call

from .test_fio import later, ran


def test_logs_beside_become_series_and_others_are_left(folder: Path, tmp_path: Path) -> None:
    logs = ["--write_bw_log=mine", "--write_iops_log=mine", "--log_avg_msec=100"]
    path = ran(folder, "a.json", "--rw=write", "--bs=4k", "--time_based", "--runtime=1", *logs)
    (folder / "other_bw.1.log").write_text("rubbish\n")
    run = tmp_path / "run"
    assert call("import", "fio", str(path), "--out", str(run)).status == 0
    series = open_run(run).series.filter(pl.col("job").is_null(), metric="write.bandwidth")
    assert 8 <= series.height <= 12
    assert not list(run.rglob("other_bw*"))
    for log in folder.glob("mine*"):
        log.unlink()
    assert call("report", str(run)).status == 0
    without = call("import", "fio", str(path), "--out", str(tmp_path / "without"))
    assert "mine_*.log don't lie beside it" in without.message


def test_a_log_that_is_none_is_named_with_its_line(folder: Path, tmp_path: Path) -> None:
    path = ran(folder, "a.json", "--rw=write", "--write_bw_log=mine", "--log_avg_msec=100")
    (folder / "mine_bw.1.log").write_text("1, 2, 1, 0, 0\nrubbish\n")
    imported = call("import", "fio", str(path), "--out", str(tmp_path / "run"))
    assert imported.status == 2
    assert "mine_bw.1.log:2: not a line of a fio log" in imported.message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("form", "logs", "metrics"),
    [
        ("json", ["--write_lat_log=mine", "--write_bw_log=mine"], {"bandwidth", "iops", "latency"}),
        ("json+", ["--write_iops_log=mine"], {"bandwidth", "iops"}),
        ("json", ["--write_lat_log=mine", "--per_job_logs=0"], {"bandwidth", "iops", "latency"}),
        ("json", ["--write_lat_log=mine", "--disable_clat=1"], {"bandwidth", "iops", "latency"}),
    ],
)
def test_logs_of_single_operations_become_series_by_the_second(
    form: str, logs: list[str], metrics: set[str], folder: Path, tmp_path: Path
) -> None:
    timed = ["--rw=randwrite", "--bs=4k", "--time_based", "--runtime=2", "--rate_iops=500"]
    path = ran(folder, "a.json", *timed, *logs, form=form)
    run = tmp_path / "run"
    imported = call("import", "fio", str(path), "--out", str(run))
    assert imported.status == 0, imported.message
    opened = open_run(run)
    series = opened.series.filter(pl.col("job").is_null())
    assert set(series["metric"]) == {f"write.{metric}" for metric in metrics}
    counted = series.filter(metric="write.iops")["value"]
    (job,) = json.loads(path.read_text().partition("\n")[2])["jobs"]
    assert counted.sum() == pytest.approx(job["write"]["total_ios"], rel=0.05)
    latencies = opened.histograms.filter(pl.col("job").is_null(), metric="latency")
    assert latencies["count"].sum() == pytest.approx(counted.sum(), rel=0.01)
    assert len(list(run.rglob("mine_*"))) == 1  # all count the same operations


def test_logs_that_were_cut_off_or_are_empty_are_named(folder: Path, tmp_path: Path) -> None:
    path = ran(folder, "a.json", "--rw=randwrite", "--write_lat_log=mine")
    log = folder / "mine_clat.1.log"
    log.write_bytes(log.read_bytes()[:-3])
    cut = call("import", "fio", str(path), "--out", str(tmp_path / "cut"))
    assert (cut.status, "mine_clat.1.log ends within a line, which is left out" in cut.message) == (0, True)
    log.write_bytes(b"")
    empty = call("import", "fio", str(path), "--out", str(tmp_path / "empty"))
    assert (empty.status, "its logs mine_*.log are empty: there are no series" in empty.message) == (0, True)


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    path = ran(folder, "a.json", "--rw=randwrite", "--write_lat_log=mine")
    for log in folder.glob("mine_*"):
        log.unlink()
        os.mkfifo(log)
    imported = call("import", "fio", str(path), "--out", str(tmp_path / "run"))
    assert (imported.status, "mine_*.log don't lie beside it" in imported.message) == (0, True)


def test_logs_that_can_not_be_placed_are_named(folder: Path, tmp_path: Path) -> None:
    path = ran(folder, "a.json", "--rw=randwrite", "--write_lat_log=mine", "--log_unix_epoch=1")
    imported = call("import", "fio", str(path), "--out", str(tmp_path / "run"))
    assert imported.status == 0
    assert "mine_*.log have the time of day" in imported.message
    path.write_bytes(path.read_bytes() + later(path.read_bytes()))
    imported = call("import", "fio", str(path), "--out", str(tmp_path / "twice"))
    assert "mine_*.log are of jobs or runs that ran one after another" in imported.message


PACED = ["--rw=randrw", "--bs=4k", "--time_based", "--runtime=1", "--rate_iops=500"]


def test_histogram_logs_become_percentiles_over_time(folder: Path, tmp_path: Path) -> None:
    logs = ["--write_hist_log=mine", "--log_hist_msec=100", "--log_hist_coarseness=1", "--numjobs=2"]
    path = ran(folder, "a.json", *PACED, *logs, form="json")
    run = tmp_path / "run"
    imported = call("import", "fio", str(path), "--out", str(run))
    assert imported.status == 0, imported.message
    assert "percentiles over time are known to within 1.6 % (log_hist_coarseness=1)" in imported.message
    opened = open_run(run)
    assert sorted(path.name for path in run.rglob("mine_*")) == ["mine_clat_hist.1.log", "mine_clat_hist.2.log"]
    series = opened.series
    assert series["job"].unique().sort().to_list() == [None, "load.1", "load.2"]
    assert set(series["metric"]) == {f"{way}.latency.{p}" for way in ("read", "write") for p in ("p50", "p99")}
    over_time = series.filter(job="load.1", metric="write.latency.p50")["value"].to_list()
    (whole,) = opened.metrics.filter(job="load.1", metric="write.latency.p50")["value"]
    assert min(over_time) / 2 <= whole <= 2 * max(over_time)  # the last interval's operations are in no line
    assert opened.histograms.filter(pl.col("job").is_null(), metric="latency")["count"].sum() > 1500
    assert call("report", str(run)).status == 0


def test_packed_logs_are_read_and_what_fio_spoils_in_them_is_left_out(folder: Path, tmp_path: Path) -> None:
    logs = [f"--write_{kind}_log=mine" for kind in ("bw", "iops", "lat", "hist")]
    packed = [*logs, "--log_hist_msec=100", *PACK]
    path = ran(folder, "a.json", *PACED, *packed, "--log_avg_msec=100")
    imported = call("import", "fio", str(path), "--out", str(tmp_path / "run"))
    assert imported.status == 0, imported.message
    said = " ".join(imported.message.split())
    assert "its logs mine_bw and mine_iops are left out: with log_compression, fio averages in them" in said
    assert "its logs mine_clat_hist.*.log hold addresses in place of counts" in said
    series = open_run(tmp_path / "run").series
    assert set(series["metric"]) == {"read.latency", "write.latency"}
    assert 8 <= series.filter(pl.col("job").is_null(), metric="write.latency").height <= 12

    path = ran(folder, "b.json", *PACED, *packed)
    single = call("import", "fio", str(path), "--out", str(tmp_path / "single"))
    assert single.status == 0, single.message
    series = open_run(tmp_path / "single").series.filter(pl.col("job").is_null())
    assert series.filter(metric="write.iops")["value"].sum() == pytest.approx(500, rel=0.1)


TOTAL = ["--lat_percentiles=1", "--clat_percentiles=0"]


@pytest.mark.parametrize("told", [TOTAL, ["--disable_clat=1"]])
@pytest.mark.parametrize("averaged", [["--log_avg_msec=100"], []])
def test_where_latency_is_the_total_its_logs_are_those_of_the_total(
    told: list[str], averaged: list[str], folder: Path, tmp_path: Path
) -> None:
    path = ran(folder, "a.json", *PACED, *told, *averaged, "--write_lat_log=mine", form="json")
    (folder / "mine_clat.1.log").write_text("100, 1, 1, 0, 0\n")
    run = tmp_path / "run"
    imported = call("import", "fio", str(path), "--out", str(run))
    assert imported.status == 0, imported.message
    assert [path.name for path in run.rglob("mine_*")] == ["mine_lat.1.log"]
    latencies = open_run(run).series.filter(pl.col("job").is_null(), metric="write.latency")["value"]
    assert latencies.len() and latencies.min() > 1e-7  # type: ignore[operator]


def test_logs_of_the_maximum_of_each_interval_are_no_series_of_means(folder: Path, tmp_path: Path) -> None:
    asked = ["--write_lat_log=mine", "--write_bw_log=mine", "--log_max_value=1"]
    left_out = "its logs mine_clat are left out: with log_max_value, fio writes into them the maximum of each interval"
    for name, logs, metrics in (
        ("both", asked, {"bandwidth", "read.bandwidth", "write.bandwidth"}),
        ("latencies", [asked[0], asked[2]], set()),
    ):
        for log in folder.glob("mine_*"):
            log.unlink()
        path = ran(folder, "a.json", *PACED, *logs, "--log_avg_msec=100")
        imported = call("import", "fio", str(path), "--out", str(tmp_path / name))
        assert imported.status == 0, imported.message
        assert left_out in " ".join(imported.message.split())
        assert "don't lie beside it" not in imported.message
        assert set(open_run(tmp_path / name).series["metric"]) == metrics
    path = ran(folder, "b.json", *PACED, *asked)
    imported = call("import", "fio", str(path), "--out", str(tmp_path / "single"))
    assert "log_max_value" not in imported.message  # of single operations there is no maximum
    assert "write.latency" in set(open_run(tmp_path / "single").series["metric"])


def test_histogram_logs_that_can_not_be_used_are_named(folder: Path, tmp_path: Path) -> None:
    path = ran(folder, "a.json", *PACED, "--write_hist_log=mine", "--log_hist_msec=100")
    log = folder / "mine_clat_hist.1.log"
    whole = log.read_bytes()
    last = len(whole.splitlines()) + 1
    for contents, status, says in (
        (whole[:-3], 0, "mine_clat_hist.1.log ends within a line, which is left out"),
        (b"", 0, "mine_clat_hist.*.log are empty: there are no percentiles over time"),
        (whole + b"rubbish\n", 2, f"mine_clat_hist.1.log:{last}: not a line of a histogram log"),
    ):
        log.write_bytes(contents)
        imported = call("import", "fio", str(path), "--out", str(tmp_path / f"{len(contents)}"))
        assert (imported.status, says in imported.message) == (status, True), imported.message
    log.unlink()
    imported = call("import", "fio", str(path), "--out", str(tmp_path / "without"))
    assert "its logs mine_clat_hist.*.log don't lie beside it" in imported.message
