"""Layers that are set up together: what is journalled before, what one request does, and who is named if it fails."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from storlab.base.errors import CommandFailed
from storlab.layers.fs.files import FileLayer
from storlab.layers.fs.mount import MountLayer
from storlab.layers.resources import Dir, Disk
from storlab.layers.stack import Plans
from storlab.nodes.agent import steps
from storlab.nodes.agent.connection import Connection

from .sites import Ground

FILE, LOOP, EXT4 = {"layer": "file", "size": "32M"}, {"layer": "loop"}, {"layer": "mkfs", "type": "ext4"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often an agent was asked for what."""
    counted: Counter[str] = Counter()
    real = Connection.request

    def request(self: Connection, op: str, *args: Any, **fields: Any) -> Any:
        counted[op] += 1
        return real(self, op, *args, **fields)

    monkeypatch.setattr(Connection, "request", request)
    return counted


@pytest.mark.needs("root")
async def test_a_stack_of_four_layers_takes_three_requests(ground: Ground, asked: Counter[str]) -> None:
    ground.node.known["/dev/loop-control"] = ""  # as after the first of a run
    built = await ground.set_up(FILE, LOOP, EXT4, {"layer": "mount"}, facts=False)
    assert isinstance(built.resource, Dir) and built.resource.path == ground.context(3).path("mnt")
    assert asked == {"steps": 3}  # the file and its loop device, what the queue of that is like, and the rest


async def test_all_is_journalled_before_the_first_step_is_carried_out(ground: Ground) -> None:
    plans = Plans(ground.node, [steps.make_directory("/no/such/folder")])
    file = await plans.add(FileLayer.model_validate(FILE), None, ground.context())
    disk = Disk("host", "/dev/no-such", 0, ours=True, filesystem="ext4")
    await plans.add(MountLayer(), disk, ground.context(1))
    assert ground.journal == []
    with pytest.raises(FileNotFoundError):
        await plans.carry_out()
    assert [name for name, _ in ground.journal] == ["file.remove", "mount.unmount"]
    (found,) = await ground.node.carry_out(steps.look(file.words()["target"]), go_on=True)
    assert found.missing
    assert await ground.tear_down() == []  # what never came to be


@pytest.mark.needs("root")
async def test_the_layer_that_fails_is_the_one_that_is_named_and_what_is_below_it_is_torn_down(ground: Ground) -> None:
    bad = {**EXT4, "args": ["-i", "1"]}
    with pytest.raises(CommandFailed, match=r"mkfs\.ext4 ended with status 1: .*inode ratio") as error:
        await ground.set_up(FILE, LOOP, bad, {"layer": "mount"})
    assert error.value.detail.startswith("$ mkfs.ext4 ")
    did = await ground.tear_down()
    assert [words.partition(" ")[0] for words in did] == ["detached", "removed"]


@pytest.mark.needs("root")
async def test_of_layers_whose_facts_are_gone_the_lowest_is_named(ground: Ground) -> None:
    built = await ground.set_up(FILE, LOOP, EXT4, {"layer": "mount"})
    assert [facts["layer"] for facts in built.facts] == ["file", "loop", "mkfs", "mount"]
    await ground.tear_down()
    with pytest.raises(FileNotFoundError, match=r"0-file\.img$"):
        await built.read_facts()
