"""A disk that a node swaps to: in a real guest, which has too little memory for its load."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory import Laboratory
from storlab.base.errors import StudyError
from storlab.layers.block.swap import parse_swaps, switch_off
from storlab.layers.resources import Swap
from storlab.study.study import load_study

from .pair import Pair, open_shop
from .sites import RUN

shop = pytest.fixture(scope="module")(open_shop)
BELOW = ({"layer": "file", "size": "16M"}, {"layer": "loop"})
STUDY = """
primary = "elapsed"
repeat = { until = "max", min = 1, max = 1 }
stack = [{ layer = "directory" }]
[nodes.vm]
kind = "vm"
memory = "192M"
extra.swap = { stack = [{ layer = "file", size = "256M" }, { layer = "virtio-blk" }, { layer = "swap" }] }
[workload.hungry]
on = "vm:swap"
limits = { memory_max = "32M", io_max = { riops = 100000 } }
command = { argv = ["sh", "-c", "head -c 96M /dev/zero | tail -c 80M > /dev/null"] }
[probes]
fragmentation = {}
host-load = {}
"""


@pytest.mark.needs("guests")
async def test_a_node_swaps_to_the_disk_as_asked_for_and_another_ones_swap_stays(pair: Pair) -> None:
    listed = "tail --lines=+2 /proc/swaps"
    other = "/root/other"
    await pair.server.output(f"modprobe loop; truncate --size=16M {other}")
    make = f"disk=$(losetup --find --show {other}) && mkswap $disk > /dev/null"
    theirs = (await pair.server.output(f"{make} && swapon $disk && echo $disk")).strip()
    async with pair.crossed(*BELOW, {"layer": "swap", "priority": 10}) as crossed:
        swap, facts = crossed.resource, crossed.facts[-1]["swap"]
        assert isinstance(swap, Swap)
        assert facts == {"size": 16 * 1024**2 - 4096, "used": 0, "priority": 10}
        assert await switch_off(pair.server.node, run=RUN, nonce="0" * 32) is None
        assert {*parse_swaps(f"x\n{await pair.server.output(listed)}")} == {swap.path, theirs}
    assert [*parse_swaps(await pair.server.output(listed))] == [theirs]
    await pair.server.output(f"swapoff {theirs} && losetup --detach {theirs} && rm {other}")


@pytest.mark.needs("guests")
def test_what_has_no_room_in_memory_goes_to_the_disk_and_is_counted(lab: Laboratory) -> None:
    lab.succeed(STUDY)
    found = lab.run_folder.metrics.filter(pl.col("node") == "vm").to_dicts()
    counted = {row["metric"]: row["value"] for row in found}
    assert counted["swap.out"] * 4096 > 40 * 1024**2
    assert counted["disk.target.bytes_written"] == pytest.approx(counted["swap.out"] * 4096, rel=0.05)


def test_this_machine_swaps_to_a_disk_by_permission_alone(lab: Laboratory) -> None:
    here = STUDY.replace('"vm"', '"local"').replace('memory = "192M"', "").replace("virtio-blk", "loop")
    refused = lab.start_run(here, trusted=False)
    _, said = refused.communicate()
    assert refused.returncode == 2 and b"--allow kernel=swap" in said


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('{ layer = "swap", priority = -2 }', "priority: -2 should be at least 0"),
        ('{ layer = "swap" }, { layer = "mount" }', "layer mount takes a Disk"),
        ('{ layer = "mkfs", type = "ext4" }, { layer = "swap" }', "write swap below mkfs"),
    ],
)
def test_swap_that_can_not_be_is_refused(keys: str, reason: str, lab: Laboratory) -> None:
    with pytest.raises(StudyError, match=re.escape(reason)):
        load_study(lab.study(STUDY.replace('{ layer = "swap" }', keys)))


@given(st.text())
def test_rubbish_in_place_of_the_list_of_swaps_gives_no_more_than_rows_have(text: str) -> None:
    assert all({*row} == {"size", "used", "priority"} for row in parse_swaps(text).values())


def test_files_that_are_swapped_to_are_no_disks() -> None:
    rows = ("/swapfile file 2048 0 -2", "/dev/vda2 partition 1024 4 -3", "/dev/x partition -1 0 1")
    assert parse_swaps("\n".join(("Filename Type Size Used Priority", *rows))) == {
        "/dev/vda2": {"size": 1048576, "used": 4096, "priority": -3}
    }
