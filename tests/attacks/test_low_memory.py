"""With too little memory, or without threads, there is one sentence, and never a traceback."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from laboratory import COMMAND
from laboratory.studies import directory
from study.program import call

LIMITS = (60, 200, 700)  # MB
COMMANDS = {
    "report": ["report", "run"],
    "page": ["report", "run", "--format", "html"],
    "compare": ["compare", "run", "second"],
    "plan": ["plan", "study.toml"],
    "import": ["import", "csv", "rates.csv", "--value", "rate", "--out", "other"],
    "run": ["run", "study.toml", "--out", "ran", "--seed", "1", "--quiet"],
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("rates.csv").write_text("rate\n1000\n1001\n")
    assert call("import", "csv", "rates.csv", "--value", "rate", "--out", "run").status == 0
    assert call("import", "csv", "rates.csv", "--value", "rate", "--out", "second").status == 0
    (tmp_path / "scratch").mkdir()
    head = f'schema = 1\ntitle = "A"\nscratch = "{tmp_path / "scratch"}"\n'
    Path("study.toml").write_text(head + directory('command = { argv = ["true"] }'))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("limit", LIMITS)
def test_too_little_memory_is_one_sentence(limit: int, command: str, here: Path) -> None:
    script = f'ulimit -v {limit * 1024}; exec "$@"'
    program = [str(Path(COMMAND[0]).parent / "storlab"), *COMMANDS[command]]
    ran = subprocess.run(
        ["sh", "-c", script, "sh", *program], capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL
    )
    assert "Traceback" not in ran.stderr, ran.stderr[-1500:]
    assert "internal error" not in ran.stderr, ran.stderr[-1500:]
    if ran.returncode == -signal.SIGABRT:  # Rust itself, in the midst of a library, says so and ends the process
        assert "memory allocation of" in ran.stderr
        assert call("clean", "--yes").status == 0
        return
    assert ran.returncode in (0, 1, 3), (ran.returncode, ran.stderr[-1500:])
    if ran.returncode == 1:
        assert "storlab: " in ran.stderr or "OpenBLAS error: " in ran.stderr  # which ends the process itself
        assert "emory" in ran.stderr
    assert not list(Path("scratch").iterdir())
