"""What the doctor says of host, kernel, storage, programs and guests, and of what runs have left."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from laboratory import backing_files
from storlab.base.errors import MissingImage, MissingTool
from storlab.doctor import checks, runs, virtual
from storlab.doctor.checks import KERNEL_REMEDY, SCRATCH, feature, filesystem, has_feature, program, version, why_not
from storlab.doctor.machine import Machine
from storlab.doctor.runs import judge, leftovers
from storlab.nodes import identity
from storlab.nodes.kinds.vm.emulator import Acceleration, Confinement
from storlab.run.planning.plan import Plan
from storlab.run.planning.space import Room
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.orphans import Orphan
from storlab.study.study import load_study, shipped_studies

from .fake_machine import FakeMachine

GIB = 1024**3
CLOCK = "/sys/devices/system/clocksource/clocksource0"
ROOT_MOUNT = "1 0 254:0 / / rw - ext4 /dev/vda rw"


def test_root_processors_and_memory_are_told() -> None:
    check = checks.root(FakeMachine(root=False))
    assert (check.status, check.remedy) == ("missing", "run it as root, or with sudo")
    machine = FakeMachine({"/proc/cpuinfo": "processor\t: 0\nmodel name\t: Small One"})
    assert checks.processors(machine).says == "2, Small One"
    assert checks.processors(FakeMachine(cpus=1)).status == "warn"
    for available, status in ((8 * 1024**2, "ok"), (1024**2 // 2, "warn")):
        check = checks.memory(FakeMachine({"/proc/meminfo": f"MemTotal: 16777216 kB\nMemAvailable: {available} kB"}))
        assert check.status == status and "of 16.0G" in check.says


def test_scratch_space_names_its_file_system_and_warns_of_little() -> None:
    for mounted, free, status in (
        ("\n2 1 254:1 / /var rw - xfs /dev/vdb rw\n3 1 0:9 / /var/tmpfiles rw - tmpfs none rw", 10, "ok"),
        ("\n2 1 0:9 / /var/tmp rw - tmpfs none rw", 10, "warn"),
        ("", 1, "warn"),
    ):
        check = checks.space(FakeMachine({"/proc/self/mountinfo": ROOT_MOUNT + mounted}, free=free * GIB))
        assert check.status == status and (status == "warn" or check.says == "10.0G free, xfs")


def test_clock_governor_turbo_and_cgroups_are_told_apart() -> None:
    files = {f"{CLOCK}/current_clocksource": "hpet", f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm"}
    check = checks.clock(FakeMachine(files))
    assert (check.status, check.remedy) == ("warn", f"echo tsc > {CLOCK}/current_clocksource")
    cpus = [f"/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor" for number in (0, 1, 10)]
    assert checks.frequency(FakeMachine(dict.fromkeys(cpus, "performance"))).status == "ok"
    mixed = FakeMachine({**dict.fromkeys(cpus, "performance"), cpus[1]: "powersave"})
    assert checks.frequency(mixed).says == "governor performance, powersave: speed follows load"
    folder = "/sys/devices/system/cpu"
    assert checks.turbo(FakeMachine({f"{folder}/intel_pstate/no_turbo": "1"})).status == "ok"
    assert "echo 0 > " in checks.turbo(FakeMachine({f"{folder}/cpufreq/boost": "1"})).remedy
    assert "echo 1 > " in checks.turbo(FakeMachine({f"{folder}/intel_pstate/no_turbo": "0"})).remedy
    controllers = "/sys/fs/cgroup/cgroup.controllers"
    machines = (FakeMachine({controllers: "cpu io memory"}), FakeMachine({controllers: "cpu memory"}), FakeMachine())
    assert [checks.cgroups(machine).status for machine in machines] == ["ok", "warn", "missing"]
    both = "1 1 0:1 / /a rw - cgroup cgroup rw\n2 1 0:2 / /b rw - cgroup2 cgroup2 rw"
    assert checks.cgroups(FakeMachine({"/proc/self/mountinfo": both})).says.startswith("v1 and v2")


PARANOID = "/proc/sys/kernel/perf_event_paranoid"


def test_ebpf_perf_events_and_tracing_have_their_remedies_and_places() -> None:
    check = checks.bpf(FakeMachine(syscall=-errno.EPERM))
    assert (check.status, check.remedy) == ("missing", "run it as root, or with CAP_BPF and CAP_PERFMON")
    assert checks.bpf(FakeMachine(syscall=-errno.ENOSYS)).says.startswith("this kernel")
    assert checks.bpf(FakeMachine(architecture="riscv64")).status == "warn"
    for level, capabilities, status in (("2", 0, "warn"), ("2", 1 << 38, "ok"), ("0", 0, "ok"), ("-1", 0, "ok")):
        machine = FakeMachine({PARANOID: level})
        machine.capabilities = capabilities
        assert checks.perf(machine).status == status


def test_tracing_finds_tracefs_counters_and_namespaces_each_in_its_places() -> None:
    assert checks.tracepoints(FakeMachine({"/proc/filesystems": "nodev\ttracefs"})).status == "ok"
    assert checks.tracepoints(FakeMachine({"/proc/filesystems": ""})).status == "missing"
    assert checks.tracepoints(FakeMachine(root=False)).says == "only root may read tracefs"
    event = "/sys/kernel/debug/tracing/events/block/block_rq_issue/format"
    assert checks.tracepoints(FakeMachine({event: "name: block_rq_issue"})).says == "/sys/kernel/debug/tracing"
    for name in ("cpu", "cpu_core", "armv8_pmuv3_0"):
        machine = FakeMachine({f"/sys/bus/event_source/devices/{name}/type": "4"})
        assert checks.counters(machine).says == name
    assert checks.counters(FakeMachine({"/sys/bus/event_source/devices/software/type": "1"})).status == "missing"
    machine = FakeMachine(programs={"ip": "", "unshare": ""})
    assert checks.namespaces(machine).status == "ok"
    assert machine.ran == [["unshare", "--net", "true"]]
    refused = FakeMachine(programs={"ip": "", "unshare": "unshare failed: Operation not permitted!"})
    assert checks.namespaces(refused).status == "missing"


STARTED = (
    '{"event":"started","hook":"%s","reason":%s,"disks":[],"latency":true,"without":[],'
    '"monotonic_ns":1,"realtime_ns":1}'
)


def test_block_io_is_traced_for_a_moment_to_know_how_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeMachine, "agent", lambda _: "agent", raising=False)
    for printed, status, words in (
        (STARTED % ("btf", "null") + "\n{}", "ok", "attaches with BTF"),
        (STARTED % ("tracepoint", '"no BTF"'), "warn", "classic tracepoints, not with BTF: no BTF"),
        ("storlab-agent: block I/O can't be traced: no permission!", "missing", "block I/O can't be traced: no perm"),
    ):
        check = checks.block_io(FakeMachine(programs={"agent": printed}))
        assert check.status == status and words in check.says


LOOP = {"/dev/loop-control": ""}


def test_a_loop_device_is_tried_by_root_only_and_detached_if_it_was_made() -> None:
    machine = FakeMachine(LOOP, {"losetup": "/dev/loop7"})
    assert checks.loop(machine).status == "ok"
    assert machine.ran[-1] == ["losetup", "--detach", "/dev/loop7"]
    machine = FakeMachine(LOOP, {"losetup": "losetup: cannot find an unused loop device!"})
    check = checks.loop(machine)
    assert (check.status, check.says) == ("missing", "losetup: cannot find an unused loop device")
    assert len(machine.ran) == 1
    machine = FakeMachine(LOOP, {"losetup": "/dev/loop7"}, root=False)
    assert checks.loop(machine).remedy == "run it as root, or with sudo"
    assert machine.ran == []


@pytest.mark.needs("root")
def test_the_real_trial_leaves_no_loop_device_and_no_file() -> None:
    assert checks.loop(Machine()).status == "ok"
    assert not [path for path in backing_files() if "storlab-doctor-" in path]
    assert not list(Path(SCRATCH).glob("storlab-doctor-*"))


def test_a_file_system_needs_kernel_and_tools_and_a_feature_is_found_built_in_loaded_or_as_a_module() -> None:
    registered = {"/proc/filesystems": "nodev\tproc\n\txfs"}
    xfs = filesystem("xfs", "CONFIG_XFS_FS", "xfsprogs")
    both = FakeMachine(registered, {"mkfs.xfs": "mkfs.xfs version 6.1.0"})
    assert xfs(both).says == "mkfs.xfs 6.1.0"
    assert xfs(FakeMachine(registered)).remedy == "apt-get install xfsprogs"
    assert xfs(FakeMachine()).remedy == KERNEL_REMEDY
    assert "built without it" in why_not(FakeMachine(options={"CONFIG_X": "y"}), "CONFIG_NBD")
    assert "no modules for this kernel" in why_not(FakeMachine(options={"CONFIG_NBD": "m"}), "CONFIG_NBD")
    with_modules = FakeMachine({f"/lib/modules/{FakeMachine.release}/modules.dep": ""})
    assert "no such module" in why_not(with_modules, "CONFIG_NBD")
    machine = FakeMachine(programs={"modprobe": ""})
    assert has_feature(machine, "nbd", "CONFIG_BLK_DEV_NBD") == "module"
    assert machine.ran == [["modprobe", "--dry-run", "--quiet", "nbd"]]
    machine = FakeMachine(options={"CONFIG_BLK_DEV_NBD": "y"})
    assert feature("nbd", "CONFIG_BLK_DEV_NBD")(machine).says == "built in"
    machine = FakeMachine({"/proc/modules": "nvme_tcp 1 0 - Live 0x0"})
    assert has_feature(machine, "nvme-tcp", "CONFIG_NVME_TCP") == "loaded"


def test_a_missing_program_has_its_package_as_remedy_and_so_has_its_feature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = {"/proc/modules": "nbd 1 0 - Live 0x0"}
    check = feature("nbd", "CONFIG_X", "nbd-client")(FakeMachine(loaded))
    assert (check.status, check.remedy) == ("missing", "apt-get install nbd-client")
    check = program("mariadbd", "mariadb-server")(FakeMachine())
    assert (check.status, check.remedy) == ("missing", "apt-get install mariadb-server")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check = checks.mysql(FakeMachine())
    assert (check.status, check.says, check.remedy) == ("missing", "not unpacked", "storlab image mysql")


def test_a_version_is_cut_out_of_what_a_program_prints() -> None:
    for printed, number in (
        ("fio-3.33", "3.33"),
        ("mariadbd  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu", "10.11.14-MariaDB-0+deb12u2"),
        ("\npostgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
        ("a program of few words", "a program of few words"),
        ("bonnie++: invalid option -- 'h'\nusage:\nbonnie++ [-d scratch-dir]\n\nVersion: 2.00a", "2.00a"),
    ):
        assert version(FakeMachine(programs={"x": printed}), "x") == number


def test_engines_that_fio_lacks_are_named_and_so_is_a_sysctl_that_forbids_io_uring() -> None:
    machine = FakeMachine(programs={"fio": "Available IO engines:\n\tlibaio\n\tpsync\n\tio_uring"})
    lacks = "io_uring, libaio, psync; not posixaio, pvsync2, mmap, nbd, nfs, libblkio"
    assert checks.engines(machine).says == lacks
    refused, sysctl = -errno.EPERM, "/proc/sys/kernel/io_uring_disabled"
    assert checks.io_uring(FakeMachine({sysctl: "2"}, syscall=refused)).remedy == "sysctl kernel.io_uring_disabled=0"
    in_container = checks.io_uring(FakeMachine({sysctl: "0"}, syscall=refused))
    assert (in_container.status, in_container.remedy[:8]) == ("warn", "allow it")
    assert checks.io_uring(FakeMachine(syscall=-errno.ENOSYS)).status == "missing"


NODE = identity.NodeIdentity("host", "local", "", identity.Machine("m", "b"))


def test_what_gone_or_damaged_runs_left_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "remembered_runs", dict)
    monkeypatch.setattr(runs, "orphans", lambda gone: list(gone))
    assert [check.says for check in runs.left_by_runs()] == ["no run has left anything"]
    left = [Orphan("r1", "loop.detach", {"file": "/x"})]
    monkeypatch.setattr(runs, "orphans", lambda gone: left)
    assert [check.status for check in runs.left_by_runs()] == ["warn"]
    (check,) = leftovers({"r1": tmp_path / "gone"})
    assert (check.status, check.remedy) == ("warn", "storlab clean")
    (tmp_path / "journal.jsonl").write_text("nonsense\n")
    (check,) = leftovers({"r1": tmp_path})
    assert check.status == "missing" and "journal.jsonl:1 is damaged" in check.says


def test_a_pool_of_no_run_is_not_called_dead_and_root_is_asked_for_once() -> None:
    (check,) = runs.without_journal([Orphan("r1", "zpool.destroy", {"pool": "storlab-r1-host-0-1"}, elsewhere=True)])
    assert "may be alive in another container" in check.says
    assert check.remedy == "if it is not alive: zpool destroy storlab-r1-host-0-1"
    reasons = [f"no root privileges, needed for {what} (run it as root, or with sudo)" for what in ("a", "b")]
    assert runs.in_one_line([*reasons, "MySQL is not installed"]) == "takes root, for a and b; MySQL is not installed"


def test_what_a_journal_says_still_stands_is_named_with_the_command_that_takes_it_down(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    folder.mkdir()
    with Journal(folder / "journal.jsonl") as journal:
        journal.register(NODE, "mount.unmount", {"path": "/x"})
        gone = journal.register(NODE, "loop.detach", {"file": "/y"})
        journal.undone(gone, "detached")
    (check,) = leftovers({"r1": folder})
    assert check.status == "warn" and "it left 1 thing set up (mount.unmount)" in check.says
    assert check.remedy == f"storlab clean '{folder}'"


def test_a_study_that_nothing_supports_here_says_why() -> None:
    study = load_study(shipped_studies()["quick"])
    everything = {cell.number: ("xfs is not installed",) for cell in study.cells}
    nothing = judge(Plan(study, 0, (1, 1), everything, Room(0, 0)))
    assert (nothing.status, nothing.says) == ("missing", "xfs is not installed")
    first = dict(list(everything.items())[:2])
    part = judge(Plan(study, 0, (1, 1), first, Room(0, 0)))
    assert (part.status, part.says) == ("warn", "1 of 3 cells can run: xfs is not installed")
    assert judge(Plan(study, 0, (1, 1), {}, Room(0, 0))).status == "ok"


KVM = {"/dev/kvm": ""}
DIES = "/dev/kvm answers, but a guest dies in it: KVM internal error. Suberror: 1"


def boots(found: Acceleration | Exception) -> Callable[[], Acceleration]:
    def boot() -> Acceleration:
        if isinstance(found, Exception):
            raise found
        return found

    return boot


def test_a_device_that_is_not_there_or_not_open_to_this_user_has_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise PermissionError(13, "Permission denied")

    check = virtual.kvm(FakeMachine(), boots(AssertionError()))
    assert (check.status, check.remedy) == ("missing", "modprobe kvm")
    monkeypatch.setattr(virtual, "_api_version", refused)
    check = virtual.kvm(FakeMachine(KVM), boots(AssertionError()))
    assert (check.status, check.remedy) == ("missing", "adduser $USER kvm, then log in again")


def test_kvm_is_proved_by_a_guest_that_was_booted_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "_api_version", lambda: 12)
    for found, status, says, remedy in (
        (Acceleration("kvm"), "ok", "", ""),
        (Acceleration("tcg", DIES), "missing", f"{DIES}: guests run emulated", ""),
        (MissingImage("there is none"), "warn", "only booting a guest proves", "storlab image build"),
        (MissingTool("cpio is not installed"), "warn", "that can't be tried: cpio is not installed", ""),
    ):
        check = virtual.kvm(FakeMachine(KVM), boots(found))
        assert check.status == status and says in check.says and remedy in check.remedy


@pytest.mark.parametrize(("said", "status"), [("7.2.9 (Debian 1:7.2)", "warn"), ("10.0.2", "ok"), ("17.2.0", "ok")])
def test_emulation_of_qemu_7_2_is_not_relied_on(said: str, status: str) -> None:
    machine = FakeMachine(programs={"qemu-system-x86_64": f"QEMU emulator version {said}"})
    check = virtual.qemu("qemu-system-x86_64", "qemu-system-x86")(machine)
    assert check.status == status
    assert ("backports" in check.remedy) == (status == "warn")


def test_numa_and_saved_guests_are_told(tmp_path: Path) -> None:
    said = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1"
    assert virtual.numa(FakeMachine(programs={"numactl": said})).says == "NUMA: 2 nodes (0-1)"
    assert virtual.numa(FakeMachine()).remedy == "apt-get install numactl"
    assert virtual.saved_guests(FakeMachine(), tmp_path / "none").says.startswith("none yet")
    for name in ("one", "two", "one.123"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "memory").write_bytes(bytes(4096))
    for name in ("one", "two"):
        (tmp_path / name / "state").write_bytes(b"")
    assert virtual.saved_guests(FakeMachine(), tmp_path).says == f"2 in {tmp_path}, 0.0G"


def test_confinement_is_told_with_the_reason_where_it_could_be_more() -> None:
    whole = virtual.confinement(FakeMachine(), lambda: Confinement(5, sandbox=True))
    assert (whole.status, whole.says) == ("ok", "each guest's runs as a user of its own, in a sandbox")
    less = virtual.confinement(FakeMachine(), lambda: Confinement(5, sandbox=False, reason="no seccomp"))
    assert (less.status, less.says) == ("warn", "each guest's runs as a user of its own, without a sandbox: no seccomp")

    def absent() -> Confinement:
        raise MissingTool("there is none")

    assert virtual.confinement(FakeMachine(), absent).says == "not known: there is none"


def test_a_network_among_guests_is_tried_in_a_namespace_of_its_own() -> None:
    tun = {"/dev/net/tun": ""}
    machine = FakeMachine(tun, {"ip": "", "unshare": ""})
    assert virtual.network(machine).status == "ok"
    assert machine.ran[0][:3] == ["unshare", "--net", "ip"]
    assert virtual.network(FakeMachine({}, {"ip": ""})).remedy == "modprobe tun"
    assert virtual.network(FakeMachine(tun, {"ip": ""}, root=False)).says == "only root may make one"
    refused = FakeMachine(tun, {"ip": "", "unshare": "ioctl(TUNSETIFF): Operation not permitted!"})
    assert virtual.network(refused).status == "missing"


def test_virtiofsd_is_said_with_its_version_or_the_command_that_unpacks_one(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = ("/cache/ld.so", "--library-path", "/cache", "/cache/virtiofsd")
    found = {"rust": unpacked, "c": ("/usr/lib/qemu/virtiofsd",)}
    monkeypatch.setattr(virtual, "find_virtiofsd", found.get)
    programs = {"/cache/ld.so": "virtiofsd 1.13.2", "/usr/lib/qemu/virtiofsd": "virtiofsd version 7.2.22 (Debian …)"}
    says = virtual.virtiofsd(FakeMachine(programs=programs)).says
    assert says == "1.13.2 in Rust, unpacked by Storlab; 7.2.22 in C, /usr/lib/qemu/virtiofsd"
    monkeypatch.setattr(virtual, "find_virtiofsd", {}.get)
    check = virtual.virtiofsd(FakeMachine())
    assert (check.status, check.remedy) == ("missing", "storlab image virtiofsd")
