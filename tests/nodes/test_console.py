"""Consoles that a command of the user's shows: kept, searched for panics, and ended with the run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from laboratory import wait_until
from storlab.nodes import console
from storlab.nodes.console import kept_console
from storlab.nodes.kinds.local import local_node

PANIC = "[   12.3456] Kernel panic - not syncing: Fatal exception\n[   12.3457] CPU: 0\n"


def program(folder: Path, script: str) -> str:
    path = folder / "console"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


async def until_said(path: Path, words: str) -> None:
    def said() -> bool:
        return path.exists() and words in path.read_text()

    assert await asyncio.to_thread(wait_until, said, 30)


def test_a_panic_is_the_reason_and_one_of_an_earlier_boot_is_not(tmp_path: Path) -> None:
    feed, path = tmp_path / "feed", tmp_path / "kept" / "console.log"
    feed.write_text(f"booting\n{PANIC}")

    async def watch() -> None:
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
            left = await host.run(["pgrep", "--full", str(feed)], check=False)
            assert left.ok
        async with local_node("again") as host:
            assert not (await host.run(["pgrep", "--full", f"tail.*{feed}"], check=False)).ok, "it ends with the run"

    asyncio.run(watch())


def test_a_command_that_ends_is_named_with_its_last_words(tmp_path: Path) -> None:
    async def watch() -> str | None:
        show = program(tmp_path, 'echo "ipmitool: no route to $1" >&2; exit 1')
        path = tmp_path / "console.log"
        async with local_node("here") as host, kept_console(host, "lab1", show, "bmc1", path) as kept:
            await kept.process.rest()
            return kept.trouble()

    said = "the command that shows the console of lab1 has ended: ipmitool: no route to bmc1"
    assert asyncio.run(watch()) == said


def test_a_console_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "MAX_CONSOLE", 1 << 20)

    async def watch() -> None:
        show, path = program(tmp_path, "exec yes"), tmp_path / "kept"
        async with local_node("here") as host, kept_console(host, "lab1", show, "lab1", path) as kept:
            await kept.process.rest()
            assert kept.trouble() == "the console of lab1 has more than 1M: what came later is not kept"

    asyncio.run(watch())
    assert (tmp_path / "kept").stat().st_size == 1 << 20
