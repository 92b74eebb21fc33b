"""The folder that test-runner.py leaves, where several guests run tests side by side."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from storlab.run.suite.classic import ClassicFolder
from storlab.suite.model import Attempt, Outcome, Role
from suite.samples import HERE, RUNFILE, suite_of

POOL, DISK = "tests/pool", "tests/disk"


class Folder:
    """A folder in the making, and a way to say that a script of ours has ended."""

    def __init__(self, base: Path) -> None:
        self.records = base / "records"
        self.classic = ClassicFolder(base / "classic", datetime(2026, 1, 2, tzinfo=UTC))
        self.classic.begin(suite_of(RUNFILE).groups)

    def ended(self, group: str, path: str, role: Role = "test", outcome: Outcome = Outcome.PASS) -> None:
        """A script ended; it printed which group it was run for."""
        place = self.records / group / path
        place.mkdir(parents=True)
        (place / "stdout").write_text(f"{path} of {group}\n")
        begun = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        folder = str(place.relative_to(self.records))
        self.classic.add(
            Attempt(group, f"{HERE}/{path}", role, outcome, begun, 1.5, user="root", folder=folder), "x", self.records
        )

    @property
    def logged(self) -> list[str]:
        """The scripts in the order of ``log``."""
        return [line.split()[1] for line in (self.classic.path / "log").read_text().splitlines()]


def test_a_killed_test_waits_for_the_failsafe_of_its_own_group_while_other_guests_go_on(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.ended(POOL, "tests/pool/setup", "pre")
    folder.ended(POOL, "tests/pool/destroy", outcome=Outcome.KILLED)
    folder.ended(DISK, "tests/disk/write", outcome=Outcome.KILLED)
    folder.ended(POOL, "callbacks/failsafe", "failsafe")
    folder.ended(DISK, "callbacks/failsafe", "failsafe")
    folder.ended(POOL, "tests/pool/rename")
    for name, group in (("pool/destroy", POOL), ("disk/write", DISK)):
        printed = folder.classic.path / name / "failsafe" / "stdout"
        assert printed.read_text() == f"callbacks/failsafe of {group}\n"
    assert not (folder.classic.path / "pool/create").exists()
    names = ("tests/pool/setup", "callbacks/failsafe", "tests/pool/destroy", "callbacks/failsafe", "tests/disk/write")
    assert folder.logged == [f"{HERE}/{name}" for name in (*names, "tests/pool/rename")]


def test_nobody_else_may_write_there_and_links_that_others_laid_are_not_followed(tmp_path: Path) -> None:
    base = tmp_path / "classic"
    base.mkdir(mode=0o777)
    base.chmod(0o777)  # as the original leaves it
    folder = Folder(tmp_path)
    assert folder.classic.path.stat().st_mode & 0o7777 == 0o755
    mine = tmp_path / "mine"
    mine.write_text("kept\n")
    folder.classic.path.rename(base / "taken")
    folder.classic.path.mkdir()
    for name in ("log", "results"):
        (folder.classic.path / name).symlink_to(mine)
    folder.ended(POOL, "tests/pool/create")
    folder.classic.write_results("all of it\n")
    assert mine.read_text() == "kept\n"
    assert (base / "taken/results").read_text() == "all of it\n"
    assert "tests/pool/create" in (base / "taken/log").read_text()


def test_killed_tests_whose_failsafe_never_ran_are_logged_at_the_end(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.ended(POOL, "tests/pool/create", outcome=Outcome.KILLED)
    folder.ended(DISK, "tests/disk/write", outcome=Outcome.KILLED)
    folder.classic.flush()
    folder.classic.flush()
    assert folder.logged == [f"{HERE}/tests/pool/create", f"{HERE}/tests/disk/write"]
