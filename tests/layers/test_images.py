"""Disk images: copies and clones of a base that is made once for all that stand on it, and blank qcow2."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from laboratory.devices import sh
from storlab.base.errors import Unsupported, UserError
from storlab.layers.base import Shared
from storlab.layers.resources import Disk, File
from storlab.layers.stack import BuiltStack, type_errors

from .sites import Ground, ground_in, parse

BASE = {"size": "16M", "written": "5M"}
COPY = {"layer": "image-copy", "base": BASE}
CLONE = {"layer": "image-clone", "base": BASE}
DIRECTORY = {"layer": "directory"}
MADE = [COPY, CLONE, {**CLONE, "cluster_size": "4k", "lazy_refcounts": True, "size": "32M"}]


def raw(image: File, folder: Path) -> bytes:
    """What a guest would read from it."""
    out = folder / "raw"
    sh("qemu-img", "convert", "-f", image.format, "-O", "raw", image.path, str(out))
    return out.read_bytes()


def file_of(standing: BuiltStack) -> File:
    assert isinstance(standing.resource, File)
    return standing.resource


@pytest.mark.parametrize("below", [[], [DIRECTORY]], ids=["in scratch", "in a directory"])
@pytest.mark.parametrize("layer", MADE, ids=str)
async def test_a_copy_and_a_clone_hold_what_the_base_holds(
    ground: Ground, tmp_path: Path, layer: dict[str, Any], below: list[dict[str, Any]]
) -> None:
    image = file_of(await ground.set_up(*below, layer))
    assert image.size == (32 if layer.get("size") else 16) * 1024**2
    assert image.format == ("raw" if layer["layer"] == "image-copy" else "qcow2")
    content = raw(image, tmp_path)
    assert len(content) == image.size
    assert len({hashlib.sha256(content[at : at + 4096]).digest() for at in range(0, 5 << 20, 4096)}) == 1280
    assert not any(content[5 << 20 :])


async def test_a_base_is_the_same_in_every_run(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        async with ground_in(tmp_path / name) as ground:
            contents.append(raw(file_of(await ground.set_up(COPY)), tmp_path))
    assert contents[0] == contents[1]


async def test_four_owners_share_one_base_and_have_a_file_each_in_either_folder(ground: Ground) -> None:
    directory = (await ground.set_up(DIRECTORY)).resource
    layer = parse([CLONE])[0]
    owners = [f"vm-{number}" for number in range(1, 5)]
    made = await asyncio.gather(*(layer.set_up(directory, ground.context(1, owner)) for owner in owners))
    images = [image for image in made if isinstance(image, File)]
    assert [Path(image.path).name for image in images] == [f"{owner}.qcow2" for owner in owners]
    assert len({image.backing for image in images}) == 1
    assert [name for name, _ in ground.foundation] == ["file.remove"]
    assert len(list(Path(images[0].path).parent.glob("base-*"))) == 1
    stacks = await asyncio.gather(*(ground.set_up(COPY, owner=f"vm-{number}") for number in range(1, 5)))
    assert len({file_of(standing).path for standing in stacks}) == 4
    assert len(list(Path(ground.scratch).glob("*base-*"))) == 1


async def test_a_clone_takes_up_next_to_nothing_until_it_is_written(ground: Ground, tmp_path: Path) -> None:
    standing = await ground.set_up(CLONE)
    image, facts = file_of(standing), standing.facts[0]
    assert facts["allocated"] < 1024**2
    assert (facts["format"], facts["cluster_size"], facts["backing"]) == ("qcow2", 65536, image.backing)
    assert facts["on"]
    sh("qemu-io", "-f", "qcow2", "-c", "write -P 0xaa 1M 64k", image.path)
    content = raw(image, tmp_path)
    assert content[1 << 20 : (1 << 20) + 65536] == b"\xaa" * 65536
    assert image.backing is not None
    assert Path(image.backing).read_bytes()[: 1 << 20] == content[: 1 << 20]
    assert b"\xaa" * 65536 not in Path(image.backing).read_bytes()


@pytest.mark.parametrize("form", ["raw", "qcow2"])
async def test_an_image_of_the_users_is_converted_and_stays_as_it_is(tmp_path: Path, form: str) -> None:
    mine = tmp_path / f"mine.{form}"
    sh("qemu-img", "create", "-q", "-f", form, str(mine), "8M")
    sh("qemu-io", "-f", form, "-c", "write -P 0x5a 1M 4k", str(mine))
    before = mine.read_bytes()
    async with ground_in(tmp_path) as ground:
        for layer in ("image-copy", "image-clone"):
            image = file_of(await ground.set_up({"layer": layer, "base": {"file": str(mine)}}))
            assert image.size == 8 * 1024**2
            assert raw(image, tmp_path)[1 << 20 : (1 << 20) + 4096] == b"\x5a" * 4096
        with pytest.raises(UserError, match=r"size \(4M\) is less than that of the image"):
            await ground.set_up({"layer": "image-copy", "size": "4M", "base": {"file": str(mine)}})
    assert mine.read_bytes() == before


async def test_an_image_that_is_not_there_is_the_users_mistake(ground: Ground) -> None:
    for layer in ("image-copy", "image-clone"):
        (parsed,) = parse([{"layer": layer, "base": {"file": "/nowhere/image.raw"}}])
        with pytest.raises(UserError, match=r"there is no image /nowhere/image\.raw"):
            await parsed.check_node(ground.node)


async def test_a_reflink_is_unsupported_where_the_file_system_has_none(ground: Ground) -> None:
    filesystem = sh("findmnt", "--noheadings", "--output=FSTYPE", "--target", ground.scratch).strip()
    if filesystem in ("xfs", "btrfs", "zfs"):
        pytest.skip(f"{ground.scratch} lies on {filesystem}, which has reflinks")
    with pytest.raises(Unsupported, match=f"{filesystem} on node host can't share blocks between files"):
        await ground.set_up({**CLONE, "method": "reflink"})


@pytest.mark.needs("root")
async def test_a_reflink_shares_the_bases_blocks(ground: Ground, tmp_path: Path) -> None:
    below = ({"layer": "file", "size": "400M"}, {"layer": "loop"}, {"layer": "mkfs", "type": "xfs"}, {"layer": "mount"})
    image = file_of(await ground.set_up(*below, {**CLONE, "method": "reflink", "size": "32M"}))
    assert (image.format, image.size) == ("raw", 32 * 1024**2)
    assert len(raw(image, tmp_path)) == image.size
    assert "shared" in sh("filefrag", "-v", image.path)


@pytest.mark.parametrize("preallocation", ["off", "metadata", "falloc", "full"])
async def test_a_blank_qcow2_is_as_asked(ground: Ground, preallocation: str) -> None:
    layer: dict[str, Any] = {"layer": "qcow2", "size": "8M", "cluster_size": "32k", "preallocation": preallocation}
    layer |= {"lazy_refcounts": True, "extended_l2": preallocation in ("off", "metadata")}
    standing = await ground.set_up(layer)
    (facts,) = standing.facts
    assert (facts["virtual_size"], facts["cluster_size"]) == (8 << 20, 32768)
    assert facts["lazy-refcounts"] is True
    assert facts["extended-l2"] is layer["extended_l2"]
    assert (facts["allocated"] >= 8 << 20) == (preallocation in ("falloc", "full"))
    info = json.loads(sh("qemu-img", "info", "--output=json", file_of(standing).path))
    assert info["format"] == "qcow2"


def test_a_loop_device_needs_a_raw_file() -> None:
    for below in (CLONE, {"layer": "qcow2", "size": "1M"}):
        ((position, message),) = type_errors(parse([below, {"layer": "loop"}]), [Disk])
        assert position == 1
        assert f"layer {below['layer']} gives a qcow2 file" in message
    assert type_errors(parse([COPY, {"layer": "loop"}]), [Disk]) == []
    assert type_errors(parse([{**CLONE, "method": "reflink"}, {"layer": "loop"}]), [Disk]) == []


async def test_it_is_made_once_and_everybody_gets_it() -> None:
    made = []

    async def make() -> object:
        made.append(1)
        await asyncio.sleep(0.01)
        return object()

    shared = Shared()
    first = await asyncio.gather(*(shared.once("a", make) for _ in range(4)))
    assert len({id(each) for each in first}) == 1
    assert await shared.once("a", make) is first[0]
    assert await shared.once("b", make) is not first[0]
    assert len(made) == 2


async def test_what_failed_fails_for_all_that_wait_and_is_tried_again_by_the_next() -> None:
    attempts = []

    async def make() -> str:
        attempts.append(1)
        await asyncio.sleep(0.01)
        if len(attempts) == 1:
            raise ValueError("no")
        return "made"

    shared = Shared()
    results = await asyncio.gather(shared.once("a", make), shared.once("a", make), return_exceptions=True)
    assert [str(result) for result in results] == ["no", "no"]
    assert await shared.once("a", make) == "made"


async def test_one_that_waits_may_go_and_the_last_one_takes_the_work_with_it() -> None:
    ended = []

    async def make() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)  # it needs a moment to come to rest
            ended.append("stopped")
            raise
        return "made"

    shared = Shared()
    waiting = [asyncio.create_task(shared.once("a", make)) for _ in range(2)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    assert ended == []
    waiting[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[1]
    assert ended == ["stopped"]
