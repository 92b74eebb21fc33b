"""Cached disks, and disks that are checked as they are read, in a real guest; and what a kill leaves of any."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from storlab.base.errors import StorlabError, TrialError
from storlab.layers import stack
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import integrity
from storlab.layers.block.bcache import forget_superblock, stop_set
from storlab.layers.block.identity import identify
from storlab.layers.fs.mkfs import filesystem_uuid
from storlab.layers.resources import Disk, Swap
from storlab.nodes.node import Exit, Node
from storlab.run.recovery.undoing import undo_table

from .pair import MAPPED, Pair, open_shop
from .sites import RUN, parse

M = 1024**2
shop = pytest.fixture(scope="module")(open_shop)
guests = pytest.mark.needs("guests")
NOTHING = f"{MAPPED}; ls -d /sys/fs/bcache/*-* /sys/block/bcache* 2> /dev/null; true"


async def set_up(pair: Pair, keys: Mapping[str, Any], *disks: Disk) -> tuple[Layer, Any, LayerContext]:
    """A layer on the first of these disks, with the others as further ones."""
    (layer,) = parse([keys])
    context = replace(pair.server.context(2, "client"), others={"d": disks[1:]})
    made = await layer.set_up(disks[0], context)
    assert isinstance(made, Disk | Swap)
    return layer, made, context


async def moved(pair: Pair, *disks: Disk) -> list[tuple[int, int]]:
    await pair.server.output("sync")
    return await pair.moved(*disks)


@guests
@pytest.mark.parametrize("mode", ["writethrough", "writeback", "writearound", "none"])
async def test_a_cache_takes_what_its_mode_says(pair: Pair, mode: str) -> None:
    async with pair.left_clean(NOTHING):
        backing, cache = await pair.disks("64M", "48M")
        keys = {"layer": "bcache", "cache": "d", "mode": mode, "bucket": "64k", "sequential_cutoff": 0}
        layer, made, context = await set_up(pair, keys, backing, cache)
        facts = await layer.facts(made, context)
        wanted = {"cache_mode": mode, "sequential_cutoff": "0.0k", "writeback_percent": 10, "bucket_size": "64.0k"}
        assert {name: facts[name] for name in wanted} == wanted

        async def underneath(words: str) -> list[list[int]]:
            """Read and written, on the disk and on its cache, for each byte of 512 requests of 4k, in whole numbers."""
            before = await moved(pair, backing, cache)
            await pair.server.output(f"fio --name=x --filename={made.path} --bs=4k --size=2M --direct=1 --{words}")
            both = [*zip(await moved(pair, backing, cache), before, strict=True)]
            return [[round((now[at] - then[at]) / (2 * M)) for now, then in both] for at in (0, 1)]

        written = {"writeback": [0, 1], "writethrough": [1, 1]}.get(mode, [1, 0])
        assert (await underneath("rw=randwrite"))[1] == written
        await underneath("rw=randread")
        assert (await underneath("rw=randread"))[0] == ([1, 0] if mode == "none" else [0, 1])


@guests
@pytest.mark.parametrize("registered", [0, 1], ids=["disk", "cache"])
async def test_a_cache_of_which_the_kernel_knows_half_is_stopped_by_its_uuid_alone(pair: Pair, registered: int) -> None:
    async with pair.left_clean(NOTHING):
        disks, nonce, node = await pair.disks("64M", "48M", ours=False), "1" * 32, pair.server.node
        both = ("-B", disks[0].path, "-C", disks[1].path)
        await node.run(["make-bcache", "--cset-uuid", filesystem_uuid(RUN, nonce), "--bucket", "64k", *both])
        await pair.server.output(f"modprobe bcache; echo {disks[registered].path} > /sys/fs/bcache/register")
        assert await stop_set(node, run=RUN, nonce="0" * 32) is None
        assert await stop_set(node, run=RUN, nonce=nonce) is not None
        for disk in disks:
            assert await forget_superblock(node, device=disk.path, run=RUN, nonce="0" * 32) is None
            assert await forget_superblock(node, device=disk.path, run=RUN, nonce=nonce) is not None
        assert (
            await pair.server.output(f"wipefs --noheadings {disks[0].path}; wipefs --noheadings {disks[1].path}") == ""
        )


@guests
async def test_a_cache_that_is_too_small_and_one_of_the_users(pair: Pair) -> None:
    async with pair.left_clean(NOTHING):
        backing, cache = await pair.disks("64M", "48M", ours=False)
        with pytest.raises(TrialError, match="takes at least 513 buckets of 512k: make it larger"):
            await set_up(pair, {"layer": "bcache", "cache": "d"}, backing, cache)
        _, made, _ = await set_up(pair, {"layer": "bcache", "cache": "d", "bucket": "64k"}, backing, cache)
        assert not made.ours
        said = await pair.tear_down()
        assert sum("wiped bcache's superblock" in words for words in said) == 2
        assert any(words.startswith("stopped the cache") for words in said)


@guests
@pytest.mark.parametrize(
    ("keys", "facts", "times"),
    [
        ({}, {"mode": "journal", "internal_hash": "crc32c", "tag_size": 4, "mismatches": 0}, 2),
        ({"mode": "bitmap", "checksum": "sha256", "sector_size": "4k"}, {"tag_size": 32, "block_size": 4096}, 1),
        ({"mode": "direct", "checksum": "xxhash64", "state": "wiped"}, {"mode": "direct", "tag_size": 8}, 1),
        ({"metadata": "d", "state": "recalculating", "mode": "direct"}, {"mode": "direct"}, 1),
    ],
    ids=["journal", "bitmap", "wiped", "metadata"],
)
async def test_what_was_changed_underneath_cannot_be_read(
    pair: Pair, keys: dict[str, Any], facts: dict[str, Any], times: int
) -> None:
    """And a journal writes all data twice."""
    async with pair.left_clean(NOTHING):
        below, more = await pair.disks("48M", "16M")
        layer, made, context = await set_up(pair, {"layer": "integrity", **keys}, below, more)
        found = await layer.facts(made, context)
        assert {name: found[name] for name in facts} == facts
        if keys.get("state") != "recalculating":
            assert found.get("recalculated", made.size // 512) == found["size"] == made.size // 512
        ((_, before),) = await moved(pair, below)
        fio = "fio --name=x --rw=write --bs=64k --size=8M --direct=1 --end_fsync=1"
        await pair.server.output(f"{fio} --filename={made.path}; sync; sleep 0.5")
        ((_, after),) = await moved(pair, below)
        assert times - 0.1 < (after - before) / (8 * M) < times + 0.6
        read = f"dd if={made.path} bs=1M count=8 iflag=direct of=/dev/null 2> /dev/null; echo $?"
        assert await pair.server.output(read) == "0"
        await pair.server.output(f"dd if=/dev/zero of={below.path} bs=1M seek=4 count=12 oflag=direct 2> /dev/null")
        assert await pair.server.output(read) == "1"
        assert (await layer.facts(made, context))["mismatches"] > 0


@guests
async def test_a_mirror_repairs_what_one_of_its_disks_cannot_read(pair: Pair) -> None:
    async with pair.left_clean(NOTHING):
        below = await pair.disks("48M", "48M")
        (checked,) = parse([{"layer": "integrity", "mode": "bitmap"}])
        members = [await checked.set_up(disk, pair.server.context(2, disk.name)) for disk in below]
        (mirror,) = parse([{"layer": "md", "level": "1", "disks": ["d"]}])
        made = await mirror.set_up(None, replace(pair.server.context(3), others={"d": members}))
        write = f"fio --name=x --rw=write --bs=64k --size=8M --direct=1 --end_fsync=1 --filename={made.path}"
        sums = f"dd if={made.path} bs=1M count=8 iflag=direct 2> /dev/null | md5sum"
        await pair.server.output(f"{write}; sync")
        was = await pair.server.output(sums)
        await pair.server.output(f"dd if=/dev/zero of={below[0].path} bs=1M seek=4 count=12 oflag=direct 2> /dev/null")
        alone = f"dd if={members[0].path} bs=1M count=12 iflag=direct of=/dev/null 2> /dev/null; echo $?"
        assert await pair.server.output(alone) == "1"
        assert [await pair.server.output(sums) for _ in range(4)] == [was] * 4


@guests
async def test_the_superblock_on_a_device_of_the_users_goes_and_that_of_another_stays(pair: Pair) -> None:
    async with pair.left_clean(NOTHING):
        (below,) = await pair.disks("48M", ours=False)
        device = await identify(pair.server.node, below.path)
        await set_up(pair, {"layer": "integrity"}, replace(below, device=device))
        (name, arguments), (mapping, its) = pair.server.journal[-2:]
        assert name == "integrity.forget"
        await undo_table()[mapping].function(pair.server.node, **its)
        with pytest.raises(StorlabError, match="may be another device than the run's by now"):
            await undo_table()[name](pair.server.node, **{**arguments, "was": f"marked-{'0' * 32}"})
        assert any("wiped the superblock" in words for words in await pair.tear_down())


@guests
@pytest.mark.parametrize("keys", [{"data": "16M"}, {"hashes": "d", "algorithm": "sha512", "check_once": True}])
async def test_each_block_that_is_read_is_verified(pair: Pair, keys: dict[str, Any]) -> None:
    async with pair.left_clean(NOTHING):
        disks = await pair.disks("24M", "16M", ours=False)
        await pair.server.output(f"dd if=/dev/urandom of={disks[0].path} bs=1M 2> /dev/null || true")
        layer, made, context = await set_up(pair, {"layer": "verity", **keys}, *disks)
        facts = await layer.facts(made, context)
        wanted = (keys.get("algorithm", "sha256"), "verified", "check_at_most_once" if "hashes" in keys else None)
        assert (facts["hash name"], facts["status"], facts.get("flags")) == wanted
        assert made.size == (16 if "data" in keys else 24) * M
        read = f"dd if={made.path} bs=1M count=1 iflag=direct 2> /dev/null skip="
        same = f"{read}9 | cmp -n {M} - {disks[0].path} -i 0:{9 * M}; echo $?"
        assert await pair.server.output(same) == "0"
        assert await pair.server.output(f"printf x 2> /dev/null | dd of={made.path} 2> /dev/null; echo $?") == "1"
        await pair.server.output(f"printf x | dd of={disks[0].path} bs=1 seek={5 * M} conv=notrunc 2> /dev/null; sync")
        assert await pair.server.output(f"{read}5 of=/dev/null; echo $?") == "1"
        assert any("wiped the signature" in words for words in await pair.tear_down()) == ("hashes" in keys)


def test_nothing_is_set_up_on_what_can_only_be_read() -> None:
    layers = [
        {"layer": "file", "size": "48M"},
        {"layer": "loop"},
        {"layer": "verity", "data": "16M"},
        {"layer": "crypt"},
    ]
    assert stack.type_errors(parse(layers), [Disk]) == [(3, "layer crypt: what layer verity gives can only be read")]


def test_what_dmsetup_prints_of_checksums_is_read_and_rubbish_is_nothing() -> None:
    table = "0 2048 integrity 7:0 0 4 J 4 block_size:4096 fix_padding meta_device:7:1 internal_hash:crc32c\n"
    assert integrity.parse_table(table) == {
        "mode": "journal",
        "tag_size": 4,
        "block_size": 4096,
        "internal_hash": "crc32c",
    }
    assert integrity.parse_status("0 2048 integrity 1 2048 -\n") == {"mismatches": 1, "size": 2048}
    assert integrity.parse_status("0 2048 integrity 0 2048 8")["recalculated"] == 8
    assert integrity.parse_table("0 8 linear 7:0 0") == integrity.parse_status("rubbish") == {}


KILLED: tuple[dict[str, Any], ...] = (
    {"layer": "crypt"},
    {"layer": "bcache", "cache": "d", "bucket": "64k"},
    {"layer": "integrity", "state": "wiped"},
    {"layer": "verity", "hashes": "d"},
    {"layer": "lvm", "type": "raid1", "disks": ["d"]},
    {"layer": "swap"},
)


@guests
@pytest.mark.parametrize("keys", KILLED, ids=lambda keys: keys["layer"])
async def test_whatever_command_a_kill_follows_nothing_of_it_stays(pair: Pair, keys: dict[str, Any]) -> None:
    class KilledHere(BaseException):
        pass

    run, left = Node.run, 0

    async def killed_after(node: Node, *args: Any, **options: Any) -> Exit:
        nonlocal left
        ended = await run(node, *args, **options)
        left -= 1
        if not left:
            raise KilledHere
        return ended

    async with pair.left_clean(NOTHING):
        found = await pair.disks("48M", "40M", ours=False)
        disks = [replace(disk, device=await identify(pair.server.node, disk.path)) for disk in found]
        below = len(pair.server.journal)
        for steps in itertools.count(1):
            left = steps
            with mock.patch.object(Node, "run", killed_after), contextlib.suppress(KilledHere):
                await set_up(pair, keys, *disks)
            for name, arguments in reversed(pair.server.journal[below:]):
                await undo_table()[name].function(pair.server.node, **arguments)
            del pair.server.journal[below:]
            stays = ("tail --lines=+2 /proc/swaps", *(f"wipefs --noheadings {disk.path}" for disk in disks))
            assert await pair.server.output(f"{'; '.join(stays)}; {NOTHING}") == ""
            if left > 0:  # it took fewer commands
                break
        assert steps > 3
