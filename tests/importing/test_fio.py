"""fio's output from elsewhere: set-ups by the jobs' options, several documents in one file, and what is refused."""

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest

from formats.fio.samples import golden, run_fio, values
from storlab import open_run
from storlab.base.errors import ParseError
from storlab.tools.fio.importer import FioImporter
from storlab.tools.fio.parts import said_of_jobs, traits_of
from storlab.tools.importer import Part
from study.program import call

from . import series, taken
from .test_virtiofs_tests import terse

SAMPLES = Path(__file__).parent / "fio"
RIGHT = json.loads((SAMPLES / "right.json").read_text())


def test_options_that_differ_become_factors_and_equal_ones_rounds(folder: Path, tmp_path: Path) -> None:
    for number, bs in enumerate(("4k", "16384", "4096", "16k")):
        ran(folder, f"{9 - number}.json", f"--bs={bs}", "--rw=write")
    run = tmp_path / "run"
    taken("fio", folder, out=run)
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
    taken("fio", path, out=run)
    rows = together(run)
    assert rows["read.bytes"] + rows["write.bytes"] == rows["bytes"] == 1 << 20
    assert rows["bandwidth"] == pytest.approx(rows["read.bandwidth"] + rows["write.bandwidth"])
    assert rows["iops"] * 4096 == pytest.approx(rows["bandwidth"], rel=0.02)


def test_levels_are_in_the_order_of_numbers_in_names_of_files_and_without_completion_the_total_is_read(
    folder: Path, tmp_path: Path
) -> None:
    for number in (2, 10, 9):
        ran(folder, f"{number}.json", f"--iodepth={number}", "--rw=write")
    taken("fio", folder, out=tmp_path / "run")
    assert open_run(tmp_path / "run").trials.sort("cell")["factor.iodepth"].to_list() == ["2", "9", "10"]
    (part,) = parts(ran(folder, "a.json", "--rw=randread", "--disable_clat=1").read_bytes())
    assert values(part.measured)["read.latency.mean"] > 0 and part.measured.facts["latency"] == "total"


def test_terse_lines_have_trims_in_later_versions_and_no_sum_of_all_directions(folder: Path) -> None:
    def terse_lines(*words: str) -> bytes:
        return ran(folder, "a.txt", *words, form="terse").read_bytes()

    for version in ("3", "4", "5"):
        told = f"--terse-version={version}"
        (part,) = parts(terse_lines("--rw=randtrim", "--ioengine=null", told))
        if version == "3":
            assert (part.status, part.reason) == ("failed", "fio read and wrote nothing")
        else:
            found = values(part.measured)
            assert found["trim.bytes"] == found["bytes"] == 1 << 20
            assert not {"read.bytes", "write.bytes"} & found.keys()
        with pytest.raises(ParseError, match=r"of a run with unified_rw_reporting=1, .*: have fio write JSON"):
            parts(terse_lines("--rw=randrw", told, "--unified_rw_reporting=1"))
        (part,) = parts(terse_lines("--rw=randrw", told, "--unified_rw_reporting=2"))
        found = values(part.measured)
        assert found["read.bytes"] + found["write.bytes"] == found["bytes"] == 1 << 20
        assert found["cpu.user"] + found["cpu.system"] < 1.1, "the sum after the directions is no time of the CPU"
    with pytest.raises(ParseError, match="terse output of version 2 isn't read"):
        parts(terse_lines("--rw=read", "--terse-version=2"))


def test_steady_state_comes_along_and_a_failed_run_is_a_failed_trial_and_no_zero() -> None:
    (part,) = parts(golden("fio-steady.json"))
    assert "steady.attained" in set(part.measured.metrics["metric"])
    assert "steady.iops" in set(part.measured.series["metric"])
    (part,) = parts(golden("fio-full.json"))
    assert part.status == "failed"
    assert "No space left" in (part.reason or "") or "no space left" in (part.reason or "")
    assert part.measured.metrics.is_empty()


def test_options_and_sizes_are_compared_in_one_spelling_with_their_defaults_as_fio_takes_them() -> None:
    spelled = traits_of([{"blocksize": "4096", "readwrite": "randread", "name": "a", "log_avg_msec": "9"}])
    assert spelled == traits_of([{"bs": "4k", "rw": "randread", "iodepth": "1", "direct": "0", "randseed": "7"}])
    assert traits_of([{"rw": "read"}, {"rw": "write"}])["rw"] == "read + write"
    assert traits_of([{"bs": "4kb"}]) == traits_of([{"bs": "4K"}]) == traits_of([{"bs": "4096"}])
    assert traits_of([{"bs": "4kib"}])["bs"] == "4kib"  # 4000 bytes
    in_tens = traits_of([{"bs": "4k", "kb_base": "1000"}])
    assert in_tens != traits_of([{"bs": "4096", "kb_base": "1000"}])


TOTAL = ["--lat_percentiles=1", "--clat_percentiles=0"]


def test_runs_whose_latencies_are_of_another_kind_are_no_rounds_of_one_cell(folder: Path, tmp_path: Path) -> None:
    for name, told in (("a", TOTAL), ("b", []), ("c", ["--lat_percentiles=1", "--clat_percentiles=1"])):
        ran(folder, f"{name}.json", "--rw=write", *told)
    run = tmp_path / "run"
    taken("fio", folder, out=run)
    trials = open_run(run).trials.sort("started")
    assert [name for name in trials.columns if name.startswith("factor.")] == ["factor.latency"]
    assert trials["factor.latency"].to_list() == ["total", "completion", "completion"]


@pytest.mark.parametrize(
    ("version", "told", "kind"),
    [
        ("3.33", {"lat_percentiles": "1", "clat_percentiles": "0"}, "total"),
        ("3.33", {"lat_percentiles": "1"}, "completion"), ("3.33", {"disable_clat": "1"}, "total"),
        ("3.12", {"lat_percentiles": "1"}, "total"), ("3.12", {"clat_percentiles": "0"}, "total"),
        ("3.12", {}, "completion"),
    ],
)  # fmt: skip
def test_of_a_run_that_failed_its_options_say_of_which_kind_latencies_were(
    version: str, told: dict[str, str], kind: str
) -> None:
    job = {"jobname": "a", "groupid": 0, "error": 5, "usr_cpu": 0.0, "sys_cpu": 0.0, "job options": told}
    (part,) = parts(json.dumps({"fio version": f"fio-{version}", "jobs": [job]}).encode())
    assert (part.status, part.traits["latency"]) == ("failed", kind)


def test_terse_lines_take_their_options_from_the_messages_before_them() -> None:
    sizes = "bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B"
    message = f"load: (g=0): rw=randread, {sizes}, ioengine=psync, iodepth=1"
    assert said_of_jobs([message])["load"] == {"rw": "randread", "ioengine": "psync", "iodepth": "1", "bs": "4k"}
    whole = f"{message}\n{terse('load', (1000, 250))}\n{terse('load', (1100, 275))}"
    first, second = parts((whole + "\n").encode())
    assert first.traits == second.traits and "which jobs ran at once" in first.measured.warnings[0]
    (kept,) = parts(whole.encode())
    assert "line 3: the terse line was cut off" in kept.measured.warnings[0]


def test_terse_reports_of_a_run_that_went_on_are_one_trial_and_repeats_are_not() -> None:
    one, two = ((SAMPLES / name).read_text() for name in ("status-interval.txt", "status-interval-2.txt"))
    others = [line.replace("job1", "job2") for line in [*two.splitlines(), two.splitlines()[-1]]]  # it ends first
    jobs = "\n".join(line for pair in zip(one.splitlines(), others, strict=True) for line in pair)
    for text, kibs in ((one + two + one, [15888, 12000]), (f"{jobs}\n", [15888, 12000])):
        assert [values(part.measured)["bytes"] / 1024 for part in parts(text.encode())] == kibs
    last = one.splitlines()[-1]
    for times in ([4006, 4007, 4009], [4006, 4306, 5006], [4006, 9006, 9500, 9900]):  # fixed time, fixed size, neither
        grown = [last.replace(";15888;", f";{15888 + at};").replace(";4006;", f";{t};") for at, t in enumerate(times)]
        same = [line.replace(";15889;", ";15888;").replace(";15890;", ";15888;") for line in grown]
        assert len(parts("\n".join([*(same if times[1] == 4306 else grown), ""]).encode())) == len(times)


@pytest.mark.parametrize("name", ["terse-3.1.txt", "status-interval.txt"])
def test_a_terse_line_that_lost_or_gained_a_field_is_refused_by_its_number_or_means_the_same(name: str) -> None:
    line = next(line for line in (SAMPLES / name).read_text().splitlines() if line.startswith("3;"))
    fields, (whole,) = line.split(";"), parts(f"{line}\n".encode())
    for at in range(2, len(fields) + 1):
        for put in ([], ["7", *fields[at : at + 1]], ["1.00%", *fields[at : at + 1]]):
            damaged = ";".join([*fields[:at], *put, *fields[at + 1 :]])
            try:
                (part,) = parts(f"x\n{damaged}\n".encode())
            except ParseError as error:
                assert str(error).startswith("x.json:2: fio's terse line") and f"has {damaged.count(';') + 1}" in str(
                    error
                )
            else:
                assert part.measured.metrics.equals(whole.measured.metrics)
    with pytest.raises(ParseError, match=r"x\.json:5: .*damaged: it has 129 fields, of which field 121"):
        parts((SAMPLES / "damaged.txt").read_bytes())
    with pytest.raises(ParseError, match=r"x\.json:.*truncated"):
        parts(golden("fio-plain.json")[:900])


def test_files_of_a_folder_that_are_none_are_named_and_a_folder_without_any_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    ran(folder, "a.json", "--rw=randwrite", "--write_lat_log=mine", "--log_avg_msec=100")
    ran(folder, "people.txt", "--rw=randwrite", form="normal")
    imported = taken("fio", folder, out=tmp_path / "run")
    (said,) = (line for line in imported.message.splitlines() if "files that were not read" in line)
    assert said.endswith("files that were not read: data, mine_lat.1.log, mine_slat.1.log")
    none = tmp_path / "none"
    none.mkdir()
    (none / "notes.txt").write_text("nothing")
    ended = call("import", "fio", str(none), "--out", str(tmp_path / "of none"))
    assert ended.status == 2 and "none of its 1 file is one of fio" in ended.message


def test_what_is_true_of_many_files_is_said_once(here: Path) -> None:
    paths = [Path(f"{number}.json") for number in range(6)]
    for number, path in enumerate(paths):
        path.write_bytes(later(golden("fio-plain.json"), number * 60_000).replace(b'"bins"', b'"x"'))
    told = "0.json, 1.json, 2.json, 3.json, 4.json, …: percentiles of several jobs can't be merged without fio's"
    assert taken("fio", *paths, out=here / "run").message.count(told) == 1
    assert " ".join(call("report", "run").output.split()).count(told) == 1
    assert "latency.p99" not in together(here / "run")


@pytest.mark.parametrize("name", RIGHT)
def test_what_a_file_of_one_job_states_is_what_its_trial_measured(name: str, tmp_path: Path) -> None:
    imported = taken("fio", SAMPLES / name, out=tmp_path / "run")
    found = together(tmp_path / "run")
    for metric, right in RIGHT[name].items():
        assert found.get(metric) == (None if right is None else pytest.approx(right, rel=1e-3)), metric
    assert "1 trial of 1 cell" in imported.output and "bins" not in imported.message


def test_percentiles_of_a_file_are_in_every_report_and_compared_round_by_round(tmp_path: Path) -> None:
    run, turns = str(tmp_path / "run"), "A,B,B,A,A,B,B,A,A,B,B,A"
    taken("fio", *sorted((SAMPLES / "in-turns").iterdir()), "--factor", f"dev={turns}", "--interleaved", out=Path(run))
    for form in ("text", "md", "html", "csv", "json"):
        printed = call("report", run, "--full", "--format", form).output
        shown = Path(printed.strip()).read_text() if form == "html" else printed
        assert "read.latency.p99.99" in shown, form
    said = call("compare", run, "--by", "dev", "--metric", "read.latency.p99").output
    assert "▲ B is better than A: 0.74×" in said and "6 rounds" in said


def test_a_folder_has_one_level_of_a_factor_that_its_user_names(tmp_path: Path) -> None:
    for name in ("xfs", "ext4"):
        (tmp_path / name).mkdir()
        for number in range(2):
            ran(tmp_path / name, f"{number}.json", "--rw=write")
    run = tmp_path / "run"
    folders = [str(tmp_path / "xfs"), str(tmp_path / "ext4")]
    taken("fio", *folders, "--factor", "fs=xfs,ext4", out=run)
    trials = open_run(run).trials
    assert trials["factor.fs"].to_list() == ["xfs", "xfs", "ext4", "ext4"]
    assert trials.filter(pl.col("factor.fs") == "xfs")["round"].to_list() == [1, 2]


def test_reports_of_a_run_that_went_on_are_no_runs_and_lines_around_are_no_warnings(folder: Path) -> None:
    slow = ["--rw=randwrite", "--time_based", "--runtime=2", "--rate_iops=200", "--status-interval=1"]
    path = ran(folder, "a.json", *slow)
    once, twice = parts(path.read_bytes()), parts(path.read_bytes() + later(path.read_bytes()))
    assert (len(once), len(twice)) == (1, 2) and values(once[0].measured)["runtime"] == pytest.approx(2, abs=0.2)
    rates = series(once[0].measured, "write.iops")
    assert len(rates) >= 2 and not once[0].measured.warnings and rates[-1][0] == pytest.approx(2, abs=0.2)
    assert all(rate == pytest.approx(200, rel=0.2) for _, rate in rates)
    assert series(once[0].measured, "iops") == rates and not series(once[0].measured, "read.iops")
    path = ran(folder, "a.json", "--rw=read", "--iodepth=4", form="normal,json+")
    (part,) = parts(b"+ mount /dev/sdb1\n" + path.read_bytes() + b"done\n")
    assert all(warning.startswith("fio: note: ") for warning in part.measured.warnings)
    assert len(part.measured.warnings) == 2


def test_jobs_that_ran_one_after_another_are_trials_of_their_own_and_those_at_once_are_one() -> None:
    read = parts(golden("fio-stonewall.json"))
    assert len(read) == 2
    first, second = read
    assert first.started is not None and second.started is not None and first.started < second.started
    assert not any("several groups" in warning for part in read for warning in part.measured.warnings)
    assert first.traits != second.traits
    (part,) = parts(golden("fio-four-jobs.json"))
    alone = values(part.measured)
    assert alone["bandwidth"] > 0 and part.measured.metrics["job"].n_unique() == 5


def stonewalled(folder: Path, *, fails: int) -> bytes:
    """Three jobs, one after another, that log into files of one name; that number of them, from 0, can't write."""
    jobs = [f"[{name}]\nstonewall\nrw=write\nbs={bs}\n" for name, bs in (("a", "4k"), ("b", "8k"), ("c", "16k"))]
    jobs[fails] += "filename=/proc/version\n"
    shared = "[global]\nfilename=data\nsize=64k\nwrite_bw_log=mine\nlog_avg_msec=100\n"
    (folder / "jobs.fio").write_text(shared + "".join(jobs))
    return run_fio("--output-format=json+", "jobs.fio", cwd=folder).stdout


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_a_job_that_failed_leaves_those_before_and_after_it_as_they_are(fails: int, folder: Path) -> None:
    read = parts(stonewalled(folder, fails=fails))
    assert [part.status for part in read] == ["failed" if at == fails else "done" for at in range(3)]
    assert [part.traits["bs"] for part in read] == ["4k", "8k", "16k"] and read[fails].reason
    assert read[fails].measured.metrics.is_empty()
    for at in {0, 1, 2} - {fails}:
        assert values(read[at].measured)["write.bytes"] == 65536
        assert list(read[at].measured.facts["options"]) == ["abc"[at]]  # type: ignore[call-overload]


def test_two_jobs_that_failed_have_each_its_own_reason() -> None:
    document = json.loads(golden("fio-stonewall.json"))
    for job, error in zip(document["jobs"], (1, 5), strict=False):
        job["error"] = error
    said = [f"fio: pid=0, err={number}/file:x.c:1, error={name}" for number, name in ((1, "one"), (5, "five"))]
    read = parts("\n".join([*said, json.dumps(document, indent=1)]).encode())
    assert [part.reason is not None and part.reason.rpartition("=")[2] for part in read] == ["one", "five"]


def test_logs_that_a_failed_job_wrote_into_as_well_are_named(folder: Path, tmp_path: Path) -> None:
    path = folder / "a.json"
    path.write_bytes(stonewalled(folder, fails=1).replace(b'"jobname" : "c"', b'"jobname" : "d"'))
    document = json.loads(path.read_bytes()[path.read_bytes().index(b"{") :])
    document["jobs"] = document["jobs"][:2]
    path.write_text(json.dumps(document, indent=1))
    (folder / "mine_bw.1.log").write_text("100, 9, 1, 0, 0\n")
    imported = taken("fio", path, out=tmp_path / "run")
    assert "its logs mine_*.log are of jobs or runs that ran one after another" in imported.message


def test_files_that_ran_at_once_are_no_repeats_and_one_trial_where_their_user_says_so(here: Path) -> None:
    for number, path in enumerate(sorted((SAMPLES / "clients").iterdir()), start=1):
        for turn in (1, 2):
            Path(f"{turn}-{number}.json").write_bytes(later(path.read_bytes(), 600_000 * turn))
    first, second = (sorted(here.glob(f"{turn}-*")) for turn in (1, 2))
    told = "Ran at once, as clients do, and are no repeats: 1-1.json, 1-2.json and 1-3.json. Each is shown by itself"
    imported = call("import", "fio", *(path.name for path in first), "2-1.json", "--out", "run")
    assert told in imported.message and told in " ".join(call("report", "run").output.split())
    trials = open_run("run").trials
    assert (trials["factor.client"].to_list(), set(trials["round"])) == (["1-1", "1-2", "1-3", "–"], {1})
    for apart in (["1-2.json", "--factor", "client=1,2"], ["2-1.json"]):
        assert "at once" not in call("import", "fio", "1-1.json", *apart, "--out", f"apart {len(apart)}").message
    imported, run = taken("fio", *first, *second, "--clients", out=Path("one")), Path("one")
    assert "2 trials of 1 cell" in imported.output and "what 3 clients did at once" in imported.message
    shutil.rmtree(run / "tables")  # they can be derived from the files that are kept
    report, found = call("report", "one").output, together(run)
    assert found["bandwidth"] == pytest.approx(9_003_000 * 4096 / 60) and found["ios"] == 9_003_000
    assert found["read.latency.mean"] == pytest.approx(320e-6) and "read.latency.p99" not in found
    assert set(open_run(run).metrics["node"].drop_nulls()) == {"client-1", "client-2", "client-3"}
    assert "what 3 clients" in report and report.count("percentiles of several nodes can't be merged") == 1
    for words, says in (
        ([first[0], second[0]], "no two of these files ran at once"), ([*first, second[0]], "ran at another time than"),
        ([*first, *second[:2]], "a client's file is missing"),
    ):  # fmt: skip
        refused = call("import", "fio", *map(str, words), "--clients", "--out", "none")
        assert refused.status == 2 and says in refused.message


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


def later(whole: bytes, by: int = 60_000) -> bytes:
    """The same document, as if another run had given it, a minute later, or ``by`` ms."""
    return re.sub(rb'("timestamp_ms" ?: ?)(\d+)', lambda found: found[1] + b"%d" % (int(found[2]) + by), whole)


def together(run: Path) -> dict[str, float]:
    """What all jobs and nodes of the run's first trial measured."""
    metrics = open_run(run).metrics.filter(pl.col("node").is_null(), pl.col("job").is_null(), trial=1)
    return dict(metrics.select("metric", "value").iter_rows())
