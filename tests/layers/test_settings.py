"""What layers and stacks can't be asked for, which settings loop devices and pools have, and how settings go back."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from laboratory.block import loop_disk
from laboratory.studies import parsed
from storlab.base.errors import StudyError, Unsupported
from storlab.layers.block.queue import as_new, new_state
from storlab.layers.zfs.module import Value, effective, parameter_text, parse_online
from storlab.layers.zfs.pool import ZpoolLayer
from storlab.nodes.kinds.local import local_node
from storlab.nodes.settings import journalled, put_back, restore

from .sites import ground_in, parse

BASE = {"image-clone": {"base": {"size": "16M", "written": "5M"}}}
WRONG = json.loads((Path(__file__).parent / "cases" / "refused.json").read_text())
"""Layer, keys, and what the refusal says."""


@pytest.mark.parametrize(("layer", "keys", "reason"), WRONG, ids=str)
def test_what_can_not_be_is_refused_with_its_reason(layer: str, keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        parse([{"layer": layer, **BASE.get(layer, {}), **keys}])


STUDY = """
title = "x"
[nodes.host]
kind    = "local"
extra.d = {{ count = {count}, stack = [{{ layer = "file", size = "{size}" }}, {{ layer = "loop" }}] }}
stack   = [{below}{{ layer = {layer} }}]
[workload.load]
fio = {{ rw = "read", size = "1M", runtime = "2s", time_based = true }}
{more}
"""


@pytest.mark.parametrize(
    ("layer", "below", "count", "size", "reason"),
    [
        ('"dm", target = "striped", disks = ["d"]', "32M", 2, "32M", "must be the lowest of its stack"),
        ('"dm", target = "log-writes", log = "d"', "32M", 2, "32M", "logs on one disk, and its chain has 2"),
        ('"dm", target = "error", after = "3s"', "32M", 1, "32M", "3 s into a load that takes 2 s"),
        ('"dm", target = "error", after = "1s"', "32M", 1, "32M", "leave out .* slices"),
        ('"md", level = "6", disks = ["d"]', "", 3, "32M", "layer md takes at least 4 disks, and its chains have 3"),
        ('"md", level = "5", disks = ["d"]', "", 2, "32M", "layer md takes at least 3 disks, and its chains have 2"),
        ('"md", level = "1", disks = ["d"]', "", 1, "32M", "layer md takes at least 2 disks, and its chains have 1"),
        ('"md", level = "1", disks = ["d"]', "", 2, "32M", ""),
        ('"lvm", type = "raid6"', "", 4, "32M", "layer lvm: .*raid6 takes at least 5 disks, and has 4"),
        ('"lvm", type = "raid5"', "", 2, "32M", "layer lvm: .*takes at least 3 disks, and has 2"),
        ('"lvm", type = "raid1", mirrors = 2', "", 2, "32M", "layer lvm: .*takes at least 3 disks, and has 2"),
        ('"lvm", type = "striped", stripes = 3', "", 2, "32M", "layer lvm: .*takes at least 3 disks, and has 2"),
        ('"lvm", size = "100M"', "", 2, "32M", "layer lvm: .*takes up 100M, and its disks have 64M"),
        ('"lvm", type = "raid1", size = "40M"', "", 2, "32M", "layer lvm: .*takes up 80M, and its disks have 64M"),
        (
            '"lvm", size = "40M", snapshots = { size = "16M", count = 2 }',
            "",
            2,
            "32M",
            "layer lvm: .*takes up 72M, and its disks have 64M",
        ),
        ('"lvm", type = "thin", size = "1G"', "", 2, "32M", ""),
        ('"lvm", type = "raid6"', "", 5, "32M", ""),
        ('"btrfs", disks = ["d"], data = "raid1c3"', "", 2, "1G", 'at least 3 disks for data = "raid1c3"'),
        ('"btrfs", disks = ["d"], metadata = "raid6"', "", 2, "1G", 'at least 3 disks for metadata = "raid6"'),
        ('"btrfs", data = "raid1"', "400M", 1, "1G", 'at least 2 disks for data = "raid1", and has 1'),
        ('"btrfs", disks = ["d"]', "400M", 2, "1G", "must be the lowest of its stack"),
        ('"btrfs", disks = ["e"]', "", 2, "1G", "unknown chain"),
        ('"btrfs", disks = ["d"]', "", 2, "64M", 'btrfs takes at least 109M, and the chain "d" has 64M'),
        ('"xfs"', "64M", 1, "64M", "xfs takes at least 300M"),
        ('"xfs", log = "d"', "400M", 1, "32M", 'a log takes at least 64M, and the chain "d" has 32M'),
        ('"xfs", log = "d"', "400M", 2, "1G", "takes one disk as its log, and there are 2"),
        ('"xfs"', "", 1, "1G", "can't be the lowest"),
        ('"btrfs", disks = ["d"], data = "raid5"', "", 2, "128M", ""),
        ('"btrfs", disks = ["d"], args = ["--mixed"]', "", 2, "64M", ""),
    ],
)
def test_a_stack_whose_disks_do_not_suffice_or_fit_is_refused_when_the_study_is_loaded(
    layer: str, below: str, count: int, size: str, reason: str
) -> None:
    if layer.startswith(('"btrfs"', '"xfs"')):
        layer = f'"mkfs", type = {layer} }}, {{ layer = "mount"'
    layer = layer.replace('"lvm"', '"lvm", disks = ["d"]')
    below = f'{{ layer = "file", size = "{below}" }}, {{ layer = "loop" }}, ' if below else ""
    more = "[trial]\nslices = '1s'" if "slices" in reason else ""
    text = STUDY.format(layer=layer, below=below, count=count, size=size, more=more)
    with pytest.raises(StudyError, match=reason) if reason else nullcontext():
        assert parsed(text, file="study.toml").cells


LEFT = {
    "max_sectors_kb": "4",
    "nomerges": "2",
    "scheduler": "bfq",
    "read_ahead_kb": "8192",
    "write_cache": "write through",
}
"""What somebody else may leave on a loop device."""


@pytest.mark.needs("root")
async def test_a_loop_device_is_as_new_whatever_was_left_on_it(tmp_path: Path) -> None:
    with loop_disk(tmp_path / "disk.img", 1024**2) as disk:
        async with local_node("host") as node:
            await as_new(node, disk.name)
            new = {name: (disk.queue / name).read_text() for name in LEFT}
            for name, value in LEFT.items():
                (disk.queue / name).write_text(value)
            assert await as_new(node, disk.name) == (1024**2, {})
        assert {name: (disk.queue / name).read_text() for name in LEFT} == new
    assert (new["nomerges"], new["scheduler"].split()[0]) == ("0\n", "[none]")


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("queue", "got"),
    [
        (
            {"scheduler": "bfq", "iosched": {"slice_idle": 0, "low_latency": 0}, "read_ahead": 0, "nomerges": 2},
            {"scheduler": "bfq", "iosched.slice_idle": 0, "iosched.low_latency": 0, "read_ahead_kb": 0, "nomerges": 2},
        ),
        (
            {"scheduler": "mq-deadline", "iosched": {"fifo_batch": 1}, "nr_requests": 200, "rotational": False},
            {"scheduler": "mq-deadline", "iosched.fifo_batch": 1, "nr_requests": 200, "rotational": 0},
        ),
        (
            {"scheduler": "none", "max_sectors": "64k", "rq_affinity": 2, "wbt": "5ms"},
            {
                "scheduler": "none",
                "max_sectors_kb": 64,
                "rq_affinity": 2,
                "wbt_lat_usec": 5000,
            },
        ),
    ],
    ids=["bfq", "mq-deadline", "none"],
)
async def test_a_queue_is_as_the_study_asks_and_goes_back(
    queue: dict[str, Any], got: dict[str, Any], tmp_path: Path
) -> None:
    async with ground_in(tmp_path) as ground:
        loop = {"layer": "loop", "queue": queue}
        built = await ground.set_up({"layer": "file", "size": "1M"}, loop)
        facts = built.facts[-1]
        flat = {**facts, **{f"iosched.{name}": value for name, value in facts.get("iosched", {}).items()}}
        assert flat.items() >= got.items()
        changed = [file for file, value in got.items() if "." not in file and value != "none"]
        (done, *_) = await ground.tear_down()
        assert done.startswith("put back ") and all(f"/{file}" in done for file in changed)


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        ({"max_sectors": "64M"}, "max_sectors_kb = 65536: it takes at most 1280"),
        ({"nr_requests": 10**6}, "nr_requests = 1000000: the kernel leaves it at 128"),
        ({"io_poll": True}, "io_poll = 1: its driver has no queues to poll"),
    ],
)
async def test_what_a_queue_does_not_take_is_said_with_what_it_does(
    queue: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    async with ground_in(tmp_path) as ground:
        with pytest.raises(Unsupported, match=rf"queue\.\w+: loop\d+ does not take {reason}"):
            await ground.set_up({"layer": "file", "size": "1M"}, {"layer": "loop", "queue": queue})


GOLDEN = json.loads((Path(__file__).parent / "golden" / "queues.json").read_text())


@pytest.mark.parametrize("case", GOLDEN)
def test_what_is_new_follows_from_the_limits_and_the_version_of_the_kernel(case: dict[str, Any]) -> None:
    assert new_state(case["said"], case["release"], "64") == case["new"]


async def test_settings_go_back_to_what_they_were_once(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "ab"]
    for file in files:
        file.write_text("1\n")
    async with local_node("host") as node:
        arguments = await journalled(node, {str(file): "0" for file in files} | {str(tmp_path / "gone"): "5"})
        assert await restore.function(node, **arguments) == f"put back {files[0]}, {files[1]}"
        assert await restore.function(node, **arguments) is None
        assert await put_back(node, {str(files[0]): "7"}) == {str(files[0]): "7"}


@pytest.mark.parametrize(
    ("asked", "cpus_each", "cpus", "found"),
    [(4, 4, 1, 1), (4, 4, 4, 1), (4, 4, 8, 2), (4, 4, 64, 4), (16, 1, 2, 2), (8, 1, 4, 4), (1, 1, 64, 1), (4, 0, 8, 4)],
)
def test_a_pool_has_as_many_allocators_as_there_are_cpus_for(asked: int, cpus_each: int, cpus: int, found: int) -> None:
    assert effective(asked, cpus_each, cpus) == found


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpus_that_are_online_are_counted_as_the_kernel_lists_them(online: set[int]) -> None:
    parts, left = list[str](), sorted(online)
    while left:
        first = last = left.pop(0)
        while left and left[0] == last + 1:
            last = left.pop(0)
        parts.append(str(first) if first == last else f"{first}-{last}")
    assert parse_online(",".join(parts) + "\n") == len(online)


@pytest.mark.parametrize("text", ["", "\n", "x", "0-", "-3", "0,,2", "0x3"])
def test_what_is_no_list_of_cpus_has_none(text: str) -> None:
    assert parse_online(text) is None


def test_numbers_that_zfs_takes_are_left_to_it() -> None:
    module: dict[str, Value] = {
        "spa_num_allocators": "8",
        "zio_dva_throttle_enabled": False,
        "zfs_active_allocator": "cursor",
    }
    assert ZpoolLayer(size="1G", module=module).module == module
    assert [parameter_text(value) for value in module.values()] == ["8", "0", "cursor"], "which takes no off for 0"
