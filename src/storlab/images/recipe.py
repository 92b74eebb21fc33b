"""What guest images are made of. A part is rebuilt when what stands here of it changes, and only then."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files
from typing import Any

SUITE = "bookworm"
ARCHITECTURE = "amd64"
EXTRAS = frozenset({"perf", "zfs"})
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = "http://deb.debian.org/debian"
SECURITY_MIRROR = "http://deb.debian.org/debian-security"

# The series whose modules and options are known to do (ground for every study): Debian's generic kernel, not -cloud.
KERNEL = re.compile(r"linux-image-(6\.12\.[\w.+]+-amd64)")
KERNEL_SEARCH = r"^linux-image-6\.12\..*-amd64$"
OWN_SERIES = "6.12"

# Other kernels of Debian's that guests can boot are named by their series, debian:6.1.
DEBIAN = "debian:"
SERIES = re.compile(r"\d{1,2}\.\d{1,3}")

# Taken from backports: ZFS has to match its modules, and the disk images of QEMU the host's QEMU.
FROM_BACKPORTS = ("src:zfs-linux", "src:qemu")

PACKAGES: dict[str, tuple[str, ...]] = {
    "load": ("fio", "bonnie++", "sysbench", "mariadb-server", "postgresql", "redis-server"),
    "file systems": ("btrfs-progs", "e2fsprogs", "f2fs-tools", "xfsprogs", "zfsutils-linux"),
    "block devices": (
        "bcache-tools",
        "dmsetup",
        "kmod",
        "lvm2",
        "mdadm",
        "mount",
        "nvme-cli",
        "parted",
        "qemu-utils",
        "udev",
        "util-linux",
        "vdo",  # in backports alone
    ),
    "network storage": (
        "aoetools",
        "cifs-utils",
        "ksmbd-tools",
        "nbd-client",
        "nbd-server",
        "nbdkit",
        "nfs-common",
        "nfs-kernel-server",
        "open-iscsi",
        "openssh-server",
        "sshfs",
        "targetcli-fb",
        "tgt",
        "vblade",
    ),
    "observation": ("blktrace", "bpftrace", "procps", "strace", "sysstat", "tcpdump"),
    "network": ("ethtool", "iproute2", "iputils-ping", "socat"),
    "by hand": ("busybox", "file", "less", "numactl", "psmisc", "sudo", "vim-tiny"),
    # Of what its commands.cfg names, no functional test calls perf, an extra, or net, which bring 12 and 50 MB.
    "the ZFS test suite": (
        "acl",
        "attr",
        "bc",
        "bzip2",
        "cpio",
        "cryptsetup-bin",
        "jq",
        "ksh",
        "libaio1",
        "libcurl4",
        "lsscsi",
        "openssh-client",
        "pamtester",
        "pax",
        "python3",
        "python3-pyzfs",
        "xxhash",
    ),
    # What tests skip themselves without; libgdbm6 is for a checkout that was built where its development files are.
    "xfstests and blktests": ("duperemove", "fdisk", "libgdbm6", "quota", "thin-provisioning-tools", "xfsdump"),
}
# Only unpacked: zfs-test and zfs-zed depend on ZFS modules or dkms, which come as a layer, and libpam-zfs would enter
# itself into the configuration of every login.
WITHOUT_DEPENDENCIES = ("zfs-test", "zfs-zed", "libpam-zfs")

PERF_PACKAGES = ("linux-perf",)  # Debian 12's own, of an older kernel, records on any later one

ZFS_TOOLS = ("file", "gawk", "gcc-12", "kmod", "libc6-dev", "libelf1", "make")  # libelf1: for the kernel's objtool

# Nobody reads these in a guest. libc's C.UTF-8 stays: it lies elsewhere.
NOT_UNPACKED = (
    "/usr/share/doc/*", "/usr/share/i18n/*", "/usr/share/info/*", "/usr/share/lintian/*", "/usr/share/locale/*",
    "/usr/share/man/*",
)  # fmt: skip

# What the initramfs loads, in this order, each with what it needs. Everything else is loaded from the root on demand.
EARLY_MODULES = ("virtio_pci", "virtio_mmio", "virtio_blk", "virtio_console", "erofs", "overlay", "virtio_rng")
OWN_ROOT_MODULES = ("ext4", "squashfs")  # also, where somebody's own root file system may be one

# Hardware that no guest has. What a kept module needs stays, wherever it lies.
DROPPED_MODULES = (
    "kernel/drivers/bluetooth/", "kernel/drivers/comedi/", "kernel/drivers/edac/", "kernel/drivers/gpu/",
    "kernel/drivers/hid/", "kernel/drivers/hwmon/", "kernel/drivers/iio/", "kernel/drivers/infiniband/hw/",
    "kernel/drivers/input/", "kernel/drivers/media/", "kernel/drivers/net/can/", "kernel/drivers/net/ethernet/",
    "kernel/drivers/net/usb/", "kernel/drivers/net/wireless/", "kernel/drivers/platform/", "kernel/drivers/staging/",
    "kernel/drivers/usb/gadget/", "kernel/drivers/usb/serial/", "kernel/drivers/video/", "kernel/net/bluetooth/",
    "kernel/net/mac80211/", "kernel/net/wireless/", "kernel/sound/",
)  # fmt: skip
KEPT_MODULES = ("kernel/drivers/net/ethernet/intel/e1000",)  # QEMU's network cards beside virtio: e1000, e1000e

# Raised when the code that makes a kernel's part changes what it makes; the other parts' scripts stand for themselves.
_KERNEL_STEPS = 2

# Every file in an image has this time: 2023-06-10, the day Debian 12 came out.
TIMESTAMP = 1686355200


def script(name: str) -> str:
    """A shell script of the recipe, to be handed over as text: who builds may not be able to read this folder."""
    return (files("storlab.images") / "scripts" / name).read_text("utf-8")


def series_of(kernel: str) -> str | None:
    """``6.1`` of ``debian:6.1``; ``None`` where this is the path of a kernel. Raises ``ValueError`` for no series."""
    if not kernel.startswith(DEBIAN):
        return None
    series = kernel.removeprefix(DEBIAN)
    if not SERIES.fullmatch(series):
        raise ValueError(f'{series or "nothing"} is no series of kernels: write "{DEBIAN}6.1"')
    return series


def packages() -> list[str]:
    return sorted({name for group in PACKAGES.values() for name in group})


def sources(mirror: str) -> list[str]:
    signed = f"[signed-by={KEYRING}]"
    return [
        f"deb {signed} {mirror} {SUITE} main",
        f"deb {signed} {mirror} {SUITE}-updates main",
        f"deb {signed} {SECURITY_MIRROR} {SUITE}-security main",
        f"deb {signed} {mirror} {SUITE}-backports main contrib",
    ]


def preferences() -> str:
    return f"Package: {' '.join(FROM_BACKPORTS)}\nPin: release n={SUITE}-backports\nPin-Priority: 990\n"


def digest(of: Any) -> str:
    """A short name for a value: equal for equal values, on every machine."""
    text = json.dumps(of, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def root_recipe() -> dict[str, Any]:
    made_of = {"packages": packages(), "without dependencies": WITHOUT_DEPENDENCIES, "not unpacked": NOT_UNPACKED}
    how = {"suite": SUITE, "preferences": preferences(), "script": script("finish-root.sh"), "timestamp": TIMESTAMP}
    return made_of | how


def kernel_recipe() -> dict[str, Any]:
    modules = {"early": EARLY_MODULES, "dropped": DROPPED_MODULES, "kept": KEPT_MODULES}
    return {"steps": _KERNEL_STEPS, **modules, "timestamp": TIMESTAMP}


def zfs_recipe() -> dict[str, Any]:
    return {"tools": ZFS_TOOLS, "script": script("build-zfs.sh")}


def perf_recipe() -> dict[str, Any]:
    return {"packages": PERF_PACKAGES, "script": script("pack-perf.sh"), "not unpacked": NOT_UNPACKED}


def image_recipe() -> str:
    """A name for all of the recipe: an image of another one is not what this Storlab builds."""
    return digest([root_recipe(), kernel_recipe(), zfs_recipe()])
