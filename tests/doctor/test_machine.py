"""What the doctor says of host, kernel, storage and programs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storlab.doctor import host, kernel, tracing, workloads
from storlab.doctor.host import SCRATCH
from storlab.doctor.machine import (
    REMEDY,
    Machine,
    feature,
    feature_with_program,
    has_feature,
    program,
    version,
    why_not,
)

from .fake_machine import FakeMachine

GIB = 1024**3
CLOCK = "/sys/devices/system/clocksource/clocksource0"
ROOT_MOUNT = "1 0 254:0 / / rw - ext4 /dev/vda rw"


def test_root_processors_and_memory_are_told() -> None:
    check = host.root(FakeMachine(root=False))
    assert (check.status, check.remedy) == ("missing", "run it as root, or with sudo")
    machine = FakeMachine({"/proc/cpuinfo": "processor\t: 0\nmodel name\t: Small One"})
    assert (host.processors(machine, 1).status, host.processors(machine, 2).says) == ("warn", "2, Small One")
    for available, status in ((8 * 1024**2, "ok"), (1024**2 // 2, "warn")):
        check = host.memory(FakeMachine({"/proc/meminfo": f"MemTotal: 16777216 kB\nMemAvailable: {available} kB"}))
        assert check.status == status and "of 16.0G" in check.says


@pytest.mark.parametrize(
    ("mounted", "free", "status"),
    [
        ("\n2 1 254:1 / /var rw - xfs /dev/vdb rw\n3 1 0:9 / /var/tmpfiles rw - tmpfs none rw", 10, "ok"),
        ("\n2 1 0:9 / /var/tmp rw - tmpfs none rw", 10, "warn"),
        ("", 1, "warn"),
    ],
    ids=["disk", "memory", "little"],
)
def test_scratch_space_names_its_file_system_and_little_or_memory_is_a_warning(
    mounted: str, free: int, status: str
) -> None:
    check = host.space(FakeMachine({"/proc/self/mountinfo": ROOT_MOUNT + mounted}), free * GIB)
    assert check.status == status and (status == "warn" or check.says == "10.0G free, xfs")


def test_clock_governor_and_turbo_have_their_remedies() -> None:
    files = {f"{CLOCK}/current_clocksource": "hpet", f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm"}
    check = host.clock(FakeMachine(files))
    assert (check.status, check.remedy) == ("warn", f"echo tsc > {CLOCK}/current_clocksource")
    cpus = [f"/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor" for number in (0, 1, 10)]
    assert host.frequency(FakeMachine(dict.fromkeys(cpus, "performance"))).status == "ok"
    mixed = FakeMachine({**dict.fromkeys(cpus, "performance"), cpus[1]: "powersave"})
    assert host.frequency(mixed).says == "governor performance, powersave: speed follows load"
    folder = "/sys/devices/system/cpu"
    assert host.turbo(FakeMachine({f"{folder}/intel_pstate/no_turbo": "1"})).status == "ok"
    assert "echo 0 > " in host.turbo(FakeMachine({f"{folder}/cpufreq/boost": "1"})).remedy
    assert "echo 1 > " in host.turbo(FakeMachine({f"{folder}/intel_pstate/no_turbo": "0"})).remedy


def test_cgroups_are_told_apart_by_version() -> None:
    controllers = "/sys/fs/cgroup/cgroup.controllers"
    machines = (FakeMachine({controllers: "cpu io memory"}), FakeMachine({controllers: "cpu memory"}), FakeMachine())
    assert [host.cgroups(machine).status for machine in machines] == ["ok", "warn", "missing"]
    both = "1 1 0:1 / /a rw - cgroup cgroup rw\n2 1 0:2 / /b rw - cgroup2 cgroup2 rw"
    assert host.cgroups(FakeMachine({"/proc/self/mountinfo": both})).says.startswith("v1 and v2")


PARANOID = "/proc/sys/kernel/perf_event_paranoid"


def test_ebpf_that_is_refused_has_root_as_remedy_and_is_not_tried_without_its_number() -> None:
    check = tracing.bpf(FakeMachine(syscall=-errno.EPERM), "x86_64")
    assert (check.status, check.remedy) == ("missing", "run it as root, or with CAP_BPF and CAP_PERFMON")
    assert tracing.bpf(FakeMachine(syscall=-errno.ENOSYS), "x86_64").says.startswith("this kernel")
    assert tracing.bpf(FakeMachine(), "riscv64").status == "warn"


def test_tracing_finds_tracefs_counters_and_namespaces_each_in_its_places() -> None:
    assert tracing.tracepoints(FakeMachine({"/proc/filesystems": "nodev\ttracefs"})).status == "ok"
    assert tracing.tracepoints(FakeMachine({"/proc/filesystems": ""})).status == "missing"
    assert tracing.tracepoints(FakeMachine(root=False)).says == "only root may read tracefs"
    event = "/sys/kernel/debug/tracing/events/block/block_rq_issue/format"
    assert tracing.tracepoints(FakeMachine({event: "name: block_rq_issue"})).says == "/sys/kernel/debug/tracing"
    for name in ("cpu", "cpu_core", "armv8_pmuv3_0"):
        machine = FakeMachine({f"/sys/bus/event_source/devices/{name}/type": "4"})
        assert tracing.counters(machine).says == name
    assert tracing.counters(FakeMachine({"/sys/bus/event_source/devices/software/type": "1"})).status == "missing"
    machine = FakeMachine(programs={"ip": "", "unshare": ""})
    assert kernel.namespaces(machine).status == "ok"
    assert machine.ran == [["unshare", "--net", "true"]]
    refused = FakeMachine(programs={"ip": "", "unshare": "unshare failed: Operation not permitted!"})
    assert kernel.namespaces(refused).status == "missing"


@pytest.mark.parametrize(
    ("level", "capabilities", "status"), [("2", 0, "warn"), ("2", 1 << 38, "ok"), ("0", 0, "ok"), ("-1", 0, "ok")]
)
def test_perf_events_need_a_capability_or_a_lenient_kernel(level: str, capabilities: int, status: str) -> None:
    machine = FakeMachine({PARANOID: level})
    machine.capabilities = capabilities
    assert tracing.perf(machine).status == status


STARTED = (
    '{"event":"started","hook":"%s","reason":%s,"disks":[],"latency":true,"without":[],'
    '"monotonic_ns":1,"realtime_ns":1}'
)


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (STARTED % ("btf", "null") + "\n{}", "ok", "attaches with BTF"),
        (STARTED % ("tracepoint", '"no BTF"'), "warn", "classic tracepoints, not with BTF: no BTF"),
        ("storlab-agent: block I/O can't be traced: no permission!", "missing", "block I/O can't be traced: no perm"),
    ],
)
def test_block_io_is_traced_for_a_moment_to_know_how_it_can_be(
    said: str, status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "agent_path", lambda: "agent")
    check = tracing.block_io(FakeMachine(programs={"agent": said}))
    assert check.status == status and words in check.says


LOOP = {"/dev/loop-control": ""}


def test_a_loop_device_is_tried_by_root_only_and_detached_if_it_was_made() -> None:
    machine = FakeMachine(LOOP, {"losetup": "/dev/loop7"})
    assert kernel.loop(machine).status == "ok"
    assert machine.ran[-1] == ["losetup", "--detach", "/dev/loop7"]
    machine = FakeMachine(LOOP, {"losetup": "losetup: cannot find an unused loop device!"})
    check = kernel.loop(machine)
    assert (check.status, check.says) == ("missing", "losetup: cannot find an unused loop device")
    assert len(machine.ran) == 1
    machine = FakeMachine(LOOP, {"losetup": "/dev/loop7"}, root=False)
    assert kernel.loop(machine).remedy == "run it as root, or with sudo"
    assert machine.ran == []


@pytest.mark.needs("root")
def test_the_real_trial_leaves_no_loop_device_and_no_file() -> None:
    assert kernel.loop(Machine()).status == "ok"
    attached = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not [path for path in attached if "storlab-doctor-" in path]
    assert not list(Path(SCRATCH).glob("storlab-doctor-*"))


def test_a_file_system_needs_kernel_and_tools() -> None:
    registered = {"/proc/filesystems": "nodev\tproc\n\txfs"}
    arguments = ("xfs", "CONFIG_XFS_FS", "mkfs.xfs", "xfsprogs")
    both = FakeMachine(registered, {"mkfs.xfs": "mkfs.xfs version 6.1.0"})
    assert kernel.filesystem(both, *arguments).says == "mkfs.xfs 6.1.0"
    assert kernel.filesystem(FakeMachine(registered), *arguments).remedy == "apt-get install xfsprogs"
    assert kernel.filesystem(FakeMachine(), *arguments).remedy == REMEDY


def test_a_feature_is_found_built_in_loaded_or_as_a_module_that_is_not_loaded() -> None:
    machine = FakeMachine(programs={"modprobe": ""})
    assert has_feature(machine, "nbd", "CONFIG_BLK_DEV_NBD") == "module"
    assert machine.ran == [["modprobe", "--dry-run", "--quiet", "nbd"]]
    machine = FakeMachine(options={"CONFIG_BLK_DEV_NBD": "y"})
    assert feature(machine, "g", "nbd", "nbd", "CONFIG_BLK_DEV_NBD").says == "built in"
    machine = FakeMachine({"/proc/modules": "nvme_tcp 1 0 - Live 0x0"})
    assert has_feature(machine, "nvme-tcp", "CONFIG_NVME_TCP") == "loaded"


def test_the_reason_tells_a_kernel_without_a_feature_from_one_whose_modules_are_gone() -> None:
    assert "built without it" in why_not(FakeMachine(options={"CONFIG_X": "y"}), "CONFIG_NBD")
    assert "no modules for this kernel" in why_not(FakeMachine(options={"CONFIG_NBD": "m"}), "CONFIG_NBD")
    with_modules = FakeMachine({f"/lib/modules/{FakeMachine.release}/modules.dep": ""})
    assert "no such module" in why_not(with_modules, "CONFIG_NBD")


def test_a_missing_program_has_its_package_as_remedy_and_so_has_its_feature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = {"/proc/modules": "nbd 1 0 - Live 0x0"}
    check = feature_with_program(FakeMachine(loaded), "g", "nbd", "nbd", "CONFIG_X", "nbd-client", "nbd-client")
    assert (check.status, check.remedy) == ("missing", "apt-get install nbd-client")
    check = program(FakeMachine(), "g", "mariadbd", "mariadb-server")
    assert (check.status, check.remedy) == ("missing", "apt-get install mariadb-server")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check = workloads.mysql(FakeMachine())
    assert (check.status, check.says, check.remedy) == ("missing", "not unpacked", "storlab image mysql")


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("fio-3.33", "3.33"),
        ("mariadbd  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu", "10.11.14-MariaDB-0+deb12u2"),
        ("\npostgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
        ("a program of few words", "a program of few words"),
        ("bonnie++: invalid option -- 'h'\nusage:\nbonnie++ [-d scratch-dir]\n\nVersion: 2.00a", "2.00a"),
    ],
)
def test_a_version_is_cut_out_of_what_a_program_prints(printed: str, number: str) -> None:
    assert version(FakeMachine(programs={"x": printed}), "x") == number


def test_engines_that_fio_lacks_are_named_and_so_is_a_sysctl_that_forbids_io_uring() -> None:
    machine = FakeMachine(programs={"fio": "Available IO engines:\n\tlibaio\n\tpsync\n\tio_uring"})
    lacks = "io_uring, libaio, psync; not posixaio, pvsync2, mmap, nbd, nfs, libblkio"
    assert workloads.engines(machine).says == lacks
    refused, sysctl = -errno.EPERM, "/proc/sys/kernel/io_uring_disabled"
    assert workloads.io_uring(FakeMachine({sysctl: "2"}, syscall=refused)).remedy == "sysctl kernel.io_uring_disabled=0"
    in_container = workloads.io_uring(FakeMachine({sysctl: "0"}, syscall=refused))
    assert (in_container.status, in_container.remedy[:8]) == ("warn", "allow it")
    assert workloads.io_uring(FakeMachine(syscall=-errno.ENOSYS)).status == "missing"
