"""Studies that can't be: each is refused with one message that says where and what, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storlab.cli.main import main

from .mistakes import Mistake, of_factors, of_keys, of_stacks, of_toml, of_workloads

EVERY = [m for each in (of_toml, of_keys, of_stacks, of_factors, of_workloads) for m in each.MISTAKES]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(mistake: Mistake, status: int | str | None, output: str, message: str) -> None:
    said = message.splitlines()
    assert status == 2, message
    assert output == ""
    assert "Traceback" not in message
    where = f"study.toml: line {mistake.line}: " if mistake.line is not None else "study.toml: "
    assert len(said) == 1, message
    assert message.startswith(where), f"{message}wanted: {where}{mistake.says}"
    assert mistake.says in message


@pytest.mark.parametrize("mistake", EVERY, ids=lambda mistake: mistake.name)
def test_a_mistake_is_named_once_with_its_line(
    mistake: Mistake, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("study.toml").write_bytes(mistake.text.encode())
    monkeypatch.setattr(sys, "argv", ["storlab", "plan", "study.toml"])
    with pytest.raises(SystemExit) as ended:
        main()
    output, message = capsys.readouterr()
    check(mistake, ended.value.code, output, message)
    assert [path.name for path in folder.iterdir()] == ["study.toml"]


@pytest.mark.parametrize("mistake", EVERY[:: max(len(EVERY) // 35, 1)], ids=lambda mistake: mistake.name)
def test_the_installed_program_says_the_same(mistake: Mistake, folder: Path) -> None:
    Path("study.toml").write_bytes(mistake.text.encode())
    program = Path(sys.executable).parent / "storlab"
    ran = subprocess.run([program, "plan", "study.toml"], capture_output=True, text=True, timeout=60)
    check(mistake, ran.returncode, ran.stdout, ran.stderr)
    assert [path.name for path in folder.iterdir()] == ["study.toml"]
