"""Machines that boot a kernel for one boot: what is taken for a boot, and the consoles that a command shows of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import in_a_loop, wait_until
from laboratory.boots import booting
from laboratory.hosts import Hosts, hosts
from storlab.base.errors import NodeError, TrialError
from storlab.nodes import console
from storlab.nodes.booting import RELEASE_FILE, Booted, boot
from storlab.nodes.console import kept_console
from storlab.nodes.identity import Machine
from storlab.nodes.kinds.local import local_node
from storlab.ssh.machine import connected


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("boots") / "hosts", 2) as found:
        yield found


@pytest.fixture
def lab(machines: Hosts, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    for name, value in machines.environment.items():
        monkeypatch.setenv(name, value)
    return machines


async def now(name: str) -> Booted:
    async with connected(name) as machine:
        release = (await machine.run("cat", RELEASE_FILE)).decode().strip()
        return Booted(Machine(machine.machine, machine.boot), release)


async def booted(program: str, name: str, release: str, patience: float = 60.0) -> tuple[Booted, Booted]:
    before = await now(name)
    async with local_node("here") as host:
        return before, await boot(host, program, name, release, before.machine, lambda: now(name), patience)


@pytest.mark.needs("root")
def test_a_machine_boots_the_kernel_that_is_asked_for_and_then_its_own_again(lab: Hosts, tmp_path: Path) -> None:
    with booting(tmp_path, lab.reboot) as program:
        before, after = asyncio.run(booted(program, "lab1", "6.99.0-patched"))
        assert after.release == "6.99.0-patched" != before.release
        assert after.machine.is_same(before.machine) and after.machine.boot != before.machine.boot
        _, again = asyncio.run(booted(program, "lab1", ""))
        assert again.release == before.release


@pytest.mark.needs("root")
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


@pytest.mark.needs("root")
def test_a_program_that_refuses_is_quoted(lab: Hosts, tmp_path: Path) -> None:
    refuses = program(tmp_path, 'echo "there is no kernel $2 on $1" >&2; exit 3')
    with pytest.raises(TrialError, match=r"could not boot lab2: there is no kernel 6\.99\.0 on lab2"):
        asyncio.run(booted(refuses, "lab2", "6.99.0"))


PANIC = "[   12.3456] Kernel panic - not syncing: Fatal exception\n[   12.3457] CPU: 0\n"


def program(folder: Path, script: str) -> str:
    path = folder / "console"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


async def until_said(path: Path, words: str) -> None:
    assert await asyncio.to_thread(wait_until, lambda: path.exists() and words in path.read_text(), 30)


@in_a_loop
async def test_a_panic_is_the_reason_and_one_of_an_earlier_boot_is_not(tmp_path: Path) -> None:
    feed, path = tmp_path / "feed", tmp_path / "kept" / "console.log"
    feed.write_text(f"booting\n{PANIC}")
    show = program(tmp_path, f'echo "console of $1"; exec tail -n +1 -f {feed}')
    async with local_node("here") as host, kept_console(host, "lab1", show, "lab1.example", path) as kept:
        await until_said(path, "CPU: 0")
        assert kept.reason() == "the kernel of lab1 panicked: Fatal exception"
        assert kept.tail().startswith("console of lab1.example\nbooting\nKernel panic")
        kept.begin()
        assert kept.reason() is None and kept.trouble() is None
        with feed.open("a") as more:
            more.write("[ 99.1] Out of memory: Killed process 7 (fio) total-vm:1kB\n")
        await until_said(path, "(fio)")
        assert kept.complaint() == "lab1 ran out of memory, and its kernel killed fio"
        assert (await host.run(["pgrep", "--full", str(feed)], check=False)).ok
    async with local_node("again") as host:
        assert not (await host.run(["pgrep", "--full", f"tail.*{feed}"], check=False)).ok, "it ends with the run"


@in_a_loop
async def test_a_command_that_ends_is_named_with_its_last_words(tmp_path: Path) -> None:
    show, path = program(tmp_path, 'echo "ipmitool: no route to $1" >&2; exit 1'), tmp_path / "console.log"
    async with local_node("here") as host, kept_console(host, "lab1", show, "bmc1", path) as kept:
        await kept.process.rest()
        assert kept.trouble() == "the command that shows the console of lab1 has ended: ipmitool: no route to bmc1"


@in_a_loop
async def test_a_console_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "MAX_CONSOLE", 1 << 20)
    show, path = program(tmp_path, "exec yes"), tmp_path / "kept"
    async with local_node("here") as host, kept_console(host, "lab1", show, "lab1", path) as kept:
        await kept.process.rest()
        assert kept.trouble() == "the console of lab1 has more than 1M: what came later is not kept"
    assert (tmp_path / "kept").stat().st_size == 1 << 20
