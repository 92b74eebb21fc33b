"""``storlab --help`` and shell completion answer at once, since they import nothing that is slow."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from study.program import PROGRAM

SLOW = {"polars", "altair", "scipy", "numpy", "rich", "rich.live", "jinja2", "asyncio", "pandas", "orjson", "jmespath"}


def imported_by(*arguments: str, **environment: str) -> set[str]:
    """Top-level packages, and submodules, that a call of the program imports."""
    argv = [sys.executable, "-X", "importtime", str(PROGRAM), *arguments]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    return {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}


def test_help_imports_nothing_slow() -> None:
    found = imported_by("--help")
    assert "storlab.cli.main" in found
    assert not found & (SLOW | {"pydantic"})


@pytest.mark.parametrize("arguments", ["--version", "run --help", "no-such-command", "plan --rounds x"])
def test_what_typer_answers_itself_imports_nothing_slow_but_pydantic(arguments: str) -> None:
    """Typer reads arguments by pydantic, where that is installed."""
    assert not imported_by(*arguments.split()) & SLOW


def test_completion_imports_nothing_slow() -> None:
    environment = {"_STORLAB_COMPLETE": "complete_bash", "COMP_WORDS": "storlab plan ", "COMP_CWORD": "2"}
    assert not imported_by(**environment) & SLOW


def test_help_is_there_in_less_than_three_tenths_of_a_second() -> None:
    def seconds() -> float:
        before = os.times()
        subprocess.run([PROGRAM, "--help"], capture_output=True, check=True, timeout=60)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds() for _ in range(3)) < 0.3  # of processor time: this machine may be busy with other tests


def test_a_mistake_in_a_study_is_told_without_the_modules_that_run_it() -> None:
    found = imported_by("plan", "no-such-study")
    assert not {"storlab.run.executor", "storlab.report.model", "altair", "scipy", "rich.live"} & found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ran = subprocess.run(
        [PROGRAM, "--show-completion", shell], capture_output=True, text=True, timeout=60, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    assert f"complete_{shell}" in ran.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("storlab pl", {"plan"}),
        ("storlab plan qu", {"queue-depth", "quick", "quick-directory"}),
        ("storlab shell vm", {"vm-backing"}),
        ("storlab image re", {"remove"}),
        ("storlab report x --format ", {"text", "md", "html", "csv", "json", "adoc", "pdf", "virtiofs-tests"}),
    ],
)
def test_bash_completes_commands_studies_and_formats(words: str, offered: set[str]) -> None:
    count = str(len(words.split(" ")) - 1)
    environment = {**os.environ, "_STORLAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    ran = subprocess.run([PROGRAM], capture_output=True, text=True, timeout=60, env=environment)
    assert set(ran.stdout.split()) == offered
