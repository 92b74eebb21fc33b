"""Hosts that somebody has for themselves, on real hosts."""

from __future__ import annotations

from pathlib import Path

from laboratory.hosts import Hosts

from .conftest import storlab


def test_a_host_is_reserved_once_and_given_back(two: Hosts, tmp_path: Path) -> None:
    by_command = 'reserve = ["sh", "-c", "echo + $0 >> log", "{host}"]\n'
    by_command += 'release = ["sh", "-c", "echo - $0 >> log", "{ssh}"]\n'
    (tmp_path / "lab.toml").write_text(f"{by_command}[hosts.lab1]\n[hosts.lab2]\n")
    assert storlab(two, tmp_path, "lab", "lock", "lab1", "--why", "kernels").stdout == "lab1: reserved for you\n"
    assert storlab(two, tmp_path, "lab", "lock", "lab1").returncode == 0  # it is ours already

    other = storlab(two, tmp_path, "lab", "lock", "lab2", "lab1", LOGNAME="somebody-else")
    assert other.returncode == 2
    assert "lab1 is reserved by" in other.stderr and "kernels" in other.stderr
    assert "lab2: given back" in other.stderr  # all of them, or none
    assert storlab(two, tmp_path, "lab", "unlock", "lab1", LOGNAME="somebody-else").returncode == 2

    assert "given back, was reserved by" in storlab(two, tmp_path, "lab", "unlock", "all").stdout
    assert two.ssh("lab1", "ls", "/var/lib/storlab") == ""
    said = (tmp_path / "log").read_text().split("\n")
    assert said.count("+ lab1") == said.count("- lab1") + 1  # it was reserved twice by us, and given back once


def test_what_can_not_be_reached_is_said_in_the_words_of_ssh(two: Hosts, tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text("[hosts.nowhere]\n")
    ended = storlab(two, tmp_path, "lab", "lock", "nowhere")
    assert ended.returncode == 2
    assert "cannot reach nowhere: ssh: Could not resolve hostname nowhere" in ended.stderr
