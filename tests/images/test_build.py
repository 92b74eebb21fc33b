"""Builds use again what is finished, and leave nothing when they are stopped, in whatever way."""

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
    assert plain.layers == found.layers[:-1] and "zfs" not in plain.modules and "zfs" not in plain.filesystems


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
        assert build.returncode == 130 and "interrupted" in said and "Traceback" not in said
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
