"""Every protocol of network block devices between two real guests: set up, used, with each of its keys, torn down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from storlab.base.errors import Unsupported
from storlab.layers.base import LayerContext
from storlab.layers.net.initiator import appears
from storlab.layers.net.nbd import NbdLayer
from storlab.layers.resources import Disk, Export, File

from .pair import Crossed, Pair, open_shop
from .sites import parse

TARGETS: Mapping[str, str] = {
    "nbd": "nbd-export",
    "iscsi": "iscsi-target",
    "nvme-tcp": "nvme-target",
    "aoe": "aoe-target",
}
FILE = {"layer": "file", "size": "32M"}
LOOP = {"layer": "loop"}
QUEUE = {"scheduler": "none", "nr_requests": 64, "max_sectors_kb": 1024, "read_ahead_kb": 128, "rotational": 0}
"""The same whatever they speak: the kernel's own defaults differ in every one of these."""
SERVED = """
cd /sys/kernel/config; ls -d target/iscsi/iqn* target/core/*_*/storlab* nvmet/subsystems/* nvmet/ports/* 2> /dev/null
pgrep -x "vblade|qemu-nbd|nbd-server|nbdkit|tgtd"; true
"""
USED = """
ls -d /sys/class/nvme/nvme* /sys/class/iscsi_session/* /sys/block/etherd* 2> /dev/null
cat /sys/block/nbd*/pid 2> /dev/null
pgrep -x "iscsid|nbd-client"; true
"""

pytestmark = pytest.mark.needs("guests")
by_protocol = pytest.mark.parametrize("protocol", TARGETS)


shop = pytest.fixture(scope="module")(open_shop)  # emulated guests take a while to boot


def stack(protocol: str, **keys: Any) -> list[Mapping[str, Any]]:
    """A file on the server, a loop device over it, and the two ends of the protocol."""
    return [FILE, LOOP, {"layer": TARGETS[protocol]}, {"layer": protocol, **keys}]


def disk_of(crossed: Crossed, at: int = -1) -> Disk:
    disk = crossed.resources[at]
    assert isinstance(disk, Disk)
    return disk


async def write(pair: Pair, disk: Disk, text: str) -> None:
    await pair.client.output(f"printf '{text}' | dd of={disk.path} bs=4k seek=8 conv=fsync,sync 2> /dev/null")


async def written(pair: Pair, path: str, flags: str = "iflag=direct") -> str:
    """What then lies on the server."""
    read = f"dd if={path} bs=4k skip=8 count=1 {flags} 2> /dev/null | tr -d '\\0'"
    return await pair.server.output(read)


async def verify(pair: Pair, disk: Disk, options: str) -> None:
    """Have fio write blocks and read them back."""
    fio = f"fio --name=x --rw=randrw {options} --direct=1 --ioengine=libaio --iodepth=4 --verify=md5"
    await pair.client.output(f"{fio} --end_fsync=1 --filename={disk.path}")


async def nothing_is_left(pair: Pair) -> None:
    assert await pair.server.output(SERVED) == ""
    assert await pair.client.output(USED) == ""


@asynccontextmanager
async def crossing(pair: Pair, *layers: Mapping[str, Any]) -> AsyncIterator[Crossed]:
    """As ``Pair.crossed``, and nothing of a server or a client is left then."""
    try:
        async with pair.crossed(*layers) as crossed:
            yield crossed
    finally:
        await nothing_is_left(pair)


@by_protocol
async def test_what_is_written_through_it_is_on_the_server_and_twice_nothing_is_left(pair: Pair, protocol: str) -> None:
    for _ in range(2):
        async with crossing(pair, *stack(protocol)) as crossed:
            disk, facts = disk_of(crossed), crossed.fact(protocol)
            assert (disk.size, disk.ours, facts["protocol"]) == (32 * 1024**2, True, protocol)
            assert facts["queue"].items() >= QUEUE.items()
            await verify(pair, disk, "--bs=4k --size=1M")
            await write(pair, disk, f"over {protocol}")
            assert await written(pair, disk_of(crossed, 1).path) == f"over {protocol}"


async def test_a_device_of_nbd_that_another_run_is_about_to_take_is_passed_over(pair: Pair) -> None:
    lock = "for n in $(seq 0 14); do flock --nonblock /dev/nbd$n sleep 600 & done; echo locked; wait"
    client = pair.client
    await client.output("modprobe nbd")
    others = await client.node.start(["sh", "-c", lock])
    assert await others.first_line() == b"locked"
    try:
        async with crossing(pair, *stack("nbd")) as crossed:
            assert disk_of(crossed).path == "/dev/nbd15"
    finally:
        await others.end()


async def test_a_device_of_nbd_that_somebody_took_meanwhile_is_not_taken_for_ones_own(pair: Pair) -> None:
    chosen = NbdLayer._free

    async def first_taken(layer: NbdLayer, context: LayerContext) -> str:
        return "/dev/nbd3" if free.await_count == 1 else await chosen(layer, context)

    client = pair.client
    await client.output("modprobe nbd")
    server = await client.node.start(["nbdkit", "--foreground", "--port=10999", "memory", "32M"])
    connect = "until nbd-client -nonetlink 127.0.0.1 10999 /dev/nbd3 -name ''; do sleep 0.1; done"
    unmarked = ["env", "--ignore-environment", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]  # else it is the run's own
    other = await client.node.start([*unmarked, "sh", "-c", f"{connect}; sleep 600"])
    with mock.patch.object(NbdLayer, "_free", autospec=True, side_effect=first_taken) as free:
        try:
            assert await appears(client.node, "/sys/block/nbd3/pid")
            pid = await client.output("cat /sys/block/nbd3/pid")
            async with pair.crossed(*stack("nbd")) as crossed:
                assert free.await_count == 2 and disk_of(crossed).path != "/dev/nbd3"
            assert await client.output("cat /sys/block/nbd3/pid") == pid
        finally:
            await client.output("nbd-client -d /dev/nbd3")
            await other.end()
            await server.end()
    await nothing_is_left(pair)


@pytest.mark.parametrize("server", ["nbd-server", "nbdkit"])
async def test_other_programs_serve_nbd_over_two_connections_and_are_missed_if_killed(pair: Pair, server: str) -> None:
    target: Mapping[str, Any] = {"layer": "nbd-export", "server": server, "shared": 2}
    async with crossing(pair, FILE, target, {"layer": "nbd", "queues": 2, "give_up": "4s"}) as crossed:
        disk, file, facts = disk_of(crossed), crossed.resources[0], crossed.fact("nbd-export")
        assert isinstance(file, File)
        assert (facts["server"], facts["direct"], facts["transport"]) == (server, False, "inet")
        assert facts["version"]
        assert disk.size == facts["advertised"].get("size", disk.size) == 32 * 1024**2
        assert {"flush", "fua", "trim", "multi"} <= set(facts["advertised"]["flags"])
        assert crossed.fact("nbd")["queue"]["write_cache"] == "write back"
        await write(pair, disk, f"by {server}")
        assert await written(pair, file.path, "") == f"by {server}"
        await pair.server.output(f"pkill -KILL -o -x {server}")
        await pair.server.losing.wait()
        gone = "nbd-server is gone" if server == "nbd-server" else "nbdkit was killed by SIGKILL: no output"
        assert pair.server.lost == [f"node server: {gone}"]
        await crossed.sever()


@pytest.mark.parametrize("server", ["nbd-server", "nbdkit"])
async def test_on_one_machine_other_programs_serve_at_a_socket(pair: Pair, server: str) -> None:
    end = pair.server
    file, target = parse([FILE, {"layer": "nbd-export", "server": server}])
    first, second = (replace(end.context(at), node=replace(end.node, address=None)) for at in (0, 1))
    try:
        export = await target.set_up(await file.set_up(None, first), second)
        assert isinstance(export, Export)
        assert "flush" in (await target.facts(export, second))["advertised"]["flags"]
        uri = f"nbd+unix:///{export.export}?socket={export.server['path']}"
        await end.output(f"qemu-io -f raw -c 'write -P 0x5a 1M 64k' -c flush '{uri}'")
        assert "read 65536/65536" in await end.output(f"qemu-io -f raw -c 'read -P 0x5a 1M 64k' '{uri}'")
    finally:
        await end.tear_down()
    await nothing_is_left(pair)


async def test_aoe_with_a_cache_that_nothing_flushes_is_a_warning(pair: Pair) -> None:
    layers: list[Mapping[str, Any]] = [FILE, LOOP, {"layer": "aoe-target", "sync": False}, {"layer": "aoe"}]
    async with crossing(pair, *layers) as crossed:
        assert crossed.fact("aoe-target")["sync"] is False
        (warning,) = pair.client.warnings
        assert warning.endswith("but what server serves has a write cache, which nothing flushes")
        pair.client.warnings.clear()


@by_protocol
async def test_the_disk_has_a_write_cache_only_where_the_one_behind_it_has(pair: Pair, protocol: str) -> None:
    await pair.server.node.run(["modprobe", "loop"])
    for cache in ("write back", "write through"):
        layers = stack(protocol)
        served = await pair.set_up(*layers[:2])
        try:
            loop = served.resource
            assert isinstance(loop, Disk)
            await pair.server.output(f"echo {cache} > /sys/block/{loop.name}/queue/write_cache")
            target = parse([layers[2]])[0]
            export = await target.set_up(loop, pair.server.context(2, "client"))
            initiator = parse([layers[3]])[0]
            context = pair.client.context(3, "client")
            disk = await initiator.set_up(export, context)
            expected = cache if protocol != "aoe" else "write through"
            assert (await initiator.facts(disk, context))["queue"]["write_cache"] == expected
        finally:
            await pair.tear_down()


@by_protocol
async def test_keys_change_what_the_kernel_says_of_the_disk(pair: Pair, protocol: str) -> None:
    keys = {"scheduler": "mq-deadline", "max_sectors": "8k", "read_ahead": "1M", "queue_depth": 16, "give_up": "6s"}
    async with crossing(pair, *stack(protocol, **keys)) as crossed:
        queue = crossed.fact(protocol)["queue"]
        wanted = {"scheduler": "mq-deadline", "nr_requests": 16, "max_sectors_kb": 8, "read_ahead_kb": 1024}
        assert queue.items() >= wanted.items()
        disk = disk_of(crossed)
        # 64 KiB in one go are eight requests of 8 KiB, however they are counted.
        reads = f"awk '{{ print $1 }}' /sys/class/block/{disk.name.replace('/', '!')}/stat"
        before = int(await pair.client.output(reads))
        await pair.client.output(f"dd if={disk.path} of=/dev/null bs=64k count=1 iflag=direct 2> /dev/null")
        assert int(await pair.client.output(reads)) - before == 8


@pytest.mark.parametrize(
    ("protocol", "key", "value", "reason"),
    [
        ("nbd", "queue_depth", 1024, r"1024 does not do for nbd\d: the driver takes at most 128 requests"),
        ("nvme-tcp", "queue_depth", 1024, r"1024 does not do for .*: the driver takes at most \d+ requests"),
        ("aoe", "queue_depth", 1024, r"1024 does not do for .*: the driver takes at most 128 requests"),
        ("iscsi", "max_sectors", "64M", r"64M does not do for sd.: its requests are at most 32767k"),
    ],
)
async def test_what_a_kernel_refuses_is_named(pair: Pair, protocol: str, key: str, value: Any, reason: str) -> None:
    with pytest.raises(Unsupported, match=f"{key} = {reason}"):
        async with crossing(pair, *stack(protocol, **{key: value})):
            pass


async def test_tgt_serves_iscsi_as_the_kernel_does_with_the_settings_asked_for_and_is_missed_if_killed(
    pair: Pair,
) -> None:
    target = {"layer": "iscsi-target", "implementation": "tgt", "max_burst": "64k", "immediate_data": False}
    async with crossing(pair, FILE, LOOP, target, {"layer": "iscsi", "give_up": "4s"}) as crossed:
        disk, served, facts = disk_of(crossed), disk_of(crossed, 1), crossed.fact("iscsi-target")
        assert (facts["server"], facts["direct"], disk.size) == ("tgtd", True, served.size)
        assert facts["limits"]["MaxBurstLength"] == 65536
        assert crossed.fact("iscsi")["session"]["max_burst_len"] == 65536
        assert crossed.fact("iscsi")["session"]["immediate_data"] == 0
        behind = await pair.server.output(f"cat /sys/block/{served.name}/queue/write_cache")
        assert crossed.fact("iscsi")["queue"]["write_cache"] == behind
        await write(pair, disk, "by tgt")
        assert await written(pair, served.path) == "by tgt"
        await pair.server.output("pkill -KILL -x tgtd")
        await pair.server.losing.wait()
        assert pair.server.lost[0].startswith("node server: tgtd was killed by SIGKILL")
        await crossed.sever()


async def test_queues_of_iscsi_are_sessions_that_take_turns(pair: Pair) -> None:
    reads = "for each in /sys/block/sd*; do awk '{ print $1 }' $each/stat; done"
    for keys in ({}, {"max_sectors": "8k", "queue_depth": 16}):
        async with crossing(pair, *stack("iscsi", queues=2, **keys)) as crossed:
            disk, facts = disk_of(crossed), crossed.fact("iscsi")
            assert (facts["sessions"], facts["session"]["state"], facts["queues"]) == (2, "LOGGED_IN", 2)
            assert facts["queue"]["nr_requests"] == keys.get("queue_depth", 64)
            assert facts["queue"]["max_sectors_kb"] == (8 if keys else 1024)
            await verify(pair, disk, "--bs=64k --size=2M")
            each = [int(word) for word in (await pair.client.output(reads)).split()]
            assert len(each) == 2
            assert min(each) > 10, each
            await write(pair, disk, "by two")
            assert await written(pair, disk_of(crossed, 1).path) == "by two"
        assert await pair.client.output("dmsetup ls --noheadings 2> /dev/null | grep storlab; true") == ""
    async with crossing(pair, *stack("iscsi", queues=2, give_up="4s")) as crossed:
        await pair.server.cut()
        said = await pair.client.output(f"dd if={disk_of(crossed).path} of=/dev/null count=1 iflag=direct 2>&1; true")
        assert "error reading" in said
        await crossed.sever()
        await pair.client.tear_down()
        assert await pair.client.output(USED) == ""
