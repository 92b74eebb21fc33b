"""Guests that are lost, spare, slow or left changed: what is tried again, who did it, and when a script is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from storlab.base.errors import CommandFailed, NodeError
from storlab.nodes.agent.protocol import StepResult
from storlab.nodes.agent.steps import Done, Step, read
from storlab.suites.model import Attempt, Group, Leak, Outcome, Role, Script
from storlab.suites.places.invariants import State, Watchman, parse_state
from storlab.suites.places.kinds import usable
from storlab.suites.places.place import Booted, GuestLost, Spare
from storlab.suites.run import attempt
from storlab.suites.run.attempt import Work, kernel_complaint, parse_work
from storlab.suites.run.execution import Queue, Shard, run_all
from storlab.suites.run.part import Part
from suite.samples import GOLDEN

T = TypeVar("T")
GROUP = Group("tests", (Script("/t/breaks", "root"), Script("/t/rest", "root")))


@dataclass
class LosingGuests:
    """In which the first test loses every guest."""

    retries: int
    losses: dict[str, int] = field(default_factory=dict)
    tried: list[tuple[str, int]] = field(default_factory=list)
    written: list[Attempt] = field(default_factory=list)

    def part(self, group: Group) -> Part:
        terms: Any = SimpleNamespace(
            retries=self.retries, scale=1.0, adapter=SimpleNamespace(runner="tester"), record=SimpleNamespace(
                folder=None, printed=None, add=lambda attempt, runner: self.written.append(attempt),
            ),
            place=SimpleNamespace(session=None), stops=False, hold=None,
        )  # fmt: skip
        guest: Any = SimpleNamespace(state=State(), name="guest-1")
        part = Part(terms, guest, group, self.losses)

        async def run(script: Script, role: Role, number: int = 1, below: str = "") -> Attempt:
            self.tried.append((script.path, number))
            raise GuestLost("gone")

        part._run = run  # type: ignore[method-assign]
        return part

    def lose(self, group: Group) -> tuple[Script, ...]:
        part = self.part(group)
        with pytest.raises(GuestLost):
            asyncio.run(part.run())
        return part.left


@pytest.mark.parametrize(("retries", "guests"), [(0, 1), (1, 2), (5, 2)])
def test_a_test_that_lost_two_guests_is_not_tried_again(retries: int, guests: int) -> None:
    lab = LosingGuests(retries)
    left = GROUP.tests
    while left == GROUP.tests:
        left = lab.lose(Group("tests", left))
    assert lab.tried == [("/t/breaks", number) for number in range(1, guests + 1)]
    assert [test.path for test in left] == ["/t/rest"]


def test_the_only_test_of_a_group_whose_set_up_lost_two_guests_is_skipped() -> None:
    lab = LosingGuests(0)
    group = Group("tests", GROUP.tests[:1], pre=Script("/t/setup", "root"))
    assert lab.lose(group) == group.tests and lab.lose(group) == () and lab.losses == {"/t/setup": 2}
    assert [(attempt.path, attempt.outcome) for attempt in lab.written] == [("/t/breaks", Outcome.SKIP)]


def test_a_guest_in_which_a_command_failed_while_it_was_prepared_is_tried_again() -> None:
    tries: list[str] = []

    async def opened(place: object, name: str, notify: object) -> Any:
        tries.append(name)
        raise CommandFailed("udevadm settle ended with status 1")

    async def no_spare() -> None:
        return None

    terms: Any = SimpleNamespace(place=None, record=SimpleNamespace(opened=opened), stops=False)
    spare: Any = SimpleNamespace(take=no_spare)
    shard = Shard("guest-1", terms, Queue([GROUP]), lambda said: None, spare)
    said = "guest-1: no guest could be had in 3 tries: udevadm settle ended with status 1"
    assert asyncio.run(run_all([shard])) == [said]
    assert tries == ["guest-1"] * 3


GIB = 1024**3


@dataclass
class SpareGuests:
    """Opens guests that are only names, and closes them."""

    available: int = 8 * GIB
    here: Any = None
    fails: bool = False
    slow: float = 0.0
    begun: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    @property
    def session(self) -> Any:
        return SimpleNamespace(host=self)

    async def read_text(self, path: str) -> str:
        assert path == "/proc/meminfo"
        return f"MemAvailable: {self.available // 1024} kB\n"

    async def booted(self) -> Booted:
        return Booted(2 * GIB)

    async def opened(self, name: str) -> Any:
        self.begun.append(name)
        await asyncio.sleep(self.slow)
        if self.fails:
            raise NodeError("it did not boot")
        return SimpleNamespace(name=name, node=SimpleNamespace(lost=None))

    async def close(self, guest: Any) -> None:
        self.closed.append(guest.name)

    def spare(self) -> Spare:
        place: Any = self
        return Spare(place, self.opened)


def with_spare(guests: SpareGuests, work: Callable[[Spare], Awaitable[T]]) -> T:
    async def run() -> T:
        async with guests.spare() as spare:
            return await work(spare)

    return asyncio.run(run())


def name_of(guest: Any) -> str | None:
    return guest.name if guest else None


async def prepared(spare: Spare) -> Any:
    await spare.prepare()
    return await spare.take()


def test_a_spare_guest_is_had_once_and_the_next_is_another() -> None:
    async def take(spare: Spare) -> list[str | None]:
        taken = [await spare.take()]
        for _ in range(2):
            await spare.prepare()
            taken += [await prepared(spare), await spare.take()]
        return [*map(name_of, taken)]

    guests = SpareGuests()
    assert with_spare(guests, take) == [None, "spare-1", None, "spare-2", None]
    assert guests.begun == ["spare-1", "spare-2"] and guests.closed == []


def test_of_two_who_want_a_spare_guest_while_it_is_prepared_one_gets_it() -> None:
    async def take(spare: Spare) -> set[str | None]:
        await spare.prepare()
        return {*map(name_of, await asyncio.gather(spare.take(), spare.take()))}

    assert with_spare(SpareGuests(slow=0.05), take) == {None, "spare-1"}


def test_a_spare_guest_that_was_lost_meanwhile_is_ended_and_not_had() -> None:
    async def take(spare: Spare) -> Any:
        await spare.prepare()
        assert spare._coming is not None
        waiting: Any = await spare._coming
        waiting.node.lost = "its QEMU was killed"
        return await spare.take()

    guests = SpareGuests()
    assert with_spare(guests, take) is None and guests.closed == ["spare-1"]


def test_a_spare_guest_that_does_not_boot_is_none_and_there_is_none_without_memory_or_guests() -> None:
    assert with_spare(SpareGuests(fails=True), prepared) is None
    for guests in (SpareGuests(available=3 * GIB), SpareGuests(here="this machine")):
        assert with_spare(guests, prepared) is None and guests.begun == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_spare_guest_that_nobody_took_is_ended(fails: bool) -> None:
    async def leave(spare: Spare) -> None:
        await spare.prepare()
        await asyncio.sleep(0.01)

    guests = SpareGuests(fails=fails)
    with_spare(guests, leave)
    assert guests.closed == ([] if fails else ["spare-1"])


@pytest.mark.parametrize("waits", [False, True])
def test_a_spare_guest_that_is_still_being_prepared_ends_with_the_run_and_with_who_waits_for_it(waits: bool) -> None:
    async def leave(spare: Spare) -> asyncio.Task[Any]:
        await spare.prepare()
        coming = spare._coming
        assert coming is not None
        if waits:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await spare.take()
        return coming

    assert with_spare(SpareGuests(slow=1000), leave).cancelled()


@pytest.mark.parametrize(("scale", "look"), [(0.1, 0.01), (1.0, 0.1), (4.0, 0.1)])
def test_a_script_is_looked_at_four_times_within_a_time_out_that_was_shortened(
    scale: float, look: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def rests(process: object, seconds: float) -> bool:
        waits.append(seconds)
        await asyncio.sleep(seconds)
        return False

    async def texts(*paths: str) -> tuple[str, str]:
        return f"usage_usec {len(waits) * 10**6}\n", ""  # it works all the time

    monkeypatch.setattr(attempt, "_rests", rests)
    running: Any = SimpleNamespace(scale=scale, held=0.0, guest=SimpleNamespace(node=SimpleNamespace(texts=texts)))
    process: Any = SimpleNamespace(cgroup="/none")
    output: Any = SimpleNamespace(last=None)
    reason = asyncio.run(attempt._until_time_out(running, 0.4, process, output))
    assert reason is not None and reason.startswith(f"it took longer than {round(0.4 * scale, 1):g} s")
    assert waits == pytest.approx([look] * len(waits))


CPU = "usage_usec 1500000\nuser_usec 1\n"
DISKS = (GOLDEN / "diskstats.txt").read_text()
ASSERTION = (GOLDEN / "assertion.txt").read_text()


def test_a_script_that_computes_or_reads_is_slow_and_one_that_does_neither_hangs() -> None:
    assert parse_work(CPU, DISKS) == Work(1.5, 130)
    assert parse_work("", "") == parse_work("usage_usec x", "\xff 1 2") == Work()
    assert Work(1.0, 100).idle_since(Work(1.0, 100), 45.0)
    assert Work(1.4, 131).idle_since(Work(1.0, 100), 45.0)
    assert not Work(1.5, 100).idle_since(Work(1.0, 100), 45.0)
    assert not Work(1.0, 132).idle_since(Work(1.0, 100), 45.0)


def test_a_failed_assertion_of_zfs_and_a_bug_of_the_kernel_are_named() -> None:
    failed = "VERIFY3(tx->tx_txg <= spa_final_dirty_txg(os->os_spa)) failed (62 <= 61), in dbuf.c:2331:dbuf_dirty()"
    assert kernel_complaint(ASSERTION) == f"ZFS failed an assertion: {failed}"
    bug = "BUG: kernel NULL pointer dereference, address: 0000000000000008"
    assert kernel_complaint(f"[    1.0] {bug}\n[    1.0] #PF: x\n") == f"the kernel's log has: {bug}"
    assert kernel_complaint("[    1.0] all is well\n") == ""


BEFORE = {
    "pools": b"arcstats\0dbgmsg\0",
    "mounts": b"1 1 0:1 / / rw - tmpfs x rw\n2 1 0:2 / /mnt rw,noatime - ext4 x rw\n",
    "users": b"root:x:0:0::/:/bin/sh\n",
    "groups": b"root:x:0:\n",
    "devices": b"major minor  #blocks  name\n\n 254 0 100 vda\n 254 1 99 vda1\n",
    "swaps": b"Filename Type\n",
    "memory": b"MemTotal: 1000000 kB\nShmem: 100 kB\nSUnreclaim: 5000 kB\n",
    "events": b"nr_free 1\noom_kill 2\n",
    "zfs": b"zfs_a\0001\n\0zfs_b\0x\n\0",
    "spl": b"spl_a\0001\n\0",
}


def state(**changed: bytes) -> State:
    contents = BEFORE | {name.replace("configfs_", "configfs "): data for name, data in changed.items()}
    return parse_state({name: done(data) for name, data in contents.items()}, State())


def done(data: bytes) -> Done:
    return Done(read("/x"), StepResult(size=len(data)), data)


def leaks(*states: State) -> list[Leak]:
    watchman = Watchman(state())
    for number, each in enumerate(states, 1):
        watchman.saw(each, f"/t/{number}")
    return watchman.leaks


def what(*states: State) -> set[str]:
    return {leak.what for leak in leaks(*states)}


POOL = {"pools": b"arcstats\0dbgmsg\0tank\0"}
SET = {"zfs": b"zfs_a\0009\n\0zfs_b\0x\n\0"}


def test_who_was_first_to_leave_something_is_named_unless_all_was_put_back() -> None:
    assert leaks(state(**POOL, **SET), state()) == []
    assert leaks(state(**POOL), state(), state(**POOL)) == [Leak("pool", "tank", "/t/3")]
    changed = state(**POOL, **SET, users=b"")
    later = [Leak("parameter", "zfs_a = 9, was 1", "/t/3"), Leak("user", "root is gone", "/t/3")]
    assert leaks(state(), state(**POOL), changed, changed) == [Leak("pool", "tank", "/t/2"), *later]


def test_parameters_that_were_not_read_again_are_those_of_before_and_a_module_is_none() -> None:
    changed, unread = state(**SET), {name: done(data) for name, data in BEFORE.items()}
    unread["zfs"] = Done(read("/x"), StepResult(found=False))
    assert parse_state(unread, changed) == changed and parse_state(unread, state()) == state()
    assert leaks(changed, parse_state(unread, changed)) == [Leak("parameter", "zfs_a = 9, was 1", "/t/1")]
    unread["zfs"] = Done(read("/x"), StepResult(message="nothing there", errno="ENOENT"))
    without = parse_state(unread, state())
    assert "zfs" not in without.parameters and without.beyond(state()) == state().beyond(without) == set()


def test_devices_mounts_and_targets_of_configfs_are_named_but_no_partition_of_the_suites_disks() -> None:
    devices = BEFORE["devices"] + b" 250 0 4 nullb0\n"
    made = {"configfs_nullb": b"features\0nullb0\0", "configfs_nvmet/subsystems": b"nqn.test\0"}
    in_configfs = {("configfs", "nullb/nullb0"), ("configfs", "nvmet/subsystems/nqn.test")}
    found = {(leak.kind, leak.what) for leak in leaks(state(devices=devices, **made))}
    assert found == in_configfs | {("device", "nullb0")}
    devices = BEFORE["devices"] + b" 254 9 1 vda9\n 7 0 4 loop0\n 230 0 4 zd0\n 253 0 4 dm-0\n"
    assert what(state(devices=devices)) == {"loop0", "zd0", "dm-0"}
    mounts = b"1 1 0:1 / / rw - tmpfs x rw\n2 1 0:2 / /mnt ro - ext4 x rw\n3 2 0:3 / /mnt\\040b rw - ext4 x rw\n"
    assert what(state(mounts=mounts)) == {"/mnt = ro, was rw", "/mnt b = rw"}


def test_memory_counts_once_it_is_much_and_processes_that_were_killed_for_it_since_the_last_look() -> None:
    little, much = b"Shmem: 9000 kB\n", b"Shmem: 90000 kB\nSUnreclaim: 5000 kB\n"
    assert leaks(state(memory=little)) == []
    assert leaks(state(), state(memory=much)) == [Leak("memory", "87 MiB more of files in memory", "/t/2")]
    assert state(memory=b"Shmem: " + b"9" * 5000 + b" kB\n").memory == {}
    watchman = Watchman(state())
    assert [watchman.saw(state(events=b"oom_kill 5\n"), f"/t/{number}") for number in (1, 2)] == [3, 0]


def test_what_cannot_be_read_is_left_out_and_nonsense_is_no_error() -> None:
    failed = {name: Done(Step("read", name), StepResult(message="gone")) for name in BEFORE}
    assert leaks(parse_state(failed, State()))[:1] == []
    odd = {name: Done(read(name), StepResult(size=9), b"\xff\0 : \n\n=\0") for name in BEFORE}
    parse_state(odd, State())


def test_no_test_gets_a_disk_whose_name_begins_other_words() -> None:
    assert usable(["/dev/vdg", "/dev/vde", "/dev/vdd", "/dev/vdf"], 3) == ["/dev/vdd", "/dev/vdf", "/dev/vdg"]
    assert usable(["/dev/vdg", "/dev/vdd", "/dev/vdf"], 2) == ["/dev/vdd", "/dev/vdf"]
