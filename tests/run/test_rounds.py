"""Rounds: cells that no open comparison needs rest, everybody who reads the run knows, and each round has its line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, kill, opened, wait_for
from laboratory.samples import sample
from storlab.analysis.summary import Summary, from_json
from storlab.base.record import to_json
from storlab.findings.runs import Rested
from storlab.records.manifest import Aim, Horizon, Rest
from storlab.report.language.say import said, say
from storlab.run.observer import Observer
from storlab.run.planning.order import round_order
from storlab.run.planning.plan import Plan
from storlab.study.cells import Cell

"""Under the heavy load one build is twice as fast, which six rounds decide. Under the light one the difference is as
large as the margin, which nothing decides.
"""

HEAVY, LIGHT = (1, 2), (3, 4)
DECIDED = 6  # rounds


def study(rounds: int) -> str:
    return sample(__file__, "cases/until-decided.toml", rounds=rounds)


class Watching(Observer):
    """Keeps what an observer hears."""

    def __init__(self) -> None:
        self.due: list[int] = []
        self.rested: list[tuple[int, list[int]]] = []

    def run_begins(self, plan: Plan, folder: str, done: int) -> None:
        self.plan = plan

    def round_begins(self, round_number: int, due: int) -> None:
        self.due.append(due)

    def cells_rest(self, after: int, cells: object) -> None:
        assert isinstance(cells, list)
        self.rested.append((after, [cell.number for cell in cells if isinstance(cell, Cell)]))


@pytest.fixture(scope="module")
def watching() -> Watching:
    return Watching()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, watching: Watching) -> Iterator[Laboratory]:
    with opened(Laboratory(tmp_path_factory.mktemp("shared"))) as lab:
        assert lab.execute(study(8), watching).ending == "complete"
        yield lab


def ran(lab: Laboratory) -> dict[int, list[int]]:
    """By round, the cells in the order of their trials' numbers."""
    found: dict[int, list[int]] = {}
    for record in lab.records():
        found.setdefault(record.round, []).append(record.cell)
    return found


def summary(lab: Laboratory) -> Summary:
    return from_json((lab.out / "summary.json").read_bytes())


def test_cells_whose_comparison_is_decided_are_not_run_again(whole: Laboratory) -> None:
    by_round = ran(whole)
    assert [len(by_round[number]) for number in range(1, 9)] == [4] * DECIDED + [2, 2]
    assert all(set(by_round[number]) == set(LIGHT) for number in range(DECIDED + 1, 9))
    heavy, light = summary(whole).comparisons
    assert (heavy.verdict, heavy.rounds, heavy.rests_after) == ("better", DECIDED, DECIDED)
    assert (light.verdict, light.rounds, light.rests_after) == ("undecided", 8, None)
    assert summary(whole).rounds_done == 8, "a round is done when all that was due has ended"
    assert {state.status for state in summary(whole).cells} == {"measured"}
    warnings = " ".join(say(warning) for c in (heavy, light) for warning in c.warnings)
    assert "Left out" not in warnings, "what was not due is not missing"


def test_records_say_which_cells_were_due_in_each_round_and_why_others_were_not(whole: Laboratory) -> None:
    why = Rested("decided")
    assert whole.run_folder.manifest.rests == tuple(Rest(cell, DECIDED, why) for cell in HEAVY)
    rounds = {line["round"]: line for line in whole.journal() if line.get("event") == "round begins"}
    due = [(number, sorted(line["due"])) for number, line in rounds.items()]
    assert due == [(number, [*HEAVY, *LIGHT] if number <= DECIDED else [*LIGHT]) for number in range(1, 9)]
    assert rounds[DECIDED + 1]["resting"] == [*HEAVY]
    assert whole.run_folder.manifest.horizon == Horizon("B", 0.95, (Aim(0, 8),))


def test_reports_say_since_when_cells_rest_and_effects_are_of_rounds_that_all_have(whole: Laboratory) -> None:
    told = whole.storlab("report", whole.out).with_status(0)
    assert "Incomplete cells" not in told.stdout
    assert "(2 cells) rested from round 7 on: all their comparisons were decided." in " ".join(told.stdout.split())
    assert whole.storlab("report", whole.out, "--format", "html").status == 0
    page = " ".join((whole.out / "report.html").read_text().split())
    assert "rested from round 7 on: all their comparisons were decided." in page
    (effects,) = summary(whole).effects
    assert (effects.rounds, effects.trials) == (DECIDED, 4 * DECIDED)
    assert "From the first 6 rounds only: in later ones some cells rested." in said(effects.warnings)


def test_runs_that_are_compared_by_a_factor_pair_the_rounds_in_which_both_sides_were_due(whole: Laboratory) -> None:
    told = whole.storlab("compare", whole.out, "--by", "build", "--fail-on", "worse>3%", "--format", "json")
    assert told.status == 0, str(told)
    found = [each["comparison"] for each in json.loads(told.stdout)["comparisons"]]
    assert [(each["pooled"], each["rounds"]) for each in found] == [(False, DECIDED), (False, 8), (True, DECIDED)]
    assert not any("done for" in warning for each in found for warning in each["warnings"])
    assert "passed" in {gate["outcome"] for each in json.loads(told.stdout)["comparisons"] for gate in each["gates"]}


def test_a_gate_on_a_cell_that_rests_stays_as_it_was_answered(lab: Laboratory) -> None:
    lab.run(study(8), "--quiet", "--fail-on", "worse>1%").with_status(4)
    heavy, light = summary(lab).comparisons
    assert (heavy.gates[0].outcome, light.gates[0].outcome) == ("passed", "undecided")
    assert heavy.rests_after is not None and heavy.rests_after < 8 and light.rests_after is None
    assert {rest.why for rest in lab.run_folder.manifest.rests} == {Rested("gates")}


def test_a_run_that_is_killed_in_a_round_goes_on_as_if_it_had_not_been(whole: Laboratory, lab: Laboratory) -> None:
    process = lab.start_run(study(8), "--quiet")
    next_one = {"event": "trial begins", "round": DECIDED + 1}.items()
    wait_for(process, lambda: any(next_one <= line.items() for line in lab.journal()))
    kill(process)
    assert ended(process).status == -9
    before = {record.trial for record in lab.records()}
    assert lab.run_folder.manifest.rests == whole.run_folder.manifest.rests, "known before the round began"
    lab.storlab("resume", lab.out, "--quiet").with_status(0)
    assert before < {record.trial for record in lab.records()}
    plan = [(record.trial, record.round, record.cell) for record in whole.records()]
    assert [(record.trial, record.round, record.cell) for record in lab.records()] == plan
    assert lab.run_folder.manifest.rests == whole.run_folder.manifest.rests
    assert summary(lab).comparisons == summary(whole).comparisons


def test_rounds_that_are_added_are_for_what_is_open(whole: Laboratory, lab: Laboratory) -> None:
    shutil.copytree(whole.out, lab.out)
    lab.storlab("resume", lab.out, "--rounds", "+2", "--quiet").with_status(0)
    by_round = ran(lab)
    assert [sorted(by_round[number]) for number in (9, 10)] == [[*LIGHT]] * 2
    heavy, light = summary(lab).comparisons
    assert (heavy.rounds, light.rounds) == (DECIDED, 10)
    assert heavy == summary(whole).comparisons[0], "what is decided stays as it was"
    horizon = lab.run_folder.manifest.horizon
    assert horizon is not None and horizon.aims == (Aim(0, 8), Aim(8, 10)), "what is added is known before it is run"


def test_another_rule_is_refused_where_cells_rest_for_good(whole: Laboratory, lab: Laboratory) -> None:
    shutil.copytree(whole.out, lab.out)
    before = (lab.out / "manifest.json").read_bytes()
    refused = lab.storlab("resume", lab.out, "--until", "±2%")
    assert (refused.status, "cells 1, 2 rest" in refused.stderr) == (2, True), str(refused)
    assert (lab.out / "manifest.json").read_bytes() == before


def test_whoever_watches_is_told_and_orders_are_those_that_were_planned(whole: Laboratory, watching: Watching) -> None:
    assert watching.due == [4] * DECIDED + [2, 2] and watching.rested == [(DECIDED, [*HEAVY])]
    for number, cells in ran(whole).items():
        order = [planned.cell for planned in watching.plan.order(number)]
        assert cells == [cell for cell in order if cell in cells]
        assert {order.index(a) // 2 for a in HEAVY} in ({0}, {1}), "those that are compared follow each other"


def test_a_run_of_an_older_version_goes_on_in_its_own_order_and_nothing_rests(lab: Laboratory) -> None:
    lab.execute(study(1).replace("min = 5", "min = 1"))
    manifest = json.loads(to_json(lab.run_folder.manifest))
    for key in ("order", "rest_from", "rests", "horizon"):
        del manifest[key]
    Path(lab.out, "manifest.json").write_text(json.dumps(manifest))
    assert lab.run_folder.manifest.order == "shuffled"
    lab.storlab("resume", lab.out, "--rounds", "7", "--quiet").with_status(0)
    found = ran(lab)
    assert lab.run_folder.manifest.horizon is None, "nothing was recorded before its first round"
    for number in range(2, 8):
        assert found[number] == [planned.cell for planned in round_order([1, 2, 3, 4], number, 1)]


def test_what_rests_is_not_run_though_a_trial_of_it_was_never_recorded(whole: Laboratory, lab: Laboratory) -> None:
    """Trials of the last round are lost, as by a copy that was cut short: they alone are run again."""
    shutil.copytree(whole.out, lab.out)
    for record in lab.records():
        if record.round == 8:
            shutil.rmtree(lab.run_folder.trial_folder(record.trial))
    lab.go_on()
    plan = [(record.trial, record.cell) for record in whole.records()]
    assert [(record.trial, record.cell) for record in lab.records()] == plan


THREE_BUILDS = sample(__file__, "cases/three-builds.toml")


def test_there_is_a_line_for_each_round_with_what_is_new_and_no_sentence_twice(lab: Laboratory) -> None:
    ran = lab.run(THREE_BUILDS).with_status(3)
    assert lab.run_folder.manifest.rest_from is None, "of a run until max nothing rests"
    lines = ran.stderr.splitlines()
    expected = re.compile(r"Verdicts after \d+ rounds at the earliest.*; expected: a difference of ")
    assert any(map(expected.match, lines))
    rounds = [line for line in lines if line.startswith("round ")]
    assert [re.match(r"round (\d+) of 3 to 7: ", line)[1] for line in rounds] == [str(n) for n in range(1, 8)]  # type: ignore[index]
    assert "took: load: new ÷ old 0.500× | 0 of 1 decided" in rounds[0]
    assert "nothing new" in rounds[1]
    assert "took: load: new better than old, 0.500× (" in "".join(rounds)
    assert sum("as trial " in line for line in lines) == 6  # why it failed is said once
    assert len(lines) == len(set(lines)), ran.stderr
    assert re.search(r"left$", rounds[0]), rounds[0]
