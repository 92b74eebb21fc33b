"""``storlab lab prepare``: Storlab is brought to a machine that has a Python, and no more."""

from __future__ import annotations

import pytest

from laboratory import Laboratory
from laboratory.hosts import Hosts, place_on
from laboratory.studies import directory
from remote.conftest import on_host
from storlab.remote.prepare import distributions

pytestmark = pytest.mark.needs("root", "sshd", "ssh", "packages")


def test_what_is_brought_is_what_is_installed_here() -> None:
    found = distributions()
    assert {"polars", "scipy", "pydantic-core", "typer", "qemu-qmp"} <= found.keys()
    assert not {"pytest", "mypy", "storlab"} & found.keys()


def test_a_machine_is_prepared_once_and_then_runs(lab: Laboratory, machines: Hosts) -> None:
    lab.environment |= machines.environment
    host = machines["lab2"]
    done = lab.storlab("lab", "prepare", "lab2", timeout=600)
    assert done.status == 0 and "is ready, with /usr/bin/python3" in done.stdout, done
    assert host.run(f"/root/.local/share/storlab/{place_on(host).name}/bin/storlab", "--version").startswith("storlab ")
    again = lab.storlab("lab", "prepare", "lab2")
    assert again.status == 0 and "is there" in again.stdout, again
    scratch = host.tmp / lab.scratch.relative_to("/tmp")
    scratch.mkdir(parents=True)
    assert lab.run(directory("command = { argv = ['true'] }"), "--on", "lab2").status == 0
    assert list(place_on(host).parent.iterdir()) == [place_on(host)]
    assert lab.storlab("lab", "forget", "lab2").status == 0
    assert not on_host(machines, lab.scratch).exists()


def test_a_machine_without_a_python_of_today_is_refused_in_one_sentence(lab: Laboratory, machines: Hosts) -> None:
    lab.environment |= machines.environment | {"UV": "/bin/false"}
    host = machines["lab1"]
    place_on(host).rename(place_on(host).with_name("aside"))
    host.run("mount", "--bind", "/dev/null", "/usr/bin/python3.11")
    try:
        refused = lab.storlab("lab", "prepare", "lab1")
    finally:
        host.run("umount", "/usr/bin/python3.11")
        place_on(host).with_name("aside").rename(place_on(host))
    assert refused.status == 2, refused
    assert "lab1 has no Python 3.11 or newer with its module venv, and uv could bring none" in refused.stderr, refused
    assert len(refused.stderr.strip().splitlines()) == 2, "and a line that says what was tried"
