"""What tools and sysfs say of devices and file systems: golden output of real ones, and rubbish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.layers.block.loop import parse_losetup
from storlab.layers.block.queue import parse_queue
from storlab.layers.fs.mkfs import own_types, parse_dump_super, parse_dumpe2fs, parse_xfs_info
from storlab.layers.fs.mount import parse_mountinfo

GOLDEN = Path(__file__).parent / "golden"


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
    facts = parse_queue(golden("queue.txt"))
    assert facts["logical_block_size"] == 4096
    assert facts["scheduler"] == "none"
    assert facts["write_cache"] == "write back"
    assert len(facts) == len(golden("queue.txt").splitlines())


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


def test_losetup_gives_names_with_blanks_and_says_which_files_are_gone() -> None:
    found = parse_losetup((GOLDEN / "losetup.json").read_bytes())
    assert found == [("/dev/loop1", "/srv/a disk/g.img"), ("/dev/loop0", "/var/tmp/file.img (deleted)")]
    assert parse_losetup(b"") == []


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
    "queue.txt": parse_queue,
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
