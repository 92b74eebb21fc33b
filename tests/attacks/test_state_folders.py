"""A state folder that somebody else has chosen, or written to: what it names is not removed."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from storlab.remote.there.job import Job, Refused, jobs
from storlab.run.recovery.state import state_folder
from storlab.run.recovery.temporary import links, remember_run, remembered_runs, temporary_folder
from study.program import call

STRANGER = 65534


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the user's with a file called ``lock``, as package managers have."""
    path = tmp_path / "victim"
    path.mkdir()
    (path / "lock").touch()
    (path / "precious").write_text("kept")
    return path


def chosen_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / ".local" / "state" / "storlab" / "temporary").mkdir(parents=True)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    return home


def hand_over(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


@pytest.mark.needs("root")
def test_clean_in_another_users_home_follows_no_link_there(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``sudo -E`` and ``env_keep`` have it: what root remembers is in root's own home."""
    home = chosen_home(tmp_path, monkeypatch)
    (home / ".local/state/storlab/temporary/1-abcd").symlink_to(victim)
    hand_over(home)
    own = Path(pwd.getpwuid(0).pw_dir)
    assert state_folder() == own / ".local" / "state" / "storlab"
    monkeypatch.setattr("storlab.run.recovery.state._home", lambda: home)
    assert call("clean", "--yes").status == 0
    assert (victim / "precious").read_text() == "kept"


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", ["1-abcd", "0123456789abcdef"])
@pytest.mark.parametrize("writer", ["their folder", "their link", "open to all", "behind a link"])
def test_a_state_folder_that_others_can_write_to_is_passed_over_with_a_message(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch, writer: str, name: str
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    folder = state / "storlab" / "temporary"
    folder.mkdir(parents=True)
    (folder / name).symlink_to(victim)
    if writer == "their folder":
        hand_over(state)
    elif writer == "their link":
        os.chown(folder / name, STRANGER, STRANGER, follow_symlinks=False)
    elif writer == "open to all":
        folder.chmod(0o777)
    else:
        folder.rename(tmp_path / "theirs")
        folder.symlink_to(tmp_path / "theirs")
    cleaned = call("clean", "--yes")
    assert (victim / "precious").read_text() == "kept"
    assert links() == []
    if writer != "their link":
        assert "Storlab remembers nothing there" in cleaned.output, cleaned.output
        (state / "storlab" / "runs").mkdir(exist_ok=True)


def test_a_folder_is_removed_only_if_its_lock_holds_the_mark_that_its_link_bears(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the name of the folder bears it, and a lock that is held by nobody holds another one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder("storlab-test-") as mine:
        (real,) = links()
    guessed = tmp_path / "storlab-shell-0123456789abcdef"
    victim.rename(guessed)
    (guessed / "lock").write_text("1234\nfedcba9876543210\n")
    real.with_name("0123456789abcdef").symlink_to(guessed)
    assert call("clean", "--yes").status == 0
    assert (guessed / "precious").read_text() == "kept"
    assert not mine.exists()


def test_state_folders_are_their_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state" / "storlab").mkdir(parents=True, mode=0o755)
    remember_run("20260101-000000-abcd", tmp_path)
    assert list(remembered_runs()) == ["20260101-000000-abcd"]
    for folder in (tmp_path / "state" / "storlab", tmp_path / "state" / "storlab" / "runs"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_import_removes_no_folder_that_was_moved_to_where_a_killed_one_would_be(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may rename what lies beside an import's folder may also rename somebody's run there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "rates.csv").write_text("rate\n1000\n")
    decoy = tmp_path / ".out.0123456789abcdef.new"
    victim.rename(decoy)
    imported = call("import", "csv", str(tmp_path / "rates.csv"), "--value", "rate", "--out", str(tmp_path / "out"))
    assert imported.status == 0, imported.output
    assert (decoy / "precious").read_text() == "kept"


@pytest.mark.parametrize("which", ["storlab", "storlab/jobs"])
@pytest.mark.parametrize("how", ["open to all", "a link", "another user's"])
def test_jobs_of_another_machine_lie_in_no_folder_that_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, how: str
) -> None:
    """What is there as a job is resumed, continued and removed on the word of whoever asks from another machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / which
    (tmp_path / "storlab" / "jobs" / "20260101-000000-abcd").mkdir(parents=True)
    assert Job("20260101-000000-abcd").folder.is_dir()
    if how == "open to all":
        folder.chmod(0o777)
    elif how == "a link":
        folder.rename(tmp_path / "theirs")
        folder.symlink_to(tmp_path / "theirs")
    elif os.geteuid() == 0:
        os.chown(folder, STRANGER, STRANGER)
    else:
        pytest.skip("only root can give a folder away")
    with pytest.raises(Refused, match="this user alone can write to"):
        Job("20260101-000000-abcd")
    with pytest.raises(Refused):
        list(jobs())
