"""Exit statuses and messages: 0 complete, 2 a usage error, 1 an internal error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import storlab.study.study
from storlab.cli.failure import explain
from storlab.cli.main import app
from storlab.errors import MissingTool, NodeLost, SafetyError, StorlabError
from study.program import PROGRAM, call

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    for option in ("--help", "-h"):
        ran = call(command, option)
        assert ran.status == 0
        assert ran.message == ""
        assert ran.output.startswith(f"Usage: storlab {command}")
        assert max(map(len, ran.output.splitlines())) <= 80


def test_the_list_of_commands_cuts_no_sentence_short() -> None:
    ran = call("--help")
    assert ran.status == 0
    assert "..." not in ran.output.replace("[ARGS]...", "")
    assert all(f"\n  {command} " in ran.output for command in COMMANDS)


def test_without_a_command_the_help_is_shown_as_a_mistake() -> None:
    assert call().status == 2


def test_the_version_is_a_line() -> None:
    ran = call("--version")
    assert (ran.status, ran.output.split()[0], ran.output.count("\n")) == (0, "storlab", 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("plan", "Missing argument 'STUDY'"),
        ("plan quick other", "unexpected extra argument"),
        ("pln quick", "Did you mean 'plan'?"),
        ("plan quick --sed 1", "--seed"),
        ("plan quick --rounds 0", "--rounds"),
        ("plan quick --rounds many", "--rounds"),
        ("plan quick --seed -1", "--seed"),
        ("plan quick --set repeat.max", "write PATH=VALUE"),
        ("plan quick --set seze=1G", "did you mean 'size'?"),
        ("plan quick --only fs", "write FACTOR=LEVEL"),
        ("plan quick --only fs=zfs", "fs has no level 'zfs'"),
        ("plan quick-directory --only moed=x", "did you mean 'mode'?"),
        ("plan quik", "did you mean 'quick'?"),
        ("run quik", "did you mean 'quick'?"),
        ("run quick --set repeat.max=0", "--set repeat.max=0: 0 should be at least 1"),
        ("run quick --set repeat.min=500", "min = 500 is more than max"),
        ("report nowhere", "nowhere"),
        ("report . --format docx", "docx"),
        ("resume nowhere", "nowhere"),
        ("clean nowhere", "nowhere"),
        ("run", "Missing argument 'STUDY'"),
    ],
)
def test_a_mistake_in_the_arguments_has_status_2(
    arguments: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = call(*arguments.split())
    assert ran.status == 2, ran
    assert says in ran.message
    assert ran.output == ""
    assert "Traceback" not in ran.message
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_ours_is_one_sentence_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(storlab.study.study, "parse_study", break_down)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran = call("plan", "quick")
    assert ran.status == 1
    assert "Traceback" not in ran.message
    assert ran.message.startswith("storlab: internal error, ZeroDivisionError: a bug\n")
    (file,) = tmp_path.iterdir()
    assert str(file) in ran.message
    assert "in break_down" in file.read_text()


def test_a_fault_of_ours_is_told_where_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    try:
        raise KeyError("x")
    except KeyError as error:
        assert explain(error) == 1
    assert f"its place: {__file__}:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SafetyError("no"), 2),
        (MissingTool("no"), 2),
        (NodeLost("no"), 1),
        (StorlabError("no"), 1),
        (PermissionError(13, "Permission denied", "/x"), 1),
        (OSError(28, "No space left on device", "/x"), 1),
    ],
)
def test_every_kind_of_error_is_a_message_and_a_status(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(error) == status
    said = capsys.readouterr().err
    assert said.startswith("storlab: ")
    assert said.count("\n") == 1


def test_a_full_disk_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    explain(OSError(28, "No space left on device", "/runs/x"))
    assert "no space left" in (said := capsys.readouterr().err) and "/runs/x" in said and "storlab resume" in said


@pytest.mark.parametrize("command", ["list", "schema", "plan quick-directory"])
def test_a_reader_that_has_seen_enough_is_no_fault(command: str) -> None:
    reader = f"set -o pipefail; {PROGRAM} {command} | head -1 >/dev/null"
    ran = subprocess.run(["bash", "-c", reader], capture_output=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_ctrl_c_while_planning_has_the_status_of_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storlab.study.study, "parse_study", interrupt)
    assert call("plan", "quick").status == 130
