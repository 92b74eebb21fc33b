"""Machines over SSH that boot a kernel for one boot: what is taken for a boot, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory.boots import booting
from laboratory.hosts import Hosts, hosts
from storlab.errors import NodeError, TrialError
from storlab.nodes.booting import RELEASE_FILE, Booted, boot
from storlab.nodes.identity import Machine
from storlab.nodes.kinds.local import local_node
from storlab.ssh.machine import connected

pytestmark = pytest.mark.needs("root")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("boots") / "hosts", 2) as found:
        yield found


async def now(name: str) -> Booted:
    async with connected(name) as machine:
        release = (await machine.run("cat", RELEASE_FILE)).decode().strip()
        return Booted(Machine(machine.machine, machine.boot), release)


async def booted(program: str, name: str, release: str, patience: float = 60.0) -> tuple[Booted, Booted]:
    before = await now(name)
    async with local_node("here") as host:
        return before, await boot(host, program, name, release, before.machine, lambda: now(name), patience)


@pytest.fixture(autouse=True)
def _configured(lab: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in lab.environment.items():
        monkeypatch.setenv(name, value)


def test_a_machine_boots_the_kernel_that_is_asked_for_and_then_its_own_again(lab: Hosts, tmp_path: Path) -> None:
    with booting(tmp_path, lab.reboot) as program:
        before, after = asyncio.run(booted(program, "lab1", "6.99.0-patched"))
        assert after.release == "6.99.0-patched" != before.release
        assert after.machine.is_same(before.machine) and after.machine.boot != before.machine.boot
        _, again = asyncio.run(booted(program, "lab1", ""))
        assert again.release == before.release


@pytest.mark.parametrize(
    ("obey", "error", "said"),
    [
        ("falls back", TrialError, "lab1 was to boot Linux 6.99.0, and came up with .*: it fell back"),
        ("does nothing", NodeError, "lab1 has not booted within 3 s: its boot id is the one from before"),
        ("stays off", NodeError, "lab1 has not booted within 3 s: .*lab1"),
    ],
)
def test_what_is_no_boot_of_that_kernel_is_named(
    obey: str, error: type[Exception], said: str, lab: Hosts, tmp_path: Path
) -> None:
    def act(name: str, release: str) -> None:
        if obey == "falls back":
            lab.reboot(name)
        elif obey == "stays off":
            lab.kill(name)

    with booting(tmp_path, act) as program, pytest.raises(error, match=said):
        asyncio.run(booted(program, "lab1", "6.99.0", patience=60.0 if obey == "falls back" else 3.0))
    if obey == "stays off":
        lab.start("lab1")


def test_a_program_that_refuses_is_quoted(lab: Hosts, tmp_path: Path) -> None:
    program = tmp_path / "boot"
    program.write_text('#!/bin/sh\necho "there is no kernel $2 on $1" >&2\nexit 3\n')
    program.chmod(0o755)
    with pytest.raises(TrialError, match=r"could not boot lab2: there is no kernel 6\.99\.0 on lab2"):
        asyncio.run(booted(str(program), "lab2", "6.99.0"))
