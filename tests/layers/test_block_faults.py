"""What happens when a server is gone: requests fail in time, all can be torn down, and nothing is left."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from storlab.base.errors import TrialError
from storlab.nodes.process import Process

from .pair import SCRATCH, End, Pair, open_shop
from .test_block_protocols import USED, by_protocol, crossing, disk_of, nothing_is_left, stack

GIVE_UP = 4.0  # s
BEYOND = 20.0
CUT = 5.0
SLOW = 15.0  # s that an emulated guest beside others may take for a handful of commands

pytestmark = pytest.mark.needs("guests")

READ = "dd if=%s of=/dev/null bs=4k count=1 skip=%d iflag=direct status=none 2>&1; echo status $?"


shop = pytest.fixture(scope="module")(open_shop)  # emulated guests take a while to boot


async def read(pair: Pair, disk: str, block: int) -> tuple[str, float]:
    """What reading one block says, and how long it takes."""
    began = time.monotonic()
    said = await pair.client.output(READ % (disk, block))
    return said, time.monotonic() - began


async def loss(end: End) -> str:
    """What this end reports as lost, which may take a moment."""
    async with asyncio.timeout(SLOW):
        await end.losing.wait()
    return end.lost[0]


@by_protocol
async def test_over_a_cut_network_a_request_fails_and_the_client_is_torn_down_in_time(
    pair: Pair, protocol: str
) -> None:
    async with crossing(pair, *stack(protocol, give_up=f"{GIVE_UP:g}s")) as crossed:
        assert (await read(pair, disk_of(crossed).path, 0))[0] == "status 0"
        await pair.server.cut()
        said, seconds = await read(pair, disk_of(crossed).path, 1)
        assert "error reading" in said
        assert seconds < GIVE_UP + BEYOND
        reason = await loss(pair.client)
        assert re.fullmatch(r"node client: no answer from node server \([\d.]+\) for \d+\.\d s", reason), reason
        began = time.monotonic()
        await crossed.sever()
        await pair.client.tear_down()
        assert time.monotonic() - began < BEYOND + SLOW
        assert await pair.client.output(USED) == ""


@by_protocol
async def test_an_initiator_that_is_torn_down_after_its_network_was_cut_is_not_stuck(pair: Pair, protocol: str) -> None:
    """The load had ended, so nobody has said that anything is lost."""
    async with crossing(pair, *stack(protocol, give_up=f"{GIVE_UP:g}s")):
        await pair.server.cut()
        began = time.monotonic()
        await pair.client.tear_down()
        assert time.monotonic() - began < GIVE_UP + BEYOND + SLOW
        assert await pair.client.output(USED) == ""


@pytest.mark.parametrize(("protocol", "program"), [("nbd", "qemu-nbd"), ("aoe", "vblade")])
async def test_a_server_that_is_killed_is_named(pair: Pair, protocol: str, program: str) -> None:
    async with crossing(pair, *stack(protocol, give_up=f"{GIVE_UP:g}s")) as crossed:
        await pair.server.output(f"pkill -KILL -x {program}")
        said, seconds = await read(pair, disk_of(crossed).path, 1)
        assert "status 0" not in said
        assert seconds < GIVE_UP + BEYOND
        (reason,) = pair.server.lost
        assert reason.startswith(f"node server: {program} was killed by SIGKILL")
        await crossed.sever()


@pytest.mark.parametrize(("protocol", "usual"), [("nbd", 10809), ("iscsi", 3260), ("nvme-tcp", 4420)])
async def test_a_port_that_somebody_has_is_passed_over(pair: Pair, protocol: str, usual: int) -> None:
    node = pair.server.node
    first = next(port for port in range(usual, 65536) if port not in node.ports._given)
    listen = "import socket, time; s = socket.create_server(('', {0})); print('listens', flush=True); time.sleep(600)"
    taken = await node.start(["python3", "-c", listen.format(first)])
    assert await taken.first_line() == b"listens"
    try:
        async with crossing(pair, *stack(protocol)) as crossed:
            export: Any = crossed.resources[2]
            assert int(export.server["port"]) == first + 1
    finally:
        await taken.end()


@by_protocol
async def test_connecting_to_a_server_that_is_not_there_fails_in_time(pair: Pair, protocol: str) -> None:
    layers: list[Mapping[str, Any]] = stack(protocol, give_up=f"{GIVE_UP:g}s")
    served = await pair.set_up(*layers[:-1])
    try:
        await pair.server.cut()
        began = time.monotonic()
        with pytest.raises(TrialError, match="node client: "):
            await pair.mount(layers[-1], served)
        assert time.monotonic() - began < 30 + BEYOND + SLOW
        await pair.client.tear_down()
        assert await pair.client.output(USED) == ""
    finally:
        await pair.server.cut(up=True)
        await pair.tear_down()
    await nothing_is_left(pair)


async def test_a_target_that_announces_itself_leaves_no_disk_on_a_client_that_had_others_before(pair: Pair) -> None:
    """The driver of AoE makes a disk of whatever it hears, where it listens."""
    async with crossing(pair, *stack("aoe")):
        pass
    async with crossing(pair, *stack("aoe")[:-1]):
        await pair.server.cut()
        await pair.server.cut(up=True)
        await asyncio.sleep(1)
        assert await pair.client.output(USED) == ""


@by_protocol
async def test_a_cut_that_heals_is_reported_and_in_one_that_lasts_severing_lets_a_load_go(
    pair: Pair, protocol: str
) -> None:
    async with crossing(pair, *stack(protocol, give_up="60s")) as crossed:

        async def waits(block: int) -> Process:
            await pair.server.cut()
            return await pair.client.node.start(["sh", "-c", READ % (disk_of(crossed).path, block)])

        load = await waits(1)
        await asyncio.sleep(CUT)
        await pair.server.cut(up=True)
        assert (await load.wait()).stdout == b"status 0\n", "nothing has failed"
        reason = await loss(pair.client)
        found = re.fullmatch(r"node client: node server \([\d.]+\) was unreachable for (\d+\.\d) s", reason)
        assert found is not None, reason
        assert CUT - 2 <= float(found[1]) <= CUT + SLOW
        load = await waits(2)
        began = time.monotonic()
        await crossed.sever()
        await pair.client.tear_down()
        ended = await load.wait()
        assert time.monotonic() - began < BEYOND + SLOW, "it would have waited for a minute"
        assert b"status 0" not in ended.stdout


@pytest.mark.parametrize(
    ("protocol", "switch"),
    [("iscsi", "target/iscsi/iqn*/tpgt_1/enable"), ("nvme-tcp", "nvmet/subsystems/nqn*/namespaces/1/enable")],
)
async def test_a_target_of_the_kernel_that_is_switched_off_is_named(pair: Pair, protocol: str, switch: str) -> None:
    async with crossing(pair, *stack(protocol, give_up=f"{GIVE_UP:g}s")) as crossed:
        await pair.server.output(f"echo 0 > $(echo /sys/kernel/config/{switch})")
        reason = await loss(pair.server)
        assert re.fullmatch(r"node server: the kernel's \S+ target \S+ does not serve any more", reason)
        await crossed.sever()


@by_protocol
async def test_a_file_is_served_too_and_writes_fail_once_its_file_system_is_full(pair: Pair, protocol: str) -> None:
    file = {"layer": "file", "size": "16M", "overcommit": True}
    write = "dd if=/dev/zero of=%s bs=64k count=%d seek=%d oflag=direct conv=fsync status=none 2>&1; echo status $?"
    below = str(Path(SCRATCH).parent)
    await pair.server.output(f"mount -t tmpfs -o size=8m none {below} && mkdir {SCRATCH}")
    try:
        async with crossing(pair, file, *stack(protocol)[2:]) as crossed:
            path = disk_of(crossed).path
            assert await pair.client.output(write % (path, 16, 8)) == "status 0"
            began = time.monotonic()
            said = await pair.client.output(write % (path, 192, 32))
            assert "error" in said
            assert "status 0" not in said
            assert time.monotonic() - began < BEYOND + SLOW
            assert pair.client.lost == []
    finally:
        await pair.server.output(f"umount {below}")
