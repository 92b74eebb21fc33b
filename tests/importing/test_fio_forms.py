"""fio's results in other forms than its JSON alone, behind prefixes of lines, and with logs that lie beside.

Prefixes, of whatever passed output on, are taken away before any tool's output is read.
"""

import json
import os
import re
from pathlib import Path

import polars as pl
import pytest

from formats.fio.samples import golden, values
from storlab import open_run
from storlab.base.errors import ParseError
from storlab.report.plots import Run
from storlab.tools.fio.normal_lines import told_of
from storlab.tools.kinds import signatures_in
from storlab.tools.passed_on import as_shown, labels_of, peeled
from study.program import call

from . import taken
from .test_fio import TOTAL, later, parts, ran

HERE = Path(__file__).parent
OF_PEOPLE = {path.stem.removeprefix("fio-people-"): path.read_bytes() for path in HERE.glob("golden/fio-people-*")}
OF_PEOPLE["2.2.10-range"] = (HERE / "cases/fio-2.2.10-range.txt").read_bytes()
JSON = re.compile(rb"^\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)


def for_people(name: str) -> str:
    """What fio printed for people, of a run that it also printed as JSON."""
    return JSON.sub(b"", OF_PEOPLE[name]).decode()


@pytest.mark.parametrize("name", [name for name in OF_PEOPLE if not name.startswith("2.2.10")])
def test_output_for_people_says_what_the_json_of_the_same_run_says_as_far_as_it_is_exact(name: str) -> None:
    whole, printed = parts(OF_PEOPLE[name]), parts(for_people(name).encode())
    assert not any("for people" in warning for part in whole for warning in part.measured.warnings)
    for part, other in zip(whole, printed, strict=True):
        assert "rounded" in "".join(printed[0].measured.warnings)
        exact, found = values(part.measured), values(other.measured)
        assert {each for each in exact if "cpu" not in each and each != "steady.deviation"} <= found.keys()
        unit = 1e-6 if name != "milliseconds" else 1e-3
        for metric in exact.keys() & found.keys():
            off = (unit / 200 if "mean" in metric else unit) if "latency" in metric else exact[metric] * 2e-4 + 5e-5
            assert found[metric] == pytest.approx(exact[metric], abs=off + 1e-9), metric
        assert other.traits["direct"] == "–" and other.traits["rw"] == part.traits["rw"]


@pytest.mark.parametrize(("name", "expected"), json.loads((HERE / "cases/fio-figures.json").read_text()).items())
def test_figures_of_old_versions_and_of_several_servers_are_in_base_units(
    name: str, expected: dict[str, float]
) -> None:
    (part,) = parts((HERE / f"golden/fio-{name}").read_bytes())
    assert {metric: values(part.measured)[metric] for metric in expected} == pytest.approx(expected)


ONE = golden("fio-mixed.json")
OTHER = later(ONE)
FORMS = {
    "behind names of containers": b"".join(b"fio-1  | " + line for line in ONE.splitlines(keepends=True)),
    "behind what else stands in its line": b"result =" + ONE.lstrip(),
    "under a key": json.dumps({"jobs": {"a": 1}, "raw": {"result": json.loads(ONE)}}, indent=2).encode(),
    "as a string": json.dumps({"plays": [{"stdout": ONE.decode()}]}).encode(),
    "indented": b"".join(b"    " + line for line in ONE.splitlines(keepends=True)),
    "behind progress that was overwritten": b"Jobs: 1 [r=9MiB/s]\r\x1b[32m" + ONE,
    "behind much of it": b"Jobs: 1 (f=1): [r(1)][9.9%]\n" * 9000 + ONE,
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_a_document_is_read_wherever_it_stands_and_recognised(text: bytes) -> None:
    (part,) = parts(text)
    assert values(part.measured) == values(parts(ONE)[0].measured) and not part.measured.warnings
    assert [signature.kind for signature in signatures_in(text)] == ["fio"]


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


def test_documents_on_a_line_each_and_of_several_processes_are_runs_and_a_copy_is_no_repeat() -> None:
    whole = golden("fio-plain.json")
    line = json.dumps(json.loads(whole[whole.index(b"{") :])).encode()
    assert len(parts(line + b"\n" + later(line))) == 2
    first, second = parts(whole + later(whole) + whole)
    assert first.started != second.started
    assert first.measured.warnings[0] == "copies of its own reports are left out: 1"
    # With group_reporting, job_runtime is the sum over the processes, far more than the time that they took.
    whole = re.sub(rb'"job_runtime" : \d+', b'"job_runtime" : 90000', golden("fio-group.json"))
    assert len(parts(whole + later(whole))) == 2


def test_several_documents_are_told_apart_by_keys_but_not_by_their_place() -> None:
    assert [round(values(part.measured)["iops"]) for part in parts((HERE / "golden/fio-array.json").read_bytes())] == [
        80_000, 40_000, 20_000,
    ]  # fmt: skip
    one, other = (json.loads(each) for each in (ONE, OTHER))
    for text, keys in (
        (json.dumps([one, other]), [None, None]),
        (json.dumps({"ext4": one, "xfs": [other]}), ["ext4", "xfs"]),
        (f'{{"ext4": {ONE.decode()}, "xfs": {OTHER.decode()}}}', ["ext4", "xfs"]),
        (ONE.decode().rstrip() + OTHER.decode(), [None, None]),
        (f"a {json.dumps(one)} took 1 s\nb {json.dumps(other)}", [None, None]),
    ):
        assert [part.traits.get("key") for part in parts(text.encode())] == keys


def test_of_a_mixture_what_can_not_be_told_apart_is_refused_or_named() -> None:
    lines = for_people("randrw").splitlines()
    with pytest.raises(ParseError, match=r"x\.json:6: .* give each of these a file of its own: pod-0, pod-1"):
        parts("\n".join(f"pod-{at % 2} | {line}" for at, line in enumerate(lines)).encode())
    (part,) = parts(ONE + b"a: '" + OTHER.replace(b"\n", b"\n# ") + for_people("fsync").encode())
    said = [warning for warning in part.measured.warnings if "left out" in warning]
    assert [re.sub(r"\d+", "N", warning) for warning in said] == [
        "line N: fio's output is in the midst of other text, and left out",
        "line N: a run in fio's output for people is left out: the JSON counts",
    ]


@pytest.mark.parametrize(("name", "of", "instead", "says"), json.loads((HERE / "cases/fio-refused.json").read_text()))
def test_output_for_people_that_was_cut_or_contradicts_itself_is_refused_with_the_line(
    name: str, of: str, instead: str, says: str
) -> None:
    with pytest.raises(ParseError) as refused:
        parts(re.sub(of, instead, for_people(name)).encode())
    assert str(refused.value).startswith(says) and "storlab import csv" in str(refused.value)


def test_runs_for_people_one_after_another_are_trials_and_those_without_their_first_line_by_name() -> None:
    text = for_people("randrw")
    runs = parts((text + text.replace("pid=6000", "pid=7000")).encode())
    assert len(runs) == 2 and runs[0].traits == runs[1].traits and runs[0].traits["numjobs"] == "2"
    quoted = "".join(f"> {line}\n" for line in text[text.index("mix: (groupid") :].splitlines())
    (part,) = parts(quoted.encode())
    assert (part.traits["job"], part.traits["rw"], part.traits["bs"]) == ("mix", "–", "–")
    (part,) = parts(text.replace("err= 0:", "err= 5 (file:x.c:1, func=y, error=Input/output error):").encode())
    assert part.status == "failed"


def test_a_folder_of_any_tool_s_files_is_read_in_the_order_of_their_numbers_and_others_are_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()
    for name in ("2.txt", "10.txt"):
        text = (HERE / "golden/sysbench-rate.txt").read_text()
        (tmp_path / "a" / name).write_text(f"run {name}\n{text}")
    (tmp_path / "a/notes.md").write_text("nothing\n")
    ended = call("import", str(tmp_path / "a"), "--out", str(tmp_path / "run"))
    assert ended.status == 0, ended.message
    read = [line.partition(":")[0] for line in ended.output.splitlines() if line.startswith(f"{tmp_path}/a/")]
    assert read == [f"{tmp_path}/a/2.txt", f"{tmp_path}/a/10.txt"]
    assert "files that were not read: notes.md" in ended.message


@pytest.mark.parametrize("text", ["\tIozone: File I/O\n\t    Version 3\n", "hints = 1\n", "hello, you\nthere, too\n"])
def test_what_no_reader_knows_is_refused_with_the_ways_on(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    ended = call("import", str(path))
    assert ended.status == 2 and "not recognised" in ended.message
    assert all(way in ended.message for way in ("`storlab import csv`", "`command` with a pattern", "import --help"))


_LINES = ("result {", "", "  iops 1", "}")


def _behind(*prefixes: str) -> bytes:
    """The lines behind these prefixes, in turn; an empty one as programs leave it, without the space after it."""
    each = (prefixes[at % len(prefixes)] + line for at, line in enumerate(_LINES))
    return "\n".join(line if line.strip() else line.rstrip() for line in each).encode()


CASES = json.loads((HERE / "cases/prefixes.json").read_text())


@pytest.mark.parametrize("prefixes", CASES, ids=[prefixes[0] for prefixes in CASES])
def test_what_stands_before_each_line_is_taken_away_and_lines_keep_their_numbers_and_indents(
    prefixes: list[str],
) -> None:
    *_, last = peeled(_behind(*prefixes))
    assert last.decode().split("\n") == list(_LINES)


def test_lines_of_several_programs_are_left_as_they_are_and_the_programs_named() -> None:
    mixed = _behind("pod-0 | ", "pod-1 | ")
    assert list(peeled(mixed)) == [mixed] and labels_of(mixed) == ["pod-0", "pod-1"]


def test_text_that_nothing_stands_before_stays_as_it_is() -> None:
    text = b"  read: IOPS=1\n   > 50\n| a | b |\n[PASS] x\n[FAIL] y\nfio: a\nnote: b\n"
    assert list(peeled(text)) == [text]
    assert as_shown(b"50%\r\n75%\r100%\r\n") == b"50%\n100%\n"


def test_a_size_of_blocks_that_no_disk_has_tells_nothing_of_the_others() -> None:
    line = "x: (g=0): rw=read, bs={}-4K/4K-4K/4K-4K, ioengine=psync, iodepth=1"
    told, damaged = told_of(line.format("4K")), told_of(line.format("9" * 400))
    assert told is not None and told.sizes == dict.fromkeys(("read", "write", "trim"), 4096)
    assert damaged is not None and (damaged.sizes, damaged.options.get("bs")) == ({}, None)


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


def test_packed_logs_are_named_and_so_is_what_fio_spoils_in_them(folder: Path, tmp_path: Path) -> None:
    logs = [f"--write_{kind}_log=mine" for kind in ("bw", "iops", "lat", "hist")] + ["--log_hist_msec=100"]
    path = ran(folder, "a.json", *PACED, *logs, "--log_compression=64k", "--log_avg_msec=100")
    for log in folder.glob("mine_*.log"):
        log.rename(f"{log}.fz")
    opened, said = imported(path, tmp_path / "run")
    assert "its logs mine_bw and mine_iops are left out: with log_compression, fio averages in them" in said
    assert "its logs mine_clat_hist.*.log hold addresses in place of counts" in said
    for log in folder.glob("mine_*lat.*.fz"):
        log.rename(log.with_suffix(""))
    opened, said = imported(path, tmp_path / "unpacked")
    assert set(opened.series["metric"]) >= {"read.latency", "write.latency"}


def test_packed_logs_of_single_operations_are_named_with_what_unpacks_them(folder: Path, tmp_path: Path) -> None:
    path = ran(folder, "a.json", *PACED, "--write_lat_log=mine")
    for log in folder.glob("mine_*.log"):
        log.rename(f"{log}.fz")
    _, said = imported(path, tmp_path / "run")
    assert "its logs mine_*.log are packed by fio (log_store_compressed): unpack each, fio --inflate-log=" in said


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
