"""Disk images: copies and clones of a base, blank qcow2, in the scratch folder and in a directory."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from laboratory import needs_root
from laboratory.devices import sh
from storlab.errors import Unsupported, UserError
from storlab.layers.resources import Disk, File
from storlab.layers.stack import BuiltStack, type_errors

from .sites import ground_in, parse

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
def test_a_copy_and_a_clone_hold_what_the_base_holds(
    tmp_path: Path, layer: dict[str, Any], below: list[dict[str, Any]]
) -> None:
    async def check() -> None:
        async with ground_in(tmp_path) as ground:
            image = file_of(await ground.set_up(*below, layer))
            assert image.size == (32 if layer.get("size") else 16) * 1024**2
            assert image.format == ("raw" if layer["layer"] == "image-copy" else "qcow2")
            content = raw(image, tmp_path)
            assert len(content) == image.size
            assert len({hashlib.sha256(content[at : at + 4096]).digest() for at in range(0, 5 << 20, 4096)}) == 1280
            assert not any(content[5 << 20 :])

    asyncio.run(check())


def test_a_base_is_the_same_in_every_run(tmp_path: Path) -> None:
    async def content(folder: Path) -> bytes:
        async with ground_in(folder) as ground:
            return raw(file_of(await ground.set_up(COPY)), tmp_path)

    assert asyncio.run(content(tmp_path / "a")) == asyncio.run(content(tmp_path / "b"))


def test_four_owners_share_one_base_and_have_a_file_each(tmp_path: Path) -> None:
    async def check() -> None:
        async with ground_in(tmp_path) as ground:
            directory = (await ground.set_up(DIRECTORY)).resource
            layer = parse([CLONE])[0]
            owners = [f"vm-{number}" for number in range(1, 5)]
            made = await asyncio.gather(*(layer.set_up(directory, ground.context(1, owner)) for owner in owners))
            images = [image for image in made if isinstance(image, File)]
            assert [Path(image.path).name for image in images] == [f"{owner}.qcow2" for owner in owners]
            assert len({image.backing for image in images}) == 1
            assert [name for name, _ in ground.foundation] == ["file.remove"]
            assert len(list(Path(images[0].path).parent.glob("base-*"))) == 1

    asyncio.run(check())


def test_owners_in_one_scratch_folder_have_a_file_each(tmp_path: Path) -> None:
    async def check() -> None:
        async with ground_in(tmp_path) as ground:
            stacks = await asyncio.gather(*(ground.set_up(COPY, owner=f"vm-{number}") for number in range(1, 5)))
            assert len({file_of(standing).path for standing in stacks}) == 4
            assert len(list(Path(ground.scratch).glob("*base-*"))) == 1

    asyncio.run(check())


def test_a_clone_takes_up_next_to_nothing_until_it_is_written(tmp_path: Path) -> None:
    async def check() -> None:
        async with ground_in(tmp_path) as ground:
            standing = await ground.set_up(CLONE)
            image, facts = file_of(standing), standing.facts[0]
            assert facts["allocated"] < 1024**2
            assert facts["format"] == "qcow2"
            assert facts["cluster_size"] == 65536
            assert facts["backing"] == image.backing
            assert facts["on"]
            sh("qemu-io", "-f", "qcow2", "-c", "write -P 0xaa 1M 64k", image.path)
            content = raw(image, tmp_path)
            assert content[1 << 20 : (1 << 20) + 65536] == b"\xaa" * 65536
            assert image.backing is not None
            assert Path(image.backing).read_bytes()[: 1 << 20] == content[: 1 << 20]
            assert b"\xaa" * 65536 not in Path(image.backing).read_bytes()

    asyncio.run(check())


@pytest.mark.parametrize("form", ["raw", "qcow2"])
def test_an_image_of_the_users_is_converted_and_stays_as_it_is(tmp_path: Path, form: str) -> None:
    mine = tmp_path / f"mine.{form}"
    sh("qemu-img", "create", "-q", "-f", form, str(mine), "8M")
    sh("qemu-io", "-f", form, "-c", "write -P 0x5a 1M 4k", str(mine))
    before = mine.read_bytes()

    async def check() -> None:
        async with ground_in(tmp_path) as ground:
            for layer in ("image-copy", "image-clone"):
                image = file_of(await ground.set_up({"layer": layer, "base": {"file": str(mine)}}))
                assert image.size == 8 * 1024**2
                assert raw(image, tmp_path)[1 << 20 : (1 << 20) + 4096] == b"\x5a" * 4096
            with pytest.raises(UserError, match=r"size \(4M\) is less than that of the image"):
                await ground.set_up({"layer": "image-copy", "size": "4M", "base": {"file": str(mine)}})
        assert mine.read_bytes() == before

    asyncio.run(check())


def test_an_image_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    async def check() -> None:
        async with ground_in(tmp_path) as ground:
            for layer in ("image-copy", "image-clone"):
                (parsed,) = parse([{"layer": layer, "base": {"file": "/nowhere/image.raw"}}])
                with pytest.raises(UserError, match=r"there is no image /nowhere/image\.raw"):
                    await parsed.check_node(ground.node)

    asyncio.run(check())


def test_a_reflink_is_unsupported_where_the_file_system_has_none(tmp_path: Path) -> None:
    filesystem = sh("findmnt", "--noheadings", "--output=FSTYPE", "--target", str(tmp_path)).strip()

    async def check() -> None:
        async with ground_in(tmp_path) as ground:
            with pytest.raises(Unsupported, match=f"{filesystem} on node host can't share blocks between files"):
                await ground.set_up({**CLONE, "method": "reflink"})

    if filesystem in ("xfs", "btrfs", "zfs"):
        pytest.skip(f"{tmp_path} lies on {filesystem}, which has reflinks")
    asyncio.run(check())


@needs_root
def test_a_reflink_shares_the_bases_blocks(tmp_path: Path) -> None:
    stack: list[dict[str, Any]] = [
        {"layer": "file", "size": "400M"},
        {"layer": "loop"},
        {"layer": "mkfs", "type": "xfs"},
        {"layer": "mount"},
        {**CLONE, "method": "reflink", "size": "32M"},
    ]

    async def check() -> None:
        async with ground_in(tmp_path) as ground:
            image = file_of(await ground.set_up(*stack))
            assert (image.format, image.size) == ("raw", 32 * 1024**2)
            assert len(raw(image, tmp_path)) == image.size
            assert "shared" in sh("filefrag", "-v", image.path)

    asyncio.run(check())


@pytest.mark.parametrize("preallocation", ["off", "metadata", "falloc", "full"])
def test_a_blank_qcow2_is_as_asked(tmp_path: Path, preallocation: str) -> None:
    layer = {
        "layer": "qcow2",
        "size": "8M",
        "cluster_size": "32k",
        "preallocation": preallocation,
        "lazy_refcounts": True,
        "extended_l2": preallocation in ("off", "metadata"),
    }

    async def check() -> None:
        async with ground_in(tmp_path) as ground:
            standing = await ground.set_up(layer)
            (facts,) = standing.facts
            assert (facts["virtual_size"], facts["cluster_size"]) == (8 << 20, 32768)
            assert facts["lazy-refcounts"] is True
            assert facts["extended-l2"] is layer["extended_l2"]
            assert (facts["allocated"] >= 8 << 20) == (preallocation in ("falloc", "full"))
            info = json.loads(sh("qemu-img", "info", "--output=json", file_of(standing).path))
            assert info["format"] == "qcow2"

    asyncio.run(check())


WRONG: list[tuple[Mapping[str, Any], str]] = [
    ({"layer": "image-copy", "base": {}}, "a base has either a size"),
    ({"layer": "image-copy", "base": {"size": "1M", "file": "/a"}}, "a base has either a size"),
    ({"layer": "image-copy", "base": {"file": "a"}}, "write an absolute path"),
    ({"layer": "image-copy", "base": {"file": "/a", "written": "4k"}}, "written is for a base that Storlab makes"),
    ({"layer": "image-copy", "base": {"size": "4k", "written": "8k"}}, "is more than the size"),
    ({"layer": "image-copy", "base": {"size": 5000}}, "no multiple of 4k"),
    ({"layer": "image-copy", "base": {"size": 0}}, "holds nothing"),
    ({"layer": "image-copy", "base": {"size": "4M"}, "size": "2M"}, r"size \(2M\) is less than the base's \(4M\)"),
    ({**CLONE, "method": "reflink", "cluster_size": "4k"}, 'cluster_size is an option of method = "qcow2"'),
    ({**CLONE, "cluster_size": "4k", "extended_l2": True}, "needs clusters of at least 16k"),
    ({**CLONE, "cluster_size": "3k"}, "a power of two from 512 to 2M"),
    ({"layer": "qcow2", "size": "1M", "cluster_size": "4M"}, "a power of two from 512 to 2M"),
]


@pytest.mark.parametrize(("layer", "message"), WRONG)
def test_what_can_not_be_is_refused_with_its_reason(layer: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parse([layer])


def test_a_loop_device_needs_a_raw_file() -> None:
    for below in (CLONE, {"layer": "qcow2", "size": "1M"}):
        ((position, message),) = type_errors(parse([below, {"layer": "loop"}]), [Disk])
        assert position == 1
        assert f"layer {below['layer']} gives a qcow2 file" in message
    assert type_errors(parse([COPY, {"layer": "loop"}]), [Disk]) == []
    assert type_errors(parse([{**CLONE, "method": "reflink"}, {"layer": "loop"}]), [Disk]) == []
