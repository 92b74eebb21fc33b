"""What short runs of the installed fio write, read back."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest

from formats.fio.program import PACK, run_fio
from formats.fio.samples import counts, read_lines, values
from storlab.errors import CommandFailed, DiskFull
from storlab.formats.fio.logs import find_logs, read_series
from storlab.formats.fio.operations import longest_gap, read_operations
from storlab.formats.fio.output import parse_fio, read_report
from storlab.measurements import Measurements
from storlab.nodes.process import ExitRecord
from storlab.workloads.fio.options import Job, jobs_of, sections_of
from storlab.workloads.fio.results import UNKNOWN_STARTS, read_results

FOUR_JOBS = ("--name=rand", "--ioengine=null", "--rw=randrw", "--bs=4k", "--size=8M", "--numjobs=4")


def fio(folder: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    return run_fio("--output-format=json+", *options, cwd=folder)


def _jobs(ran: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [job.name for job in read_report(ran.stdout, "x").jobs]


def test_jobs_merged_by_us_and_by_fio_agree(tmp_path: Path) -> None:
    """Two runs: what both did is the same, what it took only alike."""
    ours = parse_fio(fio(tmp_path, *FOUR_JOBS).stdout, "x")
    theirs = parse_fio(fio(tmp_path, *FOUR_JOBS, "--group_reporting").stdout, "x")
    one, other = values(ours), values(theirs)
    for metric in ("bytes", "ios", "read.ios", "write.ios", "errors"):
        assert one[metric] == other[metric]
    # fio measures CPU time in ms of run time, of which so short a run may have none.
    assert {name for name in set(one) ^ set(other) if not name.startswith("cpu.")} == set()
    assert 0.2 < one["latency.p50"] / other["latency.p50"] < 5
    assert values(theirs, "rand") == other


def test_merged_bins_hold_every_operation_that_fio_logged(tmp_path: Path) -> None:
    """The same operations twice: in the bins of four jobs, and one by one in their logs."""
    ran = fio(tmp_path, *FOUR_JOBS, "--write_lat_log=x")
    measured = parse_fio(ran.stdout, "x")
    logged = read_operations(find_logs(tmp_path, "x", "clat"), jobs=_jobs(ran))
    latencies = pl.concat([read_lines(path) for path in find_logs(tmp_path, "x", "clat").values()])["value"].to_numpy()
    together = values(measured)
    assert together["ios"] == latencies.size
    assert together["latency.min"] == latencies.min() / 1e9
    assert together["latency.max"] == latencies.max() / 1e9
    assert together["latency.mean"] == pytest.approx(latencies.mean() / 1e9, rel=1e-6)
    for job in (None, "rand.1", "rand.2", "rand.3", "rand.4"):
        for metric in ("read.latency", "write.latency", "latency"):
            assert counts(logged, metric, job) == counts(measured, metric, job)


def test_series_of_a_steady_rate_show_that_rate(tmp_path: Path) -> None:
    logs = [f"--write_{kind}_log=x" for kind in ("bw", "iops", "lat")]
    pace = ["--rate_iops=500", "--time_based", "--runtime=2", "--bwavgtime=250", "--iopsavgtime=250"]
    ran = fio(tmp_path, *FOUR_JOBS[:-1], "--rw=write", "--numjobs=2", *logs, *pace, "--log_avg_msec=250")
    found = read_series(tmp_path, "x", 0.25, _jobs(ran))
    assert found["job"].unique().sort().to_list() == [None, "rand.1", "rand.2"]
    for metric, expected in (("write.iops", 1000), ("iops", 1000), ("bandwidth", 4096000)):
        mine = found.filter(pl.col("metric") == metric, pl.col("job").is_null())
        assert 6 <= mine.height <= 9
        assert mine["value"].median() == pytest.approx(expected, rel=0.1)
    assert found.filter(pl.col("metric") == "write.latency")["value"].is_between(0, 1, closed="right").all()


def test_a_pause_is_found_as_a_gap(tmp_path: Path) -> None:
    pause = ["--thinktime=600ms", "--thinktime_blocks=400", "--number_ios=1000"]
    fio(tmp_path, "--name=a", "--ioengine=null", "--rw=read", "--bs=4k", "--size=8M", *pause, "--write_lat_log=x")
    gaps = longest_gap(find_logs(tmp_path, "x", "clat").values(), threshold=0.5)
    assert 0.58 < gaps.longest < 5
    assert gaps.count == 2


@pytest.mark.root
def test_a_full_file_system_fails_the_trial_with_the_path(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=True)
    try:
        size = ["--name=fill", "--rw=write", "--bs=64k", "--size=4M", "--ioengine=psync"]
        written = fio(tmp_path, *size, "--fallocate=none")
        laid_out = fio(tmp_path, *size, "--rw=read", "--filename=other")
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    with pytest.raises(DiskFull, match=r"fill\.0\.0"):
        parse_fio(written.stdout, "x", written.stderr)
    with pytest.raises(DiskFull, match="laying out a file of fill"):
        parse_fio(laid_out.stdout, "x", laid_out.stderr)


@pytest.mark.parametrize(
    ("option", "said"),
    [("--bogus=3", "unrecognized option"), ("--ioengine=nosuch", "engine nosuch not loadable"), ("--bs=x", "bs")],
)
def test_what_fio_refuses_is_told_in_its_words(tmp_path: Path, option: str, said: str) -> None:
    ran = fio(tmp_path, "--name=a", "--size=1M", option)
    with pytest.raises(CommandFailed, match=said):
        parse_fio(ran.stdout, "x", ran.stderr)


def test_a_note_ahead_of_the_document_is_a_warning(tmp_path: Path) -> None:
    ran = fio(tmp_path, "--name=a", "--size=64k", "--ioengine=psync", "--iodepth=8", "--rw=write")
    assert ran.stdout.startswith(b"note:")
    assert any("queue depth" in warning for warning in parse_fio(ran.stdout, "x", ran.stderr).warnings)


def _ran(folder: Path, jobs: str) -> Measurements:
    """What jobs that write at their pace measured, with logs every 0.1 s."""
    logs = [f"write_{kind}_log=series" for kind in ("bw", "iops", "lat")]
    shared = ["[global]", "ioengine=null", "size=8M", "bs=4k", "rw=write", "time_based", "log_avg_msec=100", *logs]
    text = "\n".join([*shared, "bwavgtime=100", "iopsavgtime=100", jobs])
    (folder / "job.fio").write_text(text)
    fio(folder, "--output=fio.json", "job.fio")
    ended = ExitRecord(("fio",), 0, None, False, None, None, 0.0, 1.0, 0.1, 0.1, 0, 0)
    (folder / "exit.json").write_text(json.dumps(asdict(ended)))
    return read_results(folder, 0.1, jobs_of(sections_of(text)))


def _at(measured: Measurements, metric: str, job: str | None = None) -> pl.DataFrame:
    return measured.series.filter(pl.col("metric") == metric, pl.col("job").eq_missing(job))


def test_phases_that_ran_one_after_another_are_so_in_the_series(tmp_path: Path) -> None:
    fast, slow = "[fast]\nruntime=1\nrate_iops=100", "[slow]\nstonewall\nruntime=1\nrate_iops=50"
    measured = _ran(tmp_path, f"{fast}\nnumjobs=2\n{slow}")
    together = _at(measured, "write.iops")
    assert together["t"].is_sorted()
    assert 1.7 < together["t"].max() <= 2.2  # type: ignore[operator]
    first, second = together.filter(pl.col("t") < 0.95), together.filter(pl.col("t") > 1.05)
    assert first["value"].median() == pytest.approx(200, rel=0.2)
    assert second["value"].median() == pytest.approx(50, rel=0.3)
    assert _at(measured, "write.iops", "fast.1")["t"].max() < 1.15  # type: ignore[operator]
    assert _at(measured, "write.iops", "slow")["t"].min() > 1  # type: ignore[operator]
    assert 0 <= values(measured)["stall.longest"] < 0.5
    assert values(measured)["stall.total"] == 0
    assert UNKNOWN_STARTS not in measured.warnings


def test_jobs_that_begin_apart_have_no_series_together(tmp_path: Path) -> None:
    measured = _ran(tmp_path, "[a]\nruntime=1\nrate_iops=100\n[b]\nstartdelay=500ms\nruntime=500ms\nrate_iops=50")
    assert measured.series["job"].unique().sort().to_list() == ["a", "b"]
    assert "stall.longest" not in values(measured)
    assert UNKNOWN_STARTS in measured.warnings


@pytest.mark.parametrize("packed", [False, True])
def test_logs_that_a_study_asks_for_beside_its_own_are_read(packed: bool, tmp_path: Path) -> None:
    logs = [f"--write_{kind}_log=series" for kind in ("bw", "iops", "lat")] + ["--write_hist_log=mine"]
    pace = ["--rate_iops=500", "--time_based", "--runtime=1", "--log_avg_msec=100", "--log_hist_msec=100"]
    fio(tmp_path, *FOUR_JOBS[:-2], "--size=1M", *logs, *pace, *(PACK if packed else ()), "--output=fio.json")
    ended = ExitRecord(("fio",), 0, None, False, None, None, 0.0, 1.0, 0.1, 0.1, 0, 0)
    (tmp_path / "exit.json").write_text(json.dumps(asdict(ended)))
    measured = read_results(tmp_path, 0.1, [Job("rand", {})])
    metrics = set(measured.series["metric"])
    percentiles = {"read.latency.p50", "read.latency.p99", "write.latency.p50", "write.latency.p99"}
    assert percentiles & metrics == (set() if packed else percentiles)
    assert ("iops" in metrics) == (not packed)
    assert {"read.latency", "write.latency"} <= metrics
    assert len(measured.warnings) == (2 if packed else 0), measured.warnings


def test_of_a_study_s_logs_those_of_maxima_are_left_out(tmp_path: Path) -> None:
    logs = [f"--write_{kind}_log=series" for kind in ("bw", "iops", "lat")]
    pace = ["--rate_iops=500", "--time_based", "--runtime=1", "--log_avg_msec=100", "--log_max_value=1"]
    fio(tmp_path, *FOUR_JOBS[:-2], "--size=1M", *logs, *pace, "--output=fio.json")
    ended = ExitRecord(("fio",), 0, None, False, None, None, 0.0, 1.0, 0.1, 0.1, 0, 0)
    (tmp_path / "exit.json").write_text(json.dumps(asdict(ended)))
    measured = read_results(tmp_path, 0.1, [Job("rand", {})])
    assert "iops" in set(measured.series["metric"])
    assert not [metric for metric in measured.series["metric"].unique() if "latency" in metric]
    (said,) = measured.warnings
    assert said.startswith("its logs of latency are left out: with log_max_value, ")
