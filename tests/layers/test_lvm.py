"""Logical volumes in a real guest: what they are, what they write underneath, what stays of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from storlab.base.errors import CommandFailed
from storlab.base.units import parse_size
from storlab.layers import stack
from storlab.layers.base import LayerContext
from storlab.layers.block.lvm import LvmLayer, resume_group
from storlab.layers.block.lvm_parts import SNAPSHOT, Lvm, parse_lvs
from storlab.layers.resources import Dir, Disk

from .pair import Pair, open_shop
from .sites import parse

shop = pytest.fixture(scope="module")(open_shop)
guests = pytest.mark.needs("guests")
MIB = 1024**2
NOTHING = (
    "dmsetup ls --noheadings 2> /dev/null | grep -v -e '^No devices' -e theirs; ls -d /dev/storlab-* 2> /dev/null; true"
)


@dataclass
class Made:
    """A volume in a guest, on loop devices; ``fast`` are those of its cache."""

    pair: Pair
    layer: LvmLayer
    context: LayerContext
    volume: Disk
    disks: list[Disk]
    fast: list[Disk]
    facts: Mapping[str, Any]

    @property
    def volumes(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.facts["volumes"]
        return found

    async def now(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = (await self.layer.facts(self.volume, self.context))["volumes"]
        return found

    async def moved(self, work: str) -> list[tuple[int, int]]:
        """Bytes that each disk read and wrote while a script ran."""
        disks = (*self.disks, *self.fast)
        before = await self.pair.moved(*disks)
        await self.pair.server.output(work)
        return [(r - b, w - c) for (b, c), (r, w) in zip(before, await self.pair.moved(*disks), strict=True)]

    def write(self, count: int, *more: str, rw: str = "randwrite") -> str:
        head = f"fio --name=x --filename={self.volume.path} --rw={rw} --bs=4k --direct=1"
        return " ".join([head, f"--size={self.volume.size}", f"--number_ios={count}", *more])


@asynccontextmanager
async def volume(
    pair: Pair, count: int = 4, fast: int = 0, each: str = "64M", *, ours: bool = True, **keys: Any
) -> AsyncIterator[Made]:
    """Nothing of it is left."""
    async with pair.left_clean(NOTHING):
        disks = await pair.disks(*[each] * (count + fast), ours=ours)
        more = {"cache": {"disks": ["f"], **keys.pop("cache")}} if fast else {}
        layer = LvmLayer.model_validate({"layer": "lvm", "disks": ["d"], **keys, **more})
        context = replace(pair.server.context(2), others={"d": disks[1:count], "f": disks[count:]})
        made = await layer.set_up(disks[0], context)
        facts = await layer.facts(made, context)
        yield Made(pair, layer, context, made, disks[:count], disks[count:], facts)


@guests
@pytest.mark.parametrize(
    ("keys", "data", "size", "target"),
    [
        ({}, {"type": "linear"}, 240, "linear"),
        (
            {"type": "striped", "stripe_size": "16k"},
            {"type": "striped", "stripes": 4, "stripe_size": 16384},
            240,
            "striped 4 32",
        ),
        ({"type": "mirror", "size": "20M"}, {"type": "mirror"}, 20, "mirror"),
        ({"type": "raid0", "stripes": 2}, {"type": "raid0", "stripes": 2}, 240, "raid raid0 "),
        ({"type": "raid1", "mirrors": 2, "size": "32M"}, {"type": "raid1", "copies": 3}, 32, "raid raid1 "),
        (
            {"type": "raid5", "stripe_size": "32k", "extent": "1M"},
            {"type": "raid5", "stripe_size": 32768},
            190,
            "raid raid5_ls 4 64",
        ),
        ({"type": "raid10", "size": "32M"}, {"type": "raid10", "stripes": 4}, 32, "raid raid10 "),
    ],
    ids=lambda value: value.get("type") if isinstance(value, dict) and "size" not in value else None,
)
async def test_a_volume_is_as_asked_for_and_nothing_of_it_stays(
    pair: Pair, keys: dict[str, Any], data: dict[str, Any], size: int, target: str
) -> None:
    async with volume(pair, **keys) as made:
        assert {name: made.volumes["data"].get(name) for name in data} == data
        assert 0.85 * size * MIB <= made.volume.size <= size * MIB and made.volume.size == made.volumes["data"]["size"]
        table = await pair.server.output(f"dmsetup table {made.volume.path}")
        assert target in table
        text = f"printf storlab | dd of={made.volume.path} bs=4k seek=7 conv=sync,fsync 2> /dev/null"
        await pair.server.output(text)
        read = f"dd if={made.volume.path} bs=4k skip=7 count=1 iflag=direct 2> /dev/null | tr -d '\\0'"
        assert await pair.server.output(read) == "storlab"


@guests
async def test_the_first_write_to_a_thin_volume_costs_more_than_the_second_and_a_chunk_of_zeros_if_so_asked(
    pair: Pair,
) -> None:
    """What is written underneath by 64 writes of 4k, each to a chunk of 64k of its own."""
    written: dict[tuple[bool, str], int] = {}
    for zero in (True, False):
        thin = {"chunk": "64k", "zero": zero, "metadata": "4M", "discards": "nopassdown"}
        async with volume(pair, count=1, each="96M", type="thin", size="1G", thin=thin) as made:
            pool = made.volumes["pool"]
            assert (pool["chunk_size"], pool["discards"], pool.get("zero")) == (
                65536,
                "nopassdown",
                ["", "zero"][zero] or None,
            )
            assert made.volume.size == 1024 * MIB and made.volumes["data"]["type"] == "thin"
            table = await pair.server.output("dmsetup table --target thin-pool")
            assert ("skip_block_zeroing" in table, " 128 " in table) == (not zero, True)
            for when in ("first", "second"):
                apart = ("--zonemode=strided", "--zonesize=4k", "--zonerange=64k", "--end_fsync=1")
                moved = await made.moved(made.write(64, *apart, rw="write"))
                written[zero, when] = sum(wrote for _, wrote in moved)
    assert written[True, "first"] > 64 * 64 * 1024, "each chunk is filled"
    assert 64 * 4096 <= written[False, "second"] < 1.3 * 64 * 4096
    assert written[False, "first"] > written[False, "second"] + 4096, "and what the pool knows of it"
    assert written[True, "second"] < 1.3 * 64 * 4096


@guests
@pytest.mark.parametrize(
    ("cache", "top", "policy"),
    [
        ({"mode": "writeback", "chunk": "32k", "settings": {"migration_threshold": 4096}}, "cache", "mq"),
        ({"kind": "cachepool", "policy": "smq"}, "cache", "smq"),
        ({"kind": "writecache", "block_size": "4k", "settings": {"writeback_jobs": 64}}, "writecache", None),
    ],
    ids=["cachevol", "cachepool", "writecache"],
)
async def test_a_cache_is_as_asked_for_and_takes_writes(
    pair: Pair, cache: dict[str, Any], top: str, policy: str | None
) -> None:
    async with volume(pair, count=1, fast=1, cache=cache) as made:
        data = made.volumes["data"]
        wanted = {
            "type": top,
            "cache_mode": cache.get("mode", "writethrough") if policy else None,
            "cache_policy": policy,
        }
        assert {name: data.get(name) for name in wanted} == wanted
        table = await pair.server.output(f"dmsetup table {made.volume.path}")
        assert f" {top} " in table
        for key, value in cache.get("settings", {}).items():
            assert f"{key} {value}" in table
        moved = await made.moved(made.write(256, rw="write"))
        slow, fast = moved[0][1], moved[1][1]
        assert fast >= 256 * 4096 if top == "writecache" else slow >= 256 * 4096 or fast >= 256 * 4096
        if cache.get("mode") == "writeback":  # what is written again and again is in the cache some time later
            hot = f"fio --name=x --filename={made.volume.path} --rw=write --bs=4k --direct=1 --size=64k"
            moved = await made.moved(f"{hot} --time_based --runtime=5")
            assert moved[1][1] > 64 * 1024


@guests
async def test_a_striped_volume_spreads_over_its_disks_and_a_mirror_writes_to_each(pair: Pair) -> None:
    async with volume(pair, type="striped", stripe_size="4k") as made:
        wrote = [wrote for _, wrote in await made.moved(made.write(256, rw="write"))]
        assert wrote == [256 * 1024] * 4
    async with volume(pair, count=2, type="raid1") as made:
        wrote = [wrote for _, wrote in await made.moved(made.write(256, rw="write"))]
        assert all(256 * 4096 <= each < 1.5 * 256 * 4096 for each in wrote)


@guests
async def test_other_volume_groups_are_neither_seen_nor_touched_and_a_users_disk_loses_its_mark(pair: Pair) -> None:
    (foreign,) = await pair.disks("32M", owner="foreign")
    make = f"vgcreate -y -q theirs {foreign.path} && lvcreate -y -q -n kept -l 2 theirs"
    await pair.server.output(f"export DM_DISABLE_UDEV=1; {make}")
    begin = f"dd if={foreign.path} bs=1M count=2 2> /dev/null | sha256sum; dmsetup info -c --noheadings theirs-kept"
    before, kept = await pair.server.output(begin), [*pair.server.journal]
    pair.server.journal.clear()
    async with volume(pair, count=2, ours=False) as made:
        listed = await pair.server.output(f"wipefs --noheadings {' '.join(disk.path for disk in made.disks)}")
        assert listed.count("LVM2_member") == 2 and not made.volume.ours
        assert "theirs" not in str(made.facts)
        assert [entry[0] for entry in pair.server.journal[-3:]] == ["lvm.forget", "lvm.forget", "lvm.remove"]
        said = await pair.server.tear_down()
        assert sum("wiped the signature of Storlab's own physical volume" in words for words in said) == 2
    assert await pair.server.output(begin) == before
    await pair.server.output("export DM_DISABLE_UDEV=1; vgremove -y -ff -q theirs")
    pair.server.journal.extend(kept)
    await pair.tear_down()


@guests
async def test_a_snapshot_copies_each_chunk_before_it_is_first_written_and_the_next_trial_has_a_new_one(
    pair: Pair,
) -> None:
    """What is written underneath by 32 writes of 4k, each to 64k of its own."""
    apart = ("--zonemode=strided", "--zonesize=4k", "--zonerange=64k", "--end_fsync=1")

    async def wrote(made: Made) -> float:
        return sum(each for _, each in await made.moved(made.write(32, *apart, rw="write"))) / (32 * 4096)

    for chunk, least, most in (("4k", 2, 3.5), ("64k", 17, 34)):  # a copy, and up to a chunk of what is known of it
        snapshots = {"size": "16M", "chunk": chunk}
        async with volume(pair, count=1, size="32M", snapshots=snapshots) as made:
            assert await wrote(made) < 1.5
            for _ in range(2):
                assert [*await made.layer.midway(made.disks[0], made.context)] == [["true"]]
                table = await pair.server.output("dmsetup table --target snapshot")
                assert table.count(" snapshot ") == 1 and table.endswith(f" {parse_size(chunk) // 512}")
                assert least <= await wrote(made) <= most
                assert await wrote(made) < 1.5, "they are copied by now"


@guests
async def test_snapshots_of_a_thin_volume_are_taken_by_the_command_that_is_to_run_midway(pair: Pair) -> None:
    snapshots = {"after": "5s", "count": 2}
    async with volume(pair, count=1, type="thin", size="16M", thin={"zero": False}, snapshots=snapshots) as made:
        await pair.server.output(made.write(4096, "--end_fsync=1", rw="write"))
        (command,) = await made.layer.midway(made.disks[0], made.context)
        assert made.layer.moments() == (5,) and SNAPSHOT not in str(await made.now())
        await pair.server.node.run(command)
        assert [name for name, each in (await made.now()).items() if each.get("origin") == "data"] == [
            f"{SNAPSHOT}0",
            f"{SNAPSHOT}1",
        ]
        moved = await made.moved(made.write(64, "--zonemode=strided", "--zonesize=4k", "--zonerange=64k", rw="write"))
        assert moved[0][1] >= 64 * 64 * 1024, "a chunk that is shared is copied"
        await pair.server.output(f"dmsetup suspend {made.volume.path}")  # as a command that is killed leaves it
        (name,) = {entry[1]["name"] for entry in pair.server.journal if entry[0] == "lvm.resume"}
        assert await resume_group(pair.server.node, name=name) == f"resumed volumes of {name}"
        assert await resume_group(pair.server.node, name=name) is None


@guests
async def test_a_set_up_that_is_killed_at_any_step_leaves_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    words = Lvm.words
    for wait in (0.02, 0.1, 0.2, 0.4, 0.7, 1.1):
        for keys in ({"type": "raid5"}, {"type": "thin", "snapshots": {}}):
            monkeypatch.setattr(
                Lvm, "words", lambda self, *own, w=wait: ["timeout", "-s", "KILL", str(w), *words(self, *own)]
            )
            with suppress(CommandFailed, ValueError):
                async with volume(pair, count=3, each="32M", **keys):
                    pass
            monkeypatch.undo()


@guests
async def test_a_volume_lies_on_an_encrypted_array_and_a_file_system_on_the_volume(pair: Pair) -> None:
    server = pair.server
    async with pair.left_clean(f"{NOTHING}; ls -d /sys/block/md[0-9]* 2> /dev/null; true"):
        disks = await pair.disks("400M", "400M")
        md, crypt, lvm, mkfs, mount = parse(
            [
                {"layer": "md", "level": "1", "disks": ["d"]},
                {"layer": "crypt"},
                {"layer": "lvm", "size": "320M", "snapshots": {"size": "16M"}},
                {"layer": "mkfs", "type": "xfs"},
                {"layer": "mount"},
            ]
        )
        contexts = [replace(server.context(at), others={"d": disks}) for at in range(2, 7)]
        built = await stack.set_up([md, crypt, lvm, mkfs, mount], lambda at: contexts[at])
        await built.read_facts()
        assert built.facts[2]["volumes"]["data"]["type"] == "linear"
        assert isinstance(built.resource, Dir)
        await server.output(f"echo before > {built.resource.path}/a")
        await built.midway()
        assert "snapshot-origin" in await server.output("dmsetup table")
        await server.output(f"echo after > {built.resource.path}/a && sync")


@guests
async def test_a_disk_over_the_network_has_a_cache_on_a_local_one(pair: Pair) -> None:
    served = ({"layer": "file", "size": "64M"}, {"layer": "loop"}, {"layer": "nbd-export"}, {"layer": "nbd"})
    client = pair.client
    try:
        crossed = await pair.set_up(*served)
        fast = await stack.set_up(parse(served[:2]), lambda at: client.context(at, "fast"))
        layer = parse([{"layer": "lvm", "cache": {"disks": ["f"], "kind": "writecache"}}])[0]
        assert isinstance(fast.resource, Disk)
        context = replace(client.context(4), others={"f": [fast.resource]})
        made = await layer.set_up(crossed.resource, context)
        assert (await layer.facts(made, context))["volumes"]["data"]["type"] == "writecache"
        stats = f"cat /sys/block/{fast.resource.name}/stat"
        before = (await client.output(stats)).split()
        await client.output(f"dd if=/dev/zero of={made.path} bs=4k count=256 oflag=direct 2> /dev/null")
        assert int((await client.output(stats)).split()[6]) - int(before[6]) >= 256 * 8
    finally:
        await pair.tear_down()
    assert await client.output(NOTHING) == ""


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"report": []}', '{"report": [{"lv": [{"vg": 1}]}]}', '{"report": [{}]}']
)
def test_what_is_no_report_of_lvs_makes_no_sense(text: str) -> None:
    with pytest.raises(ValueError, match="lvs printed no report"):
        parse_lvs(text)
    row = '{"lv_name":"[data_rimage_0]", "segtype":"linear", "lv_size":"4096", "chunk_size":"0", "zero":"unknown"}'
    assert parse_lvs(f'{{"report": [{{"lv": [{row}]}}]}}') == {"data_rimage_0": {"type": "linear", "size": 4096}}
