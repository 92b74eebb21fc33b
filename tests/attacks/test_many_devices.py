"""Many attempts to let Storlab write to a device that somebody uses, or that carries somebody's data: all are refused.

``STORLAB_ATTACKS`` is how many; which follows from ``STORLAB_TEST_SEED``. Each asks the layer, on a real node, as every
set-up does; after each, all contents are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import stat
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from laboratory import needs_root, wait_until
from laboratory.devices import Device, new_device, sh
from layers.signatures import WRITE
from storlab.errors import StorlabError, UserError
from storlab.layers.base import LayerContext
from storlab.layers.block.claim import Claims
from storlab.layers.block.device import DeviceLayer
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Node

SEED = os.environ.get("STORLAB_TEST_SEED", "2026")
ATTEMPTS = int(os.environ.get("STORLAB_ATTACKS", "40"))
SIZE = 8 * 1024**2
ENVIRONMENT = {"PATH": os.environ["PATH"]}

Holding = contextlib.AbstractContextManager[object]


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
    node = folder / "node"
    os.mknod(node, 0o600 | stat.S_IFBLK, Path(device.path).stat().st_rdev)
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
    part = device.partition(length=8192)
    descriptor = os.open(part, os.O_RDONLY)
    try:
        yield
    finally:
        os.close(descriptor)
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


IN_USE: tuple[Callable[[Device, Path, random.Random], Holding], ...] = (
    mounted, open_elsewhere, held, under_a_loop, partition_in_use, mapped, claimed,
)  # fmt: skip


def _write_start(path: str, data: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _is_free(path: str) -> bool:
    """Whether nobody holds it: one that ended lets go a moment later, as does one that was copied meanwhile."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_EXCL))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _process(argv: list[str]) -> Iterator[None]:
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        try:
            yield
        finally:
            other.stdin.close()
            other.wait()


def named(device: Device, folder: Path, chance: random.Random) -> str:
    """One of the names of the device: its own, that of a link, of a link to a link, or of another node."""
    name, kind = folder / f"name-{chance.getrandbits(64):x}", chance.randrange(4)
    if kind == 0:
        return device.path
    if kind == 1:
        name.symlink_to(device.path)
    elif kind == 2:
        (folder / f"{name.name}-2").symlink_to(device.path)
        name.symlink_to(f"{name.name}-2")
    else:
        os.mknod(name, 0o600 | stat.S_IFBLK, Path(device.path).stat().st_rdev)
    return str(name)


async def refused(node: Node, path: str, *, wipe: bool, planned: str = "") -> str:
    """Set the layer up, which must fail; the reason."""
    layer = DeviceLayer.model_validate({"path": path} | ({"wipe": path} if wipe else {}))

    async def register(name: str, arguments: object) -> None:
        raise AssertionError("nothing is to be set up")

    known = {path: await DeviceLayer(path=planned).identify(node)} if planned else {}
    claims = Claims("20260101-000000-abcd")
    context = LayerContext(node, "/nowhere", 0, "20260101-000000-abcd", register, planned=known, claim=claims.claim)
    try:
        with pytest.raises(StorlabError) as error:
            await layer.set_up(None, context)
        assert isinstance(error.value, UserError), str(error.value)
        return str(error.value)
    finally:
        await claims.release()


async def attempt(node: Node, device: Device, spare: Device, folder: Path, chance: random.Random) -> str:
    """One attempt; what it was, and why it was refused."""
    for each in (device, spare):
        assert wait_until(partial(_is_free, each.path), 60.0)
        _write_start(each.path, bytes(SIZE))
    path = named(device, folder, chance)
    kind = chance.choice(["in use", "in use", "signed", "swapped"])
    if kind == "signed":
        what = chance.choice([*WRITE])
        WRITE[what](device.path)
        if what not in sh("wipefs", "--no-act", device.path):
            return f"{what}: this version of wipefs does not know it"
        before = device.checksum()
        reason = await refused(node, path, wipe=False)
        assert device.checksum() == before, what
        return f"{what}: {reason}"
    if kind == "swapped":
        _write_start(device.path, chance.randbytes(4096))
        before = device.checksum()
        reason = await refused(node, path, wipe=True, planned=spare.path)
        assert "when the run was planned" in reason
        assert device.checksum() == before
        return f"swapped: {reason}"
    how = chance.choice(IN_USE)
    with how(device, folder, chance):
        before = device.checksum()
        reason = await refused(node, path, wipe=True)
        assert device.checksum() == before, how.__name__
    return f"{how.__name__}: {reason}"


@needs_root
def test_no_device_in_use_signed_or_swapped_is_ever_written_to(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    tried: list[str] = []

    async def work(device: Device, spare: Device) -> None:
        async with local_node("attacked") as node:
            for _ in range(ATTEMPTS):
                tried.append(await attempt(node, device, spare, tmp_path, chance))

    try:
        with new_device(tmp_path / "a.img", SIZE) as device, new_device(tmp_path / "b.img", SIZE) as spare:
            asyncio.run(work(device, spare))
    finally:
        print(f"STORLAB_TEST_SEED={SEED}, {len(tried)} of {ATTEMPTS} attempts", *tried[-5:], sep="\n  ")
