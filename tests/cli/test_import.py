"""``storlab import``: files of other tools become a run that reports as any other, and is never judged."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from importing import taken as imported
from importing.test_virtiofs_tests import terse
from storlab import open_run
from storlab.cli.import_.options import PLAIN, ImportOptions, plain_options
from storlab.tools.bonnie.importer import read_bonnie
from study.program import Ran, call

TESTS = Path(__file__).parent.parent
GOLDEN = TESTS / "importing" / "golden"
IMPORTS = TESTS.parent / "examples" / "imports"
OLTP = str(GOLDEN / "sysbench-oltp.txt")
PCAP = str(GOLDEN / "pcap-tcpdump-3.txt")
ETHERNET = GOLDEN / "pcap-ethernet.pcap"
THREE = {
    "disks": {
        "vda": {"granularity": {"0": 3, "4096": 27, "16384": 400}, "alignment": {"512": 3, "4096": 27, "16384": 400}}
    }
}
FOUR = {"disks": {"vda": {"granularity": {"4608": 100}, "alignment": {"4096": 100}}}}
PYTHON = {"Block size": {"12": 40, "14": 60}, "Algn size": {"12": 40, "14": 60}}
AMBIGUOUS = {"disks": {"vda": {"granularity": {"4096": 9}, "alignment": {"512": 9}}}}
TWO_DISKS = {"disks": {**FOUR["disks"], "vdb": {"granularity": {"16896": 300}, "alignment": {"16384": 300}}}}

pytestmark = pytest.mark.usefixtures("here")


def report(run: str = "run", *words: str) -> str:
    """What is reported of a run, without breaks of lines."""
    ran = call("report", run, *words)
    assert ran.status == 0, ran.message
    return " ".join(ran.output.split())


def written(name: str, document: object) -> str:
    Path(name).write_text(json.dumps(document))
    return name


def named(name: str, file: Path) -> str:
    """The contents of a file under a name that says nothing, or something wrong."""
    shutil.copy(file, name)
    return name


def pgbench_logs() -> list[str]:
    return [named(name, GOLDEN / name) for name in ("pgbench_log.71", "pgbench_log.71.1")]


def values(metric: str, run: str = "run", **where: object) -> list[float]:
    rows = open_run(run).metrics.filter(pl.col("node").is_null(), pl.col("job").is_null(), metric=metric, **where)
    return [float(value) for value in rows.sort("cell", "round")["value"]]


def factor(name: str, run: str = "run") -> list[str]:
    return open_run(run).trials[f"factor.{name}"].to_list()


def test_each_file_is_a_cell_of_a_run_that_reports() -> None:
    documents = {"xfs.json": THREE, "ext4.json": FOUR, "old.json": PYTHON}
    ran = imported("blkalgn", *(written(name, each) for name, each in documents.items()))
    for name, dialect in (("xfs", 3), ("ext4", 4), ("old", 1)):
        assert f"{name}.json: dialect {dialect}" in ran.output
    assert "old.json: the Python version" in ran.message
    assert factor("file") == ["xfs", "ext4", "old"]
    assert values("all.aligned.16k", cell=1) == [400 / 427]
    assert values("all.bytes", cell=2) == [100 * 4096]
    assert values("all.below.16k", cell=3) == [40]
    text = report()
    assert "no verdicts" in text and "not interleaved" in text and "no comparisons" in text
    report("run", "--format", "html")
    assert list(Path("run/charts").glob("block-*.svg"))


def test_two_files_of_sysbench_are_described_and_not_judged_in_every_format() -> None:
    Path("off.txt").write_bytes(Path(OLTP).read_bytes().replace(b"(5374.40 per", b"(5298.68 per"))
    ran = imported("sysbench", "off.txt", OLTP, "--factor", "doublewrite=off,on")
    assert "2 trials of 2 cells" in ran.output
    assert factor("doublewrite") == ["off", "on"]
    assert values("tps") == [5298.68, 5374.40]
    for form in ("text", "md", "csv", "json", "adoc"):
        said = report("run", "--format", form)
        assert "one run of each, not interleaved" in said and "there are no verdicts" in said
    text = report()
    assert "no comparisons" in text and "5.30k/s none unknown" in text
    report("run", "--format", "html")
    page = Path("run/report.html").read_text()
    assert "not interleaved" in page and "Over time" in page


def test_several_disks_are_added_up_and_told_apart() -> None:
    imported("blkalgn", written("a.json", TWO_DISKS))
    assert values("all.requests") == [400]
    by_disk = open_run("run").metrics.filter(pl.col("job") == "vdb", metric="all.aligned.16k")
    assert by_disk["value"].to_list() == [1.0]


def test_labels_and_factors_name_the_cells() -> None:
    files = [written(f"{n}.json", FOUR) for n in range(4)]
    imported(
        "blkalgn", *files, *("--factor", "block-size=xfs,xfs,ext4,ext4", "--factor", "b=a,b,a,b", "--factor", "c=d")
    )
    assert open_run("run").trials.select("factor.block-size", "factor.b", "factor.c").rows()[2] == ("ext4", "a", "d")
    assert "block-size" in report()
    imported("blkalgn", *files, *(word for n in range(4) for word in ("--label", f"run {n}")), out="labelled")
    assert factor("file", "labelled") == ["run 0", "run 1", "run 2", "run 3"]


def test_files_with_the_same_label_are_rounds_of_one_cell() -> None:
    files = []
    for number in range(4):  # runs that are no copies of each other
        files.append(f"{number}.txt")
        Path(files[-1]).write_bytes(Path(OLTP).read_bytes() + b"\n" * number)
    ran = imported("sysbench", *files, *(word for name in ("off", "on") * 2 for word in ("--label", name)))
    assert "4 trials of 2 cells" in ran.output
    trials = open_run("run").trials.select("cell", "round", "factor.file").rows()
    assert trials == [(1, 1, "off"), (2, 1, "on"), (1, 2, "off"), (2, 2, "on")]
    assert "2 rounds done; 2 of 2 cells measured; no comparisons" in report()


def test_what_a_file_does_not_show_its_reader_says() -> None:
    file = written("a.json", AMBIGUOUS)
    ran = call("import", "blkalgn", file, "--out", "run")
    assert (ran.status, Path("run").exists()) == (2, False)
    assert "a.json: does not show which dialect it is of" in ran.message
    imported("blkalgn", file, "--dialect", "4")
    assert values("all.size") == [3584]
    assert report()


def test_one_file_of_fileio_is_enough_and_a_truncated_one_has_its_warning_at_the_head() -> None:
    imported("sysbench", str(GOLDEN / "sysbench-fileio.txt"), out="fileio")
    assert "bandwidth: sysbench" in report("fileio")
    Path("cut.txt").write_bytes(Path(OLTP).read_bytes()[:1500])
    assert "it has no closing block" in imported("sysbench", "cut.txt").message
    assert "it has no closing block" in report()


def test_machines_of_bonnie_are_cells_and_its_repeats_rounds() -> None:
    imported("bonnie", str(GOLDEN / "bonnie-1.03.txt"))
    assert factor("machine") == ["local", "nfs", "aoe", "dst", "dst-nosack-nofac", "dst-2"]
    assert values("seek.rate") == [288.8, 350.6, 201.6, 17.8, 90.7, 17.6]
    assert len(values("random.stat.rate")) == 1  # nfs alone: the others ended in under 500 ms
    said = report("run", "--format", "md")
    assert "file_size" in said and "16G" in said and "num_files" in said
    ran = imported("bonnie", str(GOLDEN / "bonnie-2.00a.csv"), out="repeats")
    assert "2 trials of 1 cell" in ran.output and "ended in under 500 ms" in ran.message
    assert report("repeats")


@pytest.mark.parametrize("name", ["1.03", "1.96-files", "sparse"])
def test_the_table_of_bonnie_is_printed_as_1_03_did_and_read_back(name: str) -> None:
    text = (GOLDEN / f"bonnie-{name}.txt").read_bytes()
    imported("bonnie", str(GOLDEN / f"bonnie-{name}.txt"))
    printed = call("report", "run", "--format", "bonnie").output
    if name == "1.03":
        assert printed.encode() == text
    again = read_bonnie(printed.encode(), "again")[0]
    first = {run.name: run for run in read_bonnie(text, "first")[0]}  # repeats are alike
    for one, other in zip(again, first.values(), strict=True):
        assert one.rates.keys() == other.rates.keys() and one.cpu == other.cpu
        assert all(abs(one.rates[test] - rate) <= 0.5 for test, rate in other.rates.items())
        sizes = ("file_size", "num_files", "max_size", "num_dirs")
        assert set(one.too_short) == set(other.too_short) and [one.facts.get(size) for size in sizes] == [
            other.facts.get(size) for size in sizes
        ]


def test_another_run_has_no_table_of_bonnie() -> None:
    imported("sysbench", OLTP)
    ran = call("report", "run", "--format", "bonnie")
    assert ran.status == 2 and "it takes a run of the workload bonnie" in ran.message


def test_a_table_is_read_by_the_columns_that_are_named() -> None:
    Path("t.csv").write_text("fs,rep,IOPS,lat\nxfs,1,1000,1.5\next4,1,900,1.7\nxfs,2,1010,1.4\next4,2,930,\n")
    columns = ["--value", "IOPS:1/s:higher", "--value", "lat:ms:lower"]
    imported("csv", "t.csv", *columns, "--factor-column", "fs", "--round-column", "rep")
    assert values("IOPS") == [1000, 1010, 900, 930]
    assert len(values("lat")) == 3
    text = report()
    assert "IOPS: csv" in text and "Rounds are those that the files number." in text
    compared = " ".join(call("compare", "run", "--by", "fs").output.split())
    assert "not judged" in compared  # the numbers don't say that the rounds were interleaved


def test_the_head_of_a_report_says_what_the_largest_connections_did_and_what_is_missing() -> None:
    assert "packets 40; connections 1; seconds 0.000875" in imported("pcap", PCAP).output
    text, name = report(), "client:46340 > server:1025"
    assert f"{name}: received 13 data segments, 27 ACKs of these, each 2796 bytes on = 2.00 MSS of 1398" in text
    assert f"{name}: 20,970 bytes are missing from the capture" in text and "acks.sent.mss: pcap" in text
    found = open_run("run").metrics.filter(pl.col("metric") == "missing.received")
    assert set(found["value"].to_list()) == {20_970.0}


def test_a_capture_is_kept_whole_and_a_run_without_tables_is_derived_from_it() -> None:
    imported("pcap", str(ETHERNET))
    (kept,) = Path("run").rglob("capture")
    assert kept.read_bytes() == ETHERNET.read_bytes()
    first = report("run", "--format", "csv")
    for table in Path("run").rglob("*.parquet"):
        table.unlink()
    assert report("run", "--format", "csv") == first


def test_several_captures_are_set_ups_and_a_packed_one_is_refused() -> None:
    ran = imported("pcap", str(ETHERNET), str(GOLDEN / "pcap-any.pcap"), "--factor", "sack=on,off")
    assert "2 trials of 2 cells" in ran.output
    assert "there are no verdicts" in report()
    Path("x.pcap.gz").write_bytes(gzip.compress(ETHERNET.read_bytes()))
    ran = call("import", "pcap", "x.pcap.gz", "--out", "other")
    assert (ran.status, "is packed by gzip" in ran.message, Path("other").exists()) == (2, True, False)


def test_an_imported_run_is_not_run_again() -> None:
    imported("blkalgn", written("a.json", FOUR))
    ran = call("resume", "run")
    assert (ran.status, "was imported and has no study" in ran.message) == (2, True)
    assert call("clean", "run").status == 0
    again = call("import", "blkalgn", "a.json", "--out", "run")
    assert (again.status, "is not empty" in again.message) == (2, True)


def test_a_manifest_that_does_not_say_how_is_refused() -> None:
    imported("blkalgn", written("a.json", FOUR))
    manifest = Path("run/manifest.json")
    whole = json.loads(manifest.read_text())
    files = whole["imported"]["files"]
    for how in ({"kind": "blkalgn"}, {"kind": "blkalgn", "files": []}, {"kind": "later", "files": files}):
        manifest.write_text(json.dumps({**whole, "imported": how}))
        ran = call("report", "run")
        assert (ran.status, "Traceback" in ran.message) == (2, False), ran.message


def test_the_contents_say_which_tool_it_was_and_the_report_is_shown() -> None:
    files = [named("a.json", IMPORTS / "sysbench-sync.txt"), named("b.csv", IMPORTS / "sysbench-mmap.txt")]
    ran = imported(*files, "--factor", "io=sync,mmap")
    assert ran.output.startswith("a.json, b.csv: recognised as sysbench, by sysbench's first line\n")
    assert "bandwidth: sysbench" in ran.output  # the report
    assert "Run:    run, 2 trials of 2 cells\nReport: run/report.html\n" in ran.output
    assert "storlab report" not in ran.output.partition("Imported from")[0]
    assert Path("run/report.html").is_file()
    assert factor("io") == ["sync", "mmap"]


def test_a_file_that_others_could_claim_says_which_it_was_taken_for_and_how_to_force_another() -> None:
    head = "TESTDIR=/mnt\nTEST_NAME=none\nMOUNTPOINT=/mnt tag virtiofs rw\nRUNTIME=20 LOOPS=3 SIZE=4G\n\n"
    line = "a: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=psync, iodepth=16"
    job = f"Running: fio fio-jobs/randread-psync.job\n{line}\nfio-3.21\nStarting 1 process\n"
    Path("raw").write_text(f"{head}{job}{terse('a', read=(4096, 1024))}\n\nRun status group 0:\n")
    ran = imported("raw")
    assert "raw: recognised as virtiofs-tests" in ran.output
    assert "raw: not taken for fio, though it has terse lines of fio" in ran.message
    assert "`storlab import fio raw` reads it as one of fio" in ran.message


def test_the_logs_of_a_run_are_read_with_the_file_that_they_lie_beside() -> None:
    logs = pgbench_logs()
    ran = imported(*logs)
    assert "pgbench_log.71: recognised as pgbench, by a log of pgbench's transactions\n" in ran.output
    assert "1 trial of 1 cell" in ran.output


@pytest.mark.parametrize("kind", [[], ["pgbench"]])
def test_a_log_that_is_read_with_another_one_has_no_level_of_its_own(kind: list[str]) -> None:
    logs = pgbench_logs()
    for levels in (["--label", "a", "--label", "b"], ["--factor", "fs=xfs,ext4"]):
        refused = call("import", *kind, *logs, *levels, "--out", "run")
        assert refused.status == 2
        assert "pgbench_log.71.1 is read along with pgbench_log.71, as part of the same run" in refused.message
        assert not Path("run").exists()
    assert "1 trial of 1 cell" in imported(*kind, *logs, "--factor", "fs=xfs").output


def test_a_kind_that_is_named_reads_a_run_s_logs_together_in_any_order() -> None:
    logs = pgbench_logs()
    found = []
    for number, order in enumerate((logs[:1], logs, logs[::-1])):
        assert "1 trial of 1 cell" in imported("pgbench", *order, out=f"{number}").output
        found.append(open_run(f"{number}").metrics.filter(metric="transactions")["value"].to_list())
    assert found[0] == found[1] == found[2] and found[0]


def test_a_table_is_read_by_the_columns_that_are_named_with_decimal_commas_where_it_has_these() -> None:
    Path("t").write_text("fs;IOPS;lat (ms)\nxfs;1000,5;1,5\next4;900,25;2\n")
    ran = call("import", "t")
    assert ran.status == 2
    assert "storlab import t --factor-column fs --value IOPS:1/s:higher --value 'lat (ms)::lower' --decimal ," in (
        ran.message
    )
    columns = ["--factor-column", "fs", "--value", "IOPS::higher"]
    refused = call("import", "t", *columns)
    assert (refused.status, "t:2" in refused.message) == (2, True)
    assert "where the comma is a decimal one, say --decimal ," in refused.message
    imported("t", *columns, "--decimal", ",", "--separator", ";")
    assert open_run("run").metrics.filter(metric="IOPS")["value"].unique().sort().to_list() == [900.25, 1000.5]


def test_a_folder_of_fio_is_known_by_its_files() -> None:
    Path("folder").mkdir()
    shutil.copy(IMPORTS / "fio.json", "folder/x")
    Path("folder/notes").write_text("Dear all,\n")
    assert "folder: recognised as fio" in imported("folder").output


WORDS = ["a.txt", "b c", "--label", "--label=x", "--factor", "f=1,2", "--out", "run", "--interleaved", "--help", "-x"]
CALLS = st.tuples(
    st.sampled_from([*PLAIN, "csv", "nothing"]), st.lists(st.sampled_from([*WORDS, "", "--", "-"]), max_size=7)
)


def by_typer(*words: str) -> tuple[Ran, ImportOptions | None]:
    seen: list[Any] = []
    with mock.patch("storlab.cli.import_.command._import", seen.append):
        ran = call("import", *words)
    return ran, seen[0] if seen else None


@given(CALLS)
def test_what_is_read_plainly_is_what_typer_reads(asked: tuple[str, list[str]]) -> None:
    kind, words = asked
    plain = plain_options([kind, *words])
    if plain is not None:
        assert by_typer(kind, *words) == (Ran(0, "", ""), plain)


@pytest.mark.parametrize("kind", PLAIN)
def test_usual_calls_are_plain(kind: str) -> None:
    words = ["a", "--label", "x", "b", "--label", "y", "--factor", "sack=on,off", "--interleaved", "--out", "run"]
    assert plain_options([kind, *words]) == by_typer(kind, *words)[1] is not None


@pytest.mark.parametrize("words", [[], ["--help"], ["a", "--labels", "x"], ["a", "--out"], ["a", "--out=run"], [""]])
def test_questions_mistakes_and_other_ways_to_write_it_are_left_to_typer(words: list[str]) -> None:
    assert plain_options(["pcap", *words]) is None
