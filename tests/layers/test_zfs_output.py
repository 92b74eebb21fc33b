"""What ZFS says of itself: golden output of a real pool, rubbish, and fields that can't go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from storlab.layers.resources import Dir, Disk
from storlab.layers.stack import type_errors
from storlab.layers.zfs.module import parse_parameters, parse_version
from storlab.layers.zfs.pool import is_only_member, parse_layout
from storlab.layers.zfs.properties import parse_changed, parse_properties

from .sites import parse

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


def test_properties_are_numbers_where_they_are_numbers() -> None:
    volume = parse_properties(golden("zfs_get.txt"))
    assert (volume["volsize"], volume["volblocksize"], volume["sync"]) == (67108864, 4096, "disabled")
    assert volume["origin"].endswith("@base")
    assert isinstance(volume["guid"], str)  # 64 bits, of which JSON's readers know 53
    pool = parse_properties(golden("zpool_get.txt"))
    assert (pool["ashift"], pool["cachefile"], pool["health"]) == (12, "none", "ONLINE")
    assert "comment" not in pool


def test_what_was_set_is_told_from_what_is_so_by_default() -> None:
    assert parse_changed(golden("zfs_get.txt")) == ["sync", "volsize"]
    assert parse_changed(golden("zpool_get.txt")) == ["ashift", "cachefile"]


def test_parameters_and_versions() -> None:
    parameters = parse_parameters(golden("zfs_parameters.txt"))
    assert parameters["zfs_txg_timeout"] == 7
    assert len(parameters) > 300
    version = parse_version(golden("zfs_version.txt"))
    assert version["programs"].startswith("2.3.2")
    assert version["module"].startswith("2.3.2")


def test_the_layout_of_a_pool_is_a_tree() -> None:
    ((mirror, disks),) = parse_layout(golden("zpool_status.txt")).items()
    assert mirror == "mirror-0"
    assert list(disks.values()) == ["ONLINE", "ONLINE"]
    assert all(path.startswith("/var/tmp/storlab-") for path in disks)


STATUS = """  pool: p
 state: DEGRADED
config:

\tNAME             STATE     READ WRITE CKSUM
\tp                DEGRADED     0     0     0
\t  mirror-0       DEGRADED     0     0     0
\t    /a b/0.img   ONLINE       0     0     0
\t    /a b/1.img   FAULTED      0     0     0  too many errors
\t  mirror-1       ONLINE       0     0     0
\t    spare-0      ONLINE       0     0     0
\t      /c         ONLINE       0     0     0
\t      /d         ONLINE       0     0     0
\tlogs
\t  /log           ONLINE       0     0     0
\tspares
\t  /e             AVAIL

errors: No known data errors
"""


def test_logs_and_spares_are_in_the_layout_too() -> None:
    assert parse_layout(STATUS) == {
        "mirror-0": {"/a b/0.img": "ONLINE", "/a b/1.img": "FAULTED"},
        "mirror-1": {"spare-0": {"/c": "ONLINE", "/d": "ONLINE"}},
        "logs": {"/log": "ONLINE"},
        "spares": {"/e": "AVAIL"},
    }


PARSERS: dict[str, Callable[[str], Any]] = {
    "zfs_get.txt": parse_properties,
    "zpool_get.txt": parse_changed,
    "zfs_parameters.txt": parse_parameters,
    "zfs_version.txt": parse_version,
    "zpool_status.txt": parse_layout,
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


def test_a_device_is_wiped_only_where_all_labels_are_of_storlabs_own_pool() -> None:
    ours = b'{"type": "zfs_member", "label": "p"}'
    assert is_only_member(b'{"signatures": [%b, %b]}' % (ours, ours), "p")
    assert not is_only_member(b'{"signatures": [%b]}' % ours, "q")
    assert not is_only_member(b'{"signatures": [%b, {"type": "zfs_member", "label": "q"}]}' % ours, "p")
    assert not is_only_member(b'{"signatures": [{"type": "ext4", "label": "p"}]}', "p")
    assert not is_only_member(b"", "p")


WRONG: list[tuple[Mapping[str, Any], str]] = [
    ({"layer": "zpool", "layout": "raid5", "size": "1G"}, "raid5 is no layout: stripe, mirror"),
    ({"layer": "zpool", "layout": "mirror", "disks": 1}, "a mirror needs at least 2 disks, not 1"),
    ({"layer": "zpool", "layout": "draid1"}, "a dRAID needs the number of its disks"),
    ({"layer": "zpool", "size": "32M"}, "ZFS needs disks of at least 64M"),
    ({"layer": "zpool", "module": {"../x": 1}}, "not a valid name of a parameter"),
    ({"layer": "zpool", "properties": {"ashift": 12}}, "use the key ashift"),
    ({"layer": "zpool", "properties": {"cachefile": "/a"}}, "cachefile can't be given here: Storlab sets it"),
    ({"layer": "zpool", "dataset": {"mountpoint": "/a"}}, "mountpoint can't be given here: Storlab sets it"),
    ({"layer": "zvol"}, 'it needs a size, such as size = "4G", or a base'),
    ({"layer": "zvol", "size": "1M", "base": {"size": "2M"}}, r"is less than the base's \(2M\)"),
    ({"layer": "zvol", "size": "1M", "volblocksize": "3k"}, "a power of two from 512 to 16M"),
    ({"layer": "zvol", "size": 5000}, "is no multiple of the blocks of 512"),
    ({"layer": "zvol", "size": "1M", "properties": {"sync": "always"}}, "sync has a key of its own"),
    ({"layer": "zvol", "size": "1M", "properties": {"volsize": 1}}, "volsize can't be given here"),
    ({"layer": "zfs", "properties": {"recordsize": "1M"}}, "recordsize has a key of its own"),
    ({"layer": "zfs", "properties": {"mountpoint": "/a"}}, "mountpoint can't be given here"),
]


@pytest.mark.parametrize(("layer", "message"), WRONG)
def test_what_can_not_be_is_refused_with_its_reason(layer: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parse([layer])


def test_stacks_of_zfs_are_checked_like_all_others() -> None:
    pool = {"layer": "zpool", "size": "1G"}
    file = {"layer": "file", "size": "1G"}
    volume = {"layer": "zvol", "size": "512M"}
    assert type_errors(parse([pool, volume]), [Disk]) == []
    assert type_errors(parse([file, {"layer": "zpool"}, {"layer": "zfs"}]), [Dir]) == []
    wrong = [
        ([{"layer": "zpool"}, volume], "it needs the size of the files that it makes"),
        ([file, pool, volume], "layer file gives it its one disk, so it takes no size, disks or layout"),
        ([{"layer": "qcow2", "size": "1G"}, {"layer": "zpool"}, volume], "layer qcow2 gives a qcow2 file"),
        ([file, volume], "layer zvol takes a Pool, but layer file gives a File"),
        ([pool], "the stack ends as a Pool, but its workload needs a Disk"),
    ]
    for stack, message in wrong:
        ((_, said),) = type_errors(parse(stack), [Disk])
        assert message in said
