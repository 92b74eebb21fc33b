"""``storlab import falcon``: results of several machines and their host, as lab notes keep them, and their tables."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory.samples import sample
from storlab import open_run
from storlab.errors import ParseError
from storlab.formats.load_averages import parse_host_loads
from study.program import call

from . import taken

RESULTS = Path(__file__).parent / "falcon"
NOTES = (RESULTS / "notes.adoc").read_text()
TABLE = re.compile(r"^\[cols=.*?^\|===$.*?^\|===$", re.DOTALL | re.MULTILINE)
NODES = ["a", "b", "c", "d"]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
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
    ("lost", "words", "says"), [line.split("\t") for line in sample(__file__, "cases/falcon-refused.txt").splitlines()]
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
