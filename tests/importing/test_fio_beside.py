"""Logs that lie beside fio's output, and belong to it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from formats.fio.samples import PACK
from storlab import open_run
from storlab.report.plots import Run
from study.program import call

from . import taken
from .test_fio import TOTAL, later, ran

PACED = ["--rw=randrw", "--bs=4k", "--time_based", "--runtime=1", "--rate_iops=500"]


def imported(path: Path, run: Path) -> tuple[Run, str]:
    """The run that becomes of fio's output, and what is said of it."""
    said = " ".join(taken("fio", path, out=run).message.split())
    return open_run(run), said


def test_logs_beside_become_series_and_others_are_left(folder: Path, tmp_path: Path) -> None:
    logs = ["--write_bw_log=mine", "--write_iops_log=mine", "--log_avg_msec=100"]
    path = ran(folder, "a.json", "--rw=write", "--bs=4k", "--time_based", "--runtime=1", *logs)
    (folder / "other_bw.1.log").write_text("rubbish\n")
    run = tmp_path / "run"
    opened, _ = imported(path, run)
    assert 8 <= opened.series.filter(pl.col("job").is_null(), metric="write.bandwidth").height <= 12
    assert not list(run.rglob("other_bw*"))
    for log in folder.glob("mine*"):
        log.unlink()
    assert call("report", str(run)).status == 0
    assert "mine_*.log don't lie beside it" in imported(path, tmp_path / "without")[1]
    for name in ("bw", "iops"):
        os.mkfifo(folder / f"mine_{name}.1.log")  # which is not waited for
    assert "mine_*.log don't lie beside it" in imported(path, tmp_path / "pipes")[1]


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
    opened, _ = imported(path, tmp_path / "run")
    series = opened.series.filter(pl.col("job").is_null())
    assert set(series["metric"]) == {f"write.{metric}" for metric in metrics}
    counted = series.filter(metric="write.iops")["value"]
    (job,) = json.loads(path.read_text().partition("\n")[2])["jobs"]
    assert counted.sum() == pytest.approx(job["write"]["total_ios"], rel=0.05)
    latencies = opened.histograms.filter(pl.col("job").is_null(), metric="latency")
    assert latencies["count"].sum() == pytest.approx(counted.sum(), rel=0.01)
    assert len(list((tmp_path / "run").rglob("mine_*"))) == 1  # all count the same operations


def test_logs_that_can_not_be_read_or_placed_are_named(folder: Path, tmp_path: Path) -> None:
    path = ran(folder, "a.json", "--rw=randwrite", "--write_lat_log=mine")
    log = folder / "mine_clat.1.log"
    log.write_bytes(log.read_bytes()[:-3])
    assert "mine_clat.1.log ends within a line, which is left out" in imported(path, tmp_path / "cut")[1]
    log.write_bytes(b"")
    assert "its logs mine_*.log are empty: there are no series" in imported(path, tmp_path / "empty")[1]
    log.write_text("1, 2, 1, 0, 0\nrubbish\n")
    refused = call("import", "fio", str(path), "--out", str(tmp_path / "rubbish"))
    assert (refused.status, (tmp_path / "rubbish").exists()) == (2, False)
    assert "mine_clat.1.log:2: not a line of a fio log" in refused.message
    path = ran(folder, "a.json", "--rw=randwrite", "--write_lat_log=mine", "--log_unix_epoch=1")
    assert "mine_*.log have the time of day" in imported(path, tmp_path / "run")[1]
    path.write_bytes(path.read_bytes() + later(path.read_bytes()))
    said = imported(path, tmp_path / "twice")[1]
    assert "mine_*.log are of jobs or runs that ran one after another" in said


def test_histogram_logs_become_percentiles_over_time(folder: Path, tmp_path: Path) -> None:
    logs = ["--write_hist_log=mine", "--log_hist_msec=100", "--log_hist_coarseness=1", "--numjobs=2"]
    run = tmp_path / "run"
    opened, said = imported(ran(folder, "a.json", *PACED, *logs, form="json"), run)
    assert "percentiles over time are known to within 1.6 % (log_hist_coarseness=1)" in said
    assert sorted(path.name for path in run.rglob("mine_*")) == ["mine_clat_hist.1.log", "mine_clat_hist.2.log"]
    series = opened.series
    assert series["job"].unique().sort().to_list() == [None, "load.1", "load.2"]
    assert set(series["metric"]) == {f"{way}.latency.{p}" for way in ("read", "write") for p in ("p50", "p99")}
    over_time = series.filter(job="load.1", metric="write.latency.p50")["value"].to_list()
    (whole,) = opened.metrics.filter(job="load.1", metric="write.latency.p50")["value"]
    assert min(over_time) / 2 <= whole <= 2 * max(over_time)  # the last interval's operations are in no line
    assert opened.histograms.filter(pl.col("job").is_null(), metric="latency")["count"].sum() > 1500
    assert call("report", str(run)).status == 0


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
        ended = call("import", "fio", str(path), "--out", str(tmp_path / f"{len(contents)}"))
        assert (ended.status, says in ended.message) == (status, True), ended.message
    log.unlink()
    assert "its logs mine_clat_hist.*.log don't lie beside it" in imported(path, tmp_path / "without")[1]


def test_packed_logs_are_read_and_what_fio_spoils_in_them_is_left_out(folder: Path, tmp_path: Path) -> None:
    packed = [f"--write_{kind}_log=mine" for kind in ("bw", "iops", "lat", "hist")] + ["--log_hist_msec=100", *PACK]
    opened, said = imported(ran(folder, "a.json", *PACED, *packed, "--log_avg_msec=100"), tmp_path / "run")
    assert "its logs mine_bw and mine_iops are left out: with log_compression, fio averages in them" in said
    assert "its logs mine_clat_hist.*.log hold addresses in place of counts" in said
    assert set(opened.series["metric"]) == {"read.latency", "write.latency"}
    assert 8 <= opened.series.filter(pl.col("job").is_null(), metric="write.latency").height <= 12
    opened, _ = imported(ran(folder, "b.json", *PACED, *packed), tmp_path / "single")
    series = opened.series.filter(pl.col("job").is_null())
    assert series.filter(metric="write.iops")["value"].sum() == pytest.approx(500, rel=0.1)


@pytest.mark.parametrize("told", [TOTAL, ["--disable_clat=1"]])
@pytest.mark.parametrize("averaged", [["--log_avg_msec=100"], []])
def test_where_latency_is_the_total_its_logs_are_those_of_the_total(
    told: list[str], averaged: list[str], folder: Path, tmp_path: Path
) -> None:
    path = ran(folder, "a.json", *PACED, *told, *averaged, "--write_lat_log=mine", form="json")
    (folder / "mine_clat.1.log").write_text("100, 1, 1, 0, 0\n")
    opened, _ = imported(path, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").rglob("mine_*")] == ["mine_lat.1.log"]
    latencies = opened.series.filter(pl.col("job").is_null(), metric="write.latency")["value"]
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
        opened, said = imported(ran(folder, "a.json", *PACED, *logs, "--log_avg_msec=100"), tmp_path / name)
        assert left_out in said and "don't lie beside it" not in said and set(opened.series["metric"]) == metrics
    opened, said = imported(ran(folder, "b.json", *PACED, *asked), tmp_path / "single")
    assert "log_max_value" not in said  # of single operations there is no maximum
    assert "write.latency" in set(opened.series["metric"])
