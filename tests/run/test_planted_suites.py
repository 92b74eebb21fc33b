"""Planted tests that do to a guest whatever tests do: each has its outcome and its cause, and the rest runs on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Ended, Laboratory
from laboratory.guests import needs_guests
from run.test_suites import OWN, laboratory, planted, result
from storlab.records.suite import SuiteRun, read_suite_run
from storlab.run.suite.output import MOST
from storlab.suite.model import Outcome

pytestmark = pytest.mark.slow

_DM_STUCK = """
disk=/dev/${DISKS%% *}
dmsetup create stuck --table "0 $(blockdev --getsz $disk) linear $disk 0"
dmsetup suspend --nolockfs stuck
echo it begins
exec dd if=/dev/mapper/stuck of=/dev/null count=1 iflag=direct
"""
_FILL = """
for size in 8G 4G 2G 1G 512M 256M 128M 64M 32M 16M 8M 4M; do fallocate -l $size /var/tmp/$size 2> /dev/null; done
dd if=/dev/zero of=/var/tmp/rest bs=64k
"""
# The kernel kills at once, and not only after it has looked for memory for long.
_EAT = """
echo 1000 > /sys/kernel/mm/lru_gen/min_ttl_ms
exec python3 -c 'held = [b"x" * (200 << 20) for each in range(20)]'
"""
_GIB = 1024**3
_STILL = {"still": "echo still here"}
_TESTS: dict[tuple[str, int], dict[str, str]] = {
    ("stuck", 3): {"d_state": _DM_STUCK, "kills_all": "sync; kill -9 1; kill -9 -1; sleep 1000", **_STILL},
    ("crashes", 60): {
        "crashes": "echo going down; sleep 0.3; echo c > /proc/sysrq-trigger; sleep 1000",
        "powers_off": "echo o > /proc/sysrq-trigger; sleep 1000",
        **_STILL,
    },
    ("loads", 150): {
        "eats_memory": _EAT,
        "prints_much": f"head -c {_GIB} /dev/zero",
        "spoils": "touch /var/tmp/spoilt",
        "after_another": "test ! -e /var/tmp/spoilt",
        **_STILL,
    },
    ("ends", 3): {
        "setsid": "setsid sh -c 'trap \"\" TERM; sleep 1000 & wait; sleep 1000' & setsid sleep 1000 & echo $$; wait",
        "fills_disk": _FILL,
        **_STILL,
    },
    ("leaves", 60): {
        "pool": "truncate -s 128M /var/tmp/vdev; zpool create leftpool /var/tmp/vdev",
        "parameter": "echo 7 > /sys/module/zfs/parameters/zfs_txg_timeout",
        "mount": "mkdir -p /var/tmp/m; mount -t tmpfs left /var/tmp/m",
        "user": "useradd left-user",
        "loop": "truncate -s 1M /var/tmp/loop; losetup --find /var/tmp/loop",
        "memory": "head -c 64M /dev/zero > /tmp/left",
        "daemon": "cp /bin/sleep /tmp/left-by-test; setsid /tmp/left-by-test 1000 > /dev/null 2>&1 &",
        "no_udev": "killall -9 systemd-udevd",
        "tidy": "d=$(losetup --find --show /var/tmp/loop); losetup -d $d; useradd t; userdel t; zpool list leftpool",
    },
}
_RUNFILE = "[DEFAULT]\npre =\npost =\nuser = root\ntags = ['own']\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Laboratory, Ended, SuiteRun]]:
    runfile = _RUNFILE
    scripts: dict[str, str] = {}
    for (group, timeout), tests in _TESTS.items():
        runfile += f"\n[tests/{group}]\ntests = {list(tests)}\ntimeout = {timeout}\n"
        scripts |= {f"tests/{group}/{name}": script for name, script in tests.items()}
    for lab in laboratory(tmp_path_factory.mktemp("planted")):
        own = planted(lab.folder / "own", scripts, runfile)
        options = ("--guests", "2", "--timeout-scale", "1")
        said = lab.storlab("suite", "run", own, "--tests", own.parent, "--out", lab.out, *options, timeout=550)
        yield lab, said, read_suite_run(lab.out)


def printed(run: tuple[Laboratory, Ended, SuiteRun], path: str) -> Path:
    return run[0].out / result(run[2], path).folder


@needs_guests
def test_each_has_its_outcome_and_whatever_follows_runs(run: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, said, records = run
    outcomes = {key[1].removeprefix(f"{OWN}/"): each.outcome for key, each in records.results.items()}
    unusual = {
        "stuck/d_state": Outcome.HUNG,
        "stuck/kills_all": Outcome.CRASHED,
        "crashes/crashes": Outcome.CRASHED,
        "crashes/powers_off": Outcome.CRASHED,
        "loads/eats_memory": Outcome.FAIL,
        "loads/after_another": Outcome.FAIL,
        "ends/setsid": Outcome.KILLED,
        "ends/fills_disk": Outcome.FAIL,
    }
    everything = {f"{group}/{name}": Outcome.PASS for (group, _), tests in _TESTS.items() for name in tests}
    assert outcomes == everything | unusual, said
    assert said.status == 3 and records.finished is not None


@needs_guests
def test_each_has_its_cause(run: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, _, records = run
    causes = {path: result(records, path).reason for path in ("/kills_all", "/crashes", "/powers_off", "/eats_memory")}
    assert causes == {
        "/kills_all": "the guest powered off: the agent was killed by SIGKILL",
        "/crashes": "the guest's kernel panicked: sysrq triggered crash",
        "/powers_off": "the guest powered off",
        "/eats_memory": "it was ended by SIGKILL; memory ran out, and the kernel killed 1 process",
    }
    assert "not even KILL ended it, so its guest was given up" in result(records, "/d_state").reason
    assert "D (disk sleep)" in (printed(run, "/d_state") / "killed.txt").read_text()
    assert "No space left on device" in (printed(run, "/fills_disk") / "stderr").read_text()
    assert (printed(run, "/crashes") / "stdout").read_text() == "going down\n"


@needs_guests
def test_once_a_guest_was_lost_a_spare_one_takes_the_place_of_the_next(run: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, _, records = run
    served = {attempt.guest for attempt in records.attempts if attempt.console.endswith("-spare-1")}
    assert len(served) == 1 and served <= {"guest-1", "guest-2"}
    first = min(attempt.started for attempt in records.attempts if attempt.console.endswith("-spare-1"))
    lost = (Outcome.CRASHED, Outcome.HUNG)
    assert sum(attempt.outcome in lost and attempt.started < first for attempt in records.attempts) >= 2


@needs_guests
def test_all_processes_of_a_test_end_with_it(run: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, _, records = run
    assert result(records, "/setsid").reason.endswith("did not end for TERM within 10 s")
    assert not [leak for leak in result(records, "/ends/still").leaks if leak.kind == "process"]


@needs_guests
def test_of_much_output_the_begin_is_kept(run: tuple[Laboratory, Ended, SuiteRun]) -> None:
    much = result(run[2], "/prints_much")
    assert (much.outcome, much.dropped) == (Outcome.PASS, _GIB - MOST)
    assert (printed(run, "/prints_much") / "stdout").stat().st_size == MOST


@needs_guests
def test_what_is_left_behind_is_named_with_who_left_it(run: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, said, records = run
    leaks = {(leak.by.rpartition("/")[2], leak.kind, leak.what) for leak in result(records, "/tidy").leaks}
    assert leaks == {
        ("pool", "pool", "leftpool"),
        ("pool", "mount", "/leftpool = rw"),
        ("parameter", "parameter", "zfs_txg_timeout = 7, was 5"),
        ("mount", "mount", "/var/tmp/m = rw"),
        ("user", "user", "left-user"),
        ("user", "group", "left-user"),
        ("loop", "device", "loop0"),
        ("memory", "memory", "64 MiB more of files in memory"),
        ("daemon", "process", "left-by-test"),
        ("no_udev", "service", "systemd-udevd was ended"),
    }
    assert "  tests/leaves/pool: pool leftpool\n" in said.stdout
    assert "tests/leaves/user: user left-user" in (run[0].out / "report.html").read_text()
