"""Disks on disks in a real guest: encrypted, slow, cached ones, what they really are, and what stays of them."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from storlab.base.errors import StorlabError, TrialError, Unsupported
from storlab.layers import stack
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import integrity, mapper
from storlab.layers.block.bcache import forget_superblock, stop_set
from storlab.layers.block.identity import identify
from storlab.layers.block.targets import parse_table
from storlab.layers.fs.mkfs import filesystem_uuid
from storlab.layers.resources import Disk, Swap
from storlab.nodes.node import Exit, Node
from storlab.run.recovery.undoing import undo_table

from .pair import Crossed, End, Pair, open_shop
from .sites import RUN, parse

BELOW = ({"layer": "file", "size": "48M"}, {"layer": "loop"})
TEXT = "storlab-was-here"
M = 1024**2
SHOWN = ("type", "key location", "sector size", "flags")

shop = pytest.fixture(scope="module")(open_shop)
guests = pytest.mark.needs("guests")


def disk_of(crossed: Crossed, at: int = -1) -> Disk:
    disk = crossed.resources[at]
    assert isinstance(disk, Disk)
    return disk


async def mapped(pair: Pair) -> str:
    return await pair.server.output(
        "dmsetup ls --noheadings 2> /dev/null | grep -v '^No devices' || true; ls /dev/mapper"
    )


@guests
@pytest.mark.parametrize(
    ("keys", "offset"),
    [
        ({"sector_size": "4k", "read_workqueue": False, "write_workqueue": False, "discards": True}, 32768),
        ({"format": "plain", "cipher": "aes-cbc-essiv:sha256", "key_size": 256, "same_cpu": True}, 0),
    ],
    ids=["luks2", "plain"],
)
async def test_an_encrypted_disk_is_as_asked_for_and_its_key_is_nowhere(
    pair: Pair, keys: dict[str, Any], offset: int
) -> None:
    with mock.patch("secrets.token_bytes", return_value=b"k" * 64):
        made = pair.crossed(*BELOW, {"layer": "crypt", **keys})
        async with made as crossed:
            above, below, facts = disk_of(crossed), disk_of(crossed, 1), crossed.fact("crypt")
            await pair.server.output(
                f"printf {TEXT} | dd of={above.path} bs=4k conv=sync,fsync oflag=direct 2> /dev/null"
            )
            plain = f"dd if={above.path} bs=4k count=1 iflag=direct 2> /dev/null | tr -d '\\0'"
            assert await pair.server.output(plain) == TEXT
            assert await pair.server.output(f"grep -c {TEXT} {below.path} || true") == "0"
            table = (await pair.server.output("dmsetup table --showkeys")).split()
            told = json.dumps([crossed.facts, [list(entry) for entry in pair.server.journal]])
            found = await pair.server.output("grep -rsl kkkkkkkkkkkkkkkk /tmp /run /etc /var 2> /dev/null || true")
    assert (facts["type"], facts["offset"]) == (keys.get("format", "luks2").upper(), f"{offset} sectors")
    assert facts["cipher"] == keys.get("cipher", "aes-xts-plain64") and facts["sector size"] == {"4k": 4096}.get(
        keys.get("sector_size", ""), 512
    )
    wanted = {
        "allow_discards": keys.get("discards", False),
        "no_read_workqueue": not keys.get("read_workqueue", True),
        "no_write_workqueue": not keys.get("write_workqueue", True),
        "same_cpu_crypt": keys.get("same_cpu", False),
    }
    assert {flag for flag in wanted if flag in table} == {flag for flag, there in wanted.items() if there}
    assert above.size == below.size - offset * 512 and above.ours
    assert "kkkk" not in told and found == ""
    assert await mapped(pair) == "control"


@guests
async def test_a_file_system_is_on_an_encrypted_disk_on_a_slow_one(pair: Pair) -> None:
    stack = (
        *BELOW,
        {"layer": "dm", "target": "delay", "reads": "20ms", "flushes": "5ms"},
        {"layer": "crypt"},
        {"layer": "mkfs", "type": "ext4"},
        {"layer": "mount"},
    )
    async with pair.crossed(*stack) as crossed:
        slow = crossed.fact("dm")
        assert {kind: slow[kind] for kind in ("reads", "writes", "flushes")} == {
            "reads": "20 ms",
            "writes": "0 ms",
            "flushes": "5 ms",
        }
        read = (
            "fio --name=x --rw=randread --bs=4k --number_ios=10 --direct=1 --size=16M --output-format=json --filename="
        )
        said = json.loads(await pair.server.output(f"{read}{disk_of(crossed, 2).path}"))
        assert said["jobs"][0]["read"]["clat_ns"]["min"] > 15e6, "the kernel's clock ticks every 4 ms"
    assert await mapped(pair) == "control"


@guests
async def test_what_was_only_announced_and_what_is_gone_needs_no_undoing_and_a_header_goes_with_the_run(
    pair: Pair,
) -> None:
    node, layer = pair.server.node, parse([{"layer": "crypt"}])[0]
    async with pair.crossed(*BELOW) as crossed:
        device = disk_of(crossed)
        users = Disk(node.name, device.path, device.size, ours=False)
        context = pair.server.context(2, "client")
        name = mapper.name_of(context)
        assert await mapper.remove(node, name=name) is None
        await layer.set_up(users, context)
        assert "crypto_LUKS" in await pair.server.output(f"wipefs --noheadings {device.path}")
        assert [entry[0] for entry in pair.server.journal[-2:]] == ["mkfs.forget", "mapper.remove"]
        said = await pair.server.tear_down()
        assert f"removed {name}" in said and any("wiped the signature" in words for words in said)


@guests
async def test_a_cipher_that_the_kernel_lacks_is_unsupported_and_leaves_nothing(pair: Pair) -> None:
    unknown = {"layer": "crypt", "cipher": "aes-nosuch-plain64"}
    with pytest.raises(Unsupported, match="no such encryption here"):
        async with pair.crossed(*BELOW, unknown):
            pass
    assert await mapped(pair) == "control"


def test_layers_of_device_mapper_lie_below_mkfs() -> None:
    (mkfs, crypt, slow) = parse(
        [{"layer": "mkfs", "type": "xfs"}, {"layer": "crypt"}, {"layer": "dm", "target": "delay", "writes": "2ms"}]
    )
    for upper in (crypt, slow):
        ((_, reason),) = stack.type_errors([*parse(BELOW), mkfs, upper], [Disk])
        assert f"write {upper.layer} below mkfs" in reason
    assert (crypt.label(), slow.label()) == ("crypt luks2", "dm delay writes 2ms")


def test_what_cryptsetup_and_dmsetup_print_is_read_and_rubbish_is_nothing() -> None:
    lines = ("  type:    LUKS2", "  sector size:  4096", "  flags:   discards ", "  key location: keyring")
    text = "\n".join(["/dev/mapper/x is active and is in use.", *lines, ""])
    assert mapper.parse_status(text, SHOWN) == {
        "type": "LUKS2",
        "key location": "keyring",
        "sector size": 4096,
        "flags": "discards",
    }
    assert mapper.parse_status("rubbish\n  a\n : b\n", SHOWN) == {}


@pytest.mark.parametrize(
    ("table", "facts"),
    [
        (
            "0 2048 delay 254:0 0 10 254:0 0 20 254:0 0 30\n",
            {"targets": {"delay": 1048576}, "reads": "10 ms", "writes": "20 ms", "flushes": "30 ms"},
        ),
        ("0 8 linear 7:0 0\n8 8 error \n16 8 linear 7:0 16\n", {"targets": {"linear": 8192, "error": 4096}}),
        (
            "0 8 flakey 7:0 0 0 1 1 drop_writes ",
            {"targets": {"flakey": 4096}, "up": "0 s", "down": "1 s", "fault": "drop_writes"},
        ),
        ("0 256 striped 2 128 7:0 0 7:1 0", {"targets": {"striped": 131072}, "stripes": 2, "chunk": 65536}),
        ("", {"targets": {}}),
        ("rubbish\n0 x linear\n", {"targets": {}}),
    ],
)
def test_what_dmsetup_prints_is_read_and_rubbish_is_nothing(table: str, facts: dict[str, Any]) -> None:
    assert parse_table(table) == facts


@contextmanager
def further(pair: Pair, *disks: Disk) -> Iterator[None]:
    """What layers are set up finds these disks in the further chains ``d``, all of them, and ``log``, the last."""
    context = End.context

    def with_others(end: End, *args: Any, **keys: Any) -> LayerContext:
        return replace(context(end, *args, **keys), others={"d": disks, "log": disks[-1:]})

    with mock.patch.object(End, "context", with_others):
        yield


@guests
@pytest.mark.parametrize(
    ("keys", "facts", "size"),
    [
        ({"target": "linear", "start": "8M", "length": "16M"}, {"targets": {"linear": 16 * M}}, 16),
        ({"target": "linear", "disks": ["d"]}, {"targets": {"linear": 96 * M}}, 96),
        (
            {"target": "striped", "disks": ["d"], "chunk": "32k"},
            {"targets": {"striped": 96 * M}, "stripes": 2, "chunk": 32768},
            96,
        ),
        (
            {"target": "flakey", "up": "5s", "down": "1s"},
            {"targets": {"flakey": 48 * M}, "up": "5 s", "fault": "error_reads error_writes"},
            48,
        ),
        ({"target": "log-writes", "log": "log"}, {"targets": {"log-writes": 48 * M}}, 48),
        ({"target": "error"}, {"targets": {"error": 48 * M}}, 48),
        ({"target": "error", "after": "5s"}, {"targets": {"linear": 48 * M}}, 48),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) and "target" in value else None,
)
async def test_a_target_is_as_asked_for(pair: Pair, keys: dict[str, Any], facts: dict[str, Any], size: int) -> None:
    async with left_clean(pair):
        one, two = await disks_for(pair, "48M", "48M")
        with further(pair, one, two):
            made = await stack.set_up(
                parse([{"layer": "dm", **keys}]), lambda at: pair.server.context(2), None if "disks" in keys else one
            )
            await made.read_facts()
        assert isinstance(made.resource, Disk) and made.resource.size == size * M and made.resource.ours
        assert {name: made.facts[0][name] for name in facts} == facts


@guests
@pytest.mark.parametrize(
    ("keys", "written", "read"),
    [
        ({"target": "error", "bad": [{"start": "1M", "length": "4k"}]}, "01", "01"),
        ({"target": "flakey", "up": "0s", "down": "60s", "fault": "error_writes"}, "11", "00"),
        ({"target": "flakey", "up": "0s", "down": "60s", "fault": "drop_writes"}, "00", "00"),
        ({"target": "flakey", "up": "0s", "down": "60s"}, "11", "11"),
    ],
    ids=["bad-sectors", "error-writes", "drop-writes", "errors"],
)
async def test_a_disk_fails_as_it_is_asked_to(pair: Pair, keys: dict[str, Any], written: str, read: str) -> None:
    """Whether writing and reading two blocks fails, the second of which may be a bad one; and what is underneath."""
    async with pair.crossed(*BELOW, {"layer": "dm", **keys}) as crossed:
        write = f"printf {TEXT} | dd of={disk_of(crossed).path} bs=4k conv=sync oflag=direct seek="
        reads = f"dd if={disk_of(crossed).path} bs=4k count=1 iflag=direct of=/dev/null skip="
        tries = (f"{words}{block} 2> /dev/null; printf $?" for words in (write, reads) for block in (0, 256))
        was = await pair.server.output("\n".join(tries))
        below = f"dd if={disk_of(crossed, 1).path} bs=4k count=1 iflag=direct 2> /dev/null | tr -d '\\0'"
        assert await pair.server.output(below) == (TEXT if keys["target"] == "error" else "")
    assert was == written + read


@guests
async def test_a_fault_begins_and_ends_while_loads_run_and_each_trial_begins_without_it(pair: Pair) -> None:
    keys = {"layer": "dm", "target": "error", "after": "2s", "lasts": "1s"}
    async with pair.crossed(*BELOW, keys) as crossed:
        layer, context, disk = crossed.layers[2], crossed.contexts[2], disk_of(crossed).path
        assert layer.moments() == (2, 3)
        reads = f"dd if={disk} bs=4k count=1 iflag=direct > /dev/null 2>&1; echo $?"
        first, second = await layer.midway(crossed.resources[1], context)
        found = [await pair.server.output(reads)]
        await pair.server.node.run(first)
        found.append(await pair.server.output(reads))
        assert [*await layer.midway(crossed.resources[1], context)] == [first, second]
        found.append(await pair.server.output(reads))
        await pair.server.node.run(first)
        await pair.server.node.run(second)
        found.append(await pair.server.output(reads))
    assert found == ["0", "1", "0", "0"]


@guests
@pytest.mark.parametrize("left", ["dmsetup create --notable $name", "dmsetup suspend $made", "dmsetup load $made"])
async def test_what_a_kill_leaves_is_removed(pair: Pair, left: str) -> None:
    """A mapping without a table, one that is suspended with a request waiting in it, one with a second table."""
    async with pair.crossed(*BELOW, {"layer": "dm", "target": "delay", "reads": "5ms"}) as crossed:
        made, other = mapper.name_of(crossed.contexts[2]), mapper.name_of(replace(crossed.contexts[2], position=7))
        script = f"export DM_DISABLE_UDEV=1 made={made} name={other}; echo 0 8 error | {left}"
        await pair.server.output(
            f"{script}; dd if={disk_of(crossed).path} of=/dev/null count=1 iflag=direct 2> /dev/null &"
        )
        await mapper.remove(pair.server.node, name=other)
    assert await mapped(pair) == "control"


CACHED = "ls -d /sys/fs/bcache/*-* /sys/block/bcache* 2> /dev/null; true"


async def set_up(pair: Pair, keys: Mapping[str, Any], *disks: Disk) -> tuple[Layer, Any, LayerContext]:
    """A layer on the first of these disks, and with those after it as further ones."""
    (layer,) = parse([keys])
    with further(pair, *disks[1:]):
        context = pair.server.context(2, "client")
    made = await layer.set_up(disks[0], context)
    assert isinstance(made, Disk | Swap)
    return layer, made, context


@asynccontextmanager
async def left_clean(pair: Pair) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await pair.tear_down()
    assert (await mapped(pair), await pair.server.output(CACHED)) == ("control", "")


async def disks_for(pair: Pair, *sizes: str, ours: bool = True) -> list[Disk]:
    stacks = [({"layer": "file", "size": size}, {"layer": "loop"}) for size in sizes]
    made = [(await pair.set_up(*each, owner=f"disk{at}")).resources[-1] for at, each in enumerate(stacks)]
    return [replace(disk, ours=ours) for disk in made if isinstance(disk, Disk)]


async def sectors(pair: Pair, *disks: Disk) -> list[int]:
    """Read from and written to each of them so far."""
    await pair.server.output("sync")
    stats = " ".join(f"/sys/block/{disk.name}/stat" for disk in disks)
    lines = [line.split() for line in (await pair.server.output(f"cat {stats}")).splitlines()]
    return [int(line[at]) for line in lines for at in (2, 6)]


@guests
@pytest.mark.parametrize("mode", ["writethrough", "writeback", "writearound", "none"])
async def test_a_cache_takes_what_its_mode_says(pair: Pair, mode: str) -> None:
    async with left_clean(pair):
        backing, cache = await disks_for(pair, "64M", "48M")
        keys = {"layer": "bcache", "cache": "d", "mode": mode, "bucket": "64k", "sequential_cutoff": 0}
        layer, made, context = await set_up(pair, keys, backing, cache)
        facts = await layer.facts(made, context)
        wanted = {"cache_mode": mode, "sequential_cutoff": "0.0k", "writeback_percent": 10, "bucket_size": "64.0k"}
        assert {name: facts[name] for name in wanted} == wanted

        async def underneath(words: str) -> tuple[int, ...]:
            """Hundreds of sectors that are read and written below, on the disk and on its cache, for 512 of 4k each."""
            before = await sectors(pair, backing, cache)
            await pair.server.output(f"fio --name=x --filename={made.path} --bs=4k --size=2M --direct=1 --{words}")
            after = await sectors(pair, backing, cache)
            return tuple(round((now - then) / 4096) for now, then in zip(after, before, strict=True))

        written = {"writeback": (0, 1), "writethrough": (1, 1)}.get(mode, (1, 0))
        assert (await underneath("rw=randwrite"))[1::2] == written
        await underneath("rw=randread")
        assert (await underneath("rw=randread"))[::2] == ((1, 0) if mode == "none" else (0, 1))


@guests
@pytest.mark.parametrize("registered", [0, 1], ids=["disk", "cache"])
async def test_a_cache_of_which_the_kernel_knows_half_is_stopped_by_its_uuid_alone(pair: Pair, registered: int) -> None:
    async with left_clean(pair):
        disks, nonce, node = await disks_for(pair, "64M", "48M", ours=False), "1" * 32, pair.server.node
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
    async with left_clean(pair):
        backing, cache = await disks_for(pair, "64M", "48M", ours=False)
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
    async with left_clean(pair):
        below, further = await disks_for(pair, "48M", "16M")
        layer, made, context = await set_up(pair, {"layer": "integrity", **keys}, below, further)
        found = await layer.facts(made, context)
        assert {name: found[name] for name in facts} == facts
        if keys.get("state") != "recalculating":
            assert found.get("recalculated", made.size // 512) == found["size"] == made.size // 512
        before = await sectors(pair, below)
        fio = "fio --name=x --rw=write --bs=64k --size=8M --direct=1 --end_fsync=1"
        await pair.server.output(f"{fio} --filename={made.path}; sync; sleep 0.5")
        written = ((await sectors(pair, below))[1] - before[1]) / (8 * M / 512)
        assert times - 0.1 < written < times + 0.6
        read = f"dd if={made.path} bs=1M count=8 iflag=direct of=/dev/null 2> /dev/null; echo $?"
        assert await pair.server.output(read) == "0"
        await pair.server.output(f"dd if=/dev/zero of={below.path} bs=1M seek=4 count=12 oflag=direct 2> /dev/null")
        assert await pair.server.output(read) == "1"
        assert (await layer.facts(made, context))["mismatches"] > 0


@guests
async def test_a_mirror_repairs_what_one_of_its_disks_cannot_read(pair: Pair) -> None:
    async with left_clean(pair):
        below = await disks_for(pair, "48M", "48M")
        (checked,) = parse([{"layer": "integrity", "mode": "bitmap"}])
        members = [await checked.set_up(disk, pair.server.context(2, disk.name)) for disk in below]
        (mirror,) = parse([{"layer": "md", "level": "1", "disks": ["d"]}])
        with further(pair, *members):
            made = await mirror.set_up(None, pair.server.context(3))
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
    async with left_clean(pair):
        (below,) = await disks_for(pair, "48M", ours=False)
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
    async with left_clean(pair):
        disks = await disks_for(pair, "24M", "16M", ours=False)
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
    layers = [*BELOW, {"layer": "verity", "data": "16M"}, {"layer": "crypt"}]
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

    async with left_clean(pair):
        found = await disks_for(pair, "48M", "40M", ours=False)
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
            assert (await mapped(pair), await pair.server.output(f"{'; '.join(stays)}; {CACHED}")) == ("control", "")
            if left > 0:  # it took fewer commands
                break
        assert steps > 3
