"""Another local user, or root in a container, and a device: what is in use is found whatever it is called there."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, kill, needs_root, wait_for
from laboratory.devices import Device, sh
from storlab.errors import StudyError

PLAIN = {"PATH": os.environ["PATH"]}  # without what marks the processes of a test's laboratory
HEAD = """
primary = "elapsed"
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false } }
[probes]
[workload.load]
"""


def study(path: str, *, more: str = "", argv: str = '["true"]') -> str:
    """ext4 on a device."""
    layers = (
        f'{{ layer = "device", path = "{path}"{more} }}, {{ layer = "mkfs", type = "ext4" }}, {{ layer = "mount" }}'
    )
    return f"stack = [{layers}]\n{HEAD}command = {{ argv = {argv} }}\n"


def refused(lab: Laboratory, device: Device, text: str) -> str:
    """The message; in the meantime no byte may change."""
    before = device.checksum()
    with pytest.raises(StudyError) as error:
        lab.execute(text)
    assert device.checksum() == before
    assert not lab.out.exists()
    assert lab.leftovers() == []
    return str(error.value)


@contextlib.contextmanager
def container(device: Device, folder: Path, command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a mount namespace with a ``/dev`` of its own, in which the device is called ``mine``."""
    number = Path(device.path).stat().st_rdev
    script = f"""
    mkdir -p {folder}/dev && mount -t tmpfs none {folder}/dev
    mknod {folder}/dev/mine b {os.major(number)} {os.minor(number)}
    cd {folder}/dev && {command} && echo up && exec sleep 3600
    """
    argv = ["unshare", "--mount", "--propagation", "private", "bash", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=PLAIN) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        try:
            yield other
        finally:
            other.kill()


@needs_root
def test_a_device_that_a_container_holds_open_by_a_node_of_its_own_is_refused(lab: Laboratory, device: Device) -> None:
    with container(device, lab.folder, "exec 3<>mine") as other:
        message = refused(lab, device, study(device.path))
    assert f"is open in process {other.pid} (sleep)" in message


@needs_root
def test_a_device_that_is_open_by_a_second_node_is_refused(lab: Laboratory, device: Device) -> None:
    number = Path(device.path).stat().st_rdev
    node = lab.folder / "other-node"
    os.mknod(node, 0o600 | stat.S_IFBLK, number)
    held = os.open(node, os.O_RDONLY)
    try:
        assert "is open in process" in refused(lab, device, study(device.path))
    finally:
        os.close(held)


@needs_root
def test_a_device_underneath_a_loop_device_of_a_container_is_refused(lab: Laboratory, device: Device) -> None:
    command = "losetup --find --show $PWD/mine >../loop"
    with container(device, lab.folder, command):
        loop = (lab.folder / "loop").read_text().strip()
        try:
            assert f"is in use by {loop}" in refused(lab, device, study(device.path))
        finally:
            sh("losetup", "--detach", loop)


@needs_root
def test_a_partition_of_a_disk_that_is_open_and_the_disk_of_an_open_partition_are_refused(
    lab: Laboratory, device: Device
) -> None:
    first = device.partition()
    for held, asked in ((device.path, first), (first, device.path)):
        descriptor = os.open(held, os.O_RDONLY)
        try:
            more = f', wipe = "{asked}"'
            assert "is open in process" in refused(lab, device, study(asked, more=more))
        finally:
            os.close(descriptor)


@needs_root
def test_a_link_that_leads_elsewhere_by_the_time_it_is_set_up_is_refused_with_both_named(
    lab: Laboratory, device: Device, spare: Device
) -> None:
    link = lab.folder / "disk"
    link.symlink_to(device.path)
    sh("mkfs.ext4", "-q", spare.path)
    before = spare.checksum()
    process = lab.start_run(swapping(lab, study(str(link), more=f', wipe = "{link}"')), "--quiet", "--unconfined")
    wait_for(process, lambda: (lab.folder / "ready").exists())
    link.unlink()
    link.symlink_to(spare.path)
    (lab.folder / "go").touch()
    result = ended(process)
    assert result.status == 3, str(result)
    last = lab.records()[-1]
    assert last.status == "failed"
    assert f"was {device.path}" in str(last.reason)
    assert f"leads to {spare.path}" in str(last.reason)
    assert spare.checksum() == before


def swapping(lab: Laboratory, text: str) -> str:
    """Two rounds, between which one may do something."""
    wait = f"touch {lab.folder}/ready; until [ -e {lab.folder}/go ]; do sleep 0.05; done"
    two = text.replace("min = 1, max = 1", "min = 2, max = 2")
    return two.replace('["true"]', f'["sh", "-c", "{wait}"]')


@needs_root
def test_a_run_is_not_resumed_on_another_device_than_it_was_planned_for(
    lab: Laboratory, device: Device, spare: Device
) -> None:
    link = lab.folder / "disk"
    link.symlink_to(device.path)
    process = lab.start_run(swapping(lab, study(str(link), more=f', wipe = "{link}"')), "--quiet", "--unconfined")
    wait_for(process, lambda: (lab.folder / "ready").exists())
    kill(process)
    assert ended(process).status == -9
    link.unlink()
    link.symlink_to(spare.path)
    before = spare.checksum()
    result = lab.storlab("resume", lab.out)
    assert result.status == 2, str(result)
    assert device.path in result.stderr
    assert spare.path in result.stderr
    assert spare.checksum() == before
    assert lab.storlab("clean", "--yes").status == 0
    assert lab.leftovers() == []


@needs_root
def test_a_device_is_used_by_one_run_at_a_time(lab: Laboratory, device: Device) -> None:
    raw = f'stack = [{{ layer = "device", path = "{device.path}" }}]\n{HEAD}'
    wait = f"touch {lab.folder}/ready; until [ -e {lab.folder}/go ]; do sleep 0.05; done"
    first = lab.start_run(f'{raw}command = {{ argv = ["sh", "-c", "{wait}"] }}', "--quiet", "--unconfined")
    wait_for(first, lambda: (lab.folder / "ready").exists())
    node = lab.folder / "other-node"
    os.mknod(node, 0o600 | stat.S_IFBLK, Path(device.path).stat().st_rdev)
    other = Laboratory(lab.folder / "other")
    result = other.run(raw.replace(device.path, str(node)) + 'command = { argv = ["true"] }')
    assert result.status == 2, str(result)
    assert f"is in use by another run of Storlab ({lab.identity})" in result.stderr
    (lab.folder / "go").touch()
    assert ended(first).status == 0
    assert other.run(raw + 'command = { argv = ["true"] }').status == 0
    assert lab.leftovers() == []


@needs_root
def test_a_disk_and_its_partition_in_two_runs_are_one_device(lab: Laboratory, device: Device) -> None:
    part = device.partition()
    wait = f"touch {lab.folder}/ready; until [ -e {lab.folder}/go ]; do sleep 0.05; done"
    raw = f'stack = [{{ layer = "device", path = "{part}" }}]\n{HEAD}'
    first = lab.start_run(f'{raw}command = {{ argv = ["sh", "-c", "{wait}"] }}', "--quiet", "--unconfined")
    wait_for(first, lambda: (lab.folder / "ready").exists())
    whole = f'stack = [{{ layer = "device", path = "{device.path}", wipe = "{device.path}" }}]\n{HEAD}'
    result = Laboratory(lab.folder / "other").run(whole + 'command = { argv = ["true"] }')
    assert result.status == 2, str(result)
    assert "is in use by another run of Storlab" in result.stderr
    (lab.folder / "go").touch()
    assert ended(first).status == 0


@needs_root
def test_two_groups_that_name_one_device_differently_are_refused_when_the_run_is_planned(
    lab: Laboratory, device: Device
) -> None:
    link = lab.folder / "disk"
    link.symlink_to(device.path)
    two = "\n".join(
        f'[nodes.{name}]\nstack = [{{ layer = "device", path = "{path}" }}]\n'
        for name, path in (("a", device.path), ("b", link))
    )
    message = refused(lab, device, f'{HEAD}on = ["a", "b"]\ncommand = {{ argv = ["true"] }}\n{two}')
    assert "is in several stacks that are set up at the same time" in message
    whole = f'path = "{device.path}"'
    two = two.replace(f'"{link}"', f'"{device.partition()}"').replace(whole, f'{whole}, wipe = "{device.path}"')
    message = refused(lab, device, f'{HEAD}on = ["a", "b"]\ncommand = {{ argv = ["true"] }}\n{two}')
    assert "is in several stacks that are set up at the same time" in message


@needs_root
def test_a_read_only_device_and_one_without_a_size_are_refused(lab: Laboratory, tmp_path: Path) -> None:
    image = tmp_path / "fixed.img"
    image.write_bytes(bytes(1024**2))
    empty = tmp_path / "empty.img"
    empty.touch()
    for options, file, wrong in ((["--read-only"], image, "is read-only"), ([], empty, "has no size")):
        path = sh("losetup", "--find", "--show", *options, str(file)).strip()
        try:
            with pytest.raises(StudyError, match=wrong):
                lab.execute(study(path))
        finally:
            sh("losetup", "--detach", path)
        assert not lab.out.exists()
