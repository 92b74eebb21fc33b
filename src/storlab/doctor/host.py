"""The machine itself: privileges, processors, clocks, memory, space; and the agent, which runs on it."""

from __future__ import annotations

import re

from storlab.agent_binary import agent_remedy
from storlab.doctor.machine import Check, Machine, missing, ok, warn
from storlab.errors import MissingTool
from storlab.layers.fs.mount import parse_mountinfo
from storlab.units import size_text

GROUP = "Machine"
SCRATCH = "/var/tmp"
_LITTLE_SPACE = 2 * 1024**3  # bytes; the shipped studies need less
_LITTLE_MEMORY = 1024**3
_CONFINES = (5, 12)  # the Linux that brought mount_setattr(2)
# Reading these takes tens of nanoseconds; reading the others, microseconds: visible beside a fast disk's latency.
_FAST_CLOCKS = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"}


def checks(machine: Machine) -> list[Check]:
    """All of them."""
    sized = [processors(machine, machine.cpus), memory(machine), space(machine, machine.free(SCRATCH))]
    others = (clock, frequency, turbo, pressure, cgroups, agent, confinement)
    return [root(machine), *sized, *(check(machine) for check in others)]


def root(machine: Machine) -> Check:
    """Root privileges."""
    if machine.is_root:
        return ok("root", GROUP, "this is root")
    return missing("root", GROUP, "not root: no loop devices, mkfs or mounts", "run it as root, or with sudo")


def processors(machine: Machine, count: int) -> Check:
    """How many, and which."""
    lines = (machine.read("/proc/cpuinfo") or "").splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown model")
    if count < 2:
        return warn("CPUs", GROUP, f"{count}, {model}: load and observer share it")
    return ok("CPUs", GROUP, f"{count}, {model}")


def memory(machine: Machine) -> Check:
    """Total and available."""
    fields = {}
    for line in (machine.read("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) * 1024 if value.split() else 0
    total, available = fields.get("MemTotal", 0), fields.get("MemAvailable", 0)
    says = f"{_whole(available)} available of {_whole(total)}"
    if available < _LITTLE_MEMORY:
        return warn("memory", GROUP, f"{says}: what is short of memory measures reclaim")
    return ok("memory", GROUP, says)


def space(machine: Machine, free: int) -> Check:
    """Room for scratch files, and on what they would lie."""
    name = f"space in {SCRATCH}"
    mounts = parse_mountinfo(machine.read("/proc/self/mountinfo") or "")
    on = [mount for mount in mounts if mount.path == "/" or f"{SCRATCH}/".startswith(f"{mount.path}/")]
    filesystem = max(on, key=lambda mount: len(mount.path)).filesystem if on else "unknown file system"
    says = f"{_whole(free)} free, {filesystem}"
    if filesystem in ("tmpfs", "ramfs"):
        return warn(name, GROUP, f"{says}: that is memory, not a disk", 'set scratch = "/a/folder" in the study')
    if free < _LITTLE_SPACE:
        return warn(name, GROUP, f"{says}: little", 'free some, or set scratch = "/a/folder" in the study')
    return ok(name, GROUP, says)


def clock(machine: Machine) -> Check:
    """The clock that latencies are measured with."""
    folder = "/sys/devices/system/clocksource/clocksource0"
    source = machine.read(f"{folder}/current_clocksource")
    if source is None:
        return warn("clock source", GROUP, "not reported by this kernel")
    if source in _FAST_CLOCKS:
        return ok("clock source", GROUP, source)
    others = _FAST_CLOCKS & set((machine.read(f"{folder}/available_clocksource") or "").split())
    remedy = f"echo {min(others)} > {folder}/current_clocksource" if others else ""
    return warn("clock source", GROUP, f"{source}: slow to read, so short latencies look longer", remedy)


def frequency(machine: Machine) -> Check:
    """The governor of the processors' frequency."""
    folders = machine.glob("/sys/devices/system/cpu", "cpu[0-9]*/cpufreq")
    governors = {machine.read(f"{folder}/scaling_governor") for folder in folders} - {None}
    if not governors:
        return warn("CPU frequency", GROUP, "not reported here (usual in VMs): it may vary unseen")
    says = "governor " + ", ".join(sorted(filter(None, governors)))
    if governors == {"performance"}:
        return ok("CPU frequency", GROUP, says)
    return warn("CPU frequency", GROUP, f"{says}: speed follows load", "cpupower frequency-set -g performance")


def turbo(machine: Machine) -> Check:
    """Whether processors may exceed their nominal frequency for as long as they stay cool."""
    intel = machine.read("/sys/devices/system/cpu/intel_pstate/no_turbo")
    other = machine.read("/sys/devices/system/cpu/cpufreq/boost")
    if intel is None and other is None:
        return warn("CPU turbo", GROUP, "not reported here (usual in VMs)")
    if intel == "1" or other == "0":
        return ok("CPU turbo", GROUP, "off")
    switch = "intel_pstate/no_turbo" if intel is not None else "cpufreq/boost"
    value = 1 if intel is not None else 0
    return warn("CPU turbo", GROUP, "on: speed depends on heat", f"echo {value} > /sys/devices/system/cpu/{switch}")


def pressure(machine: Machine) -> Check:
    """PSI, which the probe ``host-load`` reads."""
    if machine.read("/proc/pressure/io") is not None:
        return ok("pressure (PSI)", GROUP, "cpu, io, memory")
    return missing("pressure (PSI)", GROUP, "no /proc/pressure/io", "boot with psi=1, or a kernel with CONFIG_PSI")


def cgroups(machine: Machine) -> Check:
    """Which version, and whether it accounts for I/O."""
    controllers = machine.read("/sys/fs/cgroup/cgroup.controllers")
    if controllers is not None:
        if "io" in controllers.split():
            return ok("cgroups", GROUP, "v2, with io.stat")
        return warn("cgroups", GROUP, "v2 without the io controller")
    kinds = {mount.filesystem for mount in parse_mountinfo(machine.read("/proc/self/mountinfo") or "")}
    remedy = "boot with systemd.unified_cgroup_hierarchy=1"
    if "cgroup" in kinds:
        which = "v1 and v2 (hybrid)" if "cgroup2" in kinds else "v1"
        return warn("cgroups", GROUP, f"{which}: no io.stat", remedy)
    return missing("cgroups", GROUP, "none mounted", remedy)


def agent(machine: Machine) -> Check:
    """Whether there is an agent, and it runs, by asking it for its version."""
    try:
        path = machine.agent()
    except MissingTool:
        return missing("agent", GROUP, "missing", agent_remedy())
    ended = machine.run([path, "--version"])
    if ended.status != 0:
        return missing("agent", GROUP, f"{path} doesn't run: {ended.first_line}", agent_remedy())
    return ok("agent", GROUP, ended.first_line.removeprefix("storlab-agent "))


def confinement(machine: Machine) -> Check:
    """Whether loads can be kept to their target, by starting one program in namespaces of its own."""
    name = "confined loads"
    release = re.match(r"(\d+)\.(\d+)", machine.release)
    if release is None or tuple(map(int, release.groups())) < _CONFINES:
        says = f"Linux {machine.release} can't make mounts read-only for one process: needs 5.12"
        return missing(name, GROUP, says, "storlab run --unconfined")
    user = () if machine.is_root else ("--user",)
    ended = machine.run(["unshare", *user, "--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "true"])
    if ended.status == 0:
        return ok(name, GROUP, "they write to their target alone")
    if machine.is_root:
        return missing(name, GROUP, ended.first_line, "give this container CAP_SYS_ADMIN, or storlab run --unconfined")
    return warn(name, GROUP, f"{ended.first_line}: they may write wherever you may")


def _whole(size: int) -> str:
    """Rounded to what a person reads: ``23.5G``."""
    return f"{size / 1024**3:.1f}G" if size >= 1024**3 else size_text(size // 1024**2 * 1024**2)
