"""Shares between two real guests: what each protocol really gives, and what users see where something goes wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from storlab.base.errors import TrialError, Unsupported
from storlab.layers.resources import Dir, Share
from storlab.layers.server.running import is_taken
from storlab.nodes.node import Node
from storlab.nodes.process import Process

from .pair import SCRATCH, Crossed, End, Pair, open_shop

GIVE_UP = 6.0
BELOW = [{"layer": "file", "size": "96M"}, {"layer": "loop"}, {"layer": "mkfs", "type": "ext4"}, {"layer": "mount"}]
PROTOCOLS: Mapping[str, list[dict[str, Any]]] = {
    "nfs 4.2": [{"layer": "nfs-export"}, {"layer": "nfs"}],
    "nfs 3": [{"layer": "nfs-export", "versions": ["3"]}, {"layer": "nfs", "version": "3"}],
    "smb": [{"layer": "smb-share"}, {"layer": "smb"}],
    "sshfs": [{"layer": "ssh-share"}, {"layer": "sshfs"}],
}
WRITE = "exec dd if=/dev/zero of={path}/load bs=64k count=4000 conv=fsync"
# Cut off, a client of SMB waits 10 s for each few requests that it has to send, and a fast machine has many by then.
WRITE_THROUGH = {"smb": " oflag=dsync"}
KERNEL_SERVERS = "cat /proc/fs/nfsd/threads /sys/class/ksmbd-control/stats 2>/dev/null || true"

pytestmark = pytest.mark.needs("guests")


shop = pytest.fixture(scope="module")(open_shop)  # emulated guests take a while to boot


def stack(protocol: str, server: Mapping[str, Any] | None = None, **client: Any) -> list[Mapping[str, Any]]:
    """All layers of a share, with these keys of what serves and what mounts it."""
    serves, mounts = PROTOCOLS[protocol]
    return [*BELOW, {**serves, **(server or {})}, {**mounts, **client}]


def directory(crossed: Crossed) -> str:
    assert isinstance(crossed.resource, Dir)
    return crossed.resource.path


async def until(end: End, seconds: float) -> str:
    """The first loss that a node reports, within this time."""
    async with asyncio.timeout(seconds):
        await end.losing.wait()
    return end.lost[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_one_node_writes_lies_on_the_other_and_nothing_is_left(pair: Pair, protocol: str) -> None:
    for _ in range(2 if protocol == "nfs 4.2" else 1):
        async with pair.crossed(*stack(protocol)) as crossed:
            path = directory(crossed)
            fio = "fio --name=x --rw=randrw --size=1M --bs=4k --fsync=16 --ioengine=psync --output=/dev/null"
            await pair.client.output(f"cd {path} && {fio}; mkdir sub && mv x.* sub/ && ls sub")
            assert await pair.client.output(f"ls {path}/sub") == "x.0.0"
            assert await pair.server.output(f"find {SCRATCH} -name x.0.0 -size 1024k | wc -l") == "1"
            assert crossed.facts[-1]["read_ahead"] == 128 * 1024, "the same for all"
        assert (pair.server.lost, pair.client.lost) == ([], [])
        assert "running" not in (servers := await pair.server.output(KERNEL_SERVERS))
        assert servers.split()[:1] in (["0"], ["2"], [])


async def test_keys_of_nfs_change_what_both_ends_say(pair: Pair) -> None:
    server = {"threads": 3, "sync": False, "max_block_size": "256K"}
    client = {"version": "3", "nconnect": 2, "rsize": "128K", "wsize": "64K", "actimeo": 7, "read_ahead": "1M"}
    async with pair.crossed(*stack("nfs 4.2", server, **client)) as crossed:
        export, mount = crossed.fact("nfs-export"), crossed.fact("nfs")
        assert (export["threads"], export["max_block_size"]) == (3, 256 * 1024)
        assert "async" in export["export"]
        assert "async" in await pair.server.output("cat /proc/fs/nfsd/exports"), "as the kernel has it, too"
        assert (mount["vers"], mount["connections"], mount["rsize"], mount["wsize"]) == (3, 2, 131072, 65536)
        assert (mount["acregmin"], mount["acregmax"], mount["read_ahead"]) == (7, 7, 1024**2)
        assert (mount["timeo"], mount["retrans"]) == (50, 1), "half of give_up, and once more"
        assert {"softerr", "nosharecache"} <= {*mount["flags"]}


async def test_keys_of_smb_change_what_the_session_has(pair: Pair) -> None:
    client = {"version": "3.0", "cache": "none", "rsize": "64K", "wsize": "128K", "seal": True, "actimeo": 3}
    async with pair.crossed(*stack("smb", {"signing": "mandatory"}, **client)) as crossed:
        mount = crossed.fact("smb")
        assert (mount["dialect"], mount["signed"], mount["encrypted"]) == ("0x300", True, True)
        assert (mount["cache"], mount["rsize"], mount["wsize"], mount["actimeo"]) == ("none", 65536, 131072, 3)
        words = await pair.server.output("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'")
        words += await pair.client.output("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'; cat /proc/mounts")
        password = next(each.access["password"] for each in crossed.resources if isinstance(each, Share))
        assert password not in words
        assert password not in repr(crossed.resources)


async def test_what_the_server_does_not_allow_is_named(pair: Pair) -> None:
    said = r"node client: rsize should be 1048576, but the mount has 65536; its server may allow less"
    with pytest.raises(TrialError, match=said):
        async with pair.crossed(*stack("nfs 4.2", {"max_block_size": "64K"}, rsize="1M")):
            pass
    said = r"node client: can't mount nfs://10\.213\.0\.2:\d+/.* of node server: mount.nfs: .*not supported"
    with pytest.raises(TrialError, match=said):
        async with asyncio.timeout(60), pair.crossed(*stack("nfs 4.2", {"versions": ["3"]})):
            pass


async def until_port(node: Node, port: int, *, taken: bool) -> None:
    for _ in range(600):
        if await is_taken(node, port) == taken:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"port {port} of {node.name}: {'free' if taken else 'taken'} for a minute")


async def test_the_kernel_has_its_own_limit_for_requests_of_nfs_again_afterwards(pair: Pair) -> None:
    server, limit = pair.server, "/proc/fs/nfsd/max_block_size"
    await server.output(f"modprobe nfsd; test -e {limit} || mount -t nfsd nfsd /proc/fs/nfsd; echo 131072 > {limit}")
    async with pair.crossed(*stack("nfs 4.2", {"max_block_size": "64K"})):
        assert await server.output(f"cat {limit}") == "65536"
    assert await server.output(f"cat {limit}") == "131072"


@pytest.mark.parametrize(("protocol", "port"), [("nfs 4.2", 2049), ("smb", 445)])
async def test_a_port_that_somebody_else_has_is_passed_over(pair: Pair, protocol: str, port: int) -> None:
    server = pair.server
    await until_port(server.node, port, taken=False)  # the kernel lets go of an ended share's port in its own time
    free = await server.node.start(["socat", f"TCP-LISTEN:{port},fork,reuseaddr,bind=10.213.0.2", "/dev/null"])
    server.node.ports._given.clear()
    try:
        await until_port(server.node, port, taken=True)
        async with pair.crossed(*stack(protocol)) as crossed:
            (share,) = (each for each in crossed.resources if isinstance(each, Share))
            assert share.port == port + 1
    finally:
        await free.end()


@pytest.mark.parametrize("protocol", ["nfs 4.2", "smb"])
async def test_a_second_share_is_refused_and_the_first_goes_on_until_it_is_full(pair: Pair, protocol: str) -> None:
    file, *above = stack(protocol)
    async with pair.crossed({**file, "size": "24M"}, *above) as crossed:
        with pytest.raises(Unsupported, match=r"node server has an (NFS|SMB) server already.*once = true"):
            await pair.set_up(*stack(protocol), owner="another")
        argv = ["dd", "if=/dev/zero", f"of={directory(crossed)}/big", "bs=1M", "count=50", "conv=fsync"]
        ended = await pair.client.node.run(argv, check=False, timeout=400.0)
        assert "No space left on device" in ended.stderr.decode(), ended


ENDED = {
    "nfs 4.2": ("rpc.nfsd 0", "node server: the kernel's NFS server was stopped"),
    "smb": ("pkill -KILL -x ksmbd.mountd", "node server: ksmbd.mountd was killed by SIGKILL"),
    "sshfs": ("pkill -KILL -o -x sshd", "node server: /usr/sbin/sshd was killed by SIGKILL"),
}


async def writing(pair: Pair, crossed: Crossed, flags: str = "") -> Process:
    """A load whose file the server has by now."""
    load = await pair.client.node.start(["sh", "-c", WRITE.format(path=directory(crossed)) + flags])
    seen = f"until find {SCRATCH} -name load | grep --quiet .; do sleep 0.1; done"
    await pair.server.node.run(["sh", "-c", seen], timeout=60.0)
    return load


@pytest.mark.parametrize("protocol", ENDED)
async def test_a_server_that_ends_is_reported_and_its_mount_can_be_undone(pair: Pair, protocol: str) -> None:
    end, reason = ENDED[protocol]
    async with pair.crossed(*stack(protocol, give_up="6s")) as crossed:
        load = await writing(pair, crossed)
        await pair.server.output(end)
        assert (await until(pair.server, 20.0)).startswith(reason)
        await ends_in_time(crossed, load, 90.0 if protocol == "smb" else 20.0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_cut_network_is_noticed_and_its_mount_let_go_of_in_time(pair: Pair, protocol: str) -> None:
    async with pair.crossed(*stack(protocol, give_up="6s")) as crossed:
        load = await writing(pair, crossed, WRITE_THROUGH.get(protocol, ""))
        await pair.server.cut()
        reason = await until(pair.client, GIVE_UP + 10.0)
        assert reason.startswith("node client: no answer from node server (10.213.0.2) for 6.")
        await ends_in_time(crossed, load, 90.0 if protocol == "smb" else 20.0)


async def test_a_cut_that_heals_is_reported_with_its_length(pair: Pair) -> None:
    async with pair.crossed(*stack("nfs 4.2", give_up="60s")):
        before = time.monotonic()
        await pair.server.cut()
        since = time.monotonic()
        await asyncio.sleep(4.0)
        least = time.monotonic() - since
        await pair.server.cut(up=True)
        most = time.monotonic() - before
        words = (await until(pair.client, 20.0)).split()
        assert " ".join(words[:-2]) == "node client: node server (10.213.0.2) was unreachable for"
        assert least - 1.0 <= float(words[-2]) <= most + 4.0, "until the next answer"


async def test_a_server_that_is_not_reachable_is_given_up_before_anything_is_mounted(pair: Pair) -> None:
    below = await pair.set_up(*stack("nfs 4.2")[:-1])
    await pair.client.cut()
    began = time.monotonic()
    try:
        (layer,) = stack("nfs 4.2", give_up="4s")[-1:]
        with pytest.raises(TrialError, match=r"no answer from node server \(10.213.0.2\) for 4"):
            await pair.mount(layer, below)
        assert time.monotonic() - began < 4 + 20
    finally:
        await pair.client.cut(up=True)
        await pair.tear_down()


async def ends_in_time(crossed: Crossed, load: Process, limit: float) -> None:
    """As a run does once something was lost: it severs, and kills the load.

    Virtual machines are ended instead.
    """
    began = time.monotonic()
    await crossed.sever()
    await load.stop(0.0)
    async with asyncio.timeout(limit):
        await load.wait()
    assert time.monotonic() - began < limit
