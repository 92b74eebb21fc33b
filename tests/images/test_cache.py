"""Builds of images and their cache: what lies there is whole and used again; what is unused goes, and nothing else."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laboratory import in_a_loop, wait_until
from storlab.base.errors import ImageError, MissingImage, UserError
from storlab.images import cache as cache_module
from storlab.images import recipe
from storlab.images.cache import (
    About,
    Cache,
    Part,
    cache_folder,
    forget_old,
    list_images,
    manifests,
    remove_image,
    write_manifest,
)
from storlab.images.image import build_image, find_image

from .test_command_line import storlab


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Cache(cache_module.cache_folder())


def made(cache: Cache, name: str) -> Part:
    known = About(programs=("fio",), modules=("xfs",), filesystems=("xfs",))
    with cache.making(name, 0) as work:
        for file in ("kernel", "initramfs", "root.erofs", "modules.erofs", "zfs.erofs"):
            (work / file).write_bytes(b"\0" * 5000)
        cache.finish(work, known)
    part = cache.part(name)
    assert part is not None
    return part


def image_of(cache: Cache, release: str, *extras: str) -> str:
    parts = {kind: made(cache, f"{kind}-{recipe.digest(release)}") for kind in ("kernel", "root", *extras)}
    return write_manifest(cache, release, frozenset(extras), parts).name


def test_a_part_is_there_only_once_it_is_finished_and_there_must_be_space_for_it(cache: Cache) -> None:
    with pytest.raises(RuntimeError), cache.making("root-1", 0) as work:
        cache.finish(work, About())
        raise RuntimeError
    assert cache.part("root-1") is None
    assert (list((cache.folder / "work").iterdir()), made(cache, "root-1").folder.name) == ([], "root-1")
    expected = pytest.raises(ImageError, match=r"takes up to .* GB in .*free some, or name another place")
    with expected, cache.making("root-1", 1 << 60):
        pytest.fail("it began all the same")


@in_a_loop
async def test_two_builds_wait_for_each_other_and_what_a_killed_one_left_goes_with_the_next_lock(cache: Cache) -> None:
    (cache.path("work/root-1") / "half").write_text("")
    async with cache.locked(lambda step: None):
        assert not (cache.folder / "work").exists()
    said: list[str] = []

    async def build(number: int) -> None:
        async with cache.locked(said.append):
            said.append(f"begin {number}")
            await asyncio.sleep(0.1)
            said.append(f"end {number}")

    await asyncio.gather(build(1), build(2))
    assert said == ["begin 1", "waiting for another build of an image to end", "end 1", "begin 2", "end 2"]


@pytest.mark.needs("root")
def test_a_folder_in_which_something_is_mounted_is_left_alone(cache: Cache) -> None:
    inside = cache.path("work/with blank")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(inside)], check=True)
    try:
        with pytest.raises(ImageError, match=r"something is mounted in it; umount .*with blank"):
            cache_module.remove_tree(cache.folder / "work")
    finally:
        subprocess.run(["umount", str(inside)], check=True)
    cache_module.remove_tree(cache.folder / "work")


def test_an_image_that_is_not_there_and_an_unknown_extra_are_named_with_what_helps(cache: Cache) -> None:
    with pytest.raises(MissingImage, match=r"no guest image in .*; `storlab image build` makes one, in about"):
        find_image()
    image_of(cache, "6.12.1")
    with pytest.raises(MissingImage, match=r"no guest image with zfs in .*`storlab image build --with zfs` makes"):
        find_image(frozenset({"zfs"}))
    for ask in (find_image, lambda extras: asyncio.run(build_image(extras))):
        with pytest.raises(UserError, match=r"no extra 'nfs' for guest images; there is: perf, zfs"):
            ask(frozenset({"nfs"}))


def test_the_newest_image_is_found_and_one_whose_part_is_gone_is_not(cache: Cache) -> None:
    image_of(cache, "6.12.1")
    newer = image_of(cache, "6.12.2", "zfs")
    assert (find_image().name, len(find_image().layers), len(find_image(frozenset({"zfs"})).layers)) == (newer, 2, 3)
    shutil.rmtree(find_image().kernel.parent)
    assert (find_image().release, [image.release for image in list_images()]) == ("6.12.1", ["6.12.1"])


def test_removing_an_image_keeps_what_another_one_has(cache: Cache) -> None:
    root = made(cache, "root-0")
    kernel = made(cache, "kernel-0")
    compiled, own = made(cache, "zfs-modules-0"), made(cache, "own-kernel-0")
    write_manifest(cache, "6.12.1", frozenset(), {"root": root, "kernel": kernel})
    parts = {"root": root, "kernel": made(cache, "kernel-1"), "zfs": made(cache, "zfs-1")}
    second = write_manifest(cache, "6.12.2", frozenset({"zfs"}), parts).name
    assert asyncio.run(remove_image(second)) == [second]
    kept = {part.name for part in (root, kernel, compiled, own)}
    assert {path.name for path in (cache.folder / "parts").iterdir()} == kept
    with pytest.raises(UserError, match=r"no image '6\.12'; there are: debian-6\.12\.1$"):
        asyncio.run(remove_image("6.12"))
    assert (asyncio.run(remove_image(None)), asyncio.run(remove_image(None))) == (["debian-6.12.1"], [])


def test_an_image_of_another_recipe_goes_with_the_next_build(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    image_of(cache, "6.12.1")
    monkeypatch.setattr(recipe, "EARLY_MODULES", ("other",))
    assert [image.current for image in list_images()] == [False]
    with pytest.raises(MissingImage):
        find_image()
    forget_old(cache)
    assert (list_images(), list((cache.folder / "parts").iterdir())) == ([], [])


def test_parts_of_own_kernels_go_when_nobody_wanted_them_lately_or_their_maker_was_killed(cache: Cache) -> None:
    old, new = made(cache, "own-kernel-1"), made(cache, "own-kernel-2")
    long_ago = time.time() - 2 * cache_module.UNUSED
    for part in (old, new):
        os.utime(part.folder, (long_ago, long_ago))
    cache.used(new.name)
    cache.sweep("own-", unused=cache_module.UNUSED)
    assert [path.name for path in (cache.folder / "parts").iterdir()] == [new.name]
    left = cache.path(f"alongside/own-kernel-1.{2**22 + 1}")
    mine = cache.path(f"alongside/own-kernel-1.{os.getppid()}")
    with cache.making_alongside("own-kernel-2") as work:
        cache.finish(work, About())
    assert not left.exists() and mine.exists() and cache.part("own-kernel-2") is not None


DAMAGED = [b"", b"{", b"[]", b'{"versions": []}', b'{"programs": "fio"}', b'{"colour": "red"}', b"\xff"]


@pytest.mark.parametrize("text", [*DAMAGED, b'{"modules": [1]}'])
def test_a_part_whose_description_is_damaged_is_none_and_so_is_its_image(cache: Cache, text: bytes) -> None:
    image_of(cache, "1")
    part = cache.folder / "parts" / f"kernel-{recipe.digest('1')}"
    (part / "part.json").write_bytes(text)
    assert cache.part(part.name) is None and list_images() == []
    with pytest.raises(MissingImage):
        find_image()


MANIFEST = '{"name": "a", "release": "1", "parts": %s, "recipe": "", "built": 1, "versions": {}}'


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", MANIFEST % "[]", MANIFEST % "{}", MANIFEST % '{"kernel": "k"}',
        MANIFEST % '{"kernel": "..", "root": "/"}',
    ],
)  # fmt: skip
def test_a_manifest_that_is_damaged_or_names_what_is_no_part_is_none(cache: Cache, text: str) -> None:
    (cache.path("images") / "a.json").write_text(text)
    assert (manifests(cache), list_images()) == ([], [])


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
