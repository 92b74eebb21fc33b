"""Whole folders of published results: virtiofs-tests' raw files, lab notes' (``falcon``), and their tables."""

import os
import re
import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory.samples import sample as words_of
from storlab import open_run
from storlab.base.errors import ParseError
from storlab.report.formats.published import _jobs, whole_mean
from storlab.tools.importer import Part
from storlab.tools.load_averages import parse_host_loads
from storlab.tools.virtiofs_tests import VirtiofsTestsImporter
from study.program import call

from . import taken

Rates = tuple[int, int]
"""KiB/s and IOPS."""


def direction(kib: int, iops: int) -> list[str]:
    latencies = ["2", "40", "3.5", "1.0"]
    percentiles = ["50.000000%=190", "99.000000%=209", *["0%=0"] * 18]
    rest = [*latencies, "0", "0", "100.000000%", "0.0", "0.0"]
    return [str(kib * 20), str(kib), str(iops), "20000", *latencies, *latencies, *percentiles, *rest]


def terse(job: str, read: Rates = (0, 0), write: Rates = (0, 0), error: int = 0) -> str:
    fields = ["3", "fio-3.21", job, "0", str(error), *direction(*read), *direction(*write), "9.4%", "89.9%", "21", "0"]
    return ";".join([*fields, "7", *["0.0%"] * 29])


def ran(job: str, line: str, *messages: str) -> str:
    rw = "randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=psync, iodepth=16"
    lines = [f"Running: fio --directory=/mnt/shared/fio/ --append-terse fio-jobs/{job}.job", f"{job}: (g=0): rw={rw}"]
    return "\n".join([*lines, "fio-3.21", "Starting 1 process", *messages, line, "", "Run status group 0:", ""])


def refused(job: str) -> str:
    said = "fio: pid=7, err=19/file:engines/mmap.c:118, func=mmap, error=No such device"
    return ran(job, terse(job, error=19), said)


def raw_file(name: str, runs: Sequence[str]) -> str:
    return words_of(__file__, "cases/virtiofs-tests-head.txt", name=name) + "".join(runs)


REFERENCE = os.environ.get("STORLAB_REFERENCE", "")
"""A folder with the figures that others published, which aren't part of this project."""

PUBLISHED = words_of(__file__, "virtiofs-tests.txt")


def parts(text: str) -> list[Part]:
    return list(VirtiofsTestsImporter().read(text.encode(), "raw.txt", {}))


def reads(job: str, *rates: Rates) -> list[str]:
    return [ran(job, terse(job, read=each)) for each in rates]


def sample(folder: Path) -> list[str]:
    mixed = [ran("randrw-psync-multi", terse("randrw-psync-multi", (40320, 10084), (13477, 3369)))] * 3
    plain = [
        *mixed,
        *[refused("seqread-mmap")] * 3,
        *reads("seqread-psync", (10239, 2560), (10241, 2560), (10242, 2561)),
    ]
    dax = [
        *reads("seqread-psync", (10241, 10241), (10241, 10242), (10243, 10241)),
        *reads("seqread-mmap", *[(1396365, 349091)] * 3),
        *[refused("randrw-psync-multi")] * 3,
    ]
    files = []
    for name, runs in (("plain", plain), ("dax", dax)):
        (folder / f"{name}-test-data.txt").write_text(raw_file(name, runs))
        files.append(str(folder / f"{name}-test-data.txt"))
    return files


def test_what_was_not_supported_is_absent_with_the_reason(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert "18 trials of 6 cells" in taken("virtiofs-tests", *sample(tmp_path), out=run).output
    trials = open_run(run).trials
    absent = trials.filter(status="unsupported")
    assert (absent.height, set(absent["reason"])) == (6, {"not supported there: mmap failed, No such device"})
    numbers = open_run(run).metrics
    assert not set(numbers["trial"]) & set(absent["trial"])
    text = call("report", str(run)).output
    assert "No such device" in " ".join(text.split()) and "no verdicts" in " ".join(text.split())


def test_loops_are_rounds_and_a_folder_is_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    sample(tmp_path / "raw")
    (tmp_path / "raw" / "report.txt").write_text(PUBLISHED)
    run = tmp_path / "run"
    taken("virtiofs-tests", tmp_path / "raw", out=run)
    trials = open_run(run).trials
    assert trials["factor.test"].unique(maintain_order=True).to_list() == ["dax", "plain"]
    psync = trials.filter(pl.col("factor.workload") == "seqread-psync", pl.col("factor.test") == "plain")
    assert psync["round"].to_list() == [1, 2, 3]


def test_figures_are_in_base_units_and_a_command_that_was_cut_off_lacks_that_run_alone() -> None:
    (part,) = parts(raw_file("a", reads("seqread-psync", (1000, 250))))
    found = dict(zip(part.measured.metrics["metric"], part.measured.metrics["value"], strict=True))
    assert found["read.bandwidth"] == found["bandwidth"] == 1_024_000
    assert (found["read.iops"], found["read.bytes"], found["runtime"]) == (250, 20_480_000, 20)
    assert (found["latency.p99"], found["cpu.system"]) == (pytest.approx(209e-6), pytest.approx(0.899))
    assert "write.bandwidth" not in found
    text = raw_file("a", reads("seqread-psync", (1000, 250), (1001, 251)))
    begin = text.rindex("Running: fio")
    for cut in (text[: begin + len("Running: fio")], text[: begin + len("Running: fio --out")]):
        (read,) = parts(cut)
        assert read.measured.warnings == (f"line {cut.count(chr(10)) + 1}: a job has no result: cut off, and left out",)


def test_what_is_none_of_them_is_refused_in_a_sentence() -> None:
    for text, says in (
        (raw_file("a", [ran("x", "3;fio-3.21;x;0;0;1")]), "raw.txt:12: fio's terse line has 6 fields of 121"),
        (raw_file("a", [ran("x", terse("x").replace("3;", "6;", 1))]), "versions 3, its default"),
        (raw_file("a", [ran("x", terse("x").replace(";20000;", ";many;"))]), "should be a count, and is 'many'"),
    ):
        with pytest.raises(ParseError) as error:
            parts(text)
        assert says in str(error.value)


@pytest.mark.parametrize("words", ["rw=x,", "fio: pid=1, err=95/file:func="])
def test_a_line_far_longer_than_fio_s_messages_is_none_of_them_and_holds_nobody_up(words: str) -> None:
    """To match it, expressions would take hours."""
    long = words + words[-5:] * 200_000
    (plain,) = parts(raw_file("a", [ran("x", terse("x", read=(1, 2)))]))
    (part,) = parts(raw_file("a", [ran("x", f"{long}\n{terse('x', read=(1, 2))}")]))
    assert part.measured.facts == plain.measured.facts


def test_other_runs_have_no_such_table_in_which_means_are_of_rounded_numbers_and_cut(tmp_path: Path) -> None:
    table, run = tmp_path / "a.csv", tmp_path / "run"
    table.write_text("x\n1\n")
    taken("csv", table, "--value", "x", out=run)
    ran_report = call("report", str(run), "--format", "virtiofs-tests")
    assert ran_report.status == 2
    assert "a run that was imported from there, or one with the factors rw, ioengine and numjobs" in ran_report.message
    assert (whole_mean([1.4, 1.5, 2.0]), whole_mean([1.6, 1.5, 2.0])) == (1, 2)


def test_set_ups_of_a_study_have_the_names_that_the_tables_give_them() -> None:
    """`virtiofs` is `vtfs`; what is as usual, or the same for all and a number, is not said."""

    def named(**factors: list[str]) -> list[str]:
        names = ["setup", *factors, "rw", "ioengine", "numjobs"]
        every = product(["virtiofs-auto", "9p-none"], *factors.values(), ["read"], ["psync"], ["1"])
        levels = [dict(zip(names, each, strict=True)) for each in every]
        cells = [SimpleNamespace(cell=number, levels=each) for number, each in enumerate(levels)]
        trials = pl.DataFrame({f"factor.{name}": [each[name] for each in levels] for name in names})
        given: Any = SimpleNamespace(manifest=None, trials=trials, summary=SimpleNamespace(cells=cells))
        return [f"{test} {workload}" for _, test, workload in _jobs(given)]

    assert named(size=["4G"]) == ["vtfs-auto seqread-psync", "9p-none seqread-psync"]
    bound = named(binding=["default", "node"], emulator=["default", "patched"], size=["4G"])
    ends = ["", "-patched", "-node", "-node-patched"]
    assert bound[:4] == [f"vtfs-auto{end} seqread-psync" for end in ends]
    assert named(size=["1G", "16G"])[1] == "vtfs-auto-16G seqread-psync"


PUBLISHED_TABLES = {
    "feb-23-2021/cache-none/report-cache-none.txt": ".",
    "feb-23-2021/raw-data/cache-mmap/report-cache-mmap.txt": ".",
    "feb-23-2021/raw-data/cache-always-loose/report-cache-always-loose.txt": ".",
    "thread-pool-threshold/4-may-2021/results.txt": "raw-data",
    "sshfs-vs-virtiofs/28-jan-2022/sshfs-vs-virtiofs-results.txt": "raw-data",
}
"""Tables that the authors of virtiofs-tests made, and where beside each the raw files of its set-ups are."""


def published(table: Path, folder: str) -> tuple[list[str], str, list[str]]:
    """Raw files of the set-ups in a table, in its order; the table; and charts beside it, which hold lines of it."""
    by_name = {
        each.read_text().partition("TEST_NAME=")[2].split()[0]: each
        for each in (table.parent / folder).glob("*data*.txt")
    }
    wanted = table.read_text()
    names = (line[:24].strip() for line in wanted.partition("\n")[2].partition("\n\n")[0].splitlines())
    return (
        [str(by_name[name]) for name in names],
        wanted,
        [chart.read_text() for chart in table.parent.glob("chart-*.txt")],
    )


@pytest.mark.parametrize("source", ["alike", *(PUBLISHED_TABLES if REFERENCE else [])])
def test_the_table_that_authors_publish_comes_out_to_the_byte(source: str, tmp_path: Path) -> None:
    if folder := PUBLISHED_TABLES.get(source):
        files, wanted, charts = published(Path(REFERENCE) / "virtiofs-tests" / source, folder)
    else:
        files, wanted, charts = sample(tmp_path), PUBLISHED, []
    run = tmp_path / "run"
    taken("virtiofs-tests", *files, out=run)
    table = call("report", str(run), "--format", "virtiofs-tests").output
    assert table == wanted
    for chart in charts:
        assert set(chart.splitlines()) <= set(table.splitlines()), chart


RESULTS = Path(__file__).parent / "falcon"
NOTES = (RESULTS / "notes.adoc").read_text()
TABLE = re.compile(r"^\[cols=.*?^\|===$.*?^\|===$", re.DOTALL | re.MULTILINE)
NODES = ["a", "b", "c", "d"]


@pytest.fixture
def results(here: Path) -> Path:
    return Path(shutil.copytree(RESULTS / "results", "results")) / "test1"


def test_the_notes_own_tables_come_out_of_results_with_its_figures(results: Path) -> None:
    """The results are made of those figures, in the form of fio's output; the tables and loads are the note's."""
    ran = taken("falcon", str(results))
    assert "4 trials of 4 cells" in ran.output and "what 4 clients did at once" in ran.message
    assert "fio's output for people is rounded" in ran.message
    text = call("report", "run", "--format", "adoc").output
    backings = re.split(r"^==== ", NOTES, flags=re.MULTILINE)[1:]
    for backing, name in zip(backings, ("zvol", "file"), strict=True):
        loads = re.findall(r"host load average: .*", backing)
        for bs, table, load in zip(
            ("4k", "512"), TABLE.findall(backing.replace("| 4854", "|4854")), loads, strict=True
        ):
            cell = text.partition(f"=== test={name}-{bs}\n")[2].partition("\n===")[0]
            assert table in cell and load in cell.splitlines()
    shutil.rmtree("run/tables")  # they are derived from the files that are kept
    assert call("report", "run", "--format", "adoc").output == text
    metrics = open_run("run").metrics.filter(pl.col("job").is_null(), trial=3)
    assert metrics.filter(metric="load.5m").select("node", "source", "value").rows() == [
        ("host", "probe:host-load@host", 3.37), (None, "probe:host-load@host", 3.37),
    ]  # fmt: skip
    assert set(metrics.filter(source="falcon")["node"].drop_nulls()) == set(NODES)


def test_a_node_may_stand_anywhere_in_the_path_if_it_is_named(results: Path) -> None:
    for path in sorted(results.rglob("*.txt")):
        disk, bs = path.stem.split("-")
        to = Path("by-disk") / disk / bs / path.parent.name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    ran = taken("falcon", "by-disk", "--nodes", "d,a")
    assert "by-disk: files that were not read: file/4k/b, file/4k/c" in ran.message
    trials = open_run("run").trials
    assert trials.select("factor.folder", "factor.test").rows()[0] == ("file", "4k")
    assert set(open_run("run").metrics["node"].drop_nulls()) == {"a", "d", "host"}


def test_several_runs_in_a_file_are_trials_in_their_order(results: Path) -> None:
    for node in [*NODES, "host"]:
        texts = [(results / node / f"zvol-{bs}.txt").read_text() for bs in ("4k", "512")]
        Path("plain").mkdir(exist_ok=True)
        Path("plain", f"{node}.txt").write_text("\n".join(texts))
    taken("falcon", "plain")
    assert open_run("run").trials["factor.bs"].to_list() == ["4k", "512"]
    loads = open_run("run").metrics.filter(metric="load.1m", node="host")
    assert loads.sort("trial")["value"].to_list() == [7.12, 6.24]


@pytest.mark.parametrize(
    ("lost", "words", "says"),
    [line.split("\t") for line in words_of(__file__, "cases/falcon-refused.txt").splitlines()],
)
def test_what_is_missing_or_in_the_wrong_place_is_named(results: Path, lost: str, words: str, says: str) -> None:
    whole, _, into = lost.partition(">")
    if into:
        for path in (results / whole).iterdir():  # copies to the byte would be refused as such
            (results / into / path.name).write_bytes(path.read_bytes() + b"\n")
    elif whole:
        path = results / whole
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    ran = call("import", "falcon", str(results), *words.split(), "--out", "run")
    assert says in ran.message and ran.status == 2


def test_load_averages_are_read_in_all_forms() -> None:
    for said in ("load average: 7.12, 3.37, 2.19", "load averages: 7.12 3.37 2.19", "load average: 7,12, 3,37, 2,19\r"):
        (host,) = parse_host_loads(f"$ w\n 12:48  up 2:01,  2 users,  {said}\nUSER\n", "w")
        assert (host.averages, host.facts) == ((7.12, 3.37, 2.19), {"up": "2:01", "users": 2})


def test_users_and_their_processes_are_facts_of_the_host_as_far_as_they_are_printed(results: Path) -> None:
    taken("falcon", str(results))
    (host,) = list(open_run("run").records())[2].facts["host"]
    sessions = (results / "host" / "zvol-4k.txt").read_text().splitlines()[1:]
    assert {**host, "file": ""} == {
        "layer": "falcon", "file": "", "up": "3 day(s), 2:11", "users": 2, "sessions": "\n".join(sessions),
    }  # fmt: skip
    once = " 10:02 up 5 min, 1 user, load averages: 1.00 2.00 3.00\nUSER     TTY      FROM\nroot     pts/0    ::1 \n"
    first, second, third = parse_host_loads(f"{once}$ w\n\nx\n{once}{once.partition('USER')[0]}", "w")
    assert first.facts["sessions"] == "USER     TTY      FROM\nroot     pts/0    ::1"
    assert second.facts["sessions"] == "USER     TTY      FROM\nroot     pts/0    ::1"
    assert third.facts == {"up": "5 min", "users": 1}
    (many,) = parse_host_loads(once + "root     pts/0    ::1\n" * 1000, "w")
    assert str(many.facts["sessions"]).count("\n") == 100


@given(st.text("0123456789., ", max_size=30))
def test_other_numbers_than_three_are_refused_with_their_line(said: str) -> None:
    try:
        assert len(parse_host_loads(f"load average:{said}", "w")) == 1
    except ParseError as error:
        assert str(error) == "w:1: does not end in three load averages: write them as w(1) does"
