"""What the kernel has for storage, which tools there are, and whether loop devices and namespaces work."""

from __future__ import annotations

from storlab.doctor.host import SCRATCH
from storlab.doctor.machine import (
    REMEDY,
    Check,
    Machine,
    feature,
    feature_with_program,
    has_feature,
    missing,
    ok,
    version,
    why_not,
)

GROUP = "Block devices"
FILESYSTEMS = "File systems"
NETWORKS = "Networks"
_TRIAL_SIZE = 1024**2  # bytes


def checks(machine: Machine) -> list[Check]:
    """Block devices, then file systems."""
    return [
        loop(machine),
        feature_with_program(machine, GROUP, "device mapper", "dm_mod", "CONFIG_BLK_DEV_DM", "dmsetup", "dmsetup"),
        feature_with_program(machine, GROUP, "md (RAID)", "md_mod", "CONFIG_BLK_DEV_MD", "mdadm", "mdadm"),
        feature(machine, GROUP, "null_blk", "null_blk", "CONFIG_BLK_DEV_NULL_BLK"),
        feature(machine, GROUP, "ublk", "ublk_drv", "CONFIG_BLK_DEV_UBLK"),
        feature_with_program(machine, GROUP, "nbd", "nbd", "CONFIG_BLK_DEV_NBD", "nbd-client", "nbd-client"),
        filesystem(machine, "ext4", "CONFIG_EXT4_FS", "mkfs.ext4", "e2fsprogs"),
        filesystem(machine, "xfs", "CONFIG_XFS_FS", "mkfs.xfs", "xfsprogs"),
        filesystem(machine, "btrfs", "CONFIG_BTRFS_FS", "mkfs.btrfs", "btrfs-progs"),
        filesystem(machine, "f2fs", "CONFIG_F2FS_FS", "mkfs.f2fs", "f2fs-tools"),
        zfs(machine),
        feature(machine, FILESYSTEMS, "overlay", "overlay", "CONFIG_OVERLAY_FS"),
        feature(machine, FILESYSTEMS, "FUSE", "fuse", "CONFIG_FUSE_FS"),
    ]


def loop(machine: Machine) -> Check:
    """Loop devices, by making one over an empty sparse file, read-only, and taking it away again."""
    name = "loop devices"
    if machine.which("losetup") is None:
        return missing(name, GROUP, "losetup is not installed", "apt-get install mount")
    if not machine.exists("/dev/loop-control"):
        return missing(name, GROUP, "/dev/loop-control does not exist", "modprobe loop")
    if not machine.is_root:
        return missing(name, GROUP, "only root may make one", "run it as root, or with sudo")
    with machine.empty_file(SCRATCH, _TRIAL_SIZE) as file:
        made = machine.run(["losetup", "--find", "--show", "--read-only", file])
        device = made.text
        try:
            if made.status != 0:
                return missing(name, GROUP, made.first_line, "give this machine or container loop devices")
            return ok(name, GROUP, "one was created and removed again")
        finally:
            if device.startswith("/dev/loop"):
                machine.run(["losetup", "--detach", device])


def filesystem(machine: Machine, name: str, option: str, mkfs: str, package: str) -> Check:
    """A file system that ``mkfs`` makes: tools and kernel."""
    mountable = _registered(machine, name) or has_feature(machine, name, option) is not None
    if not mountable:
        return missing(name, FILESYSTEMS, why_not(machine, option), REMEDY)
    if machine.which(mkfs) is None:
        says = f"the kernel has it, but {mkfs} is not installed"
        return missing(name, FILESYSTEMS, says, f"apt-get install {package}")
    return ok(name, FILESYSTEMS, f"{mkfs} {version(machine, mkfs, '-V')}")


def zfs(machine: Machine) -> Check:
    """ZFS, which no kernel of Debian's brings."""
    remedy = "apt-get install zfs-dkms zfsutils-linux (bookworm-backports, contrib)"
    if not _registered(machine, "zfs") and machine.run(["modprobe", "--dry-run", "--quiet", "zfs"]).status != 0:
        return missing("zfs", FILESYSTEMS, f"this kernel ({machine.release}) has no zfs module", remedy)
    if machine.which("zpool") is None:
        return missing("zfs", FILESYSTEMS, "the module is there, but zpool is not installed", remedy)
    return ok("zfs", FILESYSTEMS, version(machine, "zpool", "version"))


def _registered(machine: Machine, name: str) -> bool:
    return name in (machine.read("/proc/filesystems") or "").split()


def networks(machine: Machine) -> list[Check]:
    """Namespaces, delay and loss, network file systems."""
    return [
        namespaces(machine),
        feature(machine, NETWORKS, "netem (delay, loss)", "sch_netem", "CONFIG_NET_SCH_NETEM"),
        feature(machine, NETWORKS, "NFS client", "nfs", "CONFIG_NFS_FS"),
        feature(machine, NETWORKS, "NFS server", "nfsd", "CONFIG_NFSD"),
        feature(machine, NETWORKS, "9p", "9p", "CONFIG_9P_FS"),
        feature(machine, NETWORKS, "NVMe over TCP", "nvme_tcp", "CONFIG_NVME_TCP"),
        feature(machine, NETWORKS, "AoE", "aoe", "CONFIG_ATA_OVER_ETH"),
    ]


def namespaces(machine: Machine) -> Check:
    """A network namespace, by starting one program in one of its own; it goes with that program."""
    name = "network namespaces"
    if machine.which("ip") is None:
        return missing(name, NETWORKS, "ip is not installed", "apt-get install iproute2")
    if not machine.is_root:
        return missing(name, NETWORKS, "only root may make one", "run it as root, or with sudo")
    ended = machine.run(["unshare", "--net", "true"])
    if ended.status != 0:
        return missing(name, NETWORKS, ended.first_line, "give this container CAP_SYS_ADMIN")
    return ok(name, NETWORKS, "one was created and removed again")
