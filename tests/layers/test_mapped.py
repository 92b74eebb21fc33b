"""Disks on disks in a real guest: encrypted, slow and failing ones, what they really are, and what stays of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from storlab.base.errors import Unsupported
from storlab.layers import stack
from storlab.layers.block import mapper
from storlab.layers.block.targets import parse_table
from storlab.layers.resources import Disk

from .pair import MAPPED, Crossed, Pair, open_shop
from .sites import parse

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
    assert await pair.server.output(MAPPED) == ""


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
    assert await pair.server.output(MAPPED) == ""


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
    assert await pair.server.output(MAPPED) == ""


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
    async with pair.left_clean(MAPPED):
        one, two = disks = await pair.disks("48M", "48M")
        context = replace(pair.server.context(2), others={"d": disks, "log": [two]})
        made = await stack.set_up(
            parse([{"layer": "dm", **keys}]), lambda at: context, None if "disks" in keys else one
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
    assert await pair.server.output(MAPPED) == ""
