"""Folders that a process works in: what is dead is removed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storlab.nodes.identity import Machine, NodeIdentity
from storlab.records.run_folder import RunFolder
from storlab.run.recovery import temporary
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.temporary import remembered, remove_dead, temporary_folder


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def left(folder: Path) -> Path:
    """A folder as a process leaves it that was killed."""
    folder.mkdir()
    with RunFolder(folder).lock():
        (folder / "trials").mkdir()
        (folder / "trials" / "0001").write_text("something")
        (folder / "link").symlink_to("/")
    return folder


def test_what_is_locked_is_alive_and_what_is_not_is_removed(tmp_path: Path) -> None:
    folder = left(tmp_path / "x")
    with RunFolder(folder).lock():
        assert remove_dead(folder) == "alive"
        assert (folder / "trials" / "0001").read_text() == "something"
    assert remove_dead(folder) == "removed"
    assert not folder.exists()
    with pytest.raises(FileNotFoundError):
        remove_dead(folder)


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    folder = left(tmp_path / "x")
    (tmp_path / "link").symlink_to(folder)
    without = tmp_path / "without a lock"
    without.mkdir()
    (without / "mine").touch()
    file = tmp_path / "file"
    file.touch()
    locked_elsewhere = tmp_path / "lock is a link"
    locked_elsewhere.mkdir()
    (locked_elsewhere / "lock").symlink_to(folder / "lock")
    for path in (tmp_path / "link", without, file):
        assert remove_dead(path) == "foreign"
        assert path.exists()
    with pytest.raises(OSError, match="symbolic links"):
        remove_dead(locked_elsewhere)
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        assert remove_dead(folder) == "foreign"


def test_what_is_empty_may_just_have_been_made(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    assert remove_dead(folder) == "alive"
    os.utime(folder, (0, 0))
    assert remove_dead(folder) == "removed"


def test_what_may_still_stand_keeps_its_journal(tmp_path: Path) -> None:
    folder = left(tmp_path / "x")
    (folder / "first").mkdir()
    with Journal(folder / "first" / "journal.jsonl") as journal:
        host = NodeIdentity("host", "local", "", Machine("m", "b"))
        journal.register(host, "loop.detach", {"file": "/x"})
    assert remove_dead(folder) == "standing"
    (folder / "first" / "journal.jsonl").write_text("rubbish\nmore\n")
    assert remove_dead(folder) == "standing"
    (folder / "first" / "journal.jsonl").write_text("")
    assert remove_dead(folder) == "removed"


def test_a_folder_is_remembered_until_it_is_gone() -> None:
    with temporary_folder("storlab-test-") as folder:
        (link,) = temporary.links()
        assert link.readlink() == folder
        assert remove_dead(folder) == "alive"
    assert temporary.links() == [link]
    assert remove_dead(folder) == "removed"
    temporary.forget(link)
    with temporary_folder("storlab-test-") as folder:
        (folder / "lock").unlink()
        folder.rmdir()
    assert temporary.links() == []


def test_without_a_writable_home_nothing_is_remembered_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with remembered(tmp_path):
        assert temporary.links() == []
