"""What can be observed: eBPF, BTF, tracepoints, kprobes, hardware counters."""

from __future__ import annotations

import errno
import os
import struct

from storlab.agent_binary import agent_remedy
from storlab.blockio.trace_output import Started, decode
from storlab.doctor.machine import Check, Machine, missing, ok, program, warn
from storlab.errors import MissingTool, ParseError

GROUP = "Observation"
_BPF_SYSCALL = {"x86_64": 321, "aarch64": 280}
_BPF_MAP_CREATE = 0
_MAP_ARRAY = 2
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
_EVENTS = "/sys/bus/event_source/devices"


def checks(machine: Machine) -> list[Check]:
    """All of them."""
    looks = (btf, tracepoints, block_io, kprobes, counters, perf)
    bpftrace = program(machine, GROUP, "bpftrace", "bpftrace", what="Storlab's own probes don't need it")
    return [bpf(machine, machine.architecture), *(check(machine) for check in looks), bpftrace]


def bpf(machine: Machine, architecture: str) -> Check:
    """Whether the kernel lets us make an eBPF map, as every program needs."""
    number = _BPF_SYSCALL.get(architecture)
    if number is None:
        return warn("eBPF", GROUP, f"not tried on {architecture}")
    # union bpf_attr for BPF_MAP_CREATE: type, key size, value size, entries, flags; the rest zero.
    attributes = struct.pack("=5I", _MAP_ARRAY, 4, 4, 1, 0).ljust(128, b"\0")
    result = machine.syscall(number, _BPF_MAP_CREATE, attributes, 128)
    if result is None:
        return warn("eBPF", GROUP, "not tried: python3 is not installed there")
    if result >= 0:
        return ok("eBPF", GROUP, "a map could be made")
    if result == -errno.ENOSYS:
        return missing("eBPF", GROUP, f"this kernel ({machine.release}) has none, or a container hides it")
    reason = f"refused: {os.strerror(-result)}"
    return missing("eBPF", GROUP, reason, "run it as root, or with CAP_BPF and CAP_PERFMON")


def btf(machine: Machine) -> Check:
    """The kernel's types, which let one compiled program fit every kernel."""
    if machine.exists("/sys/kernel/btf/vmlinux"):
        return ok("BTF", GROUP, "/sys/kernel/btf/vmlinux")
    return missing("BTF", GROUP, "no /sys/kernel/btf/vmlinux", "a kernel with CONFIG_DEBUG_INFO_BTF; Debian's has it")


def tracepoints(machine: Machine) -> Check:
    """Tracepoints by name, in tracefs, which Storlab mounts for itself where it needs it."""
    event = "events/block/block_rq_issue/format"
    folders = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
    for folder in folders:
        if machine.read(f"{folder}/{event}") is not None:
            return ok("tracepoints", GROUP, folder)
    if any(machine.exists(f"{folder}/{event}") for folder in folders) or not machine.is_root:
        return warn("tracepoints", GROUP, "only root may read tracefs", "run it as root, or with sudo")
    if "tracefs" not in (machine.read("/proc/filesystems") or "").split():
        return missing("tracepoints", GROUP, f"this kernel ({machine.release}) has no tracefs")
    return ok("tracepoints", GROUP, "tracefs is not mounted, and need not be")


def block_io(machine: Machine) -> Check:
    """What `storlab trace` and the probe `alignment` do, for a moment: programs loaded, attached, and taken off."""
    name = "block I/O"
    try:
        tried = machine.run([machine.agent(), "trace", "--for", "0.001"])
    except MissingTool:
        return missing(name, GROUP, "the agent is missing", agent_remedy())
    try:
        started = decode(tried.first_line.encode(), "storlab-agent trace", 1)
    except ParseError:
        started = None
    if tried.status != 0 or not isinstance(started, Started):
        remedy = "" if machine.is_root else "run it as root, or with sudo"
        return missing(name, GROUP, tried.first_line.removeprefix("storlab-agent: "), remedy)
    if started.hook == "btf":
        return ok(name, GROUP, "storlab trace attaches with BTF")
    return warn(name, GROUP, f"storlab trace attaches to classic tracepoints, not with BTF: {started.reason}")


def kprobes(machine: Machine) -> Check:
    """Probes at any kernel function."""
    if machine.exists(f"{_EVENTS}/kprobe"):
        return ok("kprobes", GROUP, "this kernel has them")
    return missing("kprobes", GROUP, f"this kernel ({machine.release}) has none", "a kernel with CONFIG_KPROBE_EVENTS")


def counters(machine: Machine) -> Check:
    """The processor's own counters: cycles, cache misses."""
    names = [path.rsplit("/", 1)[1] for path in machine.glob(_EVENTS, "*")]
    found = [name for name in names if name in ("cpu", "cpu_core") or name.startswith("armv8")]
    if found:
        return ok("hardware counters", GROUP, ", ".join(found))
    return missing("hardware counters", GROUP, "none (usual in VMs)")


def perf(machine: Machine) -> Check:
    """Whether perf_event_open(2) may observe the whole machine."""
    level = machine.read("/proc/sys/kernel/perf_event_paranoid")
    if level is None:
        return missing("perf events", GROUP, "this kernel has none", "a kernel with CONFIG_PERF_EVENTS")
    allowed = any(machine.capabilities >> bit & 1 for bit in (_CAP_PERFMON, _CAP_SYS_ADMIN))
    if allowed or int(level) <= 0:
        return ok("perf events", GROUP, f"of the whole machine (perf_event_paranoid is {level})")
    remedy = "sysctl kernel.perf_event_paranoid=0, or root"
    return warn("perf events", GROUP, f"own processes only: perf_event_paranoid is {level}", remedy)
