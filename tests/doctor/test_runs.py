from __future__ import annotations

from pathlib import Path

import pytest

from storlab.doctor import runs
from storlab.doctor.runs import judge, leftovers
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.run.planning.plan import Plan
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.orphans import Orphan
from storlab.study.study import load_study, shipped_studies

NODE = NodeIdentity("host", "local", "", Machine("m", "b"))


def test_that_no_run_has_left_anything_is_said_only_where_none_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "remembered_runs", dict)
    monkeypatch.setattr(runs, "orphans", list)
    assert [check.says for check in runs.checks()] == ["no run has left anything"]
    left = [Orphan("r1", "loop.detach", {"file": "/x"})]
    monkeypatch.setattr(runs, "orphans", lambda: left)
    assert [check.status for check in runs.checks()] == ["warn"]


def test_a_pool_of_no_run_is_not_called_dead_and_root_is_asked_for_once() -> None:
    (check,) = runs.without_journal([Orphan("r1", "zpool.destroy", {"pool": "storlab-r1-host-0-1"}, elsewhere=True)])
    assert "may be alive in another container" in check.says
    assert check.remedy == "if it is not alive: zpool destroy storlab-r1-host-0-1"
    reasons = [f"no root privileges, needed for {what} (run it as root, or with sudo)" for what in ("a", "b")]
    assert runs.in_one_line([*reasons, "MySQL is not installed"]) == "takes root, for a and b; MySQL is not installed"


def test_what_a_journal_says_still_stands_is_named_with_the_command_that_takes_it_down(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    folder.mkdir()
    with Journal(folder / "journal.jsonl") as journal:
        journal.register(NODE, "mount.unmount", {"path": "/x"})
        gone = journal.register(NODE, "loop.detach", {"file": "/y"})
        journal.undone(gone, "detached")
    (check,) = leftovers({"r1": folder})
    assert check.status == "warn"
    assert "it left 1 thing set up (mount.unmount)" in check.says
    assert check.remedy == f"storlab clean '{folder}'"


def test_journals_of_gone_or_damaged_folders_are_told(tmp_path: Path) -> None:
    (check,) = leftovers({"r1": tmp_path / "gone"})
    assert (check.status, check.remedy) == ("warn", "storlab clean")
    (tmp_path / "journal.jsonl").write_text("nonsense\n")
    (check,) = leftovers({"r1": tmp_path})
    assert check.status == "missing"
    assert "journal.jsonl:1 is damaged" in check.says


def test_a_study_that_nothing_supports_here_says_why() -> None:
    study = load_study(shipped_studies()["quick"])
    everything = {cell.number: ("xfs is not installed",) for cell in study.cells}
    nothing = judge("quick", Plan(study, 0, (1, 1), everything, 0, 0))
    assert (nothing.status, nothing.says) == ("missing", "xfs is not installed")
    first = dict(list(everything.items())[:2])
    part = judge("quick", Plan(study, 0, (1, 1), first, 0, 0))
    assert (part.status, part.says) == ("warn", "1 of 3 cells can run: xfs is not installed")
    assert judge("quick", Plan(study, 0, (1, 1), {}, 0, 0)).status == "ok"
