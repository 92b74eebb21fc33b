"""What tools, kernels and sysfs say of devices, file systems, shares and networks: real output, damage, and rubbish."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.odd_files import bounded
from storlab.base.errors import ParseError
from storlab.layers.base import LayerContext
from storlab.layers.block.loop import signatures
from storlab.layers.block.queue import parse_queue, sysfs
from storlab.layers.fs.image_base import parse_image_info
from storlab.layers.fs.mkfs import own_types
from storlab.layers.fs.mount import parse_mountinfo
from storlab.layers.fs.superblocks import parse_dump_super, parse_dumpe2fs, parse_xfs_info
from storlab.layers.net.initiator import host_uuid, host_word
from storlab.layers.net.nbd import NbdLayer
from storlab.layers.net.nvme import NvmeTcpLayer, parse_instance
from storlab.layers.resources import Dir, Disk
from storlab.layers.server.running import Answers
from storlab.layers.share.nfs_export import (
    default_block_size,
    export_flags,
    export_line,
    parse_exports,
    parse_mountstats,
)
from storlab.layers.share.smb import parse_debug_data
from storlab.layers.stack import type_errors
from storlab.layers.zfs.module import parse_parameters, parse_properties, parse_version
from storlab.layers.zfs.pool import is_only_member, parse_layout
from storlab.nodes.kinds.local import local_node
from storlab.nodes.settings import in_use
from storlab.workloads.fio.options import in_job_file

from .sites import parse

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


def test_mountinfo_gives_every_mount_with_its_real_path_and_knows_lines_with_more_fields() -> None:
    text = golden("mountinfo.txt")
    mounts = parse_mountinfo(text)
    assert len(mounts) == len(text.splitlines())
    last = mounts[-1]
    assert (last.device, last.path, last.filesystem, last.source) == ("7:1", "/srv/m nt", "xfs", "/dev/loop1")
    assert last.options == "rw,noatime,inode64,logbufs=8,logbsize=32k,noquota"
    line = r"36 35 98:0 /mnt1 /mnt2\040\011\012\134x rw,noatime master:1 propagate_from:2"
    (mount,) = parse_mountinfo(f"{line} - ext3 /dev/root rw,errors=continue")
    assert mount.path == "/mnt2 \t\n\\x"
    assert (mount.filesystem, mount.source, mount.options) == ("ext3", "/dev/root", "rw,noatime,errors=continue")


def test_queues_give_numbers_and_the_scheduler_in_use_and_file_systems_every_field_of_their_superblocks() -> None:
    facts = parse_queue(queue := json.loads(golden("queue.json")))
    assert (facts["logical_block_size"], facts["scheduler"], facts["write_cache"]) == (4096, "none", "write back")
    assert len(facts) == len(queue)
    assert parse_queue({"nr_requests": "9" * 5000}) == {"nr_requests": "9" * 5000}, "a number of many digits"
    ext4, xfs, btrfs = (
        parse_dumpe2fs(golden("dumpe2fs.txt")),
        parse_xfs_info(golden("xfs_info.txt")),
        parse_dump_super(golden("dump_super.txt")),
    )
    assert (ext4["Block size"], ext4["Cluster size"]) == ("4096", "16384")
    assert "bigalloc" in ext4["Filesystem features"].split()
    wanted = {"meta-data.sectsz": "4096", "meta-data.reflink": "1", "data.bsize": "4096", "data.blocks": "102400"}
    assert xfs.items() >= {**wanted, "log.blocks": "16384", "realtime.rtextents": "0"}.items(), "with their section"
    assert btrfs.items() >= {"nodesize": "16384", "sectorsize": "4096", "incompat_flags": "0x341"}.items()
    mounted = parse_dump_super(golden("dump_super.txt").replace("0x341", "0x361"))
    assert mounted["chosen_flags"] == btrfs["chosen_flags"] == "0x341", "the kernel adds BIG_METADATA, sooner or later"


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


def test_only_signatures_that_are_all_of_storlabs_own_file_system_or_pool_are_wiped() -> None:
    listing = (
        b'{"signatures": [{"type": "ext4", "uuid": "a"}, {"type": "dos", "uuid": null}, {"type": "xfs", "uuid": "b"}]}'
    )
    assert own_types(listing, "a") == ["ext4"]
    assert own_types(listing, "b") == ["xfs"]
    assert own_types(listing, "c") == []
    assert own_types(b'{"signatures": [{"type": "btrfs", "uuid": "a"}, {"type": "btrfs", "uuid": "b"}]}', "a") == []
    assert own_types(b"", "a") == []
    ours = b'{"type": "zfs_member", "label": "p"}'
    assert is_only_member(b'{"signatures": [%b, %b]}' % (ours, ours), "p")
    assert not is_only_member(b'{"signatures": [%b]}' % ours, "q")
    assert not is_only_member(b'{"signatures": [%b, {"type": "zfs_member", "label": "q"}]}' % ours, "p")
    assert not is_only_member(b'{"signatures": [{"type": "ext4", "label": "p"}]}', "p")
    assert not is_only_member(b"", "p")


def test_mountstats_say_what_a_mount_of_nfs_has_and_the_kernels_exports_are_paths_with_flags() -> None:
    found = parse_mountstats(golden("mountstats.txt"), "/srv/a b")
    assert (found["vers"], found["rsize"], found["timeo"], found["connections"]) == ("4.2", 65536, 50, 2)
    assert (found["flags"], found["transport"]) == (["nosharecache", "softerr"], "tcp")
    assert parse_mountstats(golden("mountstats.txt"), "/run") == {}, "no mount of NFS"
    (path, flags), *more = parse_exports(golden("nfsd_exports.txt")).items()
    assert (path, more) == ("/tmp/d", [])
    assert {"sync", "fsid=0", "no_root_squash"} <= {*flags}


@given(st.text(min_size=1).map(lambda name: f"/{name}"), st.booleans(), st.booleans())
def test_the_line_of_an_export_has_a_path_and_its_flags_whatever_the_path(path: str, sync: bool, wdelay: bool) -> None:
    line = export_line(path, sync=sync, wdelay=wdelay)
    assert line.count("\n") == 1
    assert line.count("\t") == 1
    flags = export_flags(line)
    assert (("sync" in flags), ("wdelay" in flags)) == (sync, wdelay)


@pytest.mark.parametrize(("mib", "kib"), [(464, 64), (512, 128), (2048, 512), (4096, 1024), (65536, 1024), (0, 8)])
def test_the_largest_request_of_nfs_is_what_the_kernel_would_take_by_its_memory(mib: int, kib: int) -> None:
    assert default_block_size(mib * 1024**2) == kib * 1024


def test_a_session_of_smb_is_known_by_its_share() -> None:
    text = golden("cifs_debug_data.txt")
    assert parse_debug_data(text, "//10.213.0.2/share") == {"dialect": "0x311", "signed": False, "encrypted": False}
    sealed = text.replace("Dialect 0x311", "Dialect 0x311 signed").replace(
        "SessionId: 0x1\n", "SessionId: 0x1 encrypted\n"
    )
    assert parse_debug_data(sealed, "//10.213.0.2/share") == {"dialect": "0x311", "signed": True, "encrypted": True}
    assert parse_debug_data(text, "//10.213.0.2/other") == {}


@given(st.text(alphabet=" \n\t:,=()*\\/0129abx", max_size=200))
def test_rubbish_is_no_error_and_no_share(text: str) -> None:
    assert parse_mountstats(text, "/x") == {}
    assert parse_debug_data(text, "//a/b") == {}
    parse_exports(text)


def test_properties_and_parameters_of_zfs_are_numbers_where_they_are_and_have_their_sources() -> None:
    volume, sources = parse_properties(golden("zfs_get.txt")).values()
    assert (volume["volsize"], volume["volblocksize"], volume["sync"]) == (67108864, 4096, "disabled")
    assert volume["origin"].endswith("@base")
    assert isinstance(volume["guid"], str)  # 64 bits, of which JSON's readers know 53
    wanted = {"type": "-", "volsize": "local", "sync": "local", "checksum": "default", "compression": "inherited"}
    assert sources.items() >= wanted.items()
    pool, sources = parse_properties(golden("zpool_get.txt")).values()
    assert (pool["ashift"], pool["cachefile"], pool["health"]) == (12, "none", "ONLINE")
    assert "comment" not in pool and (sources["ashift"], sources["comment"]) == ("local", "default")
    parameters = parse_parameters(golden("zfs_parameters.txt"))
    assert parameters["zfs_txg_timeout"] == 7
    assert len(parameters) == len(golden("zfs_parameters.txt").splitlines())
    version = parse_version(golden("zfs_version.txt"))
    assert version["programs"].startswith("2.3.2")
    assert version["module"].startswith("2.3.2")


STATUS = golden("zpool-status.txt")


def test_the_layout_of_a_pool_is_a_tree_with_its_logs_and_spares() -> None:
    ((mirror, disks),) = parse_layout(golden("zpool_status.txt")).items()
    assert mirror == "mirror-0"
    assert list(disks.values()) == ["ONLINE", "ONLINE"]
    assert all(path.startswith("/var/tmp/storlab-") for path in disks)
    assert parse_layout(STATUS) == {
        "mirror-0": {"/a b/0.img": "ONLINE", "/a b/1.img": "FAULTED"},
        "mirror-1": {"spare-0": {"/c": "ONLINE", "/d": "ONLINE"}},
        "logs": {"/log": "ONLINE"},
        "spares": {"/e": "AVAIL"},
    }


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


def context_of(instance: str, run: str = "20260102-030405-abcd") -> LayerContext:
    return cast(LayerContext, SimpleNamespace(run=run, node=SimpleNamespace(instance=instance)))


def test_sysfs_says_which_controller_was_made_and_which_scheduler_is_in_use() -> None:
    assert parse_instance("instance=12,cntlid=1\n") == 12
    assert (in_use("none [mq-deadline] kyber\n"), in_use("64\n")) == ("mq-deadline", "64")
    assert sysfs("etherd/e7.0") == "/sys/class/block/etherd!e7.0"


@given(st.text())
def test_an_answer_without_a_controller_is_none(text: str) -> None:
    number: Any = parse_instance(text)
    assert number is None or 0 <= number < 100000


def test_every_node_of_every_run_has_an_identity_of_its_own_and_keeps_it() -> None:
    other = "20260102-030405-abce"
    contexts = [context_of("vm-1"), context_of("vm-2"), context_of("vm-1", other), context_of("vm-1~2")]
    assert len({host_uuid(each) for each in contexts}) == 4
    assert len({host_word(each) for each in contexts}) == 4
    assert host_uuid(context_of("vm-1")) == host_uuid(context_of("vm-1"))
    assert host_word(context_of("vm_1 ä")) == "storlab-20260102-030405-abcd:vm-1--"


async def test_severing_a_disk_whose_controller_is_gone_does_nothing() -> None:
    layer = NvmeTcpLayer.model_validate({"layer": "nvme-tcp"})
    async with local_node("client") as node:
        gone = Disk(node.name, "/dev/nvme98765n1", 1024**2, ours=True)
        await layer.sever(gone, cast(LayerContext, SimpleNamespace(run="20260102-030405-abcd", node=node)))


def test_two_clients_on_one_kernel_never_choose_the_same_device_one_after_the_other() -> None:
    """Both look before either is connected; a device is chosen again once all others were."""
    node = mock.Mock(machine="boot-1", texts=mock.AsyncMock(return_value=[None] * 16))
    layer = NbdLayer.model_validate({"layer": "nbd"})

    async def some(times: int) -> list[str]:
        return await asyncio.gather(*(layer._free(mock.Mock(node=node)) for _ in range(times)))

    names = asyncio.run(some(16))
    assert len(set(names)) == 16 and asyncio.run(some(1)) == names[:1]


PINGING = golden("ping.txt")


def answered(*lines: str, limit: float = 5.0) -> list[str | None]:
    answers = Answers("node server", "10.0.0.1", limit)
    return [answers.take(f"{line}\n") for line in lines]


def answer(number: int) -> str:
    return f"64 bytes from 10.0.0.1: icmp_seq={number} ttl=64 time=0.045 ms"


def test_a_node_is_lost_that_is_silent_for_its_limit_and_one_that_answers_again_was_unreachable() -> None:
    answers = Answers("node server", "10.0.0.1", 5.0)
    assert (answers.up, answers.take(PINGING), answers.up) == (False, None, True)
    silent = [f"no answer yet for icmp_seq={number}" for number in range(3, 13)]
    found = answered(answer(1), answer(2), *silent)
    assert found[-1] == "no answer from node server (10.0.0.1) for 5.0 s"
    assert not any(found[:-1])
    assert answered(answer(1), answer(5)) == [None, None]
    assert answered(answer(1), answer(9)) == [None, "node server (10.0.0.1) was unreachable for 4.0 s"]
    assert answered(answer(9)) == [None]  # before the first nothing is known


def test_a_line_in_pieces_is_read_once_it_is_whole_and_the_last_says_why_it_can_not_be_reached() -> None:
    answers = Answers("node server", "10.0.0.1", 1.0)
    for piece in ("no answer yet for icmp", "_seq=2", "0 and so on"):
        assert answers.take(piece) is None
    assert answers.take("\n") == "no answer from node server (10.0.0.1) for 10.0 s"
    answers = Answers("node server", "10.0.0.1", 5.0)
    answers.take("ping: connect: Network is unreachable\n")
    assert answers.unreachable() == "node server (10.0.0.1) can't be reached: ping: connect: Network is unreachable"


@given(st.lists(st.text()))
def test_nothing_that_is_printed_is_an_exception_or_fills_the_memory(pieces: list[str]) -> None:
    answers = Answers("node server", "10.0.0.1", 5.0)
    for piece in [*pieces, "x" * 100_000]:
        answers.take(piece)
    assert len(answers._begun) <= 4096
