"""File systems on several disks of this machine: what they really are, what is written underneath, what stays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from laboratory.devices import new_device, sh
from laboratory.studies import parsed
from storlab.base.errors import SafetyError, StudyError
from storlab.layers import stack
from storlab.layers.block.identity import identify
from storlab.layers.fs.mkfs import MkfsLayer, forget_filesystem, forget_log
from storlab.layers.resources import Dir, Disk
from storlab.layers.stack import BuiltStack

from .sites import RUN, Ground, parse

SIGNATURE = {"btrfs": "btrfs", "xfs": "xfs_external_log", "ext4": "jbd"}


async def disks_of(ground: Ground, *sizes: str) -> list[Disk]:
    """New loop devices of the run's own."""
    stacks = [({"layer": "file", "size": size}, {"layer": "loop"}) for size in sizes]
    built = [await ground.set_up(*layers, owner=f"d{number}") for number, layers in enumerate(stacks)]
    return [each.resource for each in built if isinstance(each.resource, Disk)]


@pytest.fixture
def users(runner: asyncio.Runner, ground: Ground, tmp_path: Path) -> Iterator[list[Disk]]:
    """Two disks that the study has named."""

    async def named(path: str) -> Disk:
        device = await identify(ground.node, path)
        return Disk(ground.node.name, path, device.size, ours=False, device=device)

    with new_device(tmp_path / "a", 400 * 1024**2) as first, new_device(tmp_path / "b", 400 * 1024**2) as second:
        yield [runner.run(named(each.path)) for each in (first, second)]
        runner.run(ground.tear_down())
        ground.journal.clear()


async def made(ground: Ground, disks: list[Disk], keys: Mapping[str, Any]) -> BuiltStack:
    """A mounted file system on these: a Btrfs on all, another on the first with what the others are for."""
    layers = parse([{"layer": "mkfs", **keys}, {"layer": "mount"}])
    whole = keys["type"] == "btrfs"
    others: dict[str, Any] = {"d": disks} if whole else {"journal": disks[1:]}

    built = await stack.set_up(
        layers, lambda at: replace(ground.context(at + 5), others=others), None if whole else disks[0]
    )
    await built.read_facts()
    return built


BTRFS = {"type": "btrfs", "disks": ["d"]}
LOG = {"log": "journal"}


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("keys", "copies"),
    [
        ({**BTRFS, "data": "raid1"}, 2.0),
        ({**BTRFS, "data": "raid10", "metadata": "raid1c3"}, 2.0),
        ({**BTRFS, "data": "raid1c3"}, 3.0),
        ({**BTRFS, "data": "raid6", "metadata": "raid1c4"}, 2.0),
        ({**BTRFS, "data": "single", "metadata": "dup"}, 1.0),
    ],
    ids=lambda value: value.get("data") if isinstance(value, dict) else None,
)
def test_a_btrfs_writes_underneath_as_often_as_its_profile_says(
    runner: asyncio.Runner, ground: Ground, keys: dict[str, Any], copies: float
) -> None:
    disks = runner.run(disks_of(ground, *["400M"] * 4))
    built = runner.run(made(ground, disks, keys))
    (folder,) = built.resources[-1:]
    assert isinstance(folder, Dir) and folder.disks == tuple(disk.name for disk in disks)
    said = sh("btrfs", "filesystem", "df", folder.path)
    profiles = {kind.lower(): value.lower() for kind, value in _lines(said) if kind != "GlobalReserve"}
    facts = built.facts[0]
    assert facts["profiles"] == profiles and facts["num_devices"] == "4"
    assert (profiles["data"], profiles["metadata"]) == (keys["data"], keys.get("metadata", "raid1"))

    before = _written(disks)
    fio = "fio --name=x --rw=write --bs=128k --size=16M --direct=1 --end_fsync=1 --output-format=terse"
    sh(*fio.split(), f"--directory={folder.path}")
    assert copies <= (_written(disks) - before) / 16 / 2048 < copies + 0.3


def _lines(said: str) -> list[tuple[str, str]]:
    """``Data, RAID1: total=…``"""
    return [(kind, value) for kind, _, value in (line.partition(":")[0].partition(", ") for line in said.splitlines())]


def _written(disks: list[Disk]) -> int:
    """Sectors."""
    return sum(int(sh("cat", f"/sys/block/{disk.name}/stat").split()[6]) for disk in disks)


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("kind", "fact", "option"),
    [("xfs", ("log.place", "external"), "logdev"), ("ext4", ("Journal device", None), "journal_path")],
)
def test_a_journal_is_on_a_disk_of_its_own_and_all_of_it(
    runner: asyncio.Runner, ground: Ground, kind: str, fact: tuple[str, str | None], option: str
) -> None:
    disks = runner.run(disks_of(ground, "400M", "80M"))
    built = runner.run(made(ground, disks, {"type": kind, **LOG}))
    (folder,) = built.resources[-1:]
    assert isinstance(folder, Dir) and folder.disks == tuple(disk.name for disk in disks)
    facts = built.facts[0]
    assert facts[fact[0]] == fact[1] if fact[1] else fact[0] in facts
    assert f"{option}={disks[1].path}" in built.facts[1]["options"] or kind == "ext4"
    if kind == "xfs":
        assert int(facts["log.blocks"]) * 4096 == 80 * 1024**2
    before = _written(disks[1:])
    for number in range(3):
        sh("mkdir", f"{folder.path}/{number}")
        sh("sync", "--file-system", folder.path)
    assert _written(disks[1:]) > before, "its journal is there"


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "keys", [BTRFS, {"type": "xfs", **LOG}, {"type": "ext4", **LOG}], ids=lambda keys: keys["type"]
)
def test_disks_of_the_users_lose_what_marks_them_and_no_other_mark(
    runner: asyncio.Runner, ground: Ground, users: list[Disk], keys: dict[str, Any]
) -> None:
    built = runner.run(made(ground, users, keys))
    assert isinstance(built.resources[0], Disk) and not built.resources[0].ours
    last = users[1].path
    assert SIGNATURE[keys["type"]] in sh("wipefs", "--noheadings", last)
    foreign = {"device": last, "run": RUN, "nonce": "0" * 32, "was": users[1].fingerprint}
    for undo in (forget_filesystem, forget_log):
        assert runner.run(undo(ground.node, **foreign)) is None
    assert SIGNATURE[keys["type"]] in sh("wipefs", "--noheadings", last)
    names = [name for name, _ in ground.journal if name.startswith("mkfs.")]
    assert names == ["mkfs.forget", "mkfs.forget-log" if keys["type"] == "xfs" else "mkfs.forget"]
    said = runner.run(ground.tear_down())
    ground.journal.clear()
    assert sum(words.startswith("wiped") for words in said) == 2, said


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "keys", [BTRFS, {"type": "xfs", **LOG}, {"type": "ext4", **LOG}], ids=lambda keys: keys["type"]
)
def test_a_disk_in_whose_place_another_came_is_not_written_to(
    runner: asyncio.Runner, ground: Ground, users: list[Disk], keys: dict[str, Any]
) -> None:
    assert users[1].device is not None
    later = msgspec.structs.replace(users[1].device, sequence=(users[1].device.sequence or 0) + 1)
    users[1] = replace(users[1], device=later)
    with pytest.raises(SafetyError, match="there is another device in its place now"):
        runner.run(made(ground, users, keys))
    assert [sh("wipefs", disk.path) for disk in users] == ["", ""]


STUDY = """
title = "x"
[nodes.host]
kind    = "local"
extra.d = {{ count = {count}, stack = [{{ layer = "file", size = "{size}" }}, {{ layer = "loop" }}] }}
stack   = [{below}{{ layer = "mkfs", {keys} }}, {{ layer = "mount" }}]
[workload.load]
fio = {{ rw = "read", size = "1M" }}
"""
ONE = '{ layer = "file", size = "400M" }, { layer = "loop" }, '


@pytest.mark.parametrize(
    ("keys", "count", "size", "below", "said"),
    [
        ('type = "btrfs", disks = ["d"], data = "raid1c3"', 2, "1G", "", 'at least 3 disks for data = "raid1c3"'),
        ('type = "btrfs", disks = ["d"], metadata = "raid6"', 2, "1G", "", 'at least 3 disks for metadata = "raid6"'),
        ('type = "btrfs", data = "raid1"', 1, "1G", ONE, 'at least 2 disks for data = "raid1", and has 1'),
        ('type = "btrfs", disks = ["d"]', 2, "1G", ONE, "must be the lowest of its stack"),
        ('type = "btrfs", disks = ["e"]', 2, "1G", "", "unknown chain"),
        ('type = "btrfs", disks = ["d"]', 2, "64M", "", 'btrfs takes at least 109M, and the chain "d" has 64M'),
        ('type = "xfs"', 1, "64M", '{ layer = "file", size = "64M" }, { layer = "loop" }, ', "xfs takes at least 300M"),
        ('type = "xfs", log = "d"', 1, "32M", ONE, 'a log takes at least 64M, and the chain "d" has 32M'),
        ('type = "xfs", log = "d"', 2, "1G", ONE, "takes one disk as its log, and there are 2"),
        ('type = "xfs"', 1, "1G", "", "can't be the lowest"),
        ('type = "btrfs", disks = ["d"], data = "raid5"', 2, "128M", "", ""),
        ('type = "btrfs", disks = ["d"], args = ["--mixed"]', 2, "64M", "", ""),
    ],
)
def test_disks_that_are_too_few_or_too_small_are_refused_when_the_study_is_loaded(
    keys: str, count: int, size: str, below: str, said: str
) -> None:
    text = STUDY.format(keys=keys, count=count, size=size, below=below)
    if not said:
        assert parsed(text, file="study.toml").cells
        return
    with pytest.raises(StudyError, match=said):
        parsed(text, file="study.toml")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"type": "ext4", "disks": ["a"]}, "disks is an option of btrfs"),
        ({"type": "btrfs", "log": "a"}, "log is an option of ext4 and xfs"),
        ({"type": "ext4", "realtime": "a"}, "realtime is an option of xfs"),
        ({"type": "ext4", "log": "a", "journal": False}, "leave out journal"),
        ({"type": "ext4", "log": "a", "args": ["-J", "size=8"]}, "leave out journal"),
        ({"type": "btrfs", "args": ["-m", "dup"]}, "write metadata"),
        ({"type": "btrfs", "data": "raid7"}, "Input should be"),
    ],
)
def test_what_no_file_system_is_like_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        MkfsLayer.model_validate({"layer": "mkfs", **keys})


@pytest.mark.parametrize(
    ("size", "args", "words"),
    [
        (512, (), "-l logdev=/dev/b,size=512m"),
        (4096, (), "-l logdev=/dev/b,size=2038m"),
        (4096, ("-l", "size=64m"), "-l size=64m -l logdev=/dev/b"),
    ],
)
def test_a_log_of_xfs_is_no_larger_than_it_can_be(size: int, args: tuple[str, ...], words: str) -> None:
    layer = MkfsLayer.model_validate({"layer": "mkfs", "type": "xfs", "log": "b", "args": args})
    said = " ".join(layer.arguments("0-0", Disk("host", "/dev/b", size * 1024**2, ours=True)))
    assert " ".join(words.split()[:2]) in said and said.endswith(" ".join(words.split()[-2:]))


def test_a_realtime_section_has_the_data_of_all_files_unless_the_study_says_otherwise() -> None:
    disk = Disk("host", "/dev/b", 2**30, ours=True)
    for args, ends in (((), "-r rtdev=/dev/b -d rtinherit=1"), (("-d", "rtinherit=0"), "-r rtdev=/dev/b")):
        layer = MkfsLayer.model_validate({"layer": "mkfs", "type": "xfs", "realtime": "b", "args": args})
        assert " ".join(layer.arguments("0-0", None, disk)).endswith(ends)
