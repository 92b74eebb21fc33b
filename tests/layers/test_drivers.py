"""Disks that drivers make of memory: in a real guest, and zram here as well; and what needs more of a kernel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from laboratory.devices import sh
from storlab.base.errors import StorlabError, Unsupported
from storlab.layers import stack
from storlab.layers.block.drivers import remove_null_blk, remove_zram, unload_scsi_debug
from storlab.layers.resources import Dir, Disk, Resource

from .pair import Pair, open_shop
from .sites import RUN, Ground, parse

shop = pytest.fixture(scope="module")(open_shop)
guests = pytest.mark.needs("guests")
NOTHING = "ls -d /sys/block/zram* /sys/block/storlab* /sys/module/scsi_debug /sys/kernel/config/nullb/* 2> /dev/null"


async def nothing_is_left(pair: Pair) -> None:
    left = await pair.server.output(f"{NOTHING}; true")
    assert left in ("", "/sys/kernel/config/nullb/features"), left


@guests
@pytest.mark.parametrize(
    ("keys", "driver", "queue"),
    [
        (
            {"layer": "null-blk", "size": "128M", "sector_size": "4k", "latency": "10ms", "depth": 8},
            {"memory_backed": 1, "completion_nsec": 10_000_000, "irqmode": 2, "hw_queue_depth": 8},
            {"logical_block_size": 4096},
        ),
        (
            {"layer": "null-blk", "size": "128M", "bandwidth": "10M", "cache": "16M"},
            {"mbps": 10, "cache_size": 16},
            {"write_cache": "write back"},
        ),
        (
            {"layer": "null-blk", "size": "128M", "zones": {"size": "16M", "conventional": 2, "max_open": 4}},
            {"zoned": 1, "zone_size": 16},
            {"zones": {"zoned": "host-managed", "chunk_sectors": 32768, "nr_zones": 8, "max_open_zones": 4}},
        ),
        (
            {"layer": "scsi-debug", "size": "64M", "sector_size": "4k", "latency": "5ms", "discard": True},
            {"dev_size_mb": 64, "ndelay": 5_000_000, "lbpu": 1},
            {"logical_block_size": 4096},
        ),
        (
            {"layer": "scsi-debug", "size": "64M", "atomic_writes": True},
            {"delay": 0},
            {"atomic_write_unit_min_bytes": 1024},
        ),
        (
            {"layer": "scsi-debug", "size": "128M", "zones": {"size": "16M", "conventional": 2}},
            {"zbc": "managed", "zone_size_mb": 16},
            {"zones": {"zoned": "host-managed", "chunk_sectors": 32768, "nr_zones": 8}},
        ),
        (
            {"layer": "zram", "size": "64M", "algorithm": "zstd", "memory_limit": "16M"},
            None,
            {"algorithm": "zstd", "disksize": 67108864, "memory_limit": 16777216},
        ),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) and "layer" in value else None,
)
async def test_a_disk_is_as_asked_for_and_nothing_of_it_stays(
    pair: Pair, keys: dict[str, Any], driver: Mapping[str, Any] | None, queue: Mapping[str, Any]
) -> None:
    async with pair.crossed(keys) as crossed:
        disk, facts = crossed.resource, crossed.facts[0]
        assert isinstance(disk, Disk) and disk.ours and disk.size == parse([keys])[0].capacity()
        if driver is not None:
            assert {name: facts["driver"].get(name) for name in driver} == driver
        for name, wanted in queue.items():
            found = facts[name]
            assert {key: found.get(key) for key in wanted} == wanted if isinstance(wanted, dict) else found == wanted
        text = f"printf storlab | dd of={disk.path} bs=4k conv=sync,fsync oflag=direct 2> /dev/null"
        await pair.server.output(text)
        read = f"dd if={disk.path} bs=4k count=1 iflag=direct 2> /dev/null | tr -d '\\0'"
        assert await pair.server.output(read) == "storlab"
    await nothing_is_left(pair)


@guests
@pytest.mark.parametrize("keys", [{"queue_mode": "bio"}, {"queues": 64}], ids=lambda keys: next(iter(keys)))
async def test_what_this_driver_would_quietly_change_is_unsupported(pair: Pair, keys: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=r"null_blk does not take it: (queue_mode|submit_queues) is \d, not \d"):
        async with pair.crossed({"layer": "null-blk", "size": "32M", **keys}):
            pass
    await nothing_is_left(pair)


@guests
async def test_a_disk_that_forgets_answers_as_late_as_it_shall_and_no_faster_than_it_may(pair: Pair) -> None:
    late = {"layer": "null-blk", "size": "1024M", "memory": False, "latency": "20ms"}
    slow = {"layer": "null-blk", "size": "1024M", "memory": False, "bandwidth": "8M"}
    fio = "fio --name=x --direct=1 --output-format=json --filename="
    async with pair.crossed(late) as crossed:
        assert isinstance(crossed.resource, Disk)
        words = f"{fio}{crossed.resource.path} --rw=randread --bs=4k --number_ios=10"
        said = json.loads(await pair.server.output(words))["jobs"][0]["read"]
        assert 19e6 < said["clat_ns"]["min"] < said["clat_ns"]["mean"] < 60e6
    async with pair.crossed(slow) as crossed:
        assert isinstance(crossed.resource, Disk)
        words = f"{fio}{crossed.resource.path} --rw=write --bs=64k --size=16M"
        said = json.loads(await pair.server.output(words))["jobs"][0]["write"]
        assert 6e6 < said["bw_bytes"] < 9.5e6
    await nothing_is_left(pair)


@guests
async def test_a_btrfs_is_on_a_zoned_disk_and_an_ext4_is_refused_there(pair: Pair) -> None:
    disk = {"layer": "null-blk", "size": "512M", "zones": {"size": "16M"}}
    keys = {"type": "btrfs", "features": ["zoned"], "data": "single", "metadata": "single"}
    async with pair.crossed(disk, {"layer": "mkfs", **keys}, {"layer": "mount"}) as crossed:
        assert isinstance(crossed.resource, Dir)
        await pair.server.output(f"dd if=/dev/urandom of={crossed.resource.path}/x bs=1M count=4 conv=fsync")
        assert crossed.fact("mkfs")["profiles"]["data"] == "single"
    await nothing_is_left(pair)
    below, ext4 = parse([disk, {"layer": "mkfs", "type": "ext4"}])
    assert "the disk below has zones" in (ext4.check_above(below) or "")


@guests
async def test_what_somebody_else_made_or_uses_stays(pair: Pair) -> None:
    server = pair.server
    await server.output("modprobe scsi_debug dev_size_mb=8")
    try:
        with pytest.raises(Unsupported, match="loaded already"):
            async with pair.crossed({"layer": "scsi-debug", "size": "8M"}):
                pass
        assert await unload_scsi_debug(server.node, run=RUN, nonce="0" * 32) is None
        assert await server.output("ls -d /sys/module/scsi_debug")
    finally:
        await server.output("modprobe -r scsi_debug")
    async with pair.crossed({"layer": "null-blk", "size": "32M"}) as crossed:
        assert isinstance(crossed.resource, Disk)
        path, name = crossed.resource.path, crossed.resource.name
        await server.output(f"mkfs.ext4 -q {path} && mkdir -p /tmp/x && mount {path} /tmp/x")
        with pytest.raises(StorlabError, match="stays"):
            await remove_null_blk(server.node, name=name)
        await server.output("umount /tmp/x")
        add = "cat /sys/class/zram-control/hot_add"
        number = int(await server.output(f"modprobe zram num_devices=0; {add}"))
        sequence = int(await server.output(f"cat /sys/block/zram{number}/diskseq"))
        for wrong, unused in ((sequence + 1, False), (sequence - 1, True)):
            assert await remove_zram(server.node, number=number, sequence=wrong, unused=unused) is None
        await server.output(f"echo 8M > /sys/block/zram{number}/disksize")
        assert await remove_zram(server.node, number=number, sequence=sequence, unused=True) is None
        assert await remove_zram(server.node, number=number, sequence=sequence, unused=False)
    await nothing_is_left(pair)


@guests
async def test_an_xfs_has_the_data_of_its_files_on_a_disk_of_its_own(pair: Pair) -> None:
    sizes = ("320M", "128M", "80M")
    disks = []
    try:
        for number, size in enumerate(sizes):
            below = ({"layer": "file", "size": size}, {"layer": "loop"})
            made = await pair.set_up(*below, owner=f"d{number}")
            disks.append(made.resources[-1])
        others: Mapping[str, list[Resource]] = {"data": [disks[1]], "journal": [disks[2]]}
        keys = {"layer": "mkfs", "type": "xfs", "log": "journal", "realtime": "data"}
        layers = parse([keys, {"layer": "mount"}])
        mounted = await stack.set_up(layers, lambda at: replace(pair.server.context(at + 4), others=others), disks[0])
        await mounted.read_facts()
        facts, folder = mounted.facts[0], mounted.resource
        assert isinstance(folder, Dir) and len(folder.disks) == 3
        assert (facts["realtime.place"], facts["log.place"]) == ("external", "external")
        stat = "awk '{print $7}' /sys/block/%s/stat"
        before = [int(await pair.server.output(stat % name)) for name in folder.disks]
        await pair.server.output(f"dd if=/dev/urandom of={folder.path}/x bs=1M count=8 oflag=direct 2> /dev/null")
        after = [int(await pair.server.output(stat % name)) for name in folder.disks]
        main, _, data = (now - then for now, then in zip(after, before, strict=True))
        assert data == 8 * 2048 and main < 256, "sectors"
    finally:
        await pair.tear_down()


@pytest.mark.needs("root")
def test_a_disk_of_zram_is_removed_here_as_well_and_what_compresses_takes_little(
    runner: asyncio.Runner, ground: Ground
) -> None:
    built = runner.run(ground.set_up({"layer": "zram", "size": "64M", "algorithm": "lz4"}))
    disk = built.resource
    assert isinstance(disk, Disk) and built.facts[0]["algorithm"] == "lz4"
    sh("dd", "if=/dev/zero", f"of={disk.path}", "bs=1M", "count=8", "oflag=direct", "status=none")
    original, compressed, *_ = map(int, sh("cat", f"/sys/block/{disk.name}/mm_stat").split())
    assert compressed <= original // 100
    with pytest.raises(Unsupported, match="no 842, but"):
        runner.run(ground.set_up({"layer": "zram", "size": "64M", "algorithm": "842"}, owner="other"))
    announced = [arguments["unused"] for name, arguments in ground.journal if name == "zram.remove"]
    assert announced == [True, False] * 2
    said = runner.run(ground.tear_down())
    assert said.count(f"removed {disk.name}") == 1 and len(said) == 2
