"""File systems on several disks of this machine: what they really are, what is written underneath, what stays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from laboratory.devices import new_device, sh
from storlab.base.errors import SafetyError
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
