"""``storlab compare``: exit statuses and messages, on runs of a directory, which need no root."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from study.program import program

STUDY = """
title = "A program that says how long it took, which no load on this machine changes"
primary = "took"
stack = [{ layer = "directory" }]
repeat = { until = "max", min = 3, max = 3 }
trial = { settle = { sync = false, drop_caches = false } }
[factors.time]
levels = ["LEVELS"]
[probes]

[workload.load.command]
argv = ["date", "+took {time}.%1N s"]
metrics = [{ name = "took", regex = "took ([0-9.]+) s", unit = "s", better = "lower" }]
"""


def storlab(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return program(*words, folder=folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``old`` and ``new`` of the same study, and ``other`` with another level."""
    folder = tmp_path_factory.mktemp("runs")
    for name, levels in {"old": '10", "100', "new": '10", "100', "other": "300"}.items():
        (folder / f"{name}.toml").write_text(STUDY.replace("LEVELS", levels))
        ran = storlab("run", f"{name}.toml", "--out", name, "-q", folder=folder)
        assert ran.returncode == 0, ran.stderr
    return folder


def test_two_runs_are_described(runs: Path) -> None:
    ran = storlab("compare", "old", "new", folder=runs)
    assert ran.returncode == 0, ran.stderr
    assert "new compared with old" in ran.stdout
    assert "Described and not judged" in " ".join(ran.stdout.split())


def test_a_gate_that_is_hit_ends_with_status_four_and_the_file_is_written(runs: Path) -> None:
    words = (
        "--by",
        "time",
        "--fail-on",
        "worse>50%",
        "--fail-on",
        "differs>50%",
        "--format",
        "junit",
        "--out",
        "x.xml",
    )
    ran = storlab("compare", "old", "other", *words, folder=runs)
    assert (ran.returncode, ran.stdout) == (4, "x.xml\n"), ran.stderr
    assert Xml.parse(runs / "x.xml").getroot().get("failures") == "2", "what only one side has fails as well"


def test_a_copy_of_a_run_is_not_taken_for_more_rounds(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "old", tmp_path / "copy")
    for by in ((), ("--by", "time")):
        ran = storlab("compare", "old", str(tmp_path / "copy"), *by, folder=runs)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "old and copy are one run, " in ran.stderr and "a copy is not a repeat; leave one out" in ran.stderr


def test_a_file_that_was_imported_twice_is_not_taken_for_more_rounds(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("fs,v\na,1\nb,2\nb,2.1\na,1.1\na,1.2\nb,1.9\n")
    for name in ("one", "two"):
        words = ("t.csv", "--factor-column", "fs", "--value", "v", "--out", name)
        ran = storlab("import", "csv", *words, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
    ran = storlab("compare", "one", "two", "--by", "fs", folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "one and two hold the same file, t.csv: a copy is not a repeat; leave one out" in ran.stderr
    assert storlab("compare", "one", "two", folder=tmp_path).returncode == 0, "counts of two runs may well be the same"


def test_levels_of_one_run_are_compared_by_round(runs: Path) -> None:
    ran = storlab("compare", "old", "--by", "time", "--format", "markdown", folder=runs)
    assert ran.returncode == 0, ran.stderr
    assert "| ? undecided \\[1\\] | 3 \\[2\\] |" in ran.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("old",), "one run cannot be compared with itself"),
        (("old", "./old"), "named twice"),
        (("old", "nowhere"), "nowhere does not exist"),
        (("old", "new", "--fail-on", "wrose>3%"), "cannot read --fail-on 'wrose>3%'"),
        (("old", "new", "--format", "pdf"), "unknown format 'pdf'"),
        (("old", "new", "--by", "disk"), "old has no factor 'disk'; it has: time"),
        (("old", "other"), "With `--by time`, its levels are compared instead of the runs."),
        (("old", "new", "--metric", "tooks"), "no trial has it; did you mean 'took'?"),
    ],
)
def test_mistakes_are_one_sentence_and_status_two(runs: Path, words: tuple[str, ...], message: str) -> None:
    ran = storlab("compare", *words, folder=runs)
    assert ran.returncode == 2, ran.stdout
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_gate_that_can_not_be_told_yet_ends_with_status_four_unless_it_may_pass(runs: Path) -> None:
    words = ("compare", "old", "--by", "time", "--fail-on", "worse>5%")
    ran = storlab(*words, folder=runs)
    assert ran.returncode == 4, ran.stderr
    assert "Not passed: no gate was hit, but 1 of 1 comparison is undecided" in " ".join(ran.stdout.split())
    assert storlab(*words, "--allow-undecided", folder=runs).returncode == 0
