"""Studies and runs' folders as large as they may be: what is said of them stays short, and the work is done once.

Counted, not timed. ``make attack`` takes the largest there may be.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attacks import ATTACKS
from attacks.test_wants import FOLDER, PLAIN, TITLE, finished
from laboratory import Laboratory
from storlab.base.limits import CELLS
from storlab.nodes.agent.steps import Step
from storlab.nodes.node import Exit, Node
from storlab.records import derive_trial
from storlab.workloads.command import CommandWorkload
from study.program import call

TRIALS = 30_000 if ATTACKS else 600
MOST_LINES, MOST_BYTES = 100, 8000


def study_of(side: int) -> str:
    """Of as many cells as the square of ``side``, each with a command of its own."""
    levels = ", ".join(f'"{number}"' for number in range(side))
    load = '[workload.w]\ncommand = { argv = ["true", "{a}", "{b}"] }\n'
    return f"{TITLE}stack = {FOLDER}\nprobes = {{}}\nfactors.a = [{levels}]\nfactors.b = [{levels}]\n{load}"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often nodes are asked for something."""
    counts: Counter[str] = Counter()
    run, carry_out = Node.run, Node.carry_out

    async def running(node: Node, argv: Sequence[str], **options: Any) -> Exit:
        counts["run"] += 1
        return await run(node, argv, **options)

    async def carrying_out(node: Node, *wanted: Step, **options: Any) -> Any:
        counts["carry_out"] += 1
        return await carry_out(node, *wanted, **options)

    monkeypatch.setattr(Node, "run", running)
    monkeypatch.setattr(Node, "carry_out", carrying_out)
    return counts


def test_a_plan_of_the_most_cells_is_as_short_as_one_of_some_and_asks_no_more(
    tmp_path: Path, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path, found = tmp_path / "study.toml", []
    for side in (20, 100 if ATTACKS else 30):
        asked.clear()
        path.write_text(study_of(side))
        ran = call("plan", str(path))
        assert ran.status == 0 and f"{side * side} cells" in ran.output, ran
        assert len(ran.output.splitlines()) <= MOST_LINES and len(ran.output.encode()) <= MOST_BYTES, ran
        found.append((len(ran.output.splitlines()), {**asked}))
    assert found[0] == found[1]
    path.write_text(study_of(101))
    refused = call("plan", str(path))
    assert refused.status == 2 and f"make 10201 cells, more than {CELLS}" in refused.message, refused


def test_a_report_on_a_run_without_its_raw_files_says_so_once_and_looks_for_each_once(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(lab, PLAIN)
    trials = lab.out / "trials"
    kept = {number: json.loads((trials / f"{number:04d}" / "trial.json").read_text()) for number in (1, 2)}
    manifest = json.loads((lab.out / "manifest.json").read_text())
    (lab.out / "manifest.json").write_text(json.dumps(manifest | {"rounds": [TRIALS // 2] * 2}))
    shutil.rmtree(lab.out / "tables")
    for path in trials.iterdir():
        shutil.rmtree(path)
    for number in range(1, TRIALS + 1):
        folder = trials / f"{number:04d}"
        folder.mkdir()
        record = kept[2 - number % 2] | {"trial": number, "round": (number + 1) // 2}
        (folder / "trial.json").write_text(json.dumps(record))
    parsed, derived = Counter[str](), Counter[int]()
    parse, derive_trials = CommandWorkload.parse, derive_trial.derive_trials

    def parsing(load: CommandWorkload, raw: Path) -> Any:
        parsed[str(raw)] += 1
        return parse(load, raw)

    def deriving(done: Any, *rest: Any) -> Any:
        derived[len(done)] += 1
        return derive_trials(done, *rest)

    monkeypatch.setattr(CommandWorkload, "parse", parsing)
    monkeypatch.setattr(derive_trial, "derive_trials", deriving)
    ran = call("report", str(lab.out))
    assert ran.status in (0, 3) and "Traceback" not in ran.message, ran
    assert (ran.output + ran.message).count("raw records cannot be read") == 1, ran
    assert f"trials 1–{TRIALS}" in " ".join(ran.output.split()), ran
    assert len(ran.output.splitlines()) <= MOST_LINES and len(ran.output.encode()) <= MOST_BYTES, ran
    assert derived == {TRIALS: 1} and len(parsed) == TRIALS and {*parsed.values()} == {1}
