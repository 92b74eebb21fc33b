"""fio's output from elsewhere: set-ups by the jobs' options, repeats by time, and never by file names."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab import open_run
from storlab.errors import ParseError
from storlab.records.importers.base import Part
from storlab.records.importers.fio import FioImporter
from storlab.records.importers.fio_traits import said_of_jobs, traits_of
from study.program import call
from workloads.fio_program import PACK, run_fio
from workloads.fio_samples import golden, values

from .virtiofs_sample import terse


def parts(text: bytes) -> list[Part]:
    return list(FioImporter().read(text, "x.json", {}))


def ran(folder: Path, name: str, *options: str, form: str = "json+") -> Path:
    """What fio really prints, with its messages ahead of it."""
    load = ["--name=load", f"--directory={folder}", "--filename=data", "--size=1m", f"--output-format={form}"]
    ended = run_fio(*load, *options, cwd=folder)
    ended.check_returncode()
    path = folder / name
    path.write_bytes(b"note: a line ahead of the document\n" + ended.stdout)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "results"
    made.mkdir()
    return made


def test_options_that_differ_become_factors_and_equal_ones_rounds(folder: Path, tmp_path: Path) -> None:
    for number, bs in enumerate(("4k", "16384", "4096", "16k")):
        ran(folder, f"{9 - number}.json", f"--bs={bs}", "--rw=write")
    run = tmp_path / "run"
    imported = call("import", "fio", str(folder), "--out", str(run))
    assert imported.status == 0, imported.message
    trials = open_run(run).trials.sort("started")
    assert [name for name in trials.columns if name.startswith("factor.")] == ["factor.bs"]
    assert trials.select("factor.bs", "round").rows() == [("4k", 1), ("16k", 1), ("4k", 2), ("16k", 2)]
    text = call("report", str(run))
    assert text.status == 0, text.message
    assert "no verdicts" in " ".join(text.output.split())


@pytest.mark.parametrize("form", ["json", "json+", "terse", "normal,terse", "normal,json", "terse,json+", "4", "5"])
def test_every_form_of_fio_s_output_gives_the_same_metrics(form: str, folder: Path, tmp_path: Path) -> None:
    version = [f"--terse-version={form}"] if form.isdigit() else []
    path = ran(folder, "x.out", "--rw=randrw", "--bs=4k", *version, form="terse" if version else form)
    run = tmp_path / "run"
    imported = call("import", "fio", str(path), "--out", str(run))
    assert imported.status == 0, imported.message
    found = open_run(run).metrics.filter(pl.col("node").is_null(), pl.col("job").is_null())
    rows = dict(zip(found["metric"], found["value"], strict=True))
    assert rows["read.bytes"] + rows["write.bytes"] == rows["bytes"] == 1 << 20
    assert rows["bandwidth"] == pytest.approx(rows["read.bandwidth"] + rows["write.bandwidth"])
    assert rows["iops"] * 4096 == pytest.approx(rows["bandwidth"], rel=0.02)


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


def test_runs_that_were_appended_to_one_file_are_all_read_in_order(folder: Path, tmp_path: Path) -> None:
    sizes = ("4k", "16k", "4096")
    files = [ran(folder, f"{number}.json", f"--bs={bs}", "--rw=write") for number, bs in enumerate(sizes)]
    whole, run = tmp_path / "all.json", tmp_path / "run"
    whole.write_bytes(b"".join(path.read_bytes() for path in files))
    imported = call("import", "fio", str(whole), "--out", str(run))
    assert imported.status == 0, imported.message
    assert "3 trials of 2 cells" in imported.output
    trials = open_run(run).trials.sort("trial")
    assert trials.select("factor.bs", "round").rows() == [("4k", 1), ("16k", 1), ("4k", 2)]


def test_of_runs_in_one_file_those_that_were_cut_off_are_left_out() -> None:
    whole = golden("fio-plain.json")
    lines = whole.count(b"\n")
    for text, line in (
        (whole + whole[:900], None),
        (whole[:900] + b"\n" + whole, None),
        (whole + whole[:1], lines + 1),
    ):
        (part,) = parts(text)
        assert values(part.measured) == values(parts(whole)[0].measured)
        assert "damaged or truncated" in part.measured.warnings[0]
        assert "that document is left out" in part.measured.warnings[0]
        assert line is None or part.measured.warnings[0].startswith(f"line {line}: ")


def later(whole: bytes, by: int = 60_000) -> bytes:
    """The same document, as if another run had given it, a minute later, or ``by`` ms."""
    return re.sub(rb'("timestamp_ms" ?: ?)(\d+)', lambda found: found[1] + b"%d" % (int(found[2]) + by), whole)


def test_documents_on_a_line_each_are_runs_too() -> None:
    whole = golden("fio-plain.json")
    line = json.dumps(json.loads(whole[whole.index(b"{") :])).encode()
    assert len(parts(line + b"\n" + later(line))) == 2


def test_a_copy_of_a_report_is_no_repeat() -> None:
    whole = golden("fio-plain.json")
    first, second = parts(whole + later(whole) + whole)
    assert first.started != second.started
    assert first.measured.warnings[0] == "copies of its own reports are left out: 1"


def test_reports_of_a_run_that_went_on_are_no_runs(folder: Path) -> None:
    slow = ["--rw=randwrite", "--time_based", "--runtime=2", "--rate_iops=200", "--status-interval=1"]
    path = ran(folder, "a.json", *slow)
    once, twice = parts(path.read_bytes()), parts(path.read_bytes() + later(path.read_bytes()))
    assert (len(once), len(twice)) == (1, 2)
    assert values(once[0].measured)["runtime"] == pytest.approx(2, abs=0.2)
    assert "reports of runs that went on (--status-interval) are left out: " in once[0].measured.warnings[0]


def test_runs_of_several_processes_that_were_appended_to_each_other_are_runs() -> None:
    # With group_reporting, job_runtime is the sum over the processes, far more than the time that they took.
    whole = re.sub(rb'"job_runtime" : \d+', b'"job_runtime" : 90000', golden("fio-group.json"))
    assert len(parts(whole + later(whole))) == 2


def test_where_there_is_no_completion_latency_the_total_is_read(folder: Path) -> None:
    (part,) = parts(ran(folder, "a.json", "--rw=randread", "--disable_clat=1").read_bytes())
    assert values(part.measured)["read.latency.mean"] > 0
    assert any("total latencies" in warning for warning in part.measured.warnings)


def test_messages_are_warnings_and_other_lines_around_are_not(folder: Path) -> None:
    path = ran(folder, "a.json", "--rw=read", "--iodepth=4", form="normal,json+")
    (part,) = parts(b"+ mount /dev/sdb1\n" + path.read_bytes() + b"done\n")
    assert all(warning.startswith("fio: note: ") for warning in part.measured.warnings)
    assert len(part.measured.warnings) == 2


def test_terse_lines_of_later_versions_have_trims(folder: Path) -> None:
    trims = ["--rw=randtrim", "--ioengine=null"]
    for version in ("4", "5"):
        path = ran(folder, "a.txt", *trims, f"--terse-version={version}", form="terse")
        (part,) = parts(path.read_bytes())
        found = values(part.measured)
        assert found["trim.bytes"] == found["bytes"] == 1 << 20
        assert not {"read.bytes", "write.bytes"} & found.keys()
    (part,) = parts(ran(folder, "b.txt", *trims, form="terse").read_bytes())
    assert (part.status, part.reason) == ("failed", "fio read and wrote nothing")  # version 3 has no trims


def test_output_for_people_is_refused_with_what_to_run_instead(folder: Path) -> None:
    path = ran(folder, "a.txt", "--rw=read", form="normal")
    with pytest.raises(ParseError, match=r"x\.json:\d+: fio's output for people.*--output-format=json\+"):
        parts(path.read_bytes())
    path = ran(folder, "b.txt", "--rw=read", "--terse-version=2", form="terse")
    with pytest.raises(ParseError, match="terse output of version 2 isn't read"):
        parts(path.read_bytes())


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
    assert counted.sum() == pytest.approx(1000, rel=0.05)
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


def test_jobs_that_ran_one_after_another_are_trials_of_their_own() -> None:
    read = parts(golden("fio-stonewall.json"))
    assert len(read) == 2
    first, second = read
    assert first.started is not None
    assert second.started is not None
    assert first.started < second.started
    assert not any("several groups" in warning for part in read for warning in part.measured.warnings)
    assert first.traits != second.traits


def test_jobs_that_ran_at_once_are_one_trial() -> None:
    (part,) = parts(golden("fio-four-jobs.json"))
    alone = values(part.measured)
    assert alone["bandwidth"] > 0
    assert part.measured.metrics["job"].n_unique() == 5


def test_steady_state_comes_along() -> None:
    (part,) = parts(golden("fio-steady.json"))
    assert "steady.attained" in set(part.measured.metrics["metric"])
    assert "steady.iops" in set(part.measured.series["metric"])


def test_a_failed_run_is_a_failed_trial_and_no_zero() -> None:
    (part,) = parts(golden("fio-full.json"))
    assert part.status == "failed"
    assert "No space left" in (part.reason or "") or "no space left" in (part.reason or "")
    assert part.measured.metrics.is_empty()


def test_options_are_compared_in_one_spelling_with_their_defaults() -> None:
    spelled = traits_of([{"blocksize": "4096", "readwrite": "randread", "name": "a", "log_avg_msec": "9"}])
    assert spelled == traits_of([{"bs": "4k", "rw": "randread", "iodepth": "1", "direct": "0", "randseed": "7"}])
    assert traits_of([{"rw": "read"}, {"rw": "write"}])["rw"] == "read + write"


def test_terse_lines_take_their_options_from_the_messages_before_them() -> None:
    message = (
        "load: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=psync, iodepth=1"
    )
    assert said_of_jobs([message])["load"] == {"rw": "randread", "ioengine": "psync", "iodepth": "1", "bs": "4k"}
    whole = f"{message}\n{terse('load', (1000, 250))}\n{terse('load', (1100, 275))}"
    first, second = parts((whole + "\n").encode())
    assert first.traits == second.traits
    assert "which jobs ran at once" in first.measured.warnings[0]
    (kept,) = parts(whole.encode())
    assert "line 3: the terse line was cut off" in kept.measured.warnings[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "x.json:1: holds no result of fio"),
        (b"\x7fELF\x00\x01\x02\n", "x.json:1: holds no result of fio"),
        (b"fio: engine nothing not loadable\n", "it says: fio: engine nothing not loadable"),
        (b'{"a": 1}', "jobs is missing"),
        (b"6;fio-3.33;x;0\n", "versions 3, its default, 4 and 5 are read"),
        (b"5;fio-3.33;x;0\n", "has 4 fields of 180: it was cut off"),
        (golden("fio-plain.json")[:900], "truncated"),
    ],
)
def test_what_is_none_is_refused_with_file_and_line(text: bytes, says: str) -> None:
    with pytest.raises(ParseError) as error:
        parts(text)
    assert says in str(error.value)
    assert str(error.value).startswith("x.json:")


def test_files_of_a_folder_that_are_none_are_named(folder: Path, tmp_path: Path) -> None:
    ran(folder, "a.json", "--rw=randwrite", "--write_lat_log=mine", "--log_avg_msec=100")
    ran(folder, "people.txt", "--rw=read", form="normal")
    imported = call("import", "fio", str(folder), "--out", str(tmp_path / "run"))
    assert imported.status == 0
    (said,) = (line for line in imported.message.splitlines() if "files that were not read" in line)
    assert said.endswith("files that were not read: data, mine_lat.1.log, mine_slat.1.log, people.txt")


def test_a_folder_without_any_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    ended = call("import", "fio", str(tmp_path), "--out", str(tmp_path / "run"))
    assert ended.status == 2
    assert "none of its 1 file is one of fio" in ended.message


WHOLE = [
    golden("fio-plain.json"),
    golden("fio-plain.json") + b"a message\n" + golden("fio-client.json"),
    golden("fio-stonewall.json") * 2,
    f"{terse('load', (9, 2))}\n".encode(),
]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(WHOLE))
    at, until = sorted((data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, len(whole)))))
    damaged = whole[:at] + data.draw(st.binary(max_size=20)) + whole[until:]
    try:
        assert parts(damaged)
    except ParseError as error:
        assert "x.json" in str(error)


def test_the_times_of_the_reports_give_the_order_not_the_files(tmp_path: Path) -> None:
    document = json.loads(golden("fio-plain.json")[golden("fio-plain.json").index(b"{") :])
    paths = []
    for name, stamp in (("late", 2_000_000), ("early", 1_000_000)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**document, "timestamp_ms": stamp}, indent=1))
        paths.append(str(path))
    run = tmp_path / "run"
    assert call("import", "fio", *paths, "--out", str(run)).status == 0
    assert open_run(run).trials["round"].to_list() == [2, 1]


def test_files_of_clients_that_ran_at_once_are_told_to_be_no_repeats(tmp_path: Path) -> None:
    whole = golden("fio-steady.json")
    (part,) = parts(whole)
    assert part.lasted is not None
    paths = []
    for name, after in (("one", 0), ("two", int(part.lasted * 500)), ("three", int(part.lasted * 2000))):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_bytes(later(whole, after))
    told = "one.json and", "two.json ran at once, as clients do, and are no repeats: tell them apart by --factor"
    imported = call("import", "fio", *map(str, paths), "--out", str(tmp_path / "run"))
    assert all(words in imported.message for words in told), imported.message
    report = " ".join(call("report", str(tmp_path / "run")).output.split())
    assert all(words in report for words in told)
    apart = ["--factor", "client=1,2", "--out", str(tmp_path / "apart")]
    for named in ([*map(str, paths[:2]), *apart], [str(paths[0]), str(paths[2]), "--out", str(tmp_path / "after")]):
        assert "ran at once" not in call("import", "fio", *named).message


def test_a_folder_has_one_level_of_a_factor_that_its_user_names(tmp_path: Path) -> None:
    for name in ("xfs", "ext4"):
        (tmp_path / name).mkdir()
        for number in range(2):
            ran(tmp_path / name, f"{number}.json", "--rw=write")
    run = tmp_path / "run"
    folders = [str(tmp_path / "xfs"), str(tmp_path / "ext4")]
    imported = call("import", "fio", *folders, "--factor", "fs=xfs,ext4", "--out", str(run))
    assert imported.status == 0, imported.message
    trials = open_run(run).trials
    assert trials["factor.fs"].to_list() == ["xfs", "xfs", "ext4", "ext4"]
    assert trials.filter(pl.col("factor.fs") == "xfs")["round"].to_list() == [1, 2]


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
