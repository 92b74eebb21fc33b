"""Layer ``device``: what is in use or carries data is refused, and not a byte of it changes."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, kill, wait_for, wait_until
from laboratory.devices import PLAIN, Device, mounted, mounted_elsewhere, new_device, refused, sh, underneath
from laboratory.studies import directory
from storlab.base.errors import StorlabError, StudyError
from storlab.layers.block.identity import identify
from storlab.layers.fs.mkfs import filesystem_uuid, forget_filesystem
from storlab.nodes.kinds.local import local_node

from .signatures import WRITE, write_dos
from .sites import RUN

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Device]:
    """A second device."""
    with new_device(tmp_path / "other.img") as made:
        yield made


def study(path: str, *, more: str = "", rounds: int = 1, argv: str = '["true"]') -> str:
    """ext4 on a device."""
    stack = (
        f'[{{ layer = "device", path = "{path}"{more} }}, {{ layer = "mkfs", type = "ext4" }}, {{ layer = "mount" }}]'
    )
    return directory(f"command = {{ argv = {argv} }}", rounds=rounds, stack=stack)


@pytest.mark.parametrize(
    ("kind", "args"), [("btrfs", '["{}"]'), ("xfs", '["-l", "logdev={},size=64m"]'), ("ext4", '["-J", "device={}"]')]
)
def test_arguments_of_mkfs_reach_no_unnamed_device(lab: Laboratory, device: Device, kind: str, args: str) -> None:
    sh("mkfs.ext4", "-q", device.path)
    before = device.checksum()
    made = f'{{ layer = "mkfs", type = "{kind}", args = {args.replace("{}", device.path)} }}'
    below = f'{{ layer = "file", size = "512M" }}, {{ layer = "loop" }}, {made}, {{ layer = "mount" }}'
    text = study(device.path).replace(study(device.path).splitlines()[1], f"stack = [{below}]")
    ended = lab.storlab("run", lab.study(text), "--out", lab.out)
    assert (ended.status, device.checksum()) == (2, before) and "args" in ended.stderr, ended


@contextmanager
def detached(device: str, path: Path) -> Iterator[None]:
    """Mounted with no path in any namespace; Btrfs shows no device number there at all."""
    path.mkdir()
    sh("mount", "--read-only", device, str(path))
    held = os.open(path, os.O_RDONLY)
    try:
        sh("umount", "--lazy", str(path))
        yield
    finally:
        os.close(held)


@contextmanager
def held(device: str, path: Path) -> Iterator[None]:
    """By something that opened it for itself alone."""
    descriptors: list[int] = []

    def take() -> bool:
        with suppress(OSError):  # another test that scans for Btrfs has it for a moment
            descriptors.append(os.open(device, os.O_RDWR | os.O_EXCL))
        return bool(descriptors)

    assert wait_until(take)
    try:
        yield
    finally:
        os.close(*descriptors)


@contextmanager
def opened(device: str, path: Path) -> Iterator[None]:
    """By a process."""
    with subprocess.Popen(["sh", "-c", f"exec 3<>{device}; exec sleep 3600"], env=PLAIN) as holder:
        try:
            assert wait_until(lambda: Path(f"/proc/{holder.pid}/comm").read_text() == "sleep\n")
            yield
        finally:
            holder.kill()


IN_USE: dict[str, tuple[Callable[[str, Path], AbstractContextManager[None]], str]] = {
    "mounted": (mounted, r"is mounted on {path}: Storlab does not touch it"),
    "mounted in another namespace": (mounted_elsewhere, "is mounted on"),
    "mounted where no process shows it": (detached, "something holds it"),
    "underneath another device": (lambda device, _: underneath(device), r"is in use by /dev/loop\d+"),
    "held": (held, "does not touch it"),
    "open": (opened, r"is open in process \d+ \(sleep\)"),
}


@pytest.mark.parametrize("how", IN_USE)
def test_a_device_in_use_is_refused_even_with_wipe(lab: Laboratory, device: Device, how: str) -> None:
    sh("mkfs.ext4", "-q", device.path)
    use, reason = IN_USE[how]
    with use(device.path, lab.folder / "mnt"):
        message = refused(lab, device, study(device.path, more=f', wipe = "{device.path}"'))
    assert re.search(reason.replace("{path}", f"{lab.folder}/mnt"), message), message


def test_a_refusal_is_the_users_mistake_exit_status_2(lab: Laboratory, device: Device) -> None:
    sh("mkfs.ext4", "-q", device.path)
    before = device.checksum()
    result = lab.run(study(device.path))
    assert result.status == 2
    assert "carries a signature of ext4: its data would be lost" in result.stderr
    assert f'wipe = "{device.path}"' in result.stderr
    assert device.checksum() == before


def test_a_device_that_is_swap_is_refused(lab: Laboratory, device: Device) -> None:
    sh("mkswap", device.path)
    if subprocess.run(["swapon", device.path], capture_output=True).returncode != 0:
        pytest.skip("this kernel, or container, has no swap")
    header = Path(device.path).read_bytes()[:4096]  # behind it the kernel may put pages meanwhile
    try:
        with pytest.raises(StudyError, match="is in use as swap"):
            lab.execute(study(device.path, more=f', wipe = "{device.path}"'))
    finally:
        sh("swapoff", device.path)
    assert Path(device.path).read_bytes()[:4096] == header
    assert not lab.out.exists()
    assert lab.leftovers() == []


@pytest.mark.parametrize("kind", WRITE)
def test_a_device_with_a_signature_is_refused_unless_named_twice(lab: Laboratory, device: Device, kind: str) -> None:
    WRITE[kind](device.path)
    if kind not in device.signatures():
        pytest.skip(f"this version of wipefs does not know this {kind}")
    message = refused(lab, device, study(device.path))
    assert f"carries a signature of {kind}" in message
    works_and_is_blank_again(lab, device, study(device.path, more=f', wipe = "{device.path}"'))


def works_and_is_blank_again(lab: Laboratory, device: Device, text: str) -> None:
    lab.execute(text)
    assert {(record.status, record.reason) for record in lab.records()} == {("done", None)}
    assert device.signatures() == ""
    assert lab.leftovers() == []


def test_xfs_and_btrfs_are_refused_too(lab: Laboratory, tmp_path: Path) -> None:
    for kind in ("xfs", "btrfs"):
        image = tmp_path / f"{kind}.img"
        with image.open("wb") as file:
            file.truncate(320 * 1024**2)
        sh(f"mkfs.{kind}", "-q", "-f", str(image))
        path = sh("losetup", "--find", "--show", str(image)).strip()
        try:
            with pytest.raises(StudyError, match=f"carries a signature of {kind}"):
                lab.execute(study(path))
            with mounted(path, tmp_path / kind), pytest.raises(StudyError, match="does not touch it"):
                lab.execute(study(path, more=f', wipe = "{path}"'))
        finally:
            sh("losetup", "--detach", path)


def test_wipe_must_name_the_same_device_and_that_must_be_a_block_device(lab: Laboratory, device: Device) -> None:
    assert "write the same path twice" in refused(lab, device, study(device.path, more=', wipe = "/dev/sda"'))
    assert f"there is no block device {device.image}" in refused(lab, device, study(str(device.image)))


def test_a_blank_device_works_over_several_rounds_and_is_blank_again(lab: Laboratory, device: Device) -> None:
    works_and_is_blank_again(lab, device, study(device.path, rounds=3, argv='["touch", "{target}/a"]'))
    assert len(lab.records()) == 3


def test_a_link_to_a_device_is_that_device(lab: Laboratory, device: Device) -> None:
    link = lab.folder / "by-id"
    link.symlink_to(device.path)
    lab.execute(study(str(link)))
    (record,) = lab.records()
    assert record.facts["host"][0]["device"] == device.path
    sh("mkfs.ext4", "-q", device.path)
    with mounted(device.path, lab.folder / "mnt"), pytest.raises(StudyError, match="is mounted on"):
        Laboratory(lab.folder / "again").execute(study(str(link), more=f', wipe = "{link}"'))


def test_a_disk_with_a_mounted_partition_is_refused_and_one_of_a_held_disk(lab: Laboratory, device: Device) -> None:
    write_dos(device.path)
    first, second = f"{device.path}p1", f"{device.path}p2"
    sh("partx", "--update", device.path)
    make_nodes(device.path)
    sh("mkfs.ext4", "-q", first)
    wipe = ', wipe = "{}"'
    with mounted(first, lab.folder / "mnt"):
        assert "is mounted on" in refused(lab, device, study(device.path, more=wipe.format(device.path)))
        lab.execute(study(second))  # a free partition beside it is free
    assert [record.status for record in lab.records()] == ["done"], [record.reason for record in lab.records()]
    with held(device.path, lab.folder), pytest.raises(StudyError, match="does not touch it"):
        Laboratory(lab.folder / "again").execute(study(second))
    remove_nodes(device.path)


def make_nodes(disk: str) -> None:
    """Partitions' device nodes, where no udev makes them."""
    for sysfs in Path(f"/sys/class/block/{disk.removeprefix('/dev/')}").glob("loop*p*"):
        major, minor = (sysfs / "dev").read_text().strip().split(":")
        if not Path(f"/dev/{sysfs.name}").exists():
            sh("mknod", f"/dev/{sysfs.name}", "b", major, minor)


def remove_nodes(disk: str) -> None:
    for path in Path("/dev").glob(f"{disk.removeprefix('/dev/')}p*"):
        path.unlink()


def test_a_signature_that_the_user_makes_after_a_kill_is_never_wiped(lab: Laboratory, device: Device) -> None:
    killed_on(lab, device)
    assert "ext4" in device.signatures()
    sh("umount", sh("findmnt", "--noheadings", "--output", "TARGET", device.path).strip())
    sh("mkfs.ext4", "-q", "-F", device.path)
    before = device.signatures()
    result = lab.storlab("clean", "--yes")
    assert result.status == 0, str(result)
    assert device.signatures() == before
    assert lab.leftovers() == []


def test_clean_after_a_kill_wipes_storlabs_own_signature_and_no_other(lab: Laboratory, device: Device) -> None:
    killed_on(lab, device)
    result = lab.storlab("clean", "--yes")
    assert f"wiped the signature of Storlab's own file system from {device.path}" in result.stdout
    assert device.signatures() == ""
    assert lab.leftovers() == []


NONCE = uuid.uuid4().hex  # of this worker: others have file systems with signatures at the same time
UUID = filesystem_uuid(RUN, NONCE)


async def forgotten(device: str, was: str) -> str | None:
    """What comes of undoing a file system of Storlab's that was made on the device with this name and fingerprint."""
    async with local_node("host") as node:
        arguments = {"device": device, "run": RUN, "nonce": NONCE, **({"was": was} if was else {})}
        forget_filesystem.check(arguments, RUN)
        return await forget_filesystem.function(node, **arguments)


async def fingerprint(device: Device) -> str:
    async with local_node("host") as node:
        return (await identify(node, device.path)).fingerprint


@pytest.mark.parametrize("noted", [True, False], ids=["now", "by an older journal"])
@pytest.mark.parametrize("name", ["another's", "nobody's"])
async def test_own_signatures_are_wiped_wherever_they_are(
    device: Device, other: Device, noted: bool, name: str
) -> None:
    sh("mkfs.ext4", "-q", "-U", UUID, device.path)
    sh("mkfs.ext4", "-q", other.path)
    before = other.checksum()
    before_boot = other.path if name == "another's" else "/dev/sd-gone"
    said = await forgotten(before_boot, await fingerprint(device) if noted else "")
    assert said == f"wiped the signature of Storlab's own file system from {device.path}"
    assert (device.signatures(), other.checksum()) == ("", before)


async def test_a_copy_of_a_file_system_of_storlabs_is_not_taken_for_it(device: Device, other: Device) -> None:
    sh("mkfs.ext4", "-q", "-U", UUID, device.path)
    before = device.checksum()
    with pytest.raises(StorlabError, match=f"there is no /dev/sd-gone now, and {device.path} may be a copy of it"):
        await forgotten("/dev/sd-gone", await fingerprint(other))
    assert device.checksum() == before


@pytest.mark.parametrize("name", ["another's", "nobody's"])
async def test_a_signature_whose_device_is_gone_stays_to_be_wiped(tmp_path: Path, other: Device, name: str) -> None:
    with new_device(tmp_path / "gone.img") as gone:
        was = await fingerprint(gone)
    before_boot, state = (other.path, "is another device") if name == "another's" else ("/dev/sd-gone", "there is no")
    with pytest.raises(StorlabError, match=f"{state}.* now: Storlab's own signature .* is still on the device"):
        await forgotten(before_boot, was)


async def test_where_nothing_was_made_there_is_nothing_to_wipe(device: Device) -> None:
    assert await forgotten(device.path, await fingerprint(device)) is None
    assert await forgotten(device.path, "") is None


def killed_on(lab: Laboratory, device: Device) -> None:
    """A run on the device that was killed while its file system was mounted."""
    process = lab.start_run(study(device.path, argv='["sleep", "3600"]'), "--quiet")
    wait_for(process, lambda: any("mount.unmount" in str(line) for line in lab.journal()))
    wait_for(process, lambda: device.path in Path("/proc/self/mountinfo").read_text())
    kill(process)
    assert ended(process).status == -9


def test_one_device_in_two_stacks_at_the_same_time_is_refused_at_once(lab: Laboratory, device: Device) -> None:
    kept = f'path = "{device.path}"'
    both = study(device.path).replace('type = "ext4"', 'type = "{fs}"') + '[factors.fs]\nlevels = ["ext4", "btrfs"]\n'
    assert f"{device.path} is in several stacks" in refused(lab, device, both.replace(kept, f'{kept}, keep = "run"'))
    two = study(device.path) + "[nodes.n]\ncount = 2\n"
    assert f"{device.path} is in several stacks" in refused(lab, device, two)
