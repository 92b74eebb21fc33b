"""What a console says of a guest's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from storlab.nodes.kinds.vm.causes import console_text, killed_for_memory, last_word, panic, tail

PANIC = """\
[    0.513370] storlab-init: ready
[    9.100000] BUG: kernel NULL pointer dereference, address: 0000000000000000
[    9.200000] Kernel panic - not syncing: Fatal exception in interrupt
[    9.300000] CPU: 0 UID: 0 PID: 1 Comm: init
"""
OOM = (
    "[  6.387707] Out of memory: Killed process 139 (tail) total-vm:129408kB, anon-rss:126848kB\n"
    "[  7.001234] Out of memory: Killed process 140 (my load (2)) total-vm:129408kB, anon-rss:126848kB\n"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PANIC, "Fatal exception in interrupt"),
        ("Kernel panic - not syncing: VFS: Unable to mount root fs\n", "VFS: Unable to mount root fs"),
        ("[ 1.0] Kernel panic - not syncing: sysrq triggered crash", "sysrq triggered crash"),
        ("storlab-init: ready\n", None),
        ("", None),
    ],
)
def test_a_panic_is_told_by_its_reason(text: str, reason: str | None) -> None:
    assert panic(text) == reason


def test_the_program_that_memory_ran_out_for_is_the_last_one_that_was_killed() -> None:
    assert killed_for_memory(OOM) == "my load (2)"
    assert killed_for_memory(PANIC) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("storlab-init: ready\nstorlab-init: no root; powering off\n[ 9.1] reboot: Power down\n", "no root"),
        ("[    0.1] storlab-init: ready", "ready"),
        ("reboot: Power down", None),
    ],
)
def test_the_first_process_has_the_last_word_but_for_its_good_bye(text: str, word: str | None) -> None:
    assert last_word(text) == word


def test_the_end_is_thirty_lines_without_times_and_without_empty_ones() -> None:
    text = "\n\n".join(f"[    {number}.000000] line {number}" for number in range(100))
    assert tail(text).splitlines() == [f"line {number}" for number in range(70, 100)]
    assert tail("") == ""


def test_the_end_of_a_panic_begins_with_its_reason_at_the_latest() -> None:
    trace = "".join(f"[    9.300000]  frame{number}\n" for number in range(60))
    lines = tail("boot\n" * 100 + PANIC + trace).splitlines()
    assert lines[0] == "Kernel panic - not syncing: Fatal exception in interrupt"
    assert lines[-1] == " frame59"
    assert tail("boot\n" * 100 + PANIC).splitlines()[:26] == ["boot"] * 26, "what led to it is there, too"
    assert len(tail(PANIC + trace * 3).splitlines()) == 80, "but not everything"


def test_only_the_end_of_a_console_is_read_and_none_is_an_empty_one(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    assert console_text(console) == ""
    console.write_bytes(b"x" * 1_000_000 + b"\r\nend \xff\r\n")
    text = console_text(console)
    assert len(text) < 100_000
    assert text.endswith("x\nend \ufffd\n")
