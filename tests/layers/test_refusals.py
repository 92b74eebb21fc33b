"""What a layer can't be asked for: each such table of a study is refused with its reason, before anything is made."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from .sites import parse

Refused = tuple[dict[str, Any], str]
"""Keys, and what the refusal says."""

IMAGES: list[tuple[str, dict[str, Any], str]] = [
    ("image-copy", {"base": {}}, "a base has either a size"),
    ("image-copy", {"base": {"size": "1M", "file": "/a"}}, "a base has either a size"),
    ("image-copy", {"base": {"file": "a"}}, "write an absolute path"),
    ("image-copy", {"base": {"file": "/a", "written": "4k"}}, "written is for a base that Storlab makes"),
    ("image-copy", {"base": {"size": "4k", "written": "8k"}}, "is more than the size"),
    ("image-copy", {"base": {"size": 5000}}, "no multiple of 4k"),
    ("image-copy", {"base": {"size": 0}}, "holds nothing"),
    ("image-copy", {"base": {"size": "4M"}, "size": "2M"}, r"size \(2M\) is less than the base's \(4M\)"),
    ("image-clone", {"method": "reflink", "cluster_size": "4k"}, 'cluster_size is an option of method = "qcow2"'),
    ("image-clone", {"cluster_size": "4k", "extended_l2": True}, "needs clusters of at least 16k"),
    ("image-clone", {"cluster_size": "3k"}, "a power of two from 512 to 2M"),
    ("qcow2", {"size": "1M", "cluster_size": "4M"}, "a power of two from 512 to 2M"),
]
ATTACHMENTS: list[Refused] = [
    ({"logical_block_size": "3k"}, "a power of two from 512 to 64k"),
    ({"logical_block_size": "4k", "physical_block_size": "512"}, r"physical_block_size \(512\) is less than"),
    ({"queues": 0}, "greater than or equal to 1"),
    ({"cache": "some"}, "'none', 'writeback'"),
]
THROUGH_THE_CACHE = ({"aio": "native", "cache": "writeback"}, 'aio = "native" needs cache = "none" or "directsync"')
ZFS: list[tuple[str, dict[str, Any], str]] = [
    ("zpool", {"layout": "raid5", "size": "1G"}, "raid5 is no layout: stripe, mirror"),
    ("zpool", {"layout": "mirror", "disks": 1}, "a mirror needs at least 2 disks, not 1"),
    ("zpool", {"layout": "draid1"}, "a dRAID needs the number of its disks"),
    ("zpool", {"size": "32M"}, "ZFS needs disks of at least 64M"),
    ("zpool", {"module": {"../x": 1}}, "not a valid name of a parameter"),
    ("zpool", {"properties": {"ashift": 12}}, "use the key ashift"),
    ("zpool", {"properties": {"cachefile": "/a"}}, "cachefile can't be given here: Storlab sets it"),
    ("zpool", {"dataset": {"mountpoint": "/a"}}, "mountpoint can't be given here: Storlab sets it"),
    ("zvol", {}, 'it needs a size, such as size = "4G", or a base'),
    ("zvol", {"size": "1M", "base": {"size": "2M"}}, r"is less than the base's \(2M\)"),
    ("zvol", {"size": "1M", "volblocksize": "3k"}, "a power of two from 512 to 16M"),
    ("zvol", {"size": 5000}, "is no multiple of the blocks of 512"),
    ("zvol", {"size": "1M", "properties": {"sync": "always"}}, "sync has a key of its own"),
    ("zvol", {"size": "1M", "properties": {"volsize": 1}}, "volsize can't be given here"),
    ("zfs", {"properties": {"recordsize": "1M"}}, "recordsize has a key of its own"),
    ("zfs", {"properties": {"mountpoint": "/a"}}, "mountpoint can't be given here"),
]
NBD: list[Refused] = [
    (
        {"server": "nbdkit", "cache": "none"},
        'cache = "none": nbdkit works through the page cache, and passes flushes on: write cache = "writeback", or '
        'server = "qemu-nbd"',
    ),
    (
        {"server": "nbd-server", "cache": "directsync"},
        'cache = "directsync": nbd-server works through the page cache, and flushes when it is asked to or after '
        'each write: write cache = "writeback" or "writethrough", or server = "qemu-nbd"',
    ),
    (
        {"server": "nbd-server", "aio": "threads"},
        'aio = "threads": nbd-server has one way alone to read and write: leave aio out, or server = "qemu-nbd"',
    ),
    (
        {"server": "nbdkit", "discard": False},
        'discard = false: nbdkit passes discards on in any case: leave discard out, or server = "qemu-nbd"',
    ),
]
DAEMONS: list[Refused] = [
    ({"posix_acl": True}, "takes xattr = true"),
    ({"allow_mmap": True}, "'auto' maps files anyway"),
    ({"implementation": "c", "inode_file_handles": "prefer"}, "the C daemon can't do that"),
    ({"implementation": "c", "cache": "none", "allow_mmap": True}, "the C daemon can't do that"),
    ({"implementation": "c", "cache": "metadata"}, "the C daemon has auto, always and none"),
    ({"implementation": "c", "sandbox": "none"}, "the C daemon has namespace and chroot"),
]
MARIADB: list[Refused] = [
    ({"page_size": "12k"}, "4k, 8k, 16k, 32k and 64k"),
    ({"full_page_writes": True}, "full_page_writes"),
    ({"settings": {"datadir": "x"}}, "Storlab says where"),
    ({"settings": {"innodb_data_home_dir": "x"}}, "Storlab says where"),
    ({"settings": {"plugin_load_add": "x.so"}}, "Storlab says where"),
    ({"settings": {"init_connect": "x; y"}}, "should match"),
    ({"settings": {"a": "../b"}}, "should match"),
    ({"settings": {"a\nb": "1"}}, "should match"),
]
OF_ONE_TOOL: tuple[dict[str, int], ...] = (
    {},
    {"tables": 4},
    {"rows": 4},
    {"tables": 4, "scale": 1},
    {"tables": 4, "rows": 4, "scale": 1},
    {"seed": 3},
)
"""No data set is of two, or of none."""
POSTGRESQL: list[Refused] = [
    ({"doublewrite": False}, "PostgreSQL has full_page_writes"),
    ({"page_size": "16k"}, "PostgreSQL has bindir"),
    ({"checkpoint_timeout": "10s"}, "30"),
    ({"settings": {"archive_command": "x"}}, "Storlab says where"),
    ({"settings": {"shared_preload_libraries": "x"}}, "Storlab says where"),
]
BASE = {"image-clone": {"base": {"size": "16M", "written": "5M"}}}
WRONG = [
    *IMAGES,
    *((kind, *wrong) for kind in ("virtio-blk", "virtio-scsi", "nvme") for wrong in (*ATTACHMENTS, THROUGH_THE_CACHE)),
    *ZFS,
    *(("nbd-export", *wrong) for wrong in (*NBD, THROUGH_THE_CACHE)),
    *(("virtiofsd", *wrong) for wrong in DAEMONS),
    *(("mariadb", *wrong) for wrong in MARIADB),
    *(("mariadb", {"data": keys}, r"write \{ tables = 4, rows = 50000 \}") for keys in OF_ONE_TOOL),
    *(("postgresql", *wrong) for wrong in POSTGRESQL),
]


@pytest.mark.parametrize(("layer", "keys", "reason"), WRONG, ids=str)
def test_what_can_not_be_is_refused_with_its_reason(layer: str, keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        parse([{"layer": layer, **BASE.get(layer, {}), **keys}])
