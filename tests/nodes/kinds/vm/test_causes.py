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
from storlab.nodes.kinds.vm.causes import Causes, disk_error
from storlab.nodes.node import Node

LOST = "node vm: the stream to its agent closed"


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
            "printf 'no CPU 77\\n\\nusage: numactl\\n  --all\\n' >&2; exit 1",
            "",
            "node vm: QEMU ended with status 1: no CPU 77",
        ),
        ("exit 2", "", "node vm: QEMU ended with status 2: it said nothing"),
        ("exit 0", "", "node vm: the guest powered off"),
        ("exit 0", "storlab-init: ready\n", "node vm: the guest powered off"),
        ("exit 0", "storlab-init: no root; powering off\n", "node vm: the guest powered off: no root"),
        (
            "exit 0",
            "[ 9.5] Out of memory: Killed process 138 (storlab-agent) total-vm:200856kB, anon-rss:640kB\n"
            "storlab-init: the agent was killed by SIGKILL; powering off\n",
            "node vm: the guest ran out of memory, and its kernel killed its agent",
        ),
        (
            "exit 0",
            "[ 9.5] Out of memory: Killed process 138 (storlab-agent) total-vm:200856kB, anon-rss:640kB\n"
            "storlab-init: the agent was killed by SIGKILL; powering off\n"
            "[ 9.7] Out of memory: Killed process 139 (storlab-guard) total-vm:3288kB, anon-rss:0kB\n",
            "node vm: the guest ran out of memory, and its kernel killed its agent",
        ),
        (
            "exit 0",
            "[ 9.5] Out of memory: Killed process 138 (a-test) total-vm:200856kB, anon-rss:640kB\n"
            "storlab-init: the agent was killed by SIGKILL; powering off\n",
            "node vm: the guest powered off: the agent was killed by SIGKILL",
        ),
        ("exit 0", "Kernel panic - not syncing: x\n", "node vm: the guest's kernel panicked: x"),
    ],
)
def test_what_is_known_of_the_end_becomes_one_sentence(script: str, console: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "console"
    path.write_text(console)
    assert cause_of(script, path) == reason


def test_where_qemu_runs_on_and_the_console_says_nothing_the_stream_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storlab.nodes.kinds.vm.causes._WAIT", 0.05)
    assert cause_of("exec sleep 60", tmp_path / "none") == LOST


def test_a_host_whose_agent_is_gone_is_the_reason(tmp_path: Path) -> None:
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
        (
            "[ 9.5] Out of memory: Killed process 138 (zpool) total-vm:200856kB, anon-rss:640kB\n",
            "; it had run out of memory before, and its kernel had killed zpool",
        ),
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
    ("event", "said"),
    [
        (
            {"operation": "write", "nospace": True, "reason": "No space left on device"},
            "a write to what is behind its disk failed: no space left there; QEMU stopped the guest",
        ),
        (
            {"operation": "read", "nospace": False, "reason": "Input/output error"},
            "a read from what is behind its disk failed: Input/output error; QEMU stopped the guest",
        ),
        ({}, "an operation on what is behind its disk failed: I/O error; QEMU stopped the guest"),
    ],
)
def test_an_error_of_a_disk_is_told_in_words(event: dict[str, Any], said: str) -> None:
    assert disk_error(event) == said
