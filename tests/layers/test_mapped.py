"""Disks of device mapper in a real guest: encrypted and slow ones, what they really are, and what stays of them."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from pydantic import ValidationError

from storlab.base.errors import Unsupported
from storlab.layers.block import mapper
from storlab.layers.block.mapped import CryptLayer, DelayLayer, parse_status, parse_table
from storlab.layers.resources import Disk

from .pair import Crossed, Pair, open_shop
from .sites import parse

BELOW = ({"layer": "file", "size": "48M"}, {"layer": "loop"})
TEXT = "storlab-was-here"

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
        {"layer": "delay", "reads": "20ms", "flushes": "5ms"},
        {"layer": "crypt"},
        {"layer": "mkfs", "type": "ext4"},
        {"layer": "mount"},
    )
    async with pair.crossed(*stack) as crossed:
        slow = crossed.fact("delay")
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


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"cipher": "rot13"}, "write cipher-mode-IV"),
        ({"cipher": "aes-xts-plain64 --key-file=/etc/shadow"}, "write cipher-mode-IV"),
        ({"sector_size": "8k"}, "sector size"),
        ({"key_size": 100}, "Input should be"),
    ],
)
def test_what_no_encryption_is_like_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CryptLayer.model_validate({"layer": "crypt", **keys})


def test_delays_are_whole_milliseconds_and_both_layers_lie_below_mkfs() -> None:
    with pytest.raises(ValidationError, match=r"whole milliseconds, not by 1\.5 ms"):
        DelayLayer.model_validate({"layer": "delay", "reads": "1500us"})
    (mkfs, crypt, delay) = parse(
        [{"layer": "mkfs", "type": "xfs"}, {"layer": "crypt"}, {"layer": "delay", "writes": "2ms"}]
    )
    assert crypt.check_above(mkfs) and delay.check_above(mkfs)
    assert (crypt.label(), delay.label()) == ("crypt luks2", "delay writes 2ms")


def test_what_cryptsetup_and_dmsetup_print_is_read_and_rubbish_is_nothing() -> None:
    lines = ("  type:    LUKS2", "  sector size:  4096", "  flags:   discards ", "  key location: keyring")
    text = "\n".join(["/dev/mapper/x is active and is in use.", *lines, ""])
    assert parse_status(text) == {
        "type": "LUKS2",
        "key location": "keyring",
        "sector size": 4096,
        "flags": "discards",
    }
    assert parse_status("rubbish\n  a\n : b\n") == {}
    assert parse_table("0 2048 delay 254:0 0 10 254:0 0 20 254:0 0 30\n") == {
        "reads": "10 ms",
        "writes": "20 ms",
        "flushes": "30 ms",
    }
    assert parse_table("") == {}
