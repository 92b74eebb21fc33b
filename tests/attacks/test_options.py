"""What the author of a study may try by options of other programs: in each list, and in spellings that are on none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laboratory.samples import sample
from study.program import call

CASES = json.loads(sample(__file__, "cases/options.json"))
STUDY = """
title = "A"
primary = "elapsed"
stack = [
  { layer = "file", size = "512M" }, { layer = "loop" },
  MKFS,
  MOUNT,
]
[workload.load]
command = { argv = ["true"] }
"""
MKFS, MOUNT = '{ layer = "mkfs", type = "ext4" }', '{ layer = "mount" }'


def refused(text: str, key: str, line: int, says: str) -> None:
    """By each command that takes a study, with file, line and key, and before anything is done."""
    Path("study.toml").write_text(text)
    for command in ("plan", "run", "shell", "crash"):
        ran = call(command, "study.toml")
        assert (ran.status, ran.output) == (2, ""), ran
        assert says in ran.message and ran.message.startswith(f"study.toml: line {line}: "), ran
        assert key in ran.message.split(": ")[2] and ran.message.count("\n") == 1, ran
    assert [path.name for path in Path().iterdir()] == ["study.toml"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize(("layer", "says"), CASES["mount"])
def test_no_option_of_a_mount_leads_elsewhere_or_stops_the_machine(layer: str, says: str) -> None:
    refused(STUDY.replace("MKFS", MKFS).replace("MOUNT", layer), "stack[3]", 7, says)


@pytest.mark.parametrize(("keys", "says"), CASES["mkfs"])
def test_no_argument_of_mkfs_names_a_file_or_another_device(keys: str, says: str) -> None:
    refused(STUDY.replace("MKFS", f'{{ layer = "mkfs", {keys} }}').replace("MOUNT", MOUNT), "stack[2]", 6, says)
