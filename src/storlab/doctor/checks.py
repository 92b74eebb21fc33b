"""What studies need of any machine: privileges, processors, clocks, space, features of the kernel, programs."""

from __future__ import annotations

import errno
import os
import platform
import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from storlab.base.errors import MissingTool, ParseError
from storlab.base.programs import agent_remedy
from storlab.base.units import size_text
from storlab.blockio.trace_output import Started, decode
from storlab.doctor.machine import Machine, Status
from storlab.images.unpacked import MYSQL
from storlab.layers.fs.mount import parse_mountinfo
from storlab.nodes.needs import PROGRAMS, UNPACKED_MYSQL, remedy

SCRATCH = "/var/tmp"
_AS_ROOT = "run it as root, or with sudo"
_DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
KERNEL_REMEDY = f"apt-get install linux-image-{_DEBIAN.get(platform.machine(), platform.machine())}, and boot it"


class Found(NamedTuple):
    """``ok``: it works, as far as can be seen. ``warn``: in part, or it disturbs measurements, or can't be judged.

    ``missing``: it is not there; what needs it is unsupported on this machine.
    """

    status: Status
    says: str
    remedy: str = ""


def ok(says: str) -> Found:
    return Found("ok", says)


def warn(says: str, remedy: str = "") -> Found:
    return Found("warn", says, remedy)


def missing(says: str, remedy: str = "") -> Found:
    return Found("missing", says, remedy)


Look = Callable[[Machine], Found]


def root(machine: Machine) -> Found:
    if machine.is_root:
        return ok("this is root")
    return missing("not root: no loop devices, mkfs or mounts", _AS_ROOT)


def processors(machine: Machine) -> Found:
    lines = (machine.read("/proc/cpuinfo") or "").splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown model")
    says = f"{machine.cpus}, {model}"
    return warn(f"{says}: load and observer share it") if machine.cpus < 2 else ok(says)


def memory(machine: Machine) -> Found:
    lines = (line.partition(":") for line in (machine.read("/proc/meminfo") or "").splitlines())
    fields = {name: int(value.split()[0]) * 1024 for name, _, value in lines if value.split()}
    available = fields.get("MemAvailable", 0)
    says = f"{_whole(available)} available of {_whole(fields.get('MemTotal', 0))}"
    return warn(f"{says}: what is short of memory measures reclaim") if available < 1024**3 else ok(says)


def space(machine: Machine) -> Found:
    free = machine.free(SCRATCH)
    mounts = parse_mountinfo(machine.read("/proc/self/mountinfo") or "")
    on = [mount for mount in mounts if mount.path == "/" or f"{SCRATCH}/".startswith(f"{mount.path}/")]
    filesystem = max(on, key=lambda mount: len(mount.path)).filesystem if on else "unknown file system"
    says = f"{_whole(free)} free, {filesystem}"
    if filesystem in ("tmpfs", "ramfs"):
        return warn(f"{says}: that is memory, not a disk", 'set scratch = "/a/folder" in the study')
    if free < 2 * 1024**3:  # the shipped studies need less
        return warn(f"{says}: little", 'free some, or set scratch = "/a/folder" in the study')
    return ok(says)


def _whole(size: int) -> str:
    """Rounded to what a person reads: ``23.5G``."""
    return f"{size / 1024**3:.1f}G" if size >= 1024**3 else size_text(size // 1024**2 * 1024**2)


# Reading these takes tens of nanoseconds; reading the others, microseconds: visible beside a fast disk's latency.
_FAST_CLOCKS = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"}


def clock(machine: Machine) -> Found:
    folder = "/sys/devices/system/clocksource/clocksource0"
    source = machine.read(f"{folder}/current_clocksource")
    if source is None:
        return warn("not reported by this kernel")
    if source in _FAST_CLOCKS:
        return ok(source)
    others = _FAST_CLOCKS & set((machine.read(f"{folder}/available_clocksource") or "").split())
    fix = f"echo {min(others)} > {folder}/current_clocksource" if others else ""
    return warn(f"{source}: slow to read, so short latencies look longer", fix)


def frequency(machine: Machine) -> Found:
    folders = machine.glob("/sys/devices/system/cpu", "cpu[0-9]*/cpufreq")
    governors = {machine.read(f"{folder}/scaling_governor") for folder in folders} - {None}
    if not governors:
        return warn("not reported here (usual in VMs): it may vary unseen")
    says = "governor " + ", ".join(sorted(filter(None, governors)))
    if governors == {"performance"}:
        return ok(says)
    return warn(f"{says}: speed follows load", "cpupower frequency-set -g performance")


def turbo(machine: Machine) -> Found:
    """Whether processors may exceed their nominal frequency for as long as they stay cool."""
    for switch, off, now in (("intel_pstate/no_turbo", "1", 1), ("cpufreq/boost", "0", 0)):
        path = f"/sys/devices/system/cpu/{switch}"
        if (value := machine.read(path)) is not None:
            return ok("off") if value == off else warn("on: speed depends on heat", f"echo {now} > {path}")
    return warn("not reported here (usual in VMs)")


def pressure(machine: Machine) -> Found:
    """PSI, which the probe ``host-load`` reads."""
    if machine.read("/proc/pressure/io") is not None:
        return ok("cpu, io, memory")
    return missing("no /proc/pressure/io", "boot with psi=1, or a kernel with CONFIG_PSI")


def cgroups(machine: Machine) -> Found:
    controllers = machine.read("/sys/fs/cgroup/cgroup.controllers")
    if controllers is not None:
        return ok("v2, with io.stat") if "io" in controllers.split() else warn("v2 without the io controller")
    kinds = {mount.filesystem for mount in parse_mountinfo(machine.read("/proc/self/mountinfo") or "")}
    fix = "boot with systemd.unified_cgroup_hierarchy=1"
    if "cgroup" in kinds:
        return warn(f"{'v1 and v2 (hybrid)' if 'cgroup2' in kinds else 'v1'}: no io.stat", fix)
    return missing("none mounted", fix)


def agent(machine: Machine) -> Found:
    try:
        path = machine.agent()
    except MissingTool:
        return missing("missing", agent_remedy())
    ended = machine.run([path, "--version"])
    if ended.status != 0:
        return missing(f"{path} doesn't run: {ended.first_line}", agent_remedy())
    return ok(ended.first_line.removeprefix("storlab-agent "))


def confinement(machine: Machine) -> Found:
    """Whether loads can be kept to their target, by starting one program in namespaces of its own."""
    release = re.match(r"(\d+)\.(\d+)", machine.release)
    if release is None or tuple(map(int, release.groups())) < (5, 12):  # which brought mount_setattr(2)
        says = f"Linux {machine.release} can't make mounts read-only for one process: needs 5.12"
        return missing(says, "storlab run --unconfined")
    user = () if machine.is_root else ("--user",)
    ended = machine.run(["unshare", *user, "--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "true"])
    if ended.status == 0:
        return ok("they write to their target alone")
    if machine.is_root:
        return missing(ended.first_line, "give this container CAP_SYS_ADMIN, or storlab run --unconfined")
    return warn(f"{ended.first_line}: they may write wherever you may")


def loop(machine: Machine) -> Found:
    """Loop devices, by making one over an empty sparse file, read-only, and taking it away again."""
    if machine.which("losetup") is None:
        return missing("losetup is not installed", "apt-get install mount")
    if not machine.exists("/dev/loop-control"):
        return missing("/dev/loop-control does not exist", "modprobe loop")
    if not machine.is_root:
        return missing("only root may make one", _AS_ROOT)
    with machine.empty_file(SCRATCH, 1024**2) as file:
        made = machine.run(["losetup", "--find", "--show", "--read-only", file])
        if made.status != 0:
            return missing(made.first_line, "give this machine or container loop devices")
        machine.run(["losetup", "--detach", made.text])
        return ok("one was created and removed again")


def namespaces(machine: Machine) -> Found:
    """A network namespace, by starting one program in one of its own; it goes with that program."""
    if machine.which("ip") is None:
        return missing("ip is not installed", "apt-get install iproute2")
    if not machine.is_root:
        return missing("only root may make one", _AS_ROOT)
    ended = machine.run(["unshare", "--net", "true"])
    if ended.status != 0:
        return missing(ended.first_line, "give this container CAP_SYS_ADMIN")
    return ok("one was created and removed again")


def has_feature(machine: Machine, module: str, option: str) -> str | None:
    """How the kernel has it: ``built in``, ``loaded``, ``module``, which could be loaded; ``None`` if it hasn't.

    ``option`` is the name in the kernel's configuration, which is asked because what is built in leaves few traces.
    """
    if machine.kernel_options.get(option) == "y":
        return "built in"
    loaded = {line.split(" ", 1)[0] for line in (machine.read("/proc/modules") or "").splitlines()}
    if module.replace("-", "_") in loaded:
        return "loaded"
    return "module" if machine.run(["modprobe", "--dry-run", "--quiet", module]).status == 0 else None


def why_not(machine: Machine, option: str) -> str:
    options = machine.kernel_options
    if options and option not in options:
        return f"this kernel ({machine.release}) was built without it"
    if not machine.exists(f"/lib/modules/{machine.release}"):
        return f"there are no modules for this kernel ({machine.release}) in /lib/modules"
    return f"this kernel ({machine.release}) has no such module"


def feature(module: str, option: str, program: str = "") -> Look:
    """A feature of the kernel, and the program without which it is of no use; the package is called like that."""

    def look(machine: Machine) -> Found:
        how = has_feature(machine, module, option)
        if how is None:
            return missing(why_not(machine, option), KERNEL_REMEDY)
        if program and machine.which(program) is None:
            return missing(f"the kernel has it, but {program} is not installed", f"apt-get install {program}")
        return ok(f"{how}, {program}" if program else how)

    return look


def filesystem(name: str, option: str, package: str) -> Look:
    """A file system: kernel and mkfs."""

    def look(machine: Machine) -> Found:
        if not _registered(machine, name) and has_feature(machine, name, option) is None:
            return missing(why_not(machine, option), KERNEL_REMEDY)
        if machine.which(f"mkfs.{name}") is None:
            return missing(f"the kernel has it, but mkfs.{name} is not installed", f"apt-get install {package}")
        return ok(f"mkfs.{name} {version(machine, f'mkfs.{name}', '-V')}")

    return look


def zfs(machine: Machine) -> Found:
    fix = "apt-get install zfs-dkms zfsutils-linux (bookworm-backports, contrib)"
    if not _registered(machine, "zfs") and machine.run(["modprobe", "--dry-run", "--quiet", "zfs"]).status != 0:
        return missing(f"this kernel ({machine.release}) has no zfs module", fix)
    if machine.which("zpool") is None:
        return missing("the module is there, but zpool is not installed", fix)
    return ok(version(machine, "zpool", "version"))


def _registered(machine: Machine, name: str) -> bool:
    return name in (machine.read("/proc/filesystems") or "").split()


_VERSION = re.compile(r"\d+\.\d+[\w.+~-]*")


def version(machine: Machine, program: str, *arguments: str) -> str:
    """The version that a program prints, without what else it prints; its first line if there is none."""
    asked = arguments or (PROGRAMS[program].version if program in PROGRAMS else ("--version",))
    said = machine.run([program, *asked])
    # mariadbd: "Ver 10.11.14-MariaDB-…": what follows the number is the packager's. bonnie++ has it below its usage.
    found = _VERSION.search(said.first_line) or _VERSION.search(said.text)
    return found[0] if found else said.first_line


def program(name: str, package: str, *arguments: str, what: str = "") -> Look:
    """A program that is driven as it stands; ``what`` it is for."""

    def look(machine: Machine) -> Found:
        beside = machine.glob("/usr/lib/postgresql", "*/bin/postgres") if name == "postgres" else []
        path = beside[-1] if beside else name
        if machine.which(path) is None:
            return missing(f"not installed{what and f'; {what}'}", f"apt-get install {package}")
        said = version(machine, path, *arguments)
        return ok(said) if said else warn("installed, but prints no version")

    return look


def engines(machine: Machine) -> Found:
    """Which of the engines that studies use this fio was built with."""
    asked = machine.run(["fio", "--enghelp"])
    if asked.status != 0:
        return missing(asked.first_line, "apt-get install fio")
    built = set(asked.text.split())
    wanted = ("io_uring", "libaio", "posixaio", "psync", "pvsync2", "mmap", "nbd", "nfs", "libblkio")
    has, lacks = (", ".join(name for name in wanted if (name in built) == there) for there in (True, False))
    return ok(f"{has}{lacks and f'; not {lacks}'}")


def io_uring(machine: Machine) -> Found:
    """io_uring, by setting up a ring of one entry: a sysctl, a container or an old kernel may forbid it."""
    # io_uring_setup(2) has this number on every architecture; struct io_uring_params, all zero.
    result = machine.syscall(425, 1, bytes(120))
    if result is None:
        return warn("not tried: python3 is not installed there")
    if result >= 0:
        return ok("a ring could be set up")
    if result == -errno.ENOSYS:
        return missing(f"this kernel ({machine.release}) has none, or a container hides it")
    setting = machine.read("/proc/sys/kernel/io_uring_disabled")
    if setting not in (None, "0"):
        return missing(f"forbidden: kernel.io_uring_disabled is {setting}", "sysctl kernel.io_uring_disabled=0")
    return warn(f"refused: {os.strerror(-result)}", "allow it in the container's seccomp profile")


def mysql(machine: Machine) -> Found:
    if (words := MYSQL.words) is None:
        return missing("not unpacked", remedy(UNPACKED_MYSQL))
    found = re.search(r"(?<=Ver )\S+", machine.run([*words, "--version"]).first_line)
    return ok(f"{found[0] if found else 'of no known version'}, unpacked by Storlab")


def bpf(machine: Machine) -> Found:
    """Whether the kernel lets us make an eBPF map, as every program needs."""
    number = {"x86_64": 321, "aarch64": 280}.get(machine.architecture)
    if number is None:
        return warn(f"not tried on {machine.architecture}")
    # BPF_MAP_CREATE (0), and its union bpf_attr: an array (2), key size, value size, entries, flags; the rest zero.
    result = machine.syscall(number, 0, struct.pack("=5I", 2, 4, 4, 1, 0).ljust(128, b"\0"), 128)
    if result is None:
        return warn("not tried: python3 is not installed there")
    if result >= 0:
        return ok("a map could be made")
    if result == -errno.ENOSYS:
        return missing(f"this kernel ({machine.release}) has none, or a container hides it")
    return missing(f"refused: {os.strerror(-result)}", "run it as root, or with CAP_BPF and CAP_PERFMON")


def there(path: str, says: str, lacks: str, remedy: str) -> Look:
    """A file of the kernel's that shows a feature; ``{}`` of ``lacks`` is the kernel's release."""
    return lambda machine: ok(says) if machine.exists(path) else missing(lacks.format(machine.release), remedy)


def tracepoints(machine: Machine) -> Found:
    """Tracepoints by name, in tracefs, which Storlab mounts for itself if it needs it."""
    event = "events/block/block_rq_issue/format"
    folders = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
    for folder in folders:
        if machine.read(f"{folder}/{event}") is not None:
            return ok(folder)
    if any(machine.exists(f"{folder}/{event}") for folder in folders) or not machine.is_root:
        return warn("only root may read tracefs", _AS_ROOT)
    if not _registered(machine, "tracefs"):
        return missing(f"this kernel ({machine.release}) has no tracefs")
    return ok("tracefs is not mounted, and need not be")


def block_io(machine: Machine) -> Found:
    """What `storlab trace` and the probe `alignment` do, for a moment: programs loaded, attached, and taken off."""
    try:
        tried = machine.run([machine.agent(), "trace", "--for", "0.001"])
    except MissingTool:
        return missing("the agent is missing", agent_remedy())
    try:
        started = decode(tried.first_line.encode(), "storlab-agent trace", 1)
    except ParseError:
        started = None
    if tried.status != 0 or not isinstance(started, Started):
        return missing(tried.first_line.removeprefix("storlab-agent: "), "" if machine.is_root else _AS_ROOT)
    if started.hook == "btf":
        return ok("storlab trace attaches with BTF")
    return warn(f"storlab trace attaches to classic tracepoints, not with BTF: {started.reason}")


_EVENTS = "/sys/bus/event_source/devices"


def counters(machine: Machine) -> Found:
    names = [path.rsplit("/", 1)[1] for path in machine.glob(_EVENTS, "*")]
    found = [name for name in names if name in ("cpu", "cpu_core") or name.startswith("armv8")]
    return ok(", ".join(found)) if found else missing("none (usual in VMs)")


def perf(machine: Machine) -> Found:
    """Whether perf_event_open(2) may observe the whole machine."""
    level = machine.read("/proc/sys/kernel/perf_event_paranoid")
    if level is None:
        return missing("this kernel has none", "a kernel with CONFIG_PERF_EVENTS")
    allowed = any(machine.capabilities >> bit & 1 for bit in (21, 38))  # CAP_SYS_ADMIN, CAP_PERFMON
    if allowed or int(level) <= 0:
        return ok(f"of the whole machine (perf_event_paranoid is {level})")
    return warn(f"own processes only: perf_event_paranoid is {level}", "sysctl kernel.perf_event_paranoid=0, or root")
