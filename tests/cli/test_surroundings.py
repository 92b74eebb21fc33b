"""Whatever the locale, the terminal, the umask and the standard streams are, a command says what it has to say."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from study.program import PROGRAM, program

SAMPLE = Path(__file__).parent.parent / "importing" / "golden" / "sysbench-oltp.txt"
NO_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SURROUNDINGS = {
    "ASCII": {"PYTHONIOENCODING": "ascii"},
    "ISO-8859-1": {"PYTHONIOENCODING": "latin-1"},
    "a dumb terminal": {"TERM": "dumb"},
    "20 columns": {"COLUMNS": "20"},
    "nothing at all": {},
}
COMMANDS = {
    "list": "quick-directory",
    "plan quick-directory": "random-write.bs",
    "report RUN": "transactions",
    "report RUN --format csv": "estimate,sysbench,",
    "plan quik": "did you mean 'quick'?",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Imported under a umask that lets everybody write, in a locale that knows ASCII alone."""
    folder = tmp_path_factory.mktemp("µ") / "run"
    script = f"umask 000; exec {PROGRAM} import sysbench {SAMPLE} --out {folder}"
    subprocess.run(["sh", "-c", script], check=True, timeout=60, env=os.environ | NO_LOCALE)
    return folder


def test_nobody_else_can_write_what_was_made_and_an_ascii_locale_gets_signs_that_look_alike(run: Path) -> None:
    assert [path for path in run.rglob("*") if path.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)] == []
    argv = [str(PROGRAM), "report", str(run)]
    ran = subprocess.run(argv, capture_output=True, timeout=60, env=os.environ | NO_LOCALE, check=True)
    assert b" . started " in ran.stdout and ran.stdout.isascii()


@pytest.mark.parametrize("name", SURROUNDINGS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_the_same_everywhere(command: str, name: str, run: Path) -> None:
    environment = {**os.environ, **SURROUNDINGS[name]} if SURROUNDINGS[name] else {}
    ran = program(*(str(run) if word == "RUN" else word for word in command.split()), environment=environment)
    assert ran.returncode == (2 if "quik" in command else 0), ran.stderr
    assert COMMANDS[command] in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr and "\x1b" not in ran.stdout
    if name == "ASCII" and "csv" not in command:
        assert ran.stdout.isascii()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("--version >/dev/full", "cannot write to standard output: No space left on device"),
        ("list >/dev/full", "cannot write to standard output: No space left on device"),
        ("report RUN -f json >/dev/full", "cannot write to standard output: No space left on device"),
        ("--help >&-", "cannot write to standard output: it is closed"),
    ],
)
def test_a_result_that_can_not_be_shown_is_no_success(script: str, says: str, run: Path) -> None:
    shell = ["sh", "-c", f"{PROGRAM} {script.replace('RUN', str(run))}"]
    ran = subprocess.run(shell, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (1, f"storlab: {says}; what was to be shown there is lost\n")
