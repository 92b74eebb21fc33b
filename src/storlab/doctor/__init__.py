"""What this machine can do: one check for each thing that studies need, with what would fix it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from storlab.doctor import checks as of
from storlab.doctor import virtual
from storlab.doctor.checks import SCRATCH, Look, feature, filesystem, program, there
from storlab.doctor.machine import Check, Machine
from storlab.doctor.runs import left_by_runs, shipped_studies_here

_AT_ONCE = 4  # most of the time goes by in programs that are asked something
_QEMU = f"qemu-system-{platform.machine()}"
_QEMU_PACKAGE = "qemu-system-arm" if platform.machine() == "aarch64" else "qemu-system-x86"

CHECKS: Mapping[str, Mapping[str, Look]] = {
    "Machine": {
        "root": of.root,
        "CPUs": of.processors,
        "memory": of.memory,
        f"space in {SCRATCH}": of.space,
        "clock source": of.clock,
        "CPU frequency": of.frequency,
        "CPU turbo": of.turbo,
        "pressure (PSI)": of.pressure,
        "cgroups": of.cgroups,
        "agent": of.agent,
        "confined loads": of.confinement,
    },
    "Block devices": {
        "loop devices": of.loop,
        "device mapper": feature("dm_mod", "CONFIG_BLK_DEV_DM", "dmsetup"),
        "md (RAID)": feature("md_mod", "CONFIG_BLK_DEV_MD", "mdadm"),
        "null_blk": feature("null_blk", "CONFIG_BLK_DEV_NULL_BLK"),
        "ublk": feature("ublk_drv", "CONFIG_BLK_DEV_UBLK"),
        "nbd": feature("nbd", "CONFIG_BLK_DEV_NBD", "nbd-client"),
    },
    "File systems": {
        "ext4": filesystem("ext4", "CONFIG_EXT4_FS", "e2fsprogs"),
        "xfs": filesystem("xfs", "CONFIG_XFS_FS", "xfsprogs"),
        "btrfs": filesystem("btrfs", "CONFIG_BTRFS_FS", "btrfs-progs"),
        "f2fs": filesystem("f2fs", "CONFIG_F2FS_FS", "f2fs-tools"),
        "zfs": of.zfs,
        "overlay": feature("overlay", "CONFIG_OVERLAY_FS"),
        "FUSE": feature("fuse", "CONFIG_FUSE_FS"),
    },
    "fio": {"fio": program("fio", "fio"), "engines": of.engines, "io_uring": of.io_uring},
    "Observation": {
        "eBPF": of.bpf,
        "BTF": there(
            "/sys/kernel/btf/vmlinux", "/sys/kernel/btf/vmlinux", "no /sys/kernel/btf/vmlinux",
            "a kernel with CONFIG_DEBUG_INFO_BTF; Debian's has it",
        ),
        "tracepoints": of.tracepoints,
        "block I/O": of.block_io,
        "kprobes": there(
            "/sys/bus/event_source/devices/kprobe", "this kernel has them", "this kernel ({}) has none",
            "a kernel with CONFIG_KPROBE_EVENTS",
        ),
        "hardware counters": of.counters,
        "perf events": of.perf,
        "bpftrace": program("bpftrace", "bpftrace", what="Storlab's own probes don't need it"),
    },
    "Virtual machines": {
        "KVM": virtual.kvm,
        _QEMU: virtual.qemu(_QEMU, _QEMU_PACKAGE),
        "qemu-img": program("qemu-img", "qemu-utils", what="it makes qcow2 disks"),
        "qemu-nbd": program("qemu-nbd", "qemu-utils", what="it serves disks over NBD"),
        "QEMU's rights": virtual.confinement,
        "numactl": virtual.numa,
        "network among guests": virtual.network,
        "virtiofsd": virtual.virtiofsd,
        "saved guests": virtual.saved_guests,
        "guest image": virtual.guest_image,
    },
    "Networks": {
        "network namespaces": of.namespaces,
        "netem (delay, loss)": feature("sch_netem", "CONFIG_NET_SCH_NETEM"),
        "NFS client": feature("nfs", "CONFIG_NFS_FS"),
        "NFS server": feature("nfsd", "CONFIG_NFSD"),
        "9p": feature("9p", "CONFIG_9P_FS"),
        "NVMe over TCP": feature("nvme_tcp", "CONFIG_NVME_TCP"),
        "AoE": feature("aoe", "CONFIG_ATA_OVER_ETH"),
    },
    "Workloads and databases": {
        "sysbench": program("sysbench", "sysbench"),
        "mariadbd": program("mariadbd", "mariadb-server"),
        "mysqld": of.mysql,
        "postgres": program("postgres", "postgresql"),
        # It prints its version only below its usage, which it prints for an option that it does not know.
        "bonnie++": program("bonnie++", "bonnie++", "-h"),
    },
}  # fmt: skip
"""By group and name, in the order in which they are shown."""


def examine(machine: Machine) -> list[Check]:
    """Look at everything once; changes nothing. Of another machine, without what is Storlab's own."""
    looks = {
        (group, name): look
        for group, those in CHECKS.items()
        if machine.here or group != "Virtual machines"
        for name, look in those.items()
        if machine.here or look is not of.mysql
    }
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        done = pool.map(lambda look: look(machine), looks.values())
        found = [Check(name, group, *each) for (group, name), each in zip(looks, done, strict=True)]
    return [*found, *left_by_runs(), *shipped_studies_here()] if machine.here else found
