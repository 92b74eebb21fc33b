"""``storlab shell``: a mistake is told before anything is set up, and a signal leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
title = "look around"
stack = [{ layer = "directory" }]
[workload.w]
command = { argv = ["true"] }
"""


@pytest.fixture
def argv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command, whose temporary folder is the test's own."""
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return [sys.executable, "-m", "storlab.cli.main", "shell", str(tmp_path / "study.toml")]


def test_a_node_that_there_is_not_is_refused_before_anything_is_set_up(argv: list[str], tmp_path: Path) -> None:
    done = subprocess.run([*argv, "hots"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "storlab: there is no node 'hots'; did you mean 'host'?\n")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_is_piped_in_runs_on_the_node_and_its_status_is_the_commands(argv: list[str], tmp_path: Path) -> None:
    done = subprocess.run(argv, input="pwd; exit 7\n", capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert "/storlab-" in done.stdout
    assert not Path(done.stdout.strip()).exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_signal_ends_it_without_a_traceback_and_with_nothing_left(argv: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=-1, text=True) as shell:
        assert shell.stdin is not None and shell.stdout is not None and shell.stderr is not None
        shell.stdin.write("pwd\n")
        shell.stdin.flush()
        folder = Path(shell.stdout.readline().strip())
        assert folder.is_dir()
        shell.send_signal(signal.SIGTERM)
        assert shell.wait() == 130
        assert shell.stderr.read().splitlines()[-1] == "storlab: interrupted"
    assert not folder.exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_a_kill_leaves_clean_takes_down_and_removes(argv: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=-1, text=True) as shell:
        assert shell.stdin is not None and shell.stdout is not None
        shell.stdin.write("pwd\n")
        shell.stdin.flush()
        folder = Path(shell.stdout.readline().strip())
        assert folder.is_dir()
        shell.kill()
    (left,) = (tmp_path / "tmp").iterdir()
    cleaned = subprocess.run([*argv[:3], "clean", "--yes"], capture_output=True, text=True, check=False)
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    assert f"{left}: removed, because the process that worked in it is gone" in cleaned.stdout
    assert not folder.exists()
    assert list((tmp_path / "tmp").iterdir()) == []
