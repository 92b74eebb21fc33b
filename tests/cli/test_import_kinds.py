"""``storlab import`` of sysbench, Bonnie++ and CSV: from files to a run that is reported and never judged."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from storlab import open_run
from study.program import call

GOLDEN = Path(__file__).parent.parent / "importing" / "golden"
OLTP = str(GOLDEN / "sysbench-oltp.txt")
FILEIO = str(GOLDEN / "sysbench-fileio.txt")


def words(text: str) -> str:
    return " ".join(text.split())


def values(run: Path, metric: str) -> list[float]:
    rows = open_run(run).metrics.filter(pl.col("node").is_null(), metric=metric).sort("cell", "round")
    return [float(value) for value in rows["value"]]


def twin(folder: Path) -> str:
    other = folder / "off.txt"
    other.write_bytes(Path(OLTP).read_bytes().replace(b"(5374.40 per", b"(5298.68 per"))
    return str(other)


def test_two_files_of_sysbench_are_described_and_not_judged(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ran = call("import", "sysbench", twin(tmp_path), OLTP, "--factor", "doublewrite=off,on", "--out", str(run))
    assert ran.status == 0, ran.message
    assert "2 trials of 2 cells" in ran.output
    assert open_run(run).trials["factor.doublewrite"].to_list() == ["off", "on"]
    assert values(run, "tps") == [5298.68, 5374.40]
    for form in ("text", "md", "csv", "json", "adoc"):
        report = call("report", str(run), "--format", form)
        assert report.status == 0, report.message
        said = words(report.output)
        assert "one run of each, not interleaved" in said
        assert "there are no verdicts" in said
    text = words(call("report", str(run)).output)
    assert "no comparisons" in text
    assert "5.30k/s none unknown" in text


@pytest.mark.slow
def test_the_page_has_tps_over_time(tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("import", "sysbench", twin(tmp_path), OLTP, "--out", str(run))
    ran = call("report", str(run), "--format", "html")
    assert ran.status == 0, ran.message
    page = (run / "report.html").read_text()
    assert "not interleaved" in page
    assert "Over time" in page


def test_files_with_the_same_label_are_rounds_of_one_cell(tmp_path: Path) -> None:
    run = tmp_path / "run"
    labels = [word for name in ("off", "on", "off", "on") for word in ("--label", name)]
    files = [twin(tmp_path), OLTP]
    for number, file in enumerate(list(files)):  # other runs, that had the same figures
        files.append(str(tmp_path / f"again {number}.txt"))
        Path(files[-1]).write_bytes(Path(file).read_bytes() + b"\n")
    ran = call("import", "sysbench", *files, *labels, "--out", str(run))
    assert ran.status == 0, ran.message
    assert "4 trials of 2 cells" in ran.output
    trials = open_run(run).trials.select("cell", "round", "factor.file").rows()
    assert trials == [(1, 1, "off"), (2, 1, "on"), (1, 2, "off"), (2, 2, "on")]
    report = words(call("report", str(run)).output)
    assert "2 rounds done; 2 of 2 cells measured; no comparisons" in report


def test_one_file_of_fileio_is_enough(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert call("import", "sysbench", FILEIO, "--out", str(run)).status == 0
    assert "bandwidth: sysbench" in call("report", str(run)).output


def test_a_truncated_file_is_imported_with_its_warning_at_the_head(tmp_path: Path) -> None:
    run, cut = tmp_path / "run", tmp_path / "cut.txt"
    cut.write_bytes(Path(OLTP).read_bytes()[:1500])
    ran = call("import", "sysbench", str(cut), "--out", str(run))
    assert ran.status == 0
    assert "it has no closing block" in ran.message
    assert "it has no closing block" in words(call("report", str(run)).output)


def test_machines_of_bonnie_are_cells_and_its_repeats_rounds(tmp_path: Path) -> None:
    table, repeats = tmp_path / "table", tmp_path / "repeats"
    assert call("import", "bonnie", str(GOLDEN / "bonnie-1.03.txt"), "--out", str(table)).status == 0
    machines = ["local", "nfs", "aoe", "dst", "dst-nosack-nofac", "dst-2"]
    assert open_run(table).trials["factor.machine"].to_list() == machines
    assert values(table, "seek.rate") == [288.8, 350.6, 201.6, 17.8, 90.7, 17.6]
    assert len(values(table, "random.stat.rate")) == 1  # nfs alone: the others ended in under 500 ms
    ran = call("import", "bonnie", str(GOLDEN / "bonnie-2.00a.csv"), "--out", str(repeats))
    assert "2 trials of 1 cell" in ran.output
    assert "ended in under 500 ms" in ran.message
    assert call("report", str(repeats)).status == 0


def test_a_table_is_read_by_the_columns_that_are_named(tmp_path: Path) -> None:
    run, table = tmp_path / "run", tmp_path / "t.csv"
    table.write_text("fs,rep,IOPS,lat\nxfs,1,1000,1.5\next4,1,900,1.7\nxfs,2,1010,1.4\next4,2,930,\n")
    columns = ["--value", "IOPS:1/s:higher", "--value", "lat:ms:lower"]
    ran = call(
        "import", "csv", str(table), *columns, "--factor-column", "fs", "--round-column", "rep", "--out", str(run)
    )
    assert ran.status == 0, ran.message
    assert values(run, "IOPS") == [1000, 1010, 900, 930]
    assert len(values(run, "lat")) == 3
    report = words(call("report", str(run)).output)
    assert "IOPS: csv" in report
    assert "Rounds are those that the files number." in report
    compared = words(call("compare", str(run), "--by", "fs").output)
    assert "not judged" in compared  # the numbers don't say that the rounds were interleaved


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sysbench", "rubbish"], "rubbish: is no output of sysbench"),
        (["sysbench", OLTP, "rubbish"], "rubbish: is no output of sysbench"),
        (["sysbench", "nowhere"], "nowhere: No such file"),
        (["bonnie", "rubbish"], "rubbish: is neither CSV nor a table of Bonnie++"),
        (["bonnie", OLTP], "is neither CSV nor a table of Bonnie++"),
        (["csv", "rubbish", "--value", "x"], "rubbish:2: is no text in UTF-8"),
        (["csv", "table.csv"], "--value is needed"),
        (["csv", "table.csv", "--value", "c"], 'table.csv:1: has no column "c"'),
        (["csv", "table.csv", "--value", "b"], 'table.csv:3: column "b": "x" is not a number'),
    ],
)
def test_what_cannot_be_read_is_named_and_nothing_is_written(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rubbish").write_bytes(bytes(range(256)) * 99)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,x\n")
    before = sorted(tmp_path.iterdir())
    ran = call("import", *arguments)
    assert ran.status == 2
    assert says in ran.message
    assert "Traceback" not in ran.message
    assert sorted(tmp_path.iterdir()) == before
