"""Mounts that fail: what this kernel will never do is unsupported, and anything else a failure of one trial."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from laboratory import needs_root
from laboratory.devices import sh
from storlab.errors import CommandFailed, Unsupported
from storlab.layers.fs.mount import is_refusal
from storlab.layers.resources import Disk

from .sites import ground_in, parse

MADE = ({"layer": "file", "size": "32M"}, {"layer": "loop"}, {"layer": "mkfs", "type": "ext4"})


def mount(folder: Path, *spoil: str, **keys: Any) -> None:
    """Mount an ext4 file system, after it was spoilt by these arguments of dd."""

    async def check() -> None:
        async with ground_in(folder) as ground:
            disk = (await ground.set_up(*MADE)).resource
            assert isinstance(disk, Disk)
            if spoil:
                sh("dd", "if=/dev/zero", f"of={disk.path}", "bs=1k", "conv=notrunc,fsync", *spoil)
            (layer,) = parse([{"layer": "mount", **keys}])
            await layer.set_up(disk, ground.context(3))

    asyncio.run(check())


@needs_root
@pytest.mark.parametrize("spoil", [("count=64",), ("seek=2", "count=1"), ("seek=1", "count=1")])
def test_a_file_system_that_is_damaged_is_no_limit_of_the_kernels(tmp_path: Path, spoil: tuple[str, ...]) -> None:
    with pytest.raises(CommandFailed, match="mount"):
        mount(tmp_path, *spoil)


@needs_root
def test_an_option_that_the_kernel_does_not_know_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="wrong fs type, bad option"):
        mount(tmp_path, options="nosuchoption")


@pytest.mark.parametrize(
    ("said", "kernel"),
    [
        ("mount: /m: unknown filesystem type 'xfs'.", ""),
        ("mount: /m: wrong fs type, bad option, bad superblock on /dev/loop0, missing codepage or helper program, or "
         "other error.", ""),
        ("mount: /m: wrong fs type, bad option, bad superblock on /dev/loop0", "EXT4-fs: bad block size 16384"),
        ("mount: /m: wrong fs type, bad option, bad superblock on /dev/loop0", "BTRFS: unsupported checksum: 9"),
        ("mount: /m: mount(2) system call failed: Function not implemented.", "XFS: File system with blocksize 65536"),
        ("mount: /m: mount(2) system call failed: Operation not supported.", ""),
        ("mount: /m: fsconfig() failed: xfs: Unknown parameter 'x'.", ""),
        ("mount: /m: permission denied.", ""),
    ],
)  # fmt: skip
def test_what_the_kernel_refuses_it_will_refuse_again(said: str, kernel: str) -> None:
    assert is_refusal(CommandFailed("mount failed", f"$ mount -t x /dev/loop0 /m\n{said}"), kernel)


@pytest.mark.parametrize(
    ("said", "kernel"),
    [
        ("mount: /m: mount(2) system call failed: Structure needs cleaning.", ""),
        ("mount: /m: can't read superblock on /dev/loop0.", ""),
        ("mount: /m: cannot mount; probably corrupted filesystem on /dev/loop0.", ""),
        ("mount: /m: special device disk0 does not exist.", ""),
        ("mount: /m: /dev/loop0 already mounted or mount point busy.", ""),
        ("mount: /m: mount(2) system call failed: Transport endpoint is not connected.", ""),
        ("mount: /m: mount(2) system call failed: No such device or address.", ""),
        ("mount: /m: mount(2) system call failed: Cannot allocate memory.", ""),
        ("mount: /m: wrong fs type, bad option, bad superblock on /dev/loop0", "XFS: Invalid superblock magic number"),
        ("mount: /m: wrong fs type, bad option, bad superblock on /dev/loop0", "EXT4-fs: error loading journal"),
        ("mount: /m: wrong fs type, bad option, bad superblock on disk0", "virtio-fs: tag <disk0> not found"),
    ],
)
def test_what_went_wrong_once_is_not_unsupported(said: str, kernel: str) -> None:
    assert not is_refusal(CommandFailed("mount failed", f"$ mount -o nosuch,unsupported /m\n{said}"), kernel)
