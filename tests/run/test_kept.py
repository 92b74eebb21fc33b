"""Stacks that are kept for a round or for the run: set up as often as that, and trials in an order that allows it."""

from __future__ import annotations

from itertools import groupby

import pytest

from laboratory import Laboratory, needs_root
from laboratory.guests import endings, guests, needs_guests
from laboratory.studies import FIO

STACK = """
primary = "bandwidth"
stack = [{{ layer = "file", size = "64M" }}, {{ layer = "loop" }}, {{ layer = "mkfs", type = "ext4", block_size = "{{bytes}}" }}, {{ layer = "mount" }}]
repeat = {{ until = "max", min = 3, max = 3 }}
trial = {{ settle = {{ sync = false, drop_caches = false }} }}
[probes]
[factors]
bytes = ["1k", "4k"]
bs    = ["4k", "8k"]
[nodes.host]
keep = "{keep}"
[workload.writes]
fio = {fio}
"""  # noqa: E501 - a stack is one line


def study(keep: str) -> str:
    return STACK.format(keep=keep, fio=FIO.replace('"4k"', '"{bs}"'))


@needs_root
@pytest.mark.parametrize(("keep", "times"), [("trial", 12), ("round", 6), ("run", 2)])
def test_stacks_are_set_up_as_often_as_what_they_are_kept_for(lab: Laboratory, keep: str, times: int) -> None:
    lab.execute(study(keep))
    records = lab.records()
    assert [record.status for record in records] == ["done"] * 12
    assert sum(line.get("undo") == "loop.detach" for line in lab.journal()) == times
    assert lab.leftovers() == []


@needs_root
def test_what_is_kept_for_a_round_makes_blocks_in_the_order_and_in_the_records(lab: Laboratory) -> None:
    lab.execute(study("round"))
    records = lab.records()
    for number in (1, 2, 3):
        mine = [record for record in records if record.round == number]
        blocks = [[*group] for _, group in groupby(mine, key=lambda record: record.levels["bytes"])]
        assert [len(block) for block in blocks] == [2, 2], "the trials of one file system follow each other"
        assert len({record.block for record in mine}) == 2
        assert all(len({record.block for record in block}) == 1 for block in blocks)
    assert len({tuple(r.cell for r in records if r.round == number) for number in (1, 2, 3)}) > 1, "drawn by lot"


@needs_root
def test_a_trial_that_fails_takes_along_what_was_kept_and_the_next_one_sets_it_up_again(lab: Laboratory) -> None:
    load = "command = { argv = ['sh', '-c', 'test {trial} != 2'] }"
    text = study("run").replace('[factors]\nbytes = ["1k", "4k"]\nbs    = ["4k", "8k"]\n', "")
    text = text.replace('"{bytes}"', '"1k"').replace('"bandwidth"', '"elapsed"')
    lab.execute(text[: text.index("fio = ")] + load)
    assert [record.status for record in lab.records()] == ["done", "failed", "done"]
    assert sum(line.get("undo") == "loop.detach" for line in lab.journal()) == 2
    assert lab.leftovers() == []


@needs_guests
@pytest.mark.slow
def test_guests_that_outlive_a_trial_have_the_disk_of_their_own_level_and_not_of_the_first(lab: Laboratory) -> None:
    """A guest's disk is plugged in when it starts: one that is kept is no node for a level with another disk."""
    wanted = "case {cache} in none) want=back;; *) want=through;; esac"
    lab.execute(
        guests(
            f'{wanted}; grep -qx "write $want" /sys/block/vd?/queue/write_cache',
            count="1",
            keep='"run"',
            rounds=2,
            stack='[{ layer = "file", size = "16M", keep = "run" }, { layer = "virtio-blk", cache = "{cache}" }]',
            rest='[factors]\ncache = ["none", "writethrough"]',
        )
    )
    assert [record.status for record in lab.records()] == ["done"] * 4, endings(lab)
    assert lab.leftovers() == []
