"""A real guest gets from the image's kernel to its root, with all layers on top of each other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from storlab.images.cpio import archive
from storlab.images.image import Image

BUSYBOX = Path("/bin/busybox")
INIT = b"""#!/bin/busybox sh
for folder in proc sys dev over new; do /bin/busybox mkdir -p /$folder; done
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do
    /bin/busybox insmod /modules/$module || echo "FAILED to load $module"
done
layers=
for disk in /sys/block/vd*; do
    serial=$(/bin/busybox cat $disk/serial)
    /bin/busybox mkdir -p /$serial
    /bin/busybox mount -t erofs -o ro /dev/${disk##*/} /$serial || echo "FAILED to mount $disk"
done
/bin/busybox mount -t tmpfs tmpfs /over
/bin/busybox mkdir /over/upper /over/work
/bin/busybox mount -t overlay -o lowerdir=/layer-2:/layer-1:/layer-0,upperdir=/over/upper,workdir=/over/work root /new
for folder in proc sys dev; do /bin/busybox mount --move /$folder /new/$folder; done
/bin/busybox chroot /new /bin/sh -c '
    uname -r
    fio --version
    modprobe xfs && grep -c "^xfs " /proc/modules
    modprobe zfs && cat /sys/module/zfs/version
    zpool list
'
echo the end
/bin/busybox poweroff -f
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed")
def test_a_guest_boots_and_finds_programs_and_modules(image: Image, tmp_path: Path) -> None:
    initrd = tmp_path / "initrd"
    own = archive({"init": INIT, "bin/busybox": BUSYBOX.read_bytes()}, frozenset({"init", "bin/busybox"}))
    initrd.write_bytes(image.initramfs.read_bytes() + own)
    disks: list[str] = []
    for number, layer in enumerate(image.layers):
        disks += ["-drive", f"if=none,id=layer{number},format=raw,readonly=on,file={layer}"]
        disks += ["-device", f"virtio-blk-pci,drive=layer{number},serial=layer-{number}"]
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-cpu", "max", "-m", "512", "-nodefaults"]
    argv += ["-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", str(image.kernel)]
    argv += ["-initrd", str(initrd), "-append", "console=ttyS0 panic=-1 quiet", *disks]
    ran = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False)
    console = ran.stdout
    assert "the end" in console, console + ran.stderr
    assert "FAILED" not in console, console
    assert image.release in console
    assert "fio-3." in console
    assert image.versions["zfs"].partition("-")[0] in console
    assert "no pools available" in console
