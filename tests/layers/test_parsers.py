"""What tools and sysfs say of devices and file systems: golden output of real ones, and rubbish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.odd_files import bounded
from storlab.errors import ParseError
from storlab.layers.block.loop import signatures
from storlab.layers.block.queue import parse_queue
from storlab.layers.fs.mkfs import own_types, parse_dump_super, parse_dumpe2fs, parse_xfs_info
from storlab.layers.fs.mount import parse_mountinfo
from storlab.layers.image.base import parse_image_info
from storlab.layers.zfs.pool import parse_layout
from storlab.workloads.fio.options import in_job_file

GOLDEN = Path(__file__).parent / "golden"


QUEUE = {
    "logical_block_size": "4096",
    "physical_block_size": "4096",
    "minimum_io_size": "4096",
    "optimal_io_size": "0",
    "max_sectors_kb": "1280",
    "nr_requests": "128",
    "scheduler": "[none] mq-deadline kyber bfq ",
    "rotational": "1",
    "write_cache": "write back",
    "fua": "0",
    "discard_granularity": "4096",
    "read_ahead_kb": "2560",
}
"""What the files of a loop device's queue say."""


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


def test_mountinfo_gives_every_mount_with_its_real_path() -> None:
    text = golden("mountinfo.txt")
    mounts = parse_mountinfo(text)
    assert len(mounts) == len(text.splitlines())
    last = mounts[-1]
    assert (last.device, last.path, last.filesystem, last.source) == ("7:1", "/srv/m nt", "xfs", "/dev/loop1")
    assert last.options == "rw,noatime,inode64,logbufs=8,logbsize=32k,noquota"


def test_mountinfo_knows_the_fields_that_some_lines_have_more_of() -> None:
    line = r"36 35 98:0 /mnt1 /mnt2\040\011\012\134x rw,noatime master:1 propagate_from:2"
    (mount,) = parse_mountinfo(f"{line} - ext3 /dev/root rw,errors=continue")
    assert mount.path == "/mnt2 \t\n\\x"
    assert (mount.filesystem, mount.source, mount.options) == ("ext3", "/dev/root", "rw,noatime,errors=continue")


def test_queue_settings_are_numbers_where_they_are_numbers_and_the_scheduler_is_the_one_in_use() -> None:
    facts = parse_queue(QUEUE)
    assert facts["logical_block_size"] == 4096
    assert facts["scheduler"] == "none"
    assert facts["write_cache"] == "write back"
    assert len(facts) == len(QUEUE)


def test_dumpe2fs_gives_every_field_of_the_superblock() -> None:
    facts = parse_dumpe2fs(golden("dumpe2fs.txt"))
    assert facts["Block size"] == "4096"
    assert facts["Cluster size"] == "16384"
    assert "bigalloc" in facts["Filesystem features"].split()


def test_xfs_info_gives_fields_with_their_section() -> None:
    facts = parse_xfs_info(golden("xfs_info.txt"))
    assert facts["meta-data.sectsz"] == "4096"
    assert facts["meta-data.reflink"] == "1"
    assert facts["data.bsize"] == "4096"
    assert facts["data.blocks"] == "102400"
    assert facts["log.blocks"] == "16384"
    assert facts["realtime.rtextents"] == "0"


def test_dump_super_gives_every_field_of_the_superblock() -> None:
    facts = parse_dump_super(golden("dump_super.txt"))
    assert facts["nodesize"] == "16384"
    assert facts["sectorsize"] == "4096"
    assert facts["incompat_flags"] == "0x341"


@pytest.mark.parametrize("said", [b"x", b"[]", b"5", b'{"signatures": [5], "loopdevices": [5]}', b"[" * 9999, b"\xff"])
@pytest.mark.parametrize("parse", [signatures, parse_image_info])
def test_json_of_a_tool_that_makes_no_sense_is_refused(parse: Callable[[bytes], Any], said: bytes) -> None:
    with pytest.raises(ParseError, match="printed makes no sense"):
        parse(said)


def test_words_and_blanks_without_end_take_no_longer_than_they_must() -> None:
    long, blank_lines = "x" * 200_000, "\n" * 200_000
    with bounded(10):
        assert parse_xfs_info(f"data = bsize=4096 {long}\n") == {"data.bsize": "4096"}
        assert parse_layout(f"config:\n\n\tp{' ' * 200_000}x\n\t  /a  ONLINE\n") == {"/a": "ONLINE"}
        lines = in_job_file(f"{blank_lines}filename = a \n", lambda value: f"/x/{value}")
    assert lines == f"{blank_lines}filename = /x/a \n"


def test_a_number_of_many_digits_stays_text() -> None:
    assert parse_queue({"nr_requests": "9" * 5000}) == {"nr_requests": "9" * 5000}


def test_only_signatures_that_are_all_of_storlabs_own_file_system_are_wiped() -> None:
    listing = (
        b'{"signatures": [{"type": "ext4", "uuid": "a"}, {"type": "dos", "uuid": null}, {"type": "xfs", "uuid": "b"}]}'
    )
    assert own_types(listing, "a") == ["ext4"]
    assert own_types(listing, "b") == ["xfs"]
    assert own_types(listing, "c") == []
    assert own_types(b'{"signatures": [{"type": "btrfs", "uuid": "a"}, {"type": "btrfs", "uuid": "b"}]}', "a") == []
    assert own_types(b"", "a") == []


PARSERS: dict[str, Callable[[str], Any]] = {
    "mountinfo.txt": parse_mountinfo,
    "dumpe2fs.txt": parse_dumpe2fs,
    "xfs_info.txt": parse_xfs_info,
    "dump_super.txt": parse_dump_super,
}


@pytest.mark.parametrize("name", PARSERS)
@given(text=st.text(), places=st.lists(st.tuples(st.integers(0), st.integers(0, 40)), max_size=5))
def test_no_text_and_no_damage_is_an_exception(name: str, text: str, places: list[tuple[int, int]]) -> None:
    PARSERS[name](text)
    damaged = golden(name)
    for place, length in places:
        at = place % (len(damaged) + 1)
        damaged = damaged[:at] + text[:3] + damaged[at + length :]
    PARSERS[name](damaged)
