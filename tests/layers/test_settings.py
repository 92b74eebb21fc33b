"""In which state the queue of a loop device is given, and how settings go back to what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from laboratory.block import loop_disk
from storlab.layers.block.queue import as_new, new_state
from storlab.nodes.kinds.local import local_node
from storlab.nodes.settings import journalled, put_back, restore

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
        assert await restore.function(node, arguments) == f"put back {files[0]}, {files[1]}"
        assert await restore.function(node, arguments) is None
        assert await put_back(node, {str(files[0]): "7"}) == {str(files[0]): "7"}
