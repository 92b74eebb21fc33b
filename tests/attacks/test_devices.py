"""Devices in use, signed or swapped, by another local user, root in a container, or another run: all are refused."""

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

from attacks import ATTACKS, SEED
from laboratory import Laboratory, ended, kill, wait_for, wait_until
from laboratory.devices import (
    Device,
    mounted,
    mounted_elsewhere,
    new_device,
    process_that_is_up,
    refused,
    sh,
    underneath,
)
from laboratory.studies import DIRECTORY, directory
from layers.signatures import WRITE
from storlab.base.errors import StorlabError, StudyError, UserError
from storlab.layers.base import LayerContext
from storlab.layers.block.device import DeviceLayer
from storlab.layers.block.use import Claims
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Node

pytestmark = pytest.mark.needs("root")
SIZE = 8 * 1024**2
TRUE = 'command = { argv = ["true"] }'


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


def raw(path: str | Path, more: str = "", load: str = TRUE, above: str = "") -> str:
    """A load on a device."""
    return directory(load, stack=f'[{{ layer = "device", path = "{path}"{more} }}{above}]')


def ext4(path: str | Path, more: str = "", load: str = TRUE) -> str:
    return raw(path, more, load, ', { layer = "mkfs", type = "ext4" }, { layer = "mount" }')


def waits(lab: Laboratory) -> str:
    """A load that says that it is there and waits."""
    script = f"touch {lab.folder}/ready; until [ -e {lab.folder}/go ]; do sleep 0.05; done"
    return f'command = {{ argv = ["sh", "-c", "{script}"] }}'


def started(lab: Laboratory, study: str) -> subprocess.Popen[bytes]:
    """A run whose load waits."""
    process = lab.start_run(study, "--quiet", "--unconfined")
    wait_for(process, lambda: (lab.folder / "ready").exists())
    return process


@contextlib.contextmanager
def container(device: Device, folder: Path, command: str, name: str = "mine") -> Iterator[subprocess.Popen[bytes]]:
    """A process in a mount namespace with a ``/dev`` of its own, in which the device has this name."""
    number = Path(device.path).stat().st_rdev
    script = f"""
    mkdir -p {folder}/dev && mount -t tmpfs none {folder}/dev && cd {folder}/dev
    mknod '{name}' b {os.major(number)} {os.minor(number)} && {command} && echo up && read _
    """
    with process_that_is_up("unshare", "--mount", "--propagation", "private", "bash", "-c", script) as other:
        yield other


def test_a_device_that_is_open_in_a_container_or_by_another_node_is_refused(lab: Laboratory, device: Device) -> None:
    with container(device, lab.folder, "exec 3<>mine") as other:
        message = refused(lab, device, ext4(device.path))
    assert f"is open in process {other.pid} (bash)" in message
    with opened(node_of(device, lab.folder / "other-node")):
        assert "is open in process" in refused(lab, device, ext4(device.path))


def test_a_device_underneath_a_loop_device_of_a_container_is_refused(lab: Laboratory, device: Device) -> None:
    with container(device, lab.folder, "losetup --find --show $PWD/mine >../loop"):
        loop = (lab.folder / "loop").read_text().strip()
        try:
            assert f"is in use by {loop}" in refused(lab, device, ext4(device.path))
        finally:
            sh("losetup", "--detach", loop)


def test_a_partition_of_a_disk_that_is_open_and_the_disk_of_an_open_partition_are_refused(
    lab: Laboratory, device: Device
) -> None:
    first = device.partition()
    for held_open, asked in ((device.path, first), (first, device.path)):
        with opened(held_open):
            assert "is open in process" in refused(lab, device, ext4(asked, f', wipe = "{asked}"'))


@pytest.mark.parametrize("resumed", [False, True])
def test_a_link_that_leads_elsewhere_than_it_was_planned_for_is_refused_with_both_named(
    lab: Laboratory, device: Device, spare: Device, resumed: bool
) -> None:
    link = lab.folder / "disk"
    link.symlink_to(device.path)
    if not resumed:
        sh("mkfs.ext4", "-q", spare.path)
    before = spare.checksum()
    two = ext4(link, f', wipe = "{link}"', waits(lab)).replace("min = 1, max = 1", "min = 2, max = 2")
    process = started(lab, two)
    if resumed:
        kill(process)
        assert ended(process).status == -9
    link.unlink()
    link.symlink_to(spare.path)
    (lab.folder / "go").touch()
    result = lab.storlab("resume", lab.out) if resumed else ended(process)
    assert result.status == (2 if resumed else 3), str(result)
    if resumed:
        assert device.path in result.stderr and spare.path in result.stderr
        assert lab.storlab("clean", "--yes").status == 0
        assert lab.leftovers() == []
    else:
        last = lab.records()[-1]
        assert last.status == "failed"
        assert f"was {device.path}" in str(last.reason) and f"leads to {spare.path}" in str(last.reason)
    assert spare.checksum() == before


@pytest.mark.parametrize("partition", [False, True])
def test_a_device_or_a_disk_and_its_partition_are_used_by_one_run_at_a_time(
    lab: Laboratory, device: Device, partition: bool
) -> None:
    first = started(lab, raw(device.partition() if partition else device.path, load=waits(lab)))
    other = Laboratory(lab.folder / "other")
    path = device.path if partition else node_of(device, lab.folder / "other-node")
    result = other.run(raw(path, f', wipe = "{path}"' if partition else ""))
    assert result.status == 2, str(result)
    assert f"is in use by another run of Storlab{'' if partition else f' ({lab.identity})'}" in result.stderr
    (lab.folder / "go").touch()
    assert ended(first).status == 0
    if not partition:
        assert other.run(raw(device.path)).status == 0
    assert lab.leftovers() == []


def test_two_groups_that_name_one_device_differently_are_refused_when_the_run_is_planned(
    lab: Laboratory, device: Device
) -> None:
    link = lab.folder / "disk"
    link.symlink_to(device.path)
    part = device.partition()
    for first, second in ((device.path, str(link)), (f'{device.path}", wipe = "{device.path}', part)):
        groups = "".join(
            f'[nodes.{name}]\nstack = [{{ layer = "device", path = "{path}" }}]\n'
            for name, path in (("a", first), ("b", second))
        )
        study = directory(f'on = ["a", "b"]\n{TRUE}', rest=groups)
        message = refused(lab, device, study.replace(f"stack = {DIRECTORY}\n", "", 1))
        assert "is in several stacks that are set up at the same time" in message


def test_a_read_only_device_and_one_without_a_size_are_refused(lab: Laboratory, tmp_path: Path) -> None:
    for options, size, wrong in ((["--read-only"], 1024**2, "is read-only"), ([], 0, "has no size")):
        with new_device(tmp_path / "fixed.img", size, *options) as odd, pytest.raises(StudyError, match=wrong):
            lab.execute(ext4(odd.path))
        assert not lab.out.exists()


Holding = contextlib.AbstractContextManager[None]


@contextlib.contextmanager
def with_a_file_system(device: Device, folder: Path, chance: random.Random) -> Iterator[None]:
    """Somebody's, mounted here or in another mount namespace."""
    sh("mkfs.ext4", "-q", "-F", device.path)
    with chance.choice([mounted, mounted_elsewhere])(device.path, folder / "mnt"):
        yield


@contextlib.contextmanager
def open_elsewhere(device: Device, folder: Path, chance: random.Random) -> Iterator[None]:
    """In a container, under any name."""
    name, flags = chance.choice(["sda", "null", "mine", "x y"]), chance.choice(["<", "<>"])
    with container(device, folder, f"exec 3{flags}'{name}'", name):
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


def under_a_loop(device: Device, folder: Path, chance: random.Random) -> Holding:
    return underneath(device.path)


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
    lock = Path("/run/storlab/claims") / number
    lock.parent.parent.mkdir(exist_ok=True)
    lock.parent.mkdir(0o700, exist_ok=True)
    with process_that_is_up("flock", "--nonblock", str(lock), "sh", "-c", "echo up; read _"):
        yield


IN_USE: dict[str, Callable[[Device, Path, random.Random], Holding]] = {
    each.__name__: each
    for each in (with_a_file_system, open_elsewhere, held, under_a_loop, partition_in_use, mapped, claimed)
}
"""Ways in which a device may be in use by somebody else; which of several follows from chance."""
ALL_WAYS = [*IN_USE, "signed", "signed", "swapped"]


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
        node_of(device, name)
    return str(name)


async def not_set_up(node: Node, path: str, *, wipe: bool, planned: str = "") -> str:
    """Set the layer up, which must fail; the reason."""
    layer = DeviceLayer.model_validate({"path": path} | ({"wipe": path} if wipe else {}))

    async def register(*entries: object) -> None:
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


async def attempt(what: str, node: Node, device: Device, spare: Device, folder: Path, chance: random.Random) -> str:
    """One attempt; what it was, and why it was refused."""
    for each in (device, spare):
        assert wait_until(partial(_is_free, each.path), 60.0)
        _write_start(each.path, bytes(SIZE))
    path = named(device, folder, chance)
    if what == "signed":
        what = chance.choice([*WRITE])
        WRITE[what](device.path)
        if what not in sh("wipefs", "--no-act", device.path):
            return f"{what}: this version of wipefs does not know it"
        before = device.checksum()
        reason = await not_set_up(node, path, wipe=False)
        assert device.checksum() == before, what
        return f"{what}: {reason}"
    if what == "swapped":
        _write_start(device.path, chance.randbytes(4096))
        before = device.checksum()
        reason = await not_set_up(node, path, wipe=True, planned=spare.path)
        assert "when the run was planned" in reason
        assert device.checksum() == before
        return f"swapped: {reason}"
    how = IN_USE[what]
    with how(device, folder, chance):
        before = device.checksum()
        reason = await not_set_up(node, path, wipe=True)
        assert device.checksum() == before, what
    return f"{what}: {reason}"


def test_no_device_in_use_signed_or_swapped_is_ever_written_to(tmp_path: Path) -> None:
    """Each asks the layer, on a real node, as every set-up does; after each, all contents are compared.

    One attempt in each way, and ``STORLAB_ATTACKS`` at random; which follows from the seed.
    """
    chance = random.Random(SEED)
    ways = chance.choices(ALL_WAYS, k=ATTACKS) if ATTACKS else ALL_WAYS
    tried: list[str] = []

    async def work(device: Device, spare: Device) -> None:
        async with local_node("attacked") as node:
            for what in ways:
                tried.append(await attempt(what, node, device, spare, tmp_path, chance))

    try:
        with new_device(tmp_path / "a.img", SIZE) as device, new_device(tmp_path / "b.img", SIZE) as spare:
            asyncio.run(work(device, spare))
    finally:
        print(f"STORLAB_TEST_SEED={SEED}, {len(tried)} of {len(ways)} attempts", *tried[-5:], sep="\n  ")
