"""Two hosts with a disk each, which all tests of this folder share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory.devices import new_device
from laboratory.hosts import Hosts, hosts


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("lab") / "hosts", 2) as found:
        for name in found.hosts:
            found[name].run("mount", "-t", "tmpfs", "lib", "/var/lib")  # else it is this machine's
        yield found


@pytest.fixture(scope="session")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Devices of this machine's kernel, one for each host."""
    folder = tmp_path_factory.mktemp("disks")
    with new_device(folder / "one", 64 * 1024**2) as one, new_device(folder / "two", 64 * 1024**2) as other:
        yield [one.path, other.path]


def storlab(two: Hosts, folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command, with the lab file of a folder."""
    argv = [sys.executable, "-m", "storlab.cli.main", *words]
    lab = {"STORLAB_LAB": str(folder / "lab.toml"), "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "200"}
    return subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **two.environment, **lab, **env})
