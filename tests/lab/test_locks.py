"""Hosts that somebody has for themselves, on real hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laboratory.hosts import Hosts, hosts


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> object:
    with hosts(tmp_path_factory.mktemp("lab") / "hosts", 2) as found:
        for name in found.hosts:
            found[name].run("mount", "-t", "tmpfs", "lib", "/var/lib")  # else it is this machine's
        yield found


def _storlab(two: Hosts, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "storlab.cli.main", "lab", *words]
    return subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **two.environment, **env})


def _lab(folder: Path, text: str = "[hosts.lab1]\n[hosts.lab2]\n") -> Path:
    path = folder / "lab.toml"
    path.write_text(text)
    return path


def test_a_host_is_reserved_once_and_given_back(two: Hosts, tmp_path: Path) -> None:
    lab = {"STORLAB_LAB": str(_lab(tmp_path))}
    assert _storlab(two, "lock", "lab1", "--why", "kernel tests", **lab).stdout == "lab1: reserved for you\n"
    assert _storlab(two, "lock", "lab1", **lab).returncode == 0  # it is ours already

    other = _storlab(two, "lock", "lab2", "lab1", LOGNAME="somebody-else", **lab)
    assert other.returncode == 2
    assert "lab1 is reserved by" in other.stderr and "kernel tests" in other.stderr
    assert "lab2: given back" in other.stderr  # all of them, or none
    assert _storlab(two, "unlock", "lab1", LOGNAME="somebody-else", **lab).returncode == 2

    assert "given back, was reserved by" in _storlab(two, "unlock", "all", **lab).stdout
    assert two.ssh("lab1", "ls", "/var/lib/storlab") == ""


def test_what_cannot_be_reached_is_said_in_the_words_of_ssh(two: Hosts, tmp_path: Path) -> None:
    lab = _lab(tmp_path, "[hosts.nowhere]\n")
    ended = _storlab(two, "lock", "nowhere", "--lab", str(lab))
    assert ended.returncode == 2
    assert "cannot reach nowhere: ssh: Could not resolve hostname nowhere" in ended.stderr
