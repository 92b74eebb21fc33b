"""``storlab run --fail-on`` takes as many rounds as it takes; what a run says of its comparisons after each of them."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from laboratory.samples import sample
from storlab.analysis.summary import Comparison, Summary, Undecided, from_json
from storlab.cli.progress import MOST, MOST_NEWS, News, table, tally
from storlab.findings import Reported
from storlab.records.run_folder import RunFolder
from storlab.report.language.say import say
from study.program import program

STUDY = sample(__file__, "cases/gates.toml")

JUST_ONE_PERCENT = "10.1"
"""At the limit of the gate itself: no number of rounds can tell."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two rounds that has ended, to be copied by whoever changes it."""
    folder = tmp_path_factory.mktemp("ended")
    run(folder, "15", "--rounds", "2")
    return folder


def run(folder: Path, took: str, *words: str) -> tuple[int, int, str]:
    """Exit status, rounds and what was said of the gates."""
    (folder / "study.toml").write_text(STUDY.replace("TOOK", took))
    done = program("run", "study.toml", "--quiet", "--out", "out", *words, folder=folder)
    assert "Traceback" not in done.stderr
    made = folder / "out" / "summary.json"
    rounds = json.loads(made.read_text())["rounds_done"] if made.exists() else 0
    return done.returncode, rounds, " ".join(done.stderr.split())


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "manifest.json").read_text())
    return found


def resumed(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Rounds that are done, and the manifest."""
    done = program("resume", "out", "--quiet", *words, folder=folder)
    assert done.returncode == 0, done.stderr
    return max(rounds_of(folder)), manifest(folder)


def rounds_of(folder: Path) -> list[int]:
    """Of all trials, in their order."""
    records = sorted((folder / "out" / "trials").glob("*/trial.json"))
    return [json.loads(path.read_text())["round"] for path in records]


def test_a_gate_is_missing_where_the_steady_state_that_is_asked_for_was_not_reached(tmp_path: Path) -> None:
    gate = ("--fail-on", "worse>1%", "--allow-undecided", "--set", "repeat={ until = 'steady', min = 2, max = 4 }")
    status, rounds, said = run(tmp_path, "10", *gate)
    assert (status, rounds) == (4, 4), "five rounds in a row are the least"
    assert "1 of 1 comparison is missing" in said
    (compared,) = json.loads((tmp_path / "out" / "summary.json").read_text())["comparisons"]
    assert compared["undecided"]["kind"] == "not steady" and compared["gates"][0]["outcome"] == "missing"


def test_rounds_end_as_soon_as_the_gate_is_passed_and_a_report_says_so_later(tmp_path: Path) -> None:
    status, rounds, said = run(tmp_path, "5", "--fail-on", "worse>20%")
    assert (status, said) == (0, "Passed: no gate was hit in 1 comparison.")
    assert 5 <= rounds < 12
    for form in ("text", "md", "adoc"):
        reported = program("report", "out", "--format", form, folder=tmp_path)
        assert reported.returncode == 0, reported.stderr
        assert "20% passed. new is not worse than old by more than 20 %" in " ".join(reported.stdout.split()), form


def test_no_round_begins_that_would_exceed_the_budget(tmp_path: Path) -> None:
    few = ("--set", "repeat.min=1", "--set", "repeat.max=1")
    status, rounds, _ = run(tmp_path, JUST_ONE_PERCENT, *few, "--fail-on", "worse>1%", "--budget", "0.1")
    summary = from_json((tmp_path / "out" / "summary.json").read_bytes(), "summary.json")
    stopped = summary.stopped and say(summary.stopped)
    done = f"{rounds} round{'s' if rounds > 1 else ''}"
    assert (status, stopped) == (4, f"Stopped after {done}: one more would exceed the budget of 0.1 minutes.")
    assert manifest(tmp_path)["rounds"] == [1, 10_000], "and not repeat.max"
    fit = "One round fits" if rounds == 1 else f"{rounds} rounds fit"
    assert f"{fit} the budget of 0.1 min. " in " ".join(program("report", "out", folder=tmp_path).stdout.split())


def test_rounds_are_added_to_a_run_that_has_ended(ended: Path, tmp_path: Path) -> None:
    shutil.copytree(ended / "out", tmp_path / "out")
    before = (tmp_path / "out" / "trials" / "0001" / "trial.json").read_bytes()
    for words, rounds in (("+1", 3), ("4", 4)):
        done = program("resume", "out", "--rounds", words, "--quiet", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "--rounds +" in done.stdout, "more are suggested while it is undecided"
        assert rounds_of(tmp_path) == [number for number in range(1, rounds + 1) for _ in range(2)]
    assert (tmp_path / "out" / "trials" / "0001" / "trial.json").read_bytes() == before


def why_stopped(folder: Path) -> str:
    stopped = RunFolder.open(folder / "out").manifest.stopped
    return say(stopped) if stopped is not None else ""


def test_a_run_that_has_ended_goes_on_by_another_rule_and_its_manifest_says_so(ended: Path, tmp_path: Path) -> None:
    shutil.copytree(ended / "out", tmp_path / "out")
    assert manifest(tmp_path)["until"] is None
    rounds, kept = resumed(tmp_path, "--until", "±0.001%", "--rounds", "+1")
    assert (rounds, kept["rounds"]) == (3, [2, 3]), "with another rule, rounds are the most"
    assert "not yet known to ±0.001 %" in why_stopped(tmp_path)
    rounds, kept = resumed(tmp_path, "--until", "decided")
    assert 6 <= rounds < 12, "as many as it takes"
    assert (kept["until"], kept["rounds"]) == ("decided", [2, 10_000])
    assert "1 comparison decided" in why_stopped(tmp_path)
    again, kept = resumed(tmp_path)
    assert (again, kept["until"]) == (rounds, "decided"), "the rule stays, and it holds already"
    more, kept = resumed(tmp_path, "--until", "max", "--rounds", "+1")
    assert (more, kept["until"]) == (rounds + 1, "max")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--until certain", "cannot read --until 'certain'"),
        ("--until 5", "cannot read --until '5'"),
        ("--until ±0%", "cannot read --until '±0%'"),
        ("--until 120%", "cannot read --until '120%'"),
        ("--rounds 1", "2 have begun already"),
        ("--rounds ten", "write +10 for ten more rounds"),
        ("--rounds +0", "cannot read --rounds"),
    ],
)
def test_a_rule_or_rounds_that_can_not_be_are_refused(ended: Path, words: str, message: str) -> None:
    before = manifest(ended)
    done = program("resume", "out", "--quiet", *words.split(), folder=ended)
    assert done.returncode == 2 and message in " ".join(done.stderr.split())
    assert manifest(ended) == before


BASE = Comparison(
    factor="fs", a="ext4", b="xfs", within={"load": "write"}, pooled=False, source="write", metric="write.bandwidth",
    unit="B/s", better="higher", rounds=8, ratio=1.42, low=1.31, high=1.54, confidence=0.99, margin=0.1,
    verdict="better", reason=Reported("it is"),
)  # fmt: skip


def summary(*comparisons: Comparison) -> Summary:
    return Summary("A study", "write.bandwidth", 0.95, 8, None, comparisons=comparisons)


def drawn(of: Summary, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table(of))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_table_marks_what_is_decided_and_says_what_is_measured_once() -> None:
    leaning = replace(BASE, b="btrfs", verdict="undecided", undecided=Undecided("leaning", 8, 10))
    open_ = replace(BASE, a="xfs", b="btrfs", verdict="undecided", low=None, high=None)
    assert drawn(summary(BASE, leaning, open_)) == [
        "write.bandwidth: write  ▲ ext4 vs xfs    1.42× (1.31× to 1.54×)  better",
        "                        ? ext4 vs btrfs  1.42× (1.31× to 1.54×)  leaning",
        "                        ? xfs vs btrfs   1.42×",
    ]
    assert tally(summary(BASE, leaning, open_)) == "1 of 3 decided"


def test_there_is_no_table_before_there_are_ratios_and_of_many_comparisons_the_first_are_shown() -> None:
    many = [replace(BASE, b=f"fs{number}") for number in range(MOST + 3)]
    assert len(drawn(summary(*many[:MOST]))) == MOST
    lines = drawn(summary(*many))
    assert (len(lines), lines[-1]) == (MOST + 1, "and 3 more")
    assert table(summary()) is None
    assert table(summary(replace(BASE, ratio=None, low=None, high=None, verdict="undecided"))) is None
    assert "\x1b" not in "".join(drawn(summary(replace(BASE, a="[red]\x1b[2J"))))


def test_a_line_names_verdicts_that_are_new_before_ratios_that_are_and_nothing_twice() -> None:
    news = News()
    open_ = replace(BASE, verdict="undecided", low=None, high=None)
    other = replace(open_, b="btrfs", ratio=2.32)

    def said(*comparisons: Comparison) -> str:
        return news.of(summary(*comparisons))

    assert said(open_, other) == "write.bandwidth: write: ext4 ÷ xfs 1.42×; ext4 ÷ btrfs 2.32×"
    assert said(open_, other) == ""
    assert said(replace(open_, ratio=1.5), better := replace(other, verdict="better", low=2.1, high=2.5)) == (
        "write.bandwidth: write: ext4 better than btrfs, 2.32× (2.10× to 2.50×); ext4 ÷ xfs 1.50×"
    )
    assert said(replace(open_, ratio=1.5), replace(better, ratio=2.4)) == ""  # decided: other digits are no news
    assert said(other) == "write.bandwidth: write: ext4 and btrfs no longer decided, 2.32×"


def test_of_much_news_a_line_names_the_first_and_counts_the_rest() -> None:
    many = [replace(BASE, b=f"fs{number}") for number in range(MOST_NEWS + 3)]
    line = News().of(summary(*many))
    assert (line.count("better than"), line.endswith(" | and 3 more")) == (MOST_NEWS, True)
