from __future__ import annotations

import pytest

from storlab.doctor import host

from .fake_machine import FakeMachine

GIB = 1024**3
CLOCK = "/sys/devices/system/clocksource/clocksource0"
ROOT_MOUNT = "1 0 254:0 / / rw - ext4 /dev/vda rw"


def test_without_root_the_remedy_is_root() -> None:
    check = host.root(FakeMachine(root=False))
    assert (check.status, check.remedy) == ("missing", "run it as root, or with sudo")


def test_one_processor_is_a_warning() -> None:
    machine = FakeMachine({"/proc/cpuinfo": "processor\t: 0\nmodel name\t: Small One"})
    assert host.processors(machine, 1).status == "warn"
    assert host.processors(machine, 2).says == "2, Small One"


@pytest.mark.parametrize(("available", "status"), [(8, "ok"), (0.5, "warn")])
def test_memory_is_told_in_gibibytes(available: float, status: str) -> None:
    kib = int(available * 1024**2)
    check = host.memory(FakeMachine({"/proc/meminfo": f"MemTotal: 16777216 kB\nMemAvailable: {kib} kB"}))
    assert check.status == status
    assert "of 16.0G" in check.says


def test_scratch_space_names_the_file_system_that_it_lies_on() -> None:
    mounts = f"{ROOT_MOUNT}\n2 1 254:1 / /var rw - xfs /dev/vdb rw\n3 1 0:9 / /var/tmpfiles rw - tmpfs none rw"
    check = host.space(FakeMachine({"/proc/self/mountinfo": mounts}), 10 * GIB)
    assert (check.status, check.says) == ("ok", "10.0G free, xfs")


def test_scratch_space_in_memory_is_a_warning() -> None:
    mounts = f"{ROOT_MOUNT}\n2 1 0:9 / /var/tmp rw - tmpfs none rw"
    assert host.space(FakeMachine({"/proc/self/mountinfo": mounts}), 10 * GIB).status == "warn"


def test_little_scratch_space_is_a_warning() -> None:
    assert host.space(FakeMachine({"/proc/self/mountinfo": ROOT_MOUNT}), GIB).status == "warn"


def test_a_slow_clock_source_has_a_faster_one_as_remedy() -> None:
    files = {f"{CLOCK}/current_clocksource": "hpet", f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm"}
    check = host.clock(FakeMachine(files))
    assert (check.status, check.remedy) == ("warn", f"echo tsc > {CLOCK}/current_clocksource")


def test_the_governor_performance_is_right() -> None:
    cpus = [f"/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor" for number in (0, 1, 10)]
    assert host.frequency(FakeMachine(dict.fromkeys(cpus, "performance"))).status == "ok"
    mixed = FakeMachine({**dict.fromkeys(cpus, "performance"), cpus[1]: "powersave"})
    assert host.frequency(mixed).says == "governor performance, powersave: speed follows load"


def test_turbo_is_switched_off_where_this_processor_has_its_switch() -> None:
    folder = "/sys/devices/system/cpu"
    assert host.turbo(FakeMachine({f"{folder}/intel_pstate/no_turbo": "1"})).status == "ok"
    assert "echo 0 > " in host.turbo(FakeMachine({f"{folder}/cpufreq/boost": "1"})).remedy
    assert "echo 1 > " in host.turbo(FakeMachine({f"{folder}/intel_pstate/no_turbo": "0"})).remedy


def test_cgroups_are_told_apart_by_version() -> None:
    assert host.cgroups(FakeMachine({"/sys/fs/cgroup/cgroup.controllers": "cpu io memory"})).status == "ok"
    assert host.cgroups(FakeMachine({"/sys/fs/cgroup/cgroup.controllers": "cpu memory"})).status == "warn"
    both = "1 1 0:1 / /a rw - cgroup cgroup rw\n2 1 0:2 / /b rw - cgroup2 cgroup2 rw"
    assert host.cgroups(FakeMachine({"/proc/self/mountinfo": both})).says.startswith("v1 and v2")
    assert host.cgroups(FakeMachine()).status == "missing"
