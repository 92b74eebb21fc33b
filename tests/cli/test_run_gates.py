"""``storlab run --fail-on``: as many rounds as it takes, and a status that says what came of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from study.program import program

STUDY = """
title = "A program that says how long it took, which is always the same"
primary = "took"
stack = [{ layer = "directory" }]
repeat = { until = "max", min = 5, max = 12 }
trial = { settle = { sync = false, drop_caches = false } }
compare = [{ pairs = [["new", "old"]] }]
[factors.build]
old = { took = "10" }
new = { took = "TOOK" }
[probes]

[workload.load.command]
argv = ["echo", "took {build.took} s"]
metrics = [{ name = "took", regex = "took ([0-9.]+) s", unit = "s", better = "lower" }]
"""

JUST_ONE_PERCENT = "10.1"
"""At the limit of the gate itself: no number of rounds can tell."""


def run(folder: Path, took: str, *words: str) -> tuple[int, int, str]:
    """Exit status, rounds and what was said of the gates."""
    (folder / "study.toml").write_text(STUDY.replace("TOOK", took))
    command = ["run", "study.toml", "--quiet", "--out", "out", *words]
    ended = program(*command, folder=folder)
    assert "Traceback" not in ended.stderr
    made = folder / "out" / "summary.json"
    rounds = json.loads(made.read_text())["rounds_done"] if made.exists() else 0
    return ended.returncode, rounds, " ".join(ended.stderr.split())


def test_rounds_end_as_soon_as_the_gate_is_passed(tmp_path: Path) -> None:
    status, rounds, said = run(tmp_path, "5", "--fail-on", "worse>20%")
    assert (status, said) == (0, "Passed: no gate was hit in 1 comparison.")
    assert 5 <= rounds < 12


def test_a_gate_that_is_hit_ends_with_status_four(tmp_path: Path) -> None:
    status, rounds, said = run(tmp_path, "15", "--fail-on", "worse>20%", "--fail-on", "missing")
    assert (status, said) == (4, "Failed: 1 of 1 comparison hit a gate.")
    assert rounds < 12


@pytest.mark.parametrize(("words", "expected"), [((), 4), (("--allow-undecided",), 0)])
def test_one_that_no_round_answers_is_not_passed(tmp_path: Path, words: tuple[str, ...], expected: int) -> None:
    status, rounds, said = run(tmp_path, JUST_ONE_PERCENT, "--fail-on", "worse>1%", *words)
    assert (status, rounds) == (expected, 12)
    assert ("Passed" in said) == bool(words)


def test_a_report_says_later_what_came_of_the_gates(tmp_path: Path) -> None:
    run(tmp_path, "5", "--fail-on", "worse>20%")
    for format_ in ("text", "md", "adoc"):
        words = ["report", "out", "--format", format_]
        told = program(*words, folder=tmp_path)
        assert told.returncode == 0, told.stderr
        assert "20% passed. new is not worse than old by more than 20 %" in " ".join(told.stdout.split()), format_


def test_no_round_begins_that_would_exceed_the_budget(tmp_path: Path) -> None:
    few = ("--set", "repeat.min=1", "--set", "repeat.max=1")
    status, rounds, _ = run(tmp_path, JUST_ONE_PERCENT, *few, "--fail-on", "worse>1%", "--budget", "0.1")
    stopped = json.loads((tmp_path / "out" / "summary.json").read_text())["stopped"]
    done = f"{rounds} round{'s' if rounds > 1 else ''}"
    assert (status, stopped) == (4, f"Stopped after {done}: one more would exceed the budget of 0.1 minutes.")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["rounds"] == [1, 10_000], "and not repeat.max"


def test_a_gate_that_can_not_be_read_stops_it_before_anything_is_run(tmp_path: Path) -> None:
    status, _, said = run(tmp_path, "10", "--fail-on", "worse>3")
    assert status == 2 and "cannot read --fail-on 'worse>3'" in said
    assert not (tmp_path / "out").exists()


def rounds_of(folder: Path) -> list[int]:
    """Of all trials, in their order."""
    records = sorted((folder / "out" / "trials").glob("*/trial.json"))
    return [json.loads(path.read_text())["round"] for path in records]


def test_rounds_are_added_to_a_run_that_has_ended(tmp_path: Path) -> None:
    run(tmp_path, "10", "--rounds", "2")
    before = (tmp_path / "out" / "trials" / "0001" / "trial.json").read_bytes()
    for words, rounds in (("+1", 3), ("7", 7)):
        command = ["resume", "out", "--rounds", words, "--quiet"]
        ended = program(*command, folder=tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert ("--rounds +" in ended.stdout) == (rounds == 3), "more are suggested while it is undecided"
        assert rounds_of(tmp_path) == [number for number in range(1, rounds + 1) for _ in range(2)]
    assert (tmp_path / "out" / "trials" / "0001" / "trial.json").read_bytes() == before


def resumed(folder: Path, *words: str) -> tuple[int, dict[str, object]]:
    """Rounds that are done, and the manifest."""
    command = ["resume", "out", "--quiet", *words]
    ended = program(*command, folder=folder)
    assert ended.returncode == 0, ended.stderr
    return max(rounds_of(folder)), json.loads((folder / "out" / "manifest.json").read_text())


def test_a_run_that_has_ended_goes_on_by_another_rule_and_its_manifest_says_so(tmp_path: Path) -> None:
    run(tmp_path, "15", "--rounds", "2")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["until"] is None
    rounds, manifest = resumed(tmp_path, "--until", "decided")
    assert 6 <= rounds < 12, "as many as it takes"
    assert (manifest["until"], manifest["rounds"]) == ("decided", [2, 10_000])
    assert "1 comparison decided" in str(manifest["stopped"])
    again, manifest = resumed(tmp_path)
    assert (again, manifest["until"]) == (rounds, "decided"), "the rule stays, and it holds already"
    more, manifest = resumed(tmp_path, "--until", "max", "--rounds", "+1")
    assert (more, manifest["until"]) == (rounds + 1, "max")


def test_with_another_rule_rounds_are_the_most(tmp_path: Path) -> None:
    run(tmp_path, JUST_ONE_PERCENT, "--rounds", "1")
    rounds, manifest = resumed(tmp_path, "--until", "±0.001%", "--rounds", "+2")
    assert (rounds, manifest["rounds"]) == (3, [1, 3])
    assert "not yet known to ±0.001 %" in str(manifest["stopped"])


@pytest.mark.parametrize("until", ["certain", "5", "±0%", "120%"])
def test_a_rule_that_can_not_be_read_is_refused(tmp_path: Path, until: str) -> None:
    run(tmp_path, "10", "--rounds", "1")
    command = ["resume", "out", "--until", until]
    ended = program(*command, folder=tmp_path)
    assert ended.returncode == 2 and f"cannot read --until '{until}'" in " ".join(ended.stderr.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [("1", "2 have begun already"), ("ten", "write +10 for ten more rounds"), ("+0", "cannot read --rounds")],
)
def test_rounds_that_can_not_be_added_are_refused(tmp_path: Path, words: str, message: str) -> None:
    run(tmp_path, "10", "--rounds", "2")
    manifest = (tmp_path / "out" / "manifest.json").read_bytes()
    command = ["resume", "out", "--rounds", words, "--quiet"]
    ended = program(*command, folder=tmp_path)
    assert ended.returncode == 2 and message in ended.stderr
    assert (tmp_path / "out" / "manifest.json").read_bytes() == manifest
