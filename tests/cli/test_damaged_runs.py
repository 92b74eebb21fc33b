"""Runs of which something is lost: what is there is reported, what isn't is named, and nothing is taken for nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from study.program import Ran, call


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Imported: three files, a cell each."""
    monkeypatch.chdir(tmp_path)
    files = []
    for number in range(1, 4):
        files.append(f"{number}.csv")
        Path(files[-1]).write_text(f"rate\n{1000 + number}\n")
    assert call("import", "csv", *files, "--value", "rate", "--out", "run").status == 0
    return tmp_path / "run"


def loop(path: Path) -> None:
    """What nobody can read, not even root."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(path.name)


def refused(ran: Ran, says: str) -> None:
    assert (ran.status, ran.output, ran.message) == (2, "", f"storlab: {says}\n")


@pytest.mark.parametrize(("lost", "says"), [([2], "trial 2 is missing"), ([1, 3], "trials 1, 3 are missing"), ([], "")])
def test_trials_that_are_missing_are_named(run: Path, lost: list[int], says: str) -> None:
    for trial in lost:
        shutil.rmtree(run / "trials" / f"{trial:04d}")
    ran = call("report", "run", "--format", "md")
    assert ran.status == 0
    assert ("missing from the run's folder: import the files again" in ran.output) == bool(lost)
    assert says in ran.output


def test_a_raw_file_that_cant_be_read_is_named_once(run: Path) -> None:
    (raw,) = (path for path in (run / "trials" / "0002").rglob("*.csv") if path.is_file())
    loop(raw)
    ran = call("report", "run", "--format", "json")
    assert ran.status == 0
    place = raw.relative_to(run.parent)
    assert f"trial 2: cannot read its raw records: {place}: Too many levels of symbolic links" in ran.output


def test_trials_that_cant_be_read_are_not_taken_for_none(run: Path) -> None:
    loop(run / "trials")
    for words in (("report", "run"), ("compare", "run", "--by", "file")):
        refused(call(*words), "cannot read run/trials: Too many levels of symbolic links")


def test_a_record_or_a_manifest_that_cant_be_read_is_named(run: Path) -> None:
    loop(run / "trials" / "0001" / "trial.json")
    refused(call("report", "run"), "cannot read run/trials/0001/trial.json: Too many levels of symbolic links")
    loop(run / "manifest.json")
    refused(call("report", "run"), "cannot read run/manifest.json: Too many levels of symbolic links")
