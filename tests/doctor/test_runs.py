from __future__ import annotations

from pathlib import Path

from storlab.doctor.runs import judge, leftovers
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.run.journal import Journal
from storlab.run.plan import Plan
from storlab.study.study import load_study, shipped_studies

NODE = NodeIdentity("host", "local", "", Machine("m", "b"))


def test_no_remembered_run_is_well() -> None:
    assert [check.status for check in leftovers({})] == ["ok"]


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


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    (check,) = leftovers({"r1": tmp_path / "gone"})
    assert (check.status, check.remedy) == ("warn", "storlab clean")


def test_a_damaged_journal_is_told_with_its_line(tmp_path: Path) -> None:
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
