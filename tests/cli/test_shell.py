"""``storlab shell`` leaves nothing behind, and ``storlab clean`` shows what it would do to what others left."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laboratory import nothing_known
from laboratory.samples import sample
from storlab.run.recovery.temporary import remember_run, remembered_runs
from study.program import call

STUDY = sample(__file__, "cases/shell.toml")


@pytest.fixture
def argv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command, whose temporary folder is the test's own."""
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return [sys.executable, "-m", "storlab.cli.main", "shell", str(tmp_path / "study.toml")]


def test_what_is_piped_in_runs_on_a_node_that_there_is_and_its_status_counts(argv: list[str], tmp_path: Path) -> None:
    done = subprocess.run([*argv, "hots"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "storlab: there is no node 'hots'; did you mean 'host'?\n")
    assert list((tmp_path / "tmp").iterdir()) == []
    done = subprocess.run(argv, input="pwd; exit 7\n", capture_output=True, text=True, check=False)
    assert done.returncode == 7 and "/storlab-" in done.stdout and not Path(done.stdout.strip()).exists()
    assert list((tmp_path / "tmp").iterdir()) == []


@contextmanager
def shell_at_work(argv: list[str]) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """It, and the folder that it is in."""
    with subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=-1, text=True) as shell:
        assert shell.stdin is not None and shell.stdout is not None
        shell.stdin.write("pwd\n")
        shell.stdin.flush()
        folder = Path(shell.stdout.readline().strip())
        assert folder.is_dir()
        yield shell, folder


def test_a_signal_ends_it_without_a_traceback_and_with_nothing_left(argv: list[str], tmp_path: Path) -> None:
    with shell_at_work(argv) as (shell, folder):
        shell.send_signal(signal.SIGTERM)
        assert shell.wait() == 130
        assert shell.stderr is not None and shell.stderr.read().splitlines()[-1] == "storlab: interrupted"
    assert not folder.exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_a_kill_leaves_clean_takes_down_and_removes(argv: list[str], tmp_path: Path) -> None:
    with shell_at_work(argv) as (shell, folder):
        shell.kill()
    (left,) = (tmp_path / "tmp").iterdir()
    cleaned = subprocess.run([*argv[:3], "clean", "--yes"], capture_output=True, text=True, check=False)
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    assert f"{left}: removed, because the process that worked in it is gone" in cleaned.stdout
    assert not folder.exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_clean_without_a_terminal_shows_what_it_would_do_and_with_yes_does_it(tmp_path: Path) -> None:
    remember_run("20260101-000000-abcd", tmp_path / "gone")
    asked = call("clean")
    assert asked.status == 2
    assert f"  20260101-000000-abcd: {tmp_path / 'gone'} is gone, and its journal with it\n" in asked.output
    assert "nothing was torn down: `storlab clean --yes` does it all" in asked.message
    assert list(remembered_runs()) == ["20260101-000000-abcd"]
    remember_run("20260101-000000-abcd", tmp_path / "gone")
    done = call("clean", "--yes")
    assert done.status == 0 and "it is forgotten" in done.output
    assert not remembered_runs()
    assert nothing_known(call("clean").output, tmp_path)
