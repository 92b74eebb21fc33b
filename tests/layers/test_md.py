"""Arrays of the kernel's software RAID in a real guest: what they are, what they write underneath, what stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from storlab.layers.block.md import MdLayer, stop_array
from storlab.layers.resources import Disk, Resource

from .pair import Pair, open_shop
from .sites import RUN

shop = pytest.fixture(scope="module")(open_shop)
guests = pytest.mark.needs("guests")
NOTHING = "ls -d /sys/block/md[0-9]* /dev/md* 2> /dev/null; true"


@asynccontextmanager
async def array(
    pair: Pair, count: int = 4, *, ours: bool = True, **keys: Any
) -> AsyncIterator[tuple[Disk, list[Disk], Mapping[str, Any]]]:
    """An array of loop devices in a guest with its members and its facts; nothing of it is left."""
    async with pair.left_clean(NOTHING):
        members = await pair.disks(*["24M"] * count, ours=ours)
        layer = MdLayer.model_validate({"layer": "md", "disks": ["a", "b"], **keys})
        others: dict[str, list[Resource]] = {"a": [*members[:2]], "b": [*members[2:]]}
        if layer.journal is not None:
            others[layer.journal] = [others["b"].pop()]
        context = replace(pair.server.context(2), others=others)
        made = await layer.set_up(None, context)
        yield made, members, await layer.facts(made, context)


@guests
@pytest.mark.parametrize(
    ("keys", "facts", "disks"),
    [
        ({"level": "0", "chunk": "64k"}, {"level": "raid0", "chunk_size": 65536, "raid_disks": 4}, 4),
        (
            {"level": "1", "write_mostly": 1, "bitmap": "internal"},
            {"level": "raid1", "consistency_policy": "bitmap"},
            1,
        ),
        (
            {"level": "10", "layout": "far", "chunk": "32k"},
            {"level": "raid10", "chunk_size": 32768, "raid_disks": 4},
            2,
        ),
        ({"level": "5", "chunk": "16k", "stripe_cache": 1024}, {"level": "raid5", "stripe_cache_size": 1024}, 3),
        ({"level": "5", "consistency": "ppl"}, {"level": "raid5", "consistency_policy": "ppl"}, 3),
        ({"level": "5", "journal": "j"}, {"level": "raid5", "consistency_policy": "journal", "raid_disks": 3}, 2),
        ({"level": "6", "state": "degraded"}, {"level": "raid6", "degraded": 1, "array_state": "clean"}, 2),
    ],
    ids=lambda value: f"{value['level']}-{'-'.join(map(str, value.values()))}" if isinstance(value, dict) else None,
)
async def test_an_array_is_as_asked_for_and_nothing_of_it_stays(
    pair: Pair, keys: dict[str, Any], facts: dict[str, Any], disks: int
) -> None:
    async with array(pair, **keys) as (made, members, found):
        assert {name: found[name] for name in facts} == facts
        assert 0.7 * disks <= made.size / members[0].size <= disks and made.ours
        text = f"printf storlab | dd of={made.path} bs=4k seek=7 conv=sync,fsync 2> /dev/null"
        await pair.server.output(text)
        read = f"dd if={made.path} bs=4k skip=7 count=1 iflag=direct 2> /dev/null | tr -d '\\0'"
        assert await pair.server.output(read) == "storlab"


@guests
async def test_a_mirror_writes_twice_underneath_and_parity_reads_before_it_writes(pair: Pair) -> None:
    async def underneath(made: Disk, members: list[Disk]) -> list[float]:
        """Read and written by all members for each byte that is written, of single blocks of 4k."""
        before = await pair.moved(*members)
        fio = f"fio --name=x --filename={made.path} --rw=randwrite --bs=4k --size=16M --number_ios=64 --direct=1"
        await pair.server.output(fio)
        after = await pair.moved(*members)
        return [sum(now[at] - then[at] for now, then in zip(after, before, strict=True)) / (64 * 4096) for at in (0, 1)]

    async with array(pair, count=2, level="1") as (made, members, _):
        read, written = await underneath(made, members)
        assert read < 0.2 and 1.9 < written < 2.3
    async with array(pair, level="5", chunk="64k") as (made, members, _):
        read, written = await underneath(made, members)
        assert 1.5 < read < 4 and 1.9 < written < 3, "old data and old parity are read, new ones written"


@guests
async def test_a_disk_that_is_added_is_rebuilt(pair: Pair) -> None:
    async with array(pair, count=3, level="5", state="rebuilding") as (made, _, found):
        folder = f"/sys/block/{made.name}/md"
        assert (found["raid_disks"], found["level"]) == (3, "raid5")
        for _ in range(600):
            if await pair.server.output(f"cat {folder}/sync_action {folder}/degraded") == "idle\n0":
                break
            await asyncio.sleep(0.1)
        assert await pair.server.output(f"cat {folder}/degraded") == "0"


@guests
async def test_members_of_the_users_lose_what_marks_them_and_an_array_is_stopped_by_its_uuid_alone(pair: Pair) -> None:
    async with array(pair, count=2, ours=False, level="1") as (made, members, _):
        listed = await pair.server.output(f"wipefs --noheadings {members[0].path} {members[1].path}")
        assert listed.count("linux_raid_member") == 2 and not made.ours
        assert await stop_array(pair.server.node, run=RUN, nonce="0" * 32) is None
        assert await pair.server.output("ls -d /sys/block/md*")
        said = await pair.server.tear_down()
        assert sum("wiped the signature" in words for words in said) == 2
        assert any(words.startswith("stopped the array") for words in said)
