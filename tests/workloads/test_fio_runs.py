"""What short runs of the installed fio write, read back; which of its jobs ran at once, and which files they share."""

import contextlib
import subprocess
from pathlib import Path

import polars as pl
import pytest

from formats.fio.samples import counts, read_lines, run_fio, values
from storlab.base.errors import CommandFailed, DiskFull, TrialError
from storlab.measurements import Measurements
from storlab.tools.fio.blocks import NO_LATENCY
from storlab.tools.fio.log_lines import AT_ONCE, Phases
from storlab.tools.fio.logs import find_logs, read_series
from storlab.tools.fio.metrics import Direction
from storlab.tools.fio.metrics import Job as Reported
from storlab.tools.fio.operations import longest_gap, read_operations
from storlab.tools.fio.output import parse_fio, read_report
from storlab.workloads.fio.layout import files_of
from storlab.workloads.fio.options import Job, Option, jobs_of, sections_of
from storlab.workloads.fio.results import UNKNOWN_STARTS, fell_short, phases_of, read_results
from workloads import left

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
    assert 0.2 < one["latency.p50"] / other["latency.p50"] < 5 and values(theirs, "rand") == other


def test_merged_bins_hold_every_operation_that_fio_logged(tmp_path: Path) -> None:
    """The same operations twice: in the bins of four jobs, and one by one in their logs."""
    ran = fio(tmp_path, *FOUR_JOBS, "--write_lat_log=x")
    measured = parse_fio(ran.stdout, "x")
    logged = read_operations(find_logs(tmp_path, "x", "clat"), jobs=_jobs(ran))
    latencies = pl.concat([read_lines(path) for path in find_logs(tmp_path, "x", "clat").values()])["value"].to_numpy()
    together = values(measured)
    assert (together["ios"], together["latency.min"]) == (latencies.size, latencies.min() / 1e9)
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
        assert 6 <= mine.height <= 9 and mine["value"].median() == pytest.approx(expected, rel=0.1)
    assert found.filter(pl.col("metric") == "write.latency")["value"].is_between(0, 1, closed="right").all()


def test_a_pause_is_found_as_a_gap(tmp_path: Path) -> None:
    pause = ["--thinktime=600ms", "--thinktime_blocks=400", "--number_ios=1000"]
    fio(tmp_path, "--name=a", "--ioengine=null", "--rw=read", "--bs=4k", "--size=8M", *pause, "--write_lat_log=x")
    gaps = longest_gap(find_logs(tmp_path, "x", "clat").values(), threshold=0.5)
    assert 0.58 < gaps.longest < 5 and gaps.count == 2


@pytest.mark.needs("root")
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


def test_what_fio_refuses_is_told_in_its_words_and_a_note_ahead_of_the_document_is_a_warning(tmp_path: Path) -> None:
    refused = {"--bogus=3": "unrecognized option", "--ioengine=nosuch": "engine nosuch not loadable", "--bs=x": "bs"}
    for option, said in refused.items():
        ran = fio(tmp_path, "--name=a", "--size=1M", option)
        with pytest.raises(CommandFailed, match=said):
            parse_fio(ran.stdout, "x", ran.stderr)
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
    return read_results(left(folder), 0.1, jobs_of(sections_of(text)))


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
    assert 0 <= values(measured)["stall.longest"] < 0.5 and values(measured)["stall.total"] == 0
    assert UNKNOWN_STARTS not in measured.warnings


@pytest.mark.parametrize(
    ("does", "asked", "said"),
    [
        ("fill_device=1\nfilename=/dev/full\nsize=64M", "size=64M", "did no I/O"),
        ("size=4M", "size=64M", "did 4 MiB of the 64 MiB that it was asked for"),
        ("size=4M\nramp_time=1ms", "size=64M", ""),
        ("size=4M\nbs=3M", "size=4M\nbs=3M", "did 3 MiB of the 4 MiB"),
        ("size=4M\nruntime=1", "size=64M\nruntime=1", ""),
        ("size=4M", "size=64M\nss=iops:10%", ""),
        ("size=4M\nruntime=200ms\ntime_based", "size=4M\nruntime=60s\ntime_based", r"ran for 0\.2\d* s of the 60 s"),
    ],
)
def test_a_load_that_did_less_than_it_was_asked_has_failed(tmp_path: Path, does: str, asked: str, said: str) -> None:
    ran = fio(tmp_path, "--name=a", "--ioengine=psync", "--rw=write", *(f"--{each}" for each in does.split("\n")))
    (tmp_path / "fio.json").write_bytes(ran.stdout[ran.stdout.index(b"{") :])
    with pytest.raises(TrialError, match=said) if said else contextlib.nullcontext():
        read_results(left(tmp_path), 0.1, jobs_of(sections_of(f"[a]\nrw=write\n{asked}")))


def test_what_failed_and_was_passed_over_is_not_missing() -> None:
    ran = jobs_of(sections_of("[a]\nrw=read\nsize=8M\ncontinue_on_error=all"))
    assert fell_short(ran, {"bytes": 7 * 2**20, "errors": 0}, False).startswith("fio did 7 MiB of the 8 MiB")
    assert fell_short(ran, {"bytes": 7 * 2**20, "errors": 256}, False) == ""
    assert fell_short(ran, {"errors": 0}, False) == "fio did no I/O"
    assert fell_short(ran, {"stat.ios": 1500, "errors": 0}, False) == "", "which moves no bytes"


def test_jobs_that_begin_apart_have_no_series_together(tmp_path: Path) -> None:
    measured = _ran(tmp_path, "[a]\nruntime=1\nrate_iops=100\n[b]\nstartdelay=500ms\nruntime=500ms\nrate_iops=50")
    assert measured.series["job"].unique().sort().to_list() == ["a", "b"] and "stall.longest" not in values(measured)
    assert UNKNOWN_STARTS in measured.warnings


@pytest.mark.parametrize("packed", [False, True])
def test_logs_that_a_study_asks_for_beside_its_own_are_read(packed: bool, tmp_path: Path) -> None:
    logs = [f"--write_{kind}_log=series" for kind in ("bw", "iops", "lat")] + ["--write_hist_log=mine"]
    pace = ["--rate_iops=500", "--time_based", "--runtime=1", "--log_avg_msec=100", "--log_hist_msec=100"]
    fio(tmp_path, *FOUR_JOBS[:-2], "--size=1M", *logs, *pace, "--output=fio.json")
    for log in tmp_path.glob("*.log") if packed else ():
        log.rename(f"{log}.fz")
    measured = read_results(left(tmp_path), 0.1, [Job("rand", {})])
    metrics = set(measured.series["metric"])
    percentiles = {"read.latency.p50", "read.latency.p99", "write.latency.p50", "write.latency.p99"}
    assert (percentiles & metrics, "iops" in metrics) == (set() if packed else percentiles, not packed)
    assert packed or {"read.latency", "write.latency"} <= metrics
    assert len(measured.warnings) == (2 if packed else 0), measured.warnings


def test_of_a_study_s_logs_those_of_maxima_are_left_out(tmp_path: Path) -> None:
    logs = [f"--write_{kind}_log=series" for kind in ("bw", "iops", "lat")]
    pace = ["--rate_iops=500", "--time_based", "--runtime=1", "--log_avg_msec=100", "--log_max_value=1"]
    fio(tmp_path, *FOUR_JOBS[:-2], "--size=1M", *logs, *pace, "--output=fio.json")
    measured = read_results(left(tmp_path), 0.1, [Job("rand", {})])
    assert "iops" in set(measured.series["metric"])
    assert not [metric for metric in measured.series["metric"].unique() if "latency" in metric]
    (said,) = measured.warnings
    assert said.startswith("its logs of latency are left out: with log_max_value, ")


def phases(lines: str, *reported: tuple[int, float], logged: int) -> Phases | None:
    """``reported``: of each job its group, and for how long it ran; ``lines`` of a job file, apart by a blank."""
    jobs = jobs_of(sections_of(lines.replace(" ", "\n")))
    return phases_of(jobs, [_reported(group, runtime) for group, runtime in reported], logged)


def _reported(group: int, runtime: float) -> Reported:
    ways = {"write": Direction(4096, 1, runtime, NO_LATENCY, total=False)}
    return Reported("x", group, ways, NO_LATENCY, 0.0, 0.0, runtime, 0, 0)


WRITTEN = (0, 1.0)  # the only group, in 1 s


@pytest.mark.parametrize(
    ("lines", "reported", "logged", "found"),
    [
        ("[a] [b] numjobs=2", ((0, 1.0), (0, 2.0), (0, 2.0)), 3, AT_ONCE),
        ("[global] startdelay=2 ramp_time=1 [a] [b]", (WRITTEN, WRITTEN), 2, AT_ONCE),
        ("[a] startdelay=1-5", (WRITTEN,), 1, AT_ONCE),  # a single process may begin whenever it likes
        (
            "[a] [b] numjobs=2 stonewall [c] wait-for-previous [d]",
            (WRITTEN, (1, 2.0), (1, 2.5), (2, 4.0), (2, 3.0)),
            5,
            Phases((0, 1, 1, 2, 2), (1.0, 2.5, 4.0)),
        ),
        ("[global] stonewall [a] [b]", (WRITTEN, (1, 2.0)), 2, Phases((0, 1), (1.0, 2.0))),  # all but the first wait
        ("[a] [b] new_group", (WRITTEN, (1, 2.0)), 2, AT_ONCE),  # is reported apart, and waits for none
        ("[a] [b] stonewall [c] new_group", (WRITTEN, (1, 2.0), (2, 5.0)), 3, Phases((0, 1, 1), (1.0, 5.0))),
        # Processes that fio reports as one still have a log each.
        ("[a] numjobs=2 group_reporting [b] stonewall", (WRITTEN, (1, 2.0)), 3, Phases((0, 0, 1), (1.0, 2.0))),
    ],
)
def test_jobs_run_at_once_and_a_phase_begins_with_one_that_waits(
    lines: str, reported: tuple[tuple[int, float], ...], logged: int, found: Phases
) -> None:
    assert phases(lines, *reported, logged=logged) == found


def test_jobs_that_begin_apart_or_are_reported_otherwise_than_they_were_asked_for_have_no_common_time() -> None:
    apart = ("[a] [b] startdelay=5", "[global] startdelay=1-5 [a] [b]", "[a] [b] wait_for=a", "[a] ramp_time=5 [b]")
    for lines in apart:
        assert phases(lines, WRITTEN, WRITTEN, logged=2) is None
    assert phases("[a] startdelay=5 [b] stonewall startdelay=5", WRITTEN, (1, 1.0), logged=2) is None
    assert phases("[a] [b]", WRITTEN, (1, 1.0), logged=2) is None
    assert phases("[a] numjobs=${N} [b] stonewall", WRITTEN, WRITTEN, (1, 1.0), logged=3) is None


BASE: dict[str, Option] = {"size": "1M", "bs": "4k", "rw": "randread", "ioengine": "psync"}


def laid_out(**options: Option) -> str:
    return files_of([("global", {**BASE, **options}), ("load", {})])


def test_how_a_file_is_used_does_not_matter_but_what_files_there_are_and_what_is_not_known_do() -> None:
    used: list[dict[str, Option]] = [{"rw": "randwrite"}, {"ioengine": "mmap"}, {"iodepth": 16}, {"direct": 1}]
    used.append({"runtime": "9s", "time_based": 1})
    for options in used:
        assert laid_out(**options) == laid_out()
    others: list[dict[str, Option]] = [
        {"size": "2M"}, {"numjobs": 2}, {"filename": "other"}, {"bs": "1M"}, {"unlink": 1}, {"overwrite": 1},
        {"rw": "trim"}, {"ioengine": "null"}, {"ioengine": "filecreate"}, {"rw": "write:4k"}, {"made_up": 1},
    ]  # fmt: skip
    for options in others:
        assert laid_out(**options) != laid_out(), options


@pytest.mark.parametrize("first", ["psync", "mmap"])
def test_fio_leaves_alone_what_another_of_them_has_laid_out(first: str, tmp_path: Path) -> None:
    def lay_out(rw: str, engine: str) -> str:
        options = [f"--{key}={value}" for key, value in {**BASE, "rw": rw, "ioengine": engine}.items()]
        run_fio("--create_only=1", "--name=load", *options, cwd=tmp_path).check_returncode()
        (made,) = tmp_path.glob("load.*")
        said = subprocess.run(["filefrag", "-v", made], check=True, capture_output=True, text=True).stdout
        return f"{said} {made.stat().st_mtime_ns}"

    before = lay_out("randwrite", first)
    assert (lay_out("randread", "psync"), lay_out("randrw", "libaio")) == (before, before)
