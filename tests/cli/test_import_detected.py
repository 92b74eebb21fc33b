"""``storlab import FILE…`` without a kind: which tool wrote the files is found out, and the report shown at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from importing import virtiofs_sample
from storlab import open_run
from study.program import call

TESTS = Path(__file__).parent.parent
GOLDEN = TESTS / "importing" / "golden"
IMPORTS = TESTS.parent / "examples" / "imports"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def named(name: str, file: Path) -> str:
    """The contents of a file under a name that says nothing, or something wrong."""
    shutil.copy(file, name)
    return name


def test_the_contents_say_which_tool_it_was_and_the_report_is_shown(place: Path) -> None:
    files = [named("a.json", IMPORTS / "sysbench-sync.txt"), named("b.csv", IMPORTS / "sysbench-mmap.txt")]
    ran = call("import", "--out", "run", *files, "--factor", "io=sync,mmap")
    assert ran.status == 0, ran.message
    assert ran.output.startswith("a.json, b.csv: recognised as sysbench, by sysbench's first line\n")
    assert "bandwidth: sysbench" in ran.output  # the report
    assert "Run:    run, 2 trials of 2 cells\nReport: run/report.html\n" in ran.output
    assert "storlab report" not in ran.output.partition("Imported from")[0]
    assert (place / "run" / "report.html").is_file()
    assert open_run(place / "run").trials["factor.io"].to_list() == ["sync", "mmap"]


def test_a_file_that_others_could_claim_says_which_it_was_taken_for_and_how_to_force_another() -> None:
    terse = virtiofs_sample.terse("a", read=(4096, 1024))
    Path("raw").write_text(virtiofs_sample.raw_file("none", [virtiofs_sample.ran("randread-psync", terse)]))
    ran = call("import", "raw", "--out", "run")
    assert ran.status == 0, ran.message
    assert "raw: recognised as virtiofs-tests" in ran.output
    assert "raw: not taken for fio, though it has terse lines of fio" in ran.message
    assert "`storlab import fio raw` reads it as one of fio" in ran.message


def test_the_logs_of_a_run_are_read_with_the_file_that_they_lie_beside() -> None:
    logs = [named(name, GOLDEN / name) for name in ("pgbench_log.71", "pgbench_log.71.1")]
    ran = call("import", *logs, "--out", "run")
    assert ran.status == 0, ran.message
    assert "pgbench_log.71: recognised as pgbench, by a log of pgbench's transactions\n" in ran.output
    assert "1 trial of 1 cell" in ran.output


@pytest.mark.parametrize("kind", [[], ["pgbench"]])
def test_a_log_that_is_read_with_another_one_has_no_level_of_its_own(kind: list[str], place: Path) -> None:
    logs = [named(name, GOLDEN / name) for name in ("pgbench_log.71", "pgbench_log.71.1")]
    for given in (["--label", "a", "--label", "b"], ["--factor", "fs=xfs,ext4"]):
        refused = call("import", *kind, *logs, *given, "--out", "run")
        assert refused.status == 2
        assert "pgbench_log.71.1 is read along with pgbench_log.71, as part of the same run" in refused.message
        assert not (place / "run").exists()
    ran = call("import", *kind, *logs, "--factor", "fs=xfs", "--out", "run")
    assert (ran.status, "1 trial of 1 cell" in ran.output) == (0, True), ran.message


def test_a_kind_that_is_named_reads_a_run_s_logs_together_in_any_order() -> None:
    logs = [named(name, GOLDEN / name) for name in ("pgbench_log.71", "pgbench_log.71.1")]
    found = []
    for number, order in enumerate((logs[:1], logs, logs[::-1])):
        ran = call("import", "pgbench", *order, "--out", f"{number}")
        assert (ran.status, "1 trial of 1 cell" in ran.output) == (0, True), ran.message
        found.append(open_run(f"{number}").metrics.filter(metric="transactions")["value"].to_list())
    assert found[0] == found[1] == found[2] and found[0]


def test_a_table_is_read_by_the_columns_that_are_named_with_decimal_commas_where_it_has_these(place: Path) -> None:
    Path("t").write_text("fs;IOPS;lat (ms)\nxfs;1000,5;1,5\next4;900,25;2\n")
    ran = call("import", "t")
    assert ran.status == 2
    assert "storlab import t --factor-column fs --value IOPS::higher --value 'lat (ms)::lower' --decimal ," in (
        ran.message
    )
    columns = ["--factor-column", "fs", "--value", "IOPS::higher"]
    refused = call("import", "t", *columns)
    assert (refused.status, "t:2" in refused.message) == (2, True)
    assert "where the comma is a decimal one, say --decimal ," in refused.message
    ran = call("import", "t", *columns, "--decimal", ",", "--separator", ";", "--out", "run")
    assert ran.status == 0, ran.message
    values = open_run(place / "run").metrics.filter(metric="IOPS")["value"].unique().sort().to_list()
    assert values == [900.25, 1000.5]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (
            ["sysbench-sync.txt", "fio.json"],
            "these are files of several tools, and a run is of one (sysbench-sync.txt: ",
        ),
        (
            ["sysbench-sync.txt", "fio.json"],
            "`storlab import sysbench sysbench-sync.txt`, `storlab import fio fio.json`",
        ),
        (
            ["both"],
            "both has sysbench's first line (sysbench) and what pgbench begins with (pgbench): say which counts",
        ),
        (["both"], "`storlab import sysbench both` or `storlab import pgbench both`"),
        (["prose"], 'prose: not recognised as the output of a tool that Storlab reads; it begins with "Dear all,"'),
        (["prose"], "`storlab import KIND prose`"),
        (["x_lat.1.log"], "x_lat.1.log is an fio log, which does not say what it measured: name the JSON"),
        (["fioo"], "fioo is neither a file nor a kind of results: did you mean fio?"),
        (["empty"], "empty is empty"),
        (["folder"], "folder: its files are of sysbench, and must be named one by one: storlab import folder/*"),
        (["fio.json", "--decimal", ","], "--decimal is for csv, but fio.json is fio: leave it out"),
        (["fio.json", "--dialect", "1"], "--dialect is for blkalgn, but fio.json is fio: leave it out"),
        (["table.csv", "--value", "run", "--decimal", ";"], "--decimal"),
        (["table.csv", "--value", "run", "--separator", "ab"], '--separator "ab": it is one sign'),
        (["table.csv", "--value", "run", "--separator", ",", "--decimal", ","], '--separator "," is --decimal as well'),
    ],
)
def test_what_cannot_be_told_is_refused_in_words_with_what_to_do(files: list[str], says: str, place: Path) -> None:
    for name in ("sysbench-sync.txt", "fio.json", "table.csv"):
        shutil.copy(IMPORTS / name, name)
    both = ("sysbench-rate.txt", "pgbench-rate.txt")
    Path("both").write_bytes(b"".join((GOLDEN / name).read_bytes() for name in both))
    Path("prose").write_text("Dear all,\nthe disk is slow.\n")
    Path("empty").touch()
    Path("x_lat.1.log").write_text("1, 2, 0, 4096, 0, 0\n" * 3)
    Path("folder").mkdir()
    shutil.copy(IMPORTS / "sysbench-sync.txt", "folder")
    before = sorted(place.iterdir())
    ran = call("import", *files)
    assert (ran.status, "Traceback" in ran.message) == (2, False), ran.message
    assert says in ran.message
    assert sorted(place.iterdir()) == before


def test_a_folder_of_fio_is_known_by_its_files() -> None:
    Path("folder").mkdir()
    shutil.copy(IMPORTS / "fio.json", "folder/x")
    Path("folder/notes").write_text("Dear all,\n")
    ran = call("import", "folder", "--out", "run")
    assert ran.status == 0, ran.message
    assert "folder: recognised as fio" in ran.output
