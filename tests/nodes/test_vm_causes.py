"""Why a guest is gone: QEMU's end, its console and its events, in one sentence."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from storlab.errors import NodeError
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.causes import Causes, console_text, disk_error, killed_for_memory, last_word, panic, tail
from storlab.nodes.node import Node

LOST = "node vm: the stream to its agent closed"
OUT = "[ 9.5] Out of memory: Killed process 138 ({}) total-vm:200856kB, anon-rss:640kB\n"
ENDS = "storlab-init: the agent was killed by SIGKILL; powering off\n"
NO_MEMORY = "node vm: the guest ran out of memory, and its kernel killed its agent"
PANIC = """\
[    0.513370] storlab-init: ready
[    9.100000] BUG: kernel NULL pointer dereference, address: 0000000000000000
[    9.200000] Kernel panic - not syncing: Fatal exception in interrupt
[    9.300000] CPU: 0 UID: 0 PID: 1 Comm: init
"""


def cause_of(script: str, console: Path, after: Callable[[Node], Awaitable[Any]] | None = None) -> str:
    """The reason that is told of a QEMU that is only a shell script."""

    async def ask() -> str:
        async with asyncio.timeout(30), local_node("host") as host:
            process = await host.start(["sh", "-c", script])
            if after is not None:
                await after(host)
            reason = await Causes("vm", process, console).name(LOST)
            await process.end()
            return reason

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("script", "console", "reason"),
    [
        ("kill -KILL $$", "", "node vm: QEMU was killed by SIGKILL"),
        ("kill -SEGV $$", "storlab-init: ready\n", "node vm: QEMU was killed by SIGSEGV"),
        ("echo first >&2; echo 'no such device' >&2; exit 1", "", "node vm: QEMU ended with status 1: no such device"),
        (
            "printf 'no CPU 77\\n\\nusage: x\\n  --all\\n' >&2; exit 1",
            "",
            "node vm: QEMU ended with status 1: no CPU 77",
        ),
        ("exit 2", "", "node vm: QEMU ended with status 2: it said nothing"),
        ("exit 0", "", "node vm: the guest powered off"),
        ("exit 0", "storlab-init: ready\n", "node vm: the guest powered off"),
        ("exit 0", "storlab-init: no root; powering off\n", "node vm: the guest powered off: no root"),
        ("exit 0", OUT.format("storlab-agent") + ENDS, NO_MEMORY),
        ("exit 0", OUT.format("storlab-agent") + ENDS + OUT.format("storlab-guard"), NO_MEMORY),
        ("exit 0", OUT.format("a-test") + ENDS, "node vm: the guest powered off: the agent was killed by SIGKILL"),
        ("exit 0", "Kernel panic - not syncing: x\n", "node vm: the guest's kernel panicked: x"),
    ],
)
def test_what_is_known_of_the_end_becomes_one_sentence(script: str, console: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "console"
    path.write_text(console)
    assert cause_of(script, path) == reason


def test_where_qemu_runs_on_the_stream_is_the_reason_or_a_host_whose_agent_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storlab.nodes.kinds.vm.causes._WAIT", 0.05)
    assert cause_of("exec sleep 60", tmp_path / "none") == LOST

    async def kill(host: Node) -> None:
        assert host.pid is not None
        os.kill(host.pid, SIGKILL)

    reason = "node host: the stream to its agent closed, and with the agent its virtual machines ended"
    assert cause_of("exec sleep 60", tmp_path / "none", kill) == reason


def test_a_qemu_that_ends_before_its_monitor_opens_says_why(tmp_path: Path) -> None:
    async def ask() -> None:
        async with asyncio.timeout(30), local_node("host") as host:
            process = await host.start(["sh", "-c", "echo 'qemu: bad option' >&2; exit 1"])
            await Causes("vm", process, tmp_path / "console").monitor(tmp_path / "none")

    with pytest.raises(NodeError) as raised:
        asyncio.run(ask())
    assert str(raised.value) == "node vm: QEMU ended with status 1: qemu: bad option"


@pytest.mark.parametrize(
    ("console", "memory"),
    [
        ("storlab-init: ready\n", ""),
        (OUT.format("zpool"), "; it had run out of memory before, and its kernel had killed zpool"),
    ],
)
def test_a_silent_guest_that_ran_out_of_memory_says_so(console: str, memory: str, tmp_path: Path) -> None:
    (tmp_path / "console").write_text(console)

    async def ask() -> str:
        async with asyncio.timeout(30), local_node("host") as host:
            process = await host.start(["sleep", "60"])
            said = await Causes("vm", process, tmp_path / "console").hung(4)
            await process.end()
            return said

    assert asyncio.run(ask()) == f"its agent has been silent for 4 s: the guest hangs{memory}"


@pytest.mark.parametrize(
    ("event", "what", "why"),
    [
        ({"operation": "write", "nospace": True, "reason": "No space left"}, "a write to", "no space left there"),
        ({"operation": "read", "nospace": False, "reason": "It broke"}, "a read from", "It broke"),
        ({}, "an operation on", "I/O error"),
    ],
)
def test_an_error_of_a_disk_is_told_in_words(event: dict[str, Any], what: str, why: str) -> None:
    assert disk_error(event) == f"{what} what is behind its disk failed: {why}; QEMU stopped the guest"


def test_a_panic_the_last_program_killed_for_memory_and_the_first_process_s_last_word_are_told() -> None:
    assert panic(PANIC) == "Fatal exception in interrupt"
    for reason in ("VFS: Unable to mount root fs", "sysrq triggered crash"):
        assert panic(f"[ 1.0] Kernel panic - not syncing: {reason}") == reason
        assert panic(f"Kernel panic - not syncing: {reason}\n") == reason
    assert panic("storlab-init: ready\n") is panic("") is None
    assert killed_for_memory(OUT.format("tail") + OUT.format("my load (2)")) == "my load (2)"
    assert killed_for_memory(PANIC) is None
    ended = "storlab-init: ready\nstorlab-init: no root; powering off\n[ 9.1] reboot: Power down\n"
    assert (last_word(ended), last_word("[    0.1] storlab-init: ready")) == ("no root", "ready")
    assert last_word("reboot: Power down") is None


def test_the_end_is_thirty_lines_or_begins_with_the_reason_of_a_panic_at_the_latest(tmp_path: Path) -> None:
    text = "\n\n".join(f"[    {number}.000000] line {number}" for number in range(100))
    assert (tail(text).splitlines(), tail("")) == ([f"line {number}" for number in range(70, 100)], "")
    trace = "".join(f"[    9.300000]  frame{number}\n" for number in range(60))
    lines = tail("boot\n" * 100 + PANIC + trace).splitlines()
    assert (lines[0], lines[-1]) == ("Kernel panic - not syncing: Fatal exception in interrupt", " frame59")
    assert tail("boot\n" * 100 + PANIC).splitlines()[:26] == ["boot"] * 26, "what led to it is there, too"
    assert len(tail(PANIC + trace * 3).splitlines()) == 80, "but not everything"
    console = tmp_path / "console.log"
    assert console_text(console) == ""
    console.write_bytes(b"x" * 1_000_000 + b"\r\nend \xff\r\n")
    text = console_text(console)
    assert len(text) < 100_000
    assert text.endswith("x\nend \ufffd\n")
