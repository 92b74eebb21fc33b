"""Real guests: copies with a clock and disks of their own, and what their QEMUs may do."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.guests import BEGUN, EXT4, guests, once_begun, qemus
from storlab.images.image import find_image
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.accelerator import qemu_version
from storlab.nodes.kinds.vm.command import Files, GuestSpec
from storlab.nodes.kinds.vm.confinement import Confinement, unused_user
from storlab.nodes.kinds.vm.guest import running_guest
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.kinds.vm.kind import initrd_with_agent
from storlab.nodes.kinds.vm.saved import saved_guest
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
    assert all(restored for _, _, restored in found)
    assert len({boot for _, boot, _ in found}) == 2
    assert max(error for error, _, _ in found) < CLOSE, found


def status_of(pid: int) -> dict[str, str]:
    """The lines of a process's status, see proc_pid_status(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def watched(lab: Laboratory, *names: str, **keys: str | None) -> dict[str, dict[str, str]]:
    """The status of each guest's QEMU while its load runs; ``keys`` as for ``guests``."""
    found = dict[str, dict[str, str]]()

    def look() -> None:
        found.update({name: status_of(pid) for name, pid in qemus(lab).items()})

    study = guests(f'echo "{BEGUN}" > /dev/console; sleep 3', rounds=1, trial="", rest="", **keys)
    with once_begun(lab, names, look):
        lab.execute(study)
    assert ([(record.status, record.reason) for record in lab.records()], lab.leftovers()) == ([("done", None)], [])
    return found


def facts_of(lab: Laboratory, guest: str) -> dict[str, object]:
    """What the records say of how its QEMU is confined."""
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
        assert len(users[name]) == 1
        assert min(users[name]) >= 0x70000000
        assert set(status["Gid"].split()) == set(status["Uid"].split())
        assert status["Groups"] in ("", status["Gid"].split()[0])
        assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert facts_of(lab, name) == {"user": "its own", "sandbox": True}
    assert found["vm-1"]["Uid"] != found["vm-2"]["Uid"]


@pytest.mark.needs("guests")
def test_a_qemu_that_serves_files_keeps_its_user_and_says_so(lab: Laboratory) -> None:
    found = watched(lab, "vm", count="1", stack='[{ layer = "directory" }, { layer = "9p" }]', from_='"host"')
    assert (set(found["vm"]["Uid"].split()), found["vm"]["Seccomp"]) == ({str(os.geteuid())}, "2")
    assert "9p" in str(facts_of(lab, "vm")["reason"])


def test_users_of_guests_are_nobody_and_what_qemu_can_not_do_is_left_out() -> None:
    users = {unused_user() for _ in range(1000)}
    assert len(users) > 990
    assert all(0x70000000 <= user < 0x80000000 for user in users)
    assert (Confinement().words(), Confinement(5, option="-runas").words()) == ([], ["-runas", "5:5"])
    assert "elevateprivileges=deny" in Confinement(sandbox=True).words()[1]
