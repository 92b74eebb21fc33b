"""A virtiofsd is unpacked with its libraries, once, and runs by its own loader."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from storlab.images import commands, virtiofsd
from storlab.images.virtiofsd import find_virtiofsd
from storlab.layers.attach.virtiofsd import VirtiofsdLayer
from storlab.nodes.needs import remedy

from .test_command_line import storlab

needs_mmdebstrap = pytest.mark.skipif(commands.find("mmdebstrap") is None, reason="mmdebstrap is not installed")


@needs_mmdebstrap
@pytest.mark.slow
def test_it_is_unpacked_once_and_needs_nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(virtiofsd, "INSTALLED", {"rust": (), "c": ()})
    assert find_virtiofsd("rust") is None
    ended = storlab("virtiofsd", cache=tmp_path)
    assert (ended.returncode, ended.stdout.split()[::2]) == (0, ["virtiofsd", "is"]), ended.stderr
    words = find_virtiofsd("rust")
    assert words is not None
    said = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split() == ended.stdout.split()[:2]
    (part,) = (tmp_path / "storlab" / "images" / "parts").iterdir()
    assert {path.suffix for path in part.iterdir() if path.is_dir()} == set(), "nothing else of that Debian is kept"
    made = part.stat().st_mtime_ns
    assert storlab("virtiofsd", "--quiet", cache=tmp_path).stdout == ""
    assert part.stat().st_mtime_ns == made


@needs_mmdebstrap
def test_a_mirror_that_can_not_be_reached_is_named_and_nothing_is_kept(tmp_path: Path) -> None:
    ended = storlab("virtiofsd", "--mirror", "http://127.0.0.1:1/debian", cache=tmp_path)
    assert ended.returncode != 0
    assert "the Debian mirror can't be reached" in ended.stderr
    assert [*(tmp_path / "storlab" / "images").glob("parts/*")] == []


def test_where_there_is_none_the_command_that_helps_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(virtiofsd, "INSTALLED", {"rust": (), "c": ()})
    for implementation, command in {
        "rust": "storlab image virtiofsd",
        "c": "storlab image virtiofsd --implementation c",
    }.items():
        (program,) = VirtiofsdLayer.model_validate({"implementation": implementation}).needs().programs
        assert remedy(program) == command


def test_an_installed_one_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "virtiofsd"
    installed.write_text("#!/bin/sh\n")
    monkeypatch.setattr(virtiofsd, "INSTALLED", {"rust": (str(installed),), "c": ()})
    assert find_virtiofsd("rust") != (str(installed),), "it can't be run"
    installed.chmod(0o755)
    assert find_virtiofsd("rust") == (str(installed),)
