"""Ways in which a device may be in use by somebody else; which of several follows from chance."""

from __future__ import annotations

import contextlib
import os
import random
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laboratory.devices import Device, sh

pytestmark = pytest.mark.needs("root")
Holding = contextlib.AbstractContextManager[None]
SIZE = 8 * 1024**2
PLAIN = {"PATH": os.environ["PATH"]}  # without what marks the processes of a test's laboratory


def node_of(device: Device, path: Path) -> Path:
    """Another node of a device."""
    os.mknod(path, 0o600 | stat.S_IFBLK, Path(device.path).stat().st_rdev)
    return path


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _process(argv: list[str]) -> Iterator[None]:
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=PLAIN) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        try:
            yield
        finally:
            other.stdin.close()
            other.wait()


@contextlib.contextmanager
def mounted(device: Device, folder: Path, chance: random.Random) -> Iterator[None]:
    """A file system of somebody's, here or in another mount namespace."""
    sh("mkfs.ext4", "-q", "-F", device.path)
    target = folder / "mnt"
    target.mkdir(exist_ok=True)
    if chance.random() < 0.5:
        sh("mount", "--read-only", "-o", "norecovery", device.path, str(target))
        try:
            yield
        finally:
            sh("umount", str(target))
    else:
        script = f"mount --read-only -o norecovery {device.path} {target} && echo up && read _"
        with _process(["unshare", "--mount", "--propagation", "private", "sh", "-c", script]):
            yield


@contextlib.contextmanager
def open_elsewhere(device: Device, folder: Path, chance: random.Random) -> Iterator[None]:
    """Open in a process of another mount namespace, by a node of its own and under any name."""
    device_number, name = Path(device.path).stat().st_rdev, chance.choice(["sda", "null", "mine", "x y"])
    (folder / "dev").mkdir(exist_ok=True)
    flags = chance.choice(["<", "<>"])
    number = f"{os.major(device_number)} {os.minor(device_number)}"
    script = (
        f"mount -t tmpfs none {folder}/dev && cd {folder}/dev && mknod '{name}' b {number} "
        f"&& exec 3{flags}'{name}' && echo up && read _"
    )
    with _process(["unshare", "--mount", "--propagation", "private", "bash", "-c", script]):
        yield


@contextlib.contextmanager
def held(device: Device, folder: Path, chance: random.Random) -> Iterator[None]:
    """Open here, with O_EXCL or without, by the device's name or another."""
    node = node_of(device, folder / "node")
    flags = chance.choice([os.O_RDONLY, os.O_RDWR, os.O_RDONLY | os.O_EXCL])
    descriptor = os.open(chance.choice([node, Path(device.path)]), flags)
    try:
        yield
    finally:
        os.close(descriptor)
        node.unlink()


@contextlib.contextmanager
def under_a_loop(device: Device, folder: Path, chance: random.Random) -> Iterator[None]:
    above = sh("losetup", "--find", "--show", device.path).strip()
    try:
        yield
    finally:
        sh("losetup", "--detach", above)


@contextlib.contextmanager
def partition_in_use(device: Device, folder: Path, chance: random.Random) -> Iterator[None]:
    """The whole disk is asked for."""
    with opened(device.partition(length=8192)):
        yield
    device.forget_partition()


@contextlib.contextmanager
def mapped(device: Device, folder: Path, chance: random.Random) -> Iterator[None]:
    """Held by device mapper, where this kernel has that."""
    name = f"storlab-attack-{os.getpid()}"
    table = f"0 {SIZE // 512} linear {device.path} 0"
    if subprocess.run(["dmsetup", "create", name, "--table", table], capture_output=True, check=False).returncode:
        with held(device, folder, chance):
            yield
        return
    try:
        yield
    finally:
        sh("dmsetup", "remove", "--retry", name)


@contextlib.contextmanager
def claimed(device: Device, folder: Path, chance: random.Random) -> Iterator[None]:
    """Another run has it."""
    number = "{}:{}".format(*(part(Path(device.path).stat().st_rdev) for part in (os.major, os.minor)))
    lock = Path("/run/storlab/devices") / number
    lock.parent.mkdir(parents=True, exist_ok=True)
    with _process(["flock", "--nonblock", str(lock), "sh", "-c", "echo up; read _"]):
        yield


IN_USE: dict[str, Callable[[Device, Path, random.Random], Holding]] = {
    each.__name__: each for each in (mounted, open_elsewhere, held, under_a_loop, partition_in_use, mapped, claimed)
}
