"""What scripts left is told from what was there before, and is laid to the script that was first."""

from __future__ import annotations

from storlab.nodes.agent.events import StepResult
from storlab.nodes.agent.steps import Done, Step, read
from storlab.run.suite.places.guest import usable
from storlab.run.suite.places.invariants import State, Watchman, parse_state
from storlab.suite.model import Leak

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


def test_nothing_is_left_where_all_was_put_back() -> None:
    changed = state(pools=b"arcstats\0dbgmsg\0tank\0", zfs=b"zfs_a\0009\n\0zfs_b\0x\n\0")
    assert leaks(changed, state()) == []


def test_who_was_first_is_named() -> None:
    pool = {"pools": b"arcstats\0dbgmsg\0tank\0"}
    changed = {**pool, "zfs": b"zfs_a\0009\n\0zfs_b\0x\n\0", "users": b""}
    assert leaks(state(), state(**pool), state(**changed), state(**changed)) == [
        Leak("pool", "tank", "/t/2"),
        Leak("parameter", "zfs_a = 9, was 1", "/t/3"),
        Leak("user", "root is gone", "/t/3"),
    ]


def test_parameters_that_were_not_read_again_are_those_of_before() -> None:
    set_ = state(zfs=b"zfs_a\0009\n\0zfs_b\0x\n\0")
    unread = {name: done(data) for name, data in BEFORE.items()}
    unread["zfs"] = Done(read("/x"), StepResult(found=False))
    assert parse_state(unread, set_) == set_ and parse_state(unread, state()) == state()
    assert leaks(set_, parse_state(unread, set_)) == [Leak("parameter", "zfs_a = 9, was 1", "/t/1")]


def test_a_module_that_was_loaded_or_unloaded_is_no_parameter() -> None:
    unloaded = {name: done(data) for name, data in BEFORE.items()}
    unloaded["zfs"] = Done(read("/x"), StepResult(message="nothing there", errno="ENOENT"))
    without = parse_state(unloaded, state())
    assert "zfs" not in without.parameters and without.beyond(state()) == state().beyond(without) == set()


def test_what_came_again_is_laid_to_who_brought_it_back() -> None:
    pool = state(pools=b"arcstats\0dbgmsg\0tank\0")
    assert leaks(pool, state(), pool) == [Leak("pool", "tank", "/t/3")]


def test_devices_and_targets_that_are_made_by_configfs_are_named() -> None:
    changed = state(
        configfs_nullb=b"features\0nullb0\0", devices=BEFORE["devices"] + b" 250 0 4 nullb0\n",
        **{"configfs_nvmet/subsystems": b"nqn.test\0"},
    )  # fmt: skip
    assert {(leak.kind, leak.what) for leak in leaks(changed)} == {
        ("configfs", "nullb/nullb0"),
        ("configfs", "nvmet/subsystems/nqn.test"),
        ("device", "nullb0"),
    }


def test_partitions_of_the_suites_disks_are_none_but_devices_made_of_others_are() -> None:
    devices = BEFORE["devices"] + b" 254 9 1 vda9\n 7 0 4 loop0\n 230 0 4 zd0\n 253 0 4 dm-0\n"
    found = {leak.what for leak in leaks(state(devices=devices))}
    assert found == {"loop0", "zd0", "dm-0"}


def test_mounts_are_known_by_place_and_by_whether_they_can_be_written() -> None:
    mounts = b"1 1 0:1 / / rw - tmpfs x rw\n2 1 0:2 / /mnt ro - ext4 x rw\n3 2 0:3 / /mnt\\040b rw - ext4 x rw\n"
    assert {leak.what for leak in leaks(state(mounts=mounts))} == {"/mnt = ro, was rw", "/mnt b = rw"}


def test_memory_counts_once_it_is_much() -> None:
    little, much = b"Shmem: 9000 kB\n", b"Shmem: 90000 kB\nSUnreclaim: 5000 kB\n"
    assert leaks(state(memory=little)) == []
    assert leaks(state(), state(memory=much)) == [Leak("memory", "87 MiB more of files in memory", "/t/2")]


def test_a_number_that_no_machine_has_is_left_out() -> None:
    assert state(memory=b"Shmem: " + b"9" * 5000 + b" kB\n").memory == {}


def test_processes_that_were_killed_for_memory_are_counted_since_the_last_look() -> None:
    watchman = Watchman(state())
    assert watchman.saw(state(events=b"oom_kill 5\n"), "/t/1") == 3
    assert watchman.saw(state(events=b"oom_kill 5\n"), "/t/2") == 0


def test_what_cannot_be_read_is_left_out_and_nonsense_is_no_error() -> None:
    failed = {name: Done(Step("read", name), StepResult(message="gone")) for name in BEFORE}
    assert leaks(parse_state(failed, State()))[:1] == []
    odd = {name: Done(read(name), StepResult(size=9), b"\xff\0 : \n\n=\0") for name in BEFORE}
    parse_state(odd, State())


def test_no_test_gets_a_disk_whose_name_begins_other_words() -> None:
    assert usable(["/dev/vdg", "/dev/vde", "/dev/vdd", "/dev/vdf"], 3) == ["/dev/vdd", "/dev/vdf", "/dev/vdg"]
    assert usable(["/dev/vdg", "/dev/vdd", "/dev/vdf"], 2) == ["/dev/vdd", "/dev/vdf"]
