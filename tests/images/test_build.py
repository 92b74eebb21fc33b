"""Builds use again what is finished, leave nothing when they are stopped, and a guest boots from what they made."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laboratory import wait_until
from storlab.images.cache import cache_folder
from storlab.images.cpio import archive
from storlab.images.image import build_image, find_image

from .test_command_line import storlab

STORLAB = [sys.executable, "-m", "storlab.cli.main"]
ZFS = frozenset({"zfs"})
"""The image is built once for all tests, in the user's own cache: `make test` has done so before."""


@pytest.mark.needs("zfs")
def test_what_is_built_is_found_and_without_extras_it_is_the_same_without_their_layers() -> None:
    found = find_image(ZFS)
    assert all(path.is_file() for path in (found.kernel, found.initramfs, *found.layers))
    programs = "fio mariadbd postgres initdb zpool nbd-server vblade qemu-nbd zed jq cpio bunzip2 strings ssh xxh128sum"
    assert {*programs.split(), "cryptsetup", "pax", "pamtester"} <= found.programs
    assert {"xfs", "nbd", "aoe", "nvme_tcp", "null_blk", "virtio_pci", "sch_netem", "zfs"} <= found.modules
    assert {"xfs", "ext4", "btrfs", "nfs", "nfsd", "erofs", "overlay", "zfs", "tmpfs"} <= found.filesystems
    assert {"kernel", "zfs", "fio", "zfsutils-linux", "zfs-test", "qemu-utils"} <= set(found.versions)
    assert found.versions["zfs"] == found.versions["zfsutils-linux"]
    assert found.versions["qemu-utils"].startswith("1:10.")
    plain = find_image()
    assert plain.layers == found.layers[:-1]
    assert "zfs" not in plain.modules and "zfs" not in plain.filesystems


@pytest.mark.needs("zfs", "packages")
def test_a_second_build_makes_nothing_again() -> None:
    steps: list[str] = []
    assert asyncio.run(build_image(ZFS, steps.append)) == find_image(ZFS)
    assert steps == ["asking the Debian mirror for its newest kernel"]


@contextmanager
def half_built(home: Path, step: str) -> Iterator[subprocess.Popen[str]]:
    """A build at a step of its root file system."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
    with subprocess.Popen([*STORLAB, "image", "build"], env=environment, stderr=subprocess.PIPE, text=True) as build:
        assert build.stderr is not None
        for line in build.stderr:
            if step in line:
                break
        else:
            pytest.fail(f"the build ended by itself, with status {build.wait()}")
        yield build
        build.kill()


def processes_of(folder: Path) -> list[str]:
    """Command lines that name it, and processes that work in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            places = [str((process / name).readlink()) for name in ("cwd", "root")]
            mounts = (process / "mountinfo").read_text()
        except OSError:
            continue
        if str(folder) in line or any(place.startswith(str(folder)) for place in places) or str(folder) in mounts:
            found.append(line)
    return found


@pytest.mark.needs("zfs", "packages")
def test_a_build_that_is_interrupted_or_killed_takes_everything_away(tmp_path: Path) -> None:
    """In another cache, in which all is that it would have to download."""
    cache = tmp_path / "storlab" / "images"
    for name in ("downloads", f"parts/{find_image().kernel.parent.name}"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "--link", str(cache_folder() / name), str(cache / name)], check=True)
    with half_built(tmp_path, "unpacking") as build:
        build.send_signal(signal.SIGINT)
        _, said = build.communicate(timeout=60)
        assert build.returncode == 130
        assert "interrupted" in said and "Traceback" not in said
        assert wait_until(lambda: not processes_of(tmp_path), 20), processes_of(tmp_path)
        assert list((cache / "work").iterdir()) == []
    with half_built(tmp_path, "installing") as build:
        assert processes_of(tmp_path)
        build.send_signal(signal.SIGKILL)
        build.wait()
        assert wait_until(lambda: not processes_of(tmp_path), 20), processes_of(tmp_path)
        assert not [folder for folder in (cache / "parts").iterdir() if folder.name.startswith("root-")]
    removed = storlab("remove", "--all", cache=tmp_path)
    assert removed.returncode == 0, removed.stderr
    assert [path.name for path in cache.iterdir()] == ["lock"]


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


@pytest.mark.needs("zfs")
def test_a_guest_boots_and_finds_programs_and_modules(tmp_path: Path) -> None:
    """With all layers on top of each other."""
    image = find_image(ZFS)
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
