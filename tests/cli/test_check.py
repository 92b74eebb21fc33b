"""``storlab check``: one question about one directory, its verdict, and the exit status that says it to a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storlab.cli.check import _FOLDER, _names
from storlab.run.planning.metrics import refuse_unknown_metrics
from storlab.study.study import load_study
from study.program import call

SHORT = ("--quiet", "--shared", "--set", "runtime=50ms")


@pytest.mark.parametrize("name", _names(""))
def test_each_check_is_a_study_without_factors_whose_limits_fit_its_metrics(name: str) -> None:
    study = load_study(_FOLDER / f"{name}.toml", ["claim.0.below=5ms"])
    refuse_unknown_metrics(study)
    assert len(study.cells) == 1 and study.model.claim and study.model.description
    assert call("check", name, "--print").output.strip() == (_FOLDER / f"{name}.toml").read_text().strip()


@pytest.mark.parametrize(("below", "status", "verdict"), [("100s", 0, "holds"), ("1us", 4, "does not hold")])
def test_the_verdict_is_the_first_line_and_the_status(
    below: str, status: int, verdict: str, tmp_path: Path, here: None
) -> None:
    place = tmp_path / "data"
    place.mkdir()
    ran = call("check", "fsync", "--dir", str(place), "--below", below, "--out", "run", *SHORT)
    said, verdict = " ".join(ran.output.split()), f"99 % of all fdatasyncs are done in time: {verdict}."
    assert (ran.status, verdict in said) == (status, True), said
    assert "etcd's heartbeats come late" in said and "Latency" not in said, "what it means, and no more than asked"
    (claim,) = json.loads(Path("run/summary.json").read_text())["claims"]
    assert claim["settled"] and claim["rounds"] == 10 and claim["low"] <= claim["value"] <= claim["high"]
    assert not [*place.iterdir()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fsnyc",), "unknown check 'fsnyc': write one of etcd, fsync, postgres"),
        (("fsync", "--dir", "/dev/shm"), "its files are in memory (tmpfs), and on no disk"),
        (("fsync", "--dir", "/nowhere"), "there is no directory /nowhere"),
        (("fsync", "--dir", "/var/tmp", "--below", "10MB"), '"10MB" is not a duration'),
    ],
)
def test_what_can_not_be_checked_is_refused_before_anything_is_written(
    words: tuple[str, ...], message: str, here: None
) -> None:
    ran = call("check", *words)
    assert ran.status == 2 and message in ran.message
    assert not Path("runs").exists()
