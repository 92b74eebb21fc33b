"""Builds use again what is finished, and leave nothing when they are stopped, in whatever way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storlab.images.cache import cache_folder
from storlab.images.image import Image, build_image, find_image

STORLAB = [sys.executable, "-m", "storlab.cli.main"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="building an image needs root")


def test_what_is_built_is_found(image: Image) -> None:
    found = find_image(frozenset({"zfs"}))
    assert found == image
    assert all(path.is_file() for path in (found.kernel, found.initramfs, *found.layers))
    assert {"fio", "mariadbd", "postgres", "initdb", "zpool", "nbd-server", "vblade", "qemu-nbd"} <= found.programs
    assert {
        "zed",
        "jq",
        "cpio",
        "bunzip2",
        "strings",
        "ssh",
        "xxh128sum",
        "cryptsetup",
        "pax",
        "pamtester",
    } <= found.programs
    assert {"xfs", "nbd", "aoe", "nvme_tcp", "null_blk", "virtio_pci", "sch_netem", "zfs"} <= found.modules
    assert {"xfs", "ext4", "btrfs", "nfs", "nfsd", "erofs", "overlay", "zfs", "tmpfs"} <= found.filesystems
    assert {"kernel", "zfs", "fio", "zfsutils-linux", "zfs-test", "qemu-utils"} <= set(found.versions)
    assert found.versions["zfs"] == found.versions["zfsutils-linux"]
    assert found.versions["qemu-utils"].startswith("1:10.")


def test_an_image_without_extras_is_the_same_one_without_their_layers(image: Image) -> None:
    plain = find_image()
    assert plain.layers == image.layers[:-1]
    assert "zfs" not in plain.modules and "zfs" not in plain.filesystems


@needs_root
def test_a_second_build_makes_nothing_again(image: Image) -> None:
    steps: list[str] = []
    again = asyncio.run(build_image(frozenset({"zfs"}), steps.append))
    assert again == image
    assert steps == ["asking the Debian mirror for its newest kernel"]


@pytest.fixture
def half_built(image: Image, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A build in another cache, in the middle of its root file system; what it would have to download is there."""
    cache = tmp_path / "storlab" / "images"
    for name in ("downloads", f"parts/{image.kernel.parent.name}"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "--link", str(cache_folder() / name), str(cache / name)], check=True)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen([*STORLAB, "image", "build"], env=environment, stderr=subprocess.PIPE, text=True) as build:
        assert build.stderr is not None
        for line in build.stderr:
            if "installing" in line:
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


def wait_until_alone(folder: Path) -> list[str]:
    """Killed processes take a moment to go; what still lives then."""
    deadline = time.monotonic() + 20
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


@pytest.mark.slow
@needs_root
def test_a_build_that_is_killed_leaves_no_process_and_no_mount(
    half_built: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert processes_of(tmp_path)
    half_built.send_signal(signal.SIGKILL)
    half_built.wait()
    assert wait_until_alone(tmp_path) == []
    assert not [folder for folder in (tmp_path / "storlab/images/parts").iterdir() if folder.name.startswith("root-")]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    removed = subprocess.run([*STORLAB, "image", "remove", "--all"], env=environment, capture_output=True, text=True)
    assert removed.returncode == 0, removed.stderr
    assert [path.name for path in (tmp_path / "storlab/images").iterdir()] == ["lock"]


@pytest.mark.slow
@needs_root
def test_an_interrupted_build_takes_everything_away_and_says_so(
    half_built: subprocess.Popen[str], tmp_path: Path
) -> None:
    half_built.send_signal(signal.SIGINT)
    _, said = half_built.communicate(timeout=60)
    assert half_built.returncode == 130
    assert "interrupted" in said and "Traceback" not in said
    assert wait_until_alone(tmp_path) == []
    assert list((tmp_path / "storlab/images/work").iterdir()) == []
