"""``storlab import``: files of other tools become a run that reports as any other, or nothing at all."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from storlab import open_run
from study.program import call

THREE = {
    "disks": {
        "vda": {"granularity": {"0": 3, "4096": 27, "16384": 400}, "alignment": {"512": 3, "4096": 27, "16384": 400}}
    }
}
FOUR = {"disks": {"vda": {"granularity": {"4608": 100}, "alignment": {"4096": 100}}}}
PYTHON = {"Block size": {"12": 40, "14": 60}, "Algn size": {"12": 40, "14": 60}}
AMBIGUOUS = {"disks": {"vda": {"granularity": {"4096": 9}, "alignment": {"512": 9}}}}
TWO_DISKS = {"disks": {**FOUR["disks"], "vdb": {"granularity": {"16896": 300}, "alignment": {"16384": 300}}}}


def written(folder: Path, name: str, document: object) -> str:
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def value(run: Path, metric: str, **where: object) -> float:
    rows = open_run(run).metrics.filter(pl.col("node").is_null(), pl.col("job").is_null(), metric=metric, **where)
    (found,) = rows["value"].to_list()
    return float(found)


def test_each_file_is_a_cell_of_a_run_that_reports(tmp_path: Path) -> None:
    files = [
        written(tmp_path, name, each) for name, each in (("xfs.json", THREE), ("ext4.json", FOUR), ("old.json", PYTHON))
    ]
    run = tmp_path / "run"
    ran = call("import", "blkalgn", *files, "--out", str(run))
    assert ran.status == 0, ran.message
    assert "xfs.json: dialect 3" in ran.output
    assert "ext4.json: dialect 4" in ran.output
    assert "old.json: dialect 1" in ran.output
    assert "old.json: the Python version" in ran.message
    assert open_run(run).trials["factor.file"].to_list() == ["xfs", "ext4", "old"]
    assert value(run, "all.aligned.16k", cell=1) == 400 / 427
    assert value(run, "all.bytes", cell=2) == 100 * 4096
    assert value(run, "all.below.16k", cell=3) == 40
    text = call("report", str(run))
    assert text.status == 0, text.message
    assert "no verdicts" in " ".join(text.output.split())
    assert "not interleaved" in " ".join(text.output.split())
    assert "no comparisons" in text.output


@pytest.mark.parametrize("form", ["md", "csv", "json", "adoc"])
def test_it_is_drawn_in_every_format(form: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("import", "blkalgn", written(tmp_path, "a.json", FOUR), "--out", str(run))
    ran = call("report", str(run), "--format", form)
    assert ran.status == 0, ran.message
    assert "mported" in ran.output


@pytest.mark.slow
def test_it_has_a_page_with_charts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("import", "blkalgn", written(tmp_path, "a.json", FOUR), written(tmp_path, "b.json", THREE), "--out", str(run))
    ran = call("report", str(run), "--format", "html")
    assert ran.status == 0, ran.message
    assert list((run / "charts").glob("block-*.svg"))


def test_a_report_is_derived_anew_from_the_files_that_the_run_keeps(tmp_path: Path) -> None:
    run, file = tmp_path / "run", written(tmp_path, "a.json", FOUR)
    call("import", "blkalgn", file, "--out", str(run))
    Path(file).unlink()
    (kept,) = (run / "trials").rglob("blkalgn.json")
    kept.write_text(json.dumps({"disks": {"vda": {"granularity": {"4608": 7}, "alignment": {"4096": 7}}}}))
    rows = json.loads(call("report", str(run), "--format", "json").output)["estimates"]
    assert next(row["mean"] for row in rows if row["metric"] == "all.requests") == 7
    kept.write_text("rubbish")
    ran = call("report", str(run), "--format", "json")
    assert ran.status == 0
    assert "cannot read its raw records" in ran.output


def test_several_disks_are_added_up_and_told_apart(tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("import", "blkalgn", written(tmp_path, "a.json", TWO_DISKS), "--out", str(run))
    assert value(run, "all.requests") == 400
    by_disk = open_run(run).metrics.filter(pl.col("job") == "vdb", metric="all.aligned.16k")
    assert by_disk["value"].to_list() == [1.0]


def test_labels_and_factors_name_the_cells(tmp_path: Path) -> None:
    files = [written(tmp_path, f"{n}.json", FOUR) for n in range(4)]
    run = tmp_path / "run"
    options = ["--factor", "fs=xfs,xfs,ext4,ext4", "--factor", "load=a,b,a,b", "--factor", "host=lab"]
    ran = call("import", "blkalgn", *files, "--out", str(run), *options)
    assert ran.status == 0, ran.message
    columns = ["factor.fs", "factor.load", "factor.host"]
    assert open_run(run).trials.select(columns).rows()[2] == ("ext4", "a", "lab")
    labelled = tmp_path / "labelled"
    names = [word for n in range(4) for word in ("--label", f"run {n}")]
    assert call("import", "blkalgn", *files, "--out", str(labelled), *names).status == 0
    assert open_run(labelled).trials["factor.file"].to_list() == ["run 0", "run 1", "run 2", "run 3"]


def test_a_factor_may_have_a_hyphen_in_its_name_as_in_studies(tmp_path: Path) -> None:
    files = [written(tmp_path, f"{n}.json", FOUR) for n in range(2)]
    run = tmp_path / "run"
    ran = call("import", "blkalgn", *files, "--out", str(run), "--factor", "block-size=4k,8k")
    assert ran.status == 0, ran.message
    assert open_run(run).trials["factor.block-size"].to_list() == ["4k", "8k"]
    assert "block-size" in call("report", str(run)).output


def test_what_a_file_does_not_show_its_reader_says(tmp_path: Path) -> None:
    file, run = written(tmp_path, "a.json", AMBIGUOUS), tmp_path / "run"
    ran = call("import", "blkalgn", file, "--out", str(run))
    assert (ran.status, run.exists()) == (2, False)
    assert "a.json: does not show which dialect it is of" in ran.message
    assert call("import", "blkalgn", file, "--dialect", "4", "--out", str(run)).status == 0
    assert value(run, "all.size") == 3584
    assert call("report", str(run)).status == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.json"], "nowhere.json: No such file"),
        (["."], ": Is a directory"),
        (["good.json", "bad.json"], "bad.json:1: is no JSON"),
        (["good.json", "empty.json"], "empty.json: is no histogram of blkalgn"),
        (["good.json", "good.json"], "tell them apart by --label or --factor"),
        (["good.json", "--out", "x" * 300], "can't be a run's folder: File name too long"),
        (["good.json", "--label", "a", "--label", "b"], "--label: 2 labels for 1 file:"),
        (["good.json", "--label", ""], "can't be a level"),
        (["good.json", "--factor", "fs"], "write NAME=LEVEL"),
        (
            ["good.json", "--factor", "file system=a"],
            '"file system" is not a valid name: at most 63 letters, digits, -',
        ),
        (["good.json", "--factor", "-a=b"], '"-a" is not a valid name'),
        (["good.json", "--factor", "=a"], '"" is not a valid name'),
        (["good.json", "--factor", "fs=a,b"], "2 levels for 1 file"),
        (["good.json", "--factor", "fs=a", "--factor", "fs=b"], "fs was given before"),
        (["good.json", "--dialect", "7"], "--dialect"),
        (["good.json", "--dialect", "1"], "is not of dialect 1"),
        ([], "Missing argument"),
    ],
)
def test_a_mistake_has_status_2_and_leaves_nothing(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "good.json", FOUR)
    written(tmp_path, "empty.json", {})
    (tmp_path / "bad.json").write_text("{")
    before = sorted(tmp_path.iterdir())
    ran = call("import", "blkalgn", *arguments)
    assert ran.status == 2
    assert says in ran.message
    assert "Traceback" not in ran.message
    assert sorted(tmp_path.iterdir()) == before


def test_an_imported_run_is_not_run_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("import", "blkalgn", written(tmp_path, "a.json", FOUR), "--out", str(run))
    ran = call("resume", str(run))
    assert ran.status == 2
    assert "was imported and has no study" in ran.message
    assert call("clean", str(run)).status == 0
    again = call("import", "blkalgn", written(tmp_path, "a.json", FOUR), "--out", str(run))
    assert again.status == 2
    assert "is not empty" in again.message


def test_a_manifest_that_does_not_say_how_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("import", "blkalgn", written(tmp_path, "a.json", FOUR), "--out", str(run))
    manifest = run / "manifest.json"
    whole = json.loads(manifest.read_text())
    for imported in (
        {"kind": "blkalgn"},
        {"kind": "blkalgn", "files": []},
        {"kind": "later", "files": whole["imported"]["files"]},
    ):
        manifest.write_text(json.dumps({**whole, "imported": imported}))
        ran = call("report", str(run))
        assert (ran.status, "Traceback" in ran.message) == (2, False), ran.message
