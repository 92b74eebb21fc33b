"""Real guests: copies with a clock and disks of their own, what their QEMUs may do, and why a guest is gone."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from laboratory import Laboratory
from laboratory.guests import BEGUN, EXT4, guests, once_begun, qemus
from laboratory.samples import sample
from storlab.base.errors import NodeError
from storlab.base.programs import unused_user
from storlab.images.image import find_image
from storlab.nodes.console import console_text, killed_for_memory, panic, tail
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.causes import Causes, disk_error, last_word
from storlab.nodes.kinds.vm.command import Files, GuestSpec
from storlab.nodes.kinds.vm.emulator import Confinement, qemu_version
from storlab.nodes.kinds.vm.guest import running_guest, saved_guest
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.kinds.vm.kind import initrd_with_agent
from storlab.nodes.node import Node

# A copy that kept the saved clock would be wrong by OLD at least; a busy machine hands the time over late, by far less.
OLD = 3.0  # s
CLOSE = 1.0  # s


async def clock_error(node: Node) -> float:
    """Seconds by which a guest's clock is wrong at least, by the best of several looks."""
    errors = []
    async with aclosing(node.sample([], 0.05)) as samples:
        for _ in range(5):
            before = time.time()
            sample = await anext(samples)
            errors.append(max(before - sample.realtime - 0.05, sample.realtime - time.time(), 0.0))
    return min(errors)


@pytest.mark.needs("guests")
def test_two_copies_one_after_the_other_know_what_time_it_is_and_the_agent_is_the_last_to_be_killed() -> None:
    async def look() -> list[tuple[float, str, bool]]:
        image = find_image()
        initrd = initrd_with_agent(image)
        hardware = Hardware.model_validate({"memory": "192M", "accel": "tcg"})
        spec = GuestSpec("vm", hardware, image, initrd, "tcg", qemu=await qemu_version())
        found = []
        with tempfile.TemporaryDirectory(prefix="sl-") as folder:
            async with local_node("host") as host:
                saved = await saved_guest(spec, host, Path(folder), lambda _: None)
                await asyncio.sleep(OLD)
                for number in range(2):
                    files = Files(*(Path(folder) / f"{number}.{kind}" for kind in ("qmp", "agent", "console")))
                    async with running_guest(spec, host, files, saved, lambda _: None) as guest:
                        boot = await guest.node.read_text("/proc/sys/kernel/random/boot_id")
                        agent, own = (f"/proc/{each}/oom_score_adj" for each in (guest.node.pid, "self"))
                        assert int(await guest.node.read_text(agent)) == -900
                        assert int(await guest.node.output("cat", own)) == 0, "and not what it starts"
                        found.append((await clock_error(guest.node), boot, guest.restored))
                    assert guest.process.ended is not None
        return found

    found = asyncio.run(look())
    assert all(restored for _, _, restored in found) and len({boot for _, boot, _ in found}) == 2
    assert max(error for error, _, _ in found) < CLOSE, found


def status_of(pid: int) -> dict[str, str]:
    """The lines of a process's status, see proc_pid_status(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def watched(lab: Laboratory, *names: str, **keys: str | None) -> dict[str, dict[str, str]]:
    """The status of each guest's QEMU while its load runs; ``keys`` as for ``guests``."""
    found = dict[str, dict[str, str]]()

    def look() -> None:
        found.update({name: {**status_of(pid), "seen": seen_by(pid)} for name, pid in qemus(lab).items()})

    study = guests(f'echo "{BEGUN}" > /dev/console; sleep 3', rounds=1, trial="", rest="", **keys)
    with once_begun(lab, names, look):
        lab.succeed(study)
    return found


def seen_by(pid: int) -> str:
    root = Path(f"/proc/{pid}/root")
    return " ".join(sorted(path.name for folder in ("etc", "run", "home", "boot") for path in root.glob(f"{folder}/*")))


def facts_of(lab: Laboratory, guest: str) -> dict[str, object]:
    (record,) = lab.records()
    facts: dict[str, object] = record.guests[guest]["confinement"]
    return facts


@pytest.mark.needs("guests")
@pytest.mark.parametrize("start", ["restored", "cold"])
def test_each_guest_is_run_by_a_user_of_its_own_without_any_privilege(lab: Laboratory, start: str) -> None:
    found = watched(lab, "vm-1", "vm-2", start=json.dumps(start), stack=EXT4)
    users = {name: {int(number) for number in status["Uid"].split()} for name, status in found.items()}
    assert len(users) == 2
    for name, status in found.items():
        assert len(users[name]) == 1 and min(users[name]) >= 0x70000000
        assert set(status["Gid"].split()) == set(status["Uid"].split())
        assert status["Groups"] in ("", status["Gid"].split()[0])
        assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert status["seen"] == "ld.so.cache"
        assert facts_of(lab, name) == {"user": "its own", "sandbox": True}
    assert found["vm-1"]["Uid"] != found["vm-2"]["Uid"]


@pytest.mark.needs("guests")
def test_a_qemu_that_serves_files_keeps_its_user_and_says_so(lab: Laboratory) -> None:
    found = watched(lab, "vm", count="1", stack='[{ layer = "directory" }, { layer = "9p" }]', from_='"host"')
    assert (set(found["vm"]["Uid"].split()), found["vm"]["Seccomp"]) == ({str(os.geteuid())}, "2")
    assert "9p" in str(facts_of(lab, "vm")["reason"])


@pytest.mark.needs("guests", "root")
def test_guests_run_from_clones_of_their_image_on_the_disk_under_test(lab: Laboratory) -> None:
    stack = '[{ layer = "directory" }, { layer = "image-clone", base = { size = "2G", system = true } }, ROOT]'
    stack = stack.replace("ROOT", '{ layer = "virtio-blk" }, { layer = "root" }')
    lab.succeed(guests("modinfo xfs > /dev/null && echo > $target/x", stack=stack))
    (record,) = lab.records()
    assert {facts["root"] for facts in record.guests.values()} == {"its disk"}
    for node in ("vm-1", "vm-2"):
        assert (record.facts[node][-1]["layer"], record.facts[node][-1]["filesystem"]) == ("root", "ext4")


def test_users_of_guests_are_nobody_and_what_qemu_can_not_do_is_left_out() -> None:
    users = {unused_user() for _ in range(1000)}
    assert len(users) > 990 and all(0x70000000 <= user < 0x80000000 for user in users)
    assert (Confinement().words(), Confinement(5, option="-runas").words()) == ([], ["-runas", "5:5"])
    assert "elevateprivileges=deny" in Confinement(sandbox=True).words()[1]


USAGE = "printf 'no CPU 77\\n\\nusage: x\\n  --all\\n' >&2; exit 1"
LOST = "node vm: the stream to its agent closed"
OUT = "[ 9.5] Out of memory: Killed process 138 ({}) total-vm:200856kB, anon-rss:640kB\n"
ENDS = "storlab-init: the agent was killed by SIGKILL; powering off\n"
NO_MEMORY = "node vm: the guest ran out of memory, and its kernel killed its agent"
PANIC = sample(__file__, "golden/panic.txt")


Asked = Callable[[Causes, Node], Awaitable[Any]]


def cause_of(script: str, console: Path, asked: Asked = lambda causes, _: causes.name(LOST)) -> Any:
    """What is told of a QEMU that is only a shell script."""

    async def ask() -> Any:
        async with asyncio.timeout(30), local_node("host") as host:
            process = await host.start(["sh", "-c", script])
            said = await asked(Causes("vm", process, console), host)
            await process.end()
            return said

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("script", "console", "reason"),
    [
        ("kill -KILL $$", "", "node vm: QEMU was killed by SIGKILL"),
        ("kill -SEGV $$", "storlab-init: ready\n", "node vm: QEMU was killed by SIGSEGV"),
        ("echo first >&2; echo 'no such device' >&2; exit 1", "", "node vm: QEMU ended with status 1: no such device"),
        (USAGE, "", "node vm: QEMU ended with status 1: no CPU 77"),
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

    async def killed(causes: Causes, host: Node) -> str:
        assert host.pid is not None
        os.kill(host.pid, SIGKILL)
        return await causes.name(LOST)

    reason = "node host: the stream to its agent closed, and with the agent its virtual machines ended"
    assert cause_of("exec sleep 60", tmp_path / "none", killed) == reason


def test_a_silent_guest_that_ran_out_of_memory_says_so(tmp_path: Path) -> None:
    killed = "; it had run out of memory before, and its kernel had killed zpool"
    for console, memory in (("storlab-init: ready\n", ""), (OUT.format("zpool"), killed)):
        (tmp_path / "console").write_text(console)
        said = cause_of("exec sleep 60", tmp_path / "console", lambda causes, _: causes.hung(4))
        assert said == f"its agent has been silent for 4 s: the guest hangs{memory}"


def test_errors_of_a_disk_and_of_a_qemu_that_ends_before_its_monitor_opens_are_told_in_words(tmp_path: Path) -> None:
    for event, what, why in (
        ({"operation": "write", "nospace": True, "reason": "No space left"}, "a write to", "no space left there"),
        ({"operation": "read", "nospace": False, "reason": "It broke"}, "a read from", "It broke"),
        ({}, "an operation on", "I/O error"),
    ):
        assert disk_error(event) == f"{what} what is behind its disk failed: {why}; QEMU stopped the guest"
    script = "echo 'qemu: bad option' >&2; exit 1"
    with pytest.raises(NodeError) as raised:
        cause_of(script, tmp_path / "console", lambda causes, _: causes.monitor(tmp_path / "none"))
    assert str(raised.value) == "node vm: QEMU ended with status 1: qemu: bad option"


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
    assert len(text) < 100_000 and text.endswith("x\nend \ufffd\n")
