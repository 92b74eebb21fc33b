"""Stacks that are kept for a round or for the run: set up as often as that, and trials in an order that allows it."""

from __future__ import annotations

from itertools import groupby

import pytest

from laboratory import Laboratory
from laboratory.guests import guests
from laboratory.samples import sample
from laboratory.studies import FIO
from storlab.run.setup.units import for_whom, units
from storlab.study.study import parse_study


def study(keep: str) -> str:
    return sample(__file__, "cases/kept.toml", keep=keep, fio=FIO.replace('"4k"', '"{bs}"'))


@pytest.mark.needs("root")
@pytest.mark.parametrize(("keep", "times"), [("trial", 12), ("round", 6), ("run", 2)])
def test_stacks_are_set_up_as_often_as_they_are_kept_for_and_rounds_have_blocks(
    lab: Laboratory, keep: str, times: int
) -> None:
    lab.succeed(study(keep), trials=12)
    records = lab.records()
    assert sum(line.get("undo") == "loop.detach" for line in lab.journal()) == times
    assert len({tuple(r.cell for r in records if r.round == number) for number in (1, 2, 3)}) > 1, "drawn by lot"
    for number in (1, 2, 3) if keep == "round" else ():
        mine = [record for record in records if record.round == number]
        blocks = [[*group] for _, group in groupby(mine, key=lambda record: record.levels["bytes"])]
        assert [len(block) for block in blocks] == [2, 2], "the trials of one file system follow each other"
        assert len({record.block for record in mine}) == 2
        assert all(len({record.block for record in block}) == 1 for block in blocks)


@pytest.mark.needs("root")
def test_a_trial_that_fails_takes_along_what_was_kept_and_the_next_one_sets_it_up_again(lab: Laboratory) -> None:
    load = "command = { argv = ['sh', '-c', 'test {trial} != 2'] }"
    text = study("run").replace('[factors]\nbytes = ["1k", "4k"]\nbs    = ["4k", "8k"]\n', "")
    text = text.replace('"{bytes}"', '"1k"').replace('"bandwidth"', '"elapsed"')
    lab.execute(text[: text.index("fio = ")] + load)
    assert [record.status for record in lab.records()] == ["done", "failed", "done"]
    assert sum(line.get("undo") == "loop.detach" for line in lab.journal()) == 2


DISK = '{ layer = "file", size = "16M" }, { layer = "virtio-blk", cache = "{level.cache}" }'
LEVELS = """[factors.level]
a = { cache = "none", blocks = "1k" }
b = { cache = "writethrough", blocks = "1k" }
c = { cache = "none", blocks = "4k" }
"""


def kept(made: str, load: str = "true", rounds: int = 1) -> str:
    """Guests that are kept for the run, and with them their disk; ``made``: what stands on it."""
    return guests(load, count="1", keep='"run"', rounds=rounds, stack=f"[{DISK}{made}]", rest=LEVELS)


@pytest.mark.parametrize(
    ("made", "shared"),
    [
        ("", [{1, 3}, {2}]),
        (', { layer = "mkfs", type = "ext4", block_size = "{level.blocks}" }, { layer = "mount" }', [{1}, {2}, {3}]),
        (
            ', { layer = "mkfs", type = "ext4", block_size = "{level.blocks}", keep = "trial" }'
            ', { layer = "mount", keep = "trial" }',
            [{1, 3}, {2}],
        ),
    ],
)
def test_a_kept_guest_is_shared_by_those_who_agree_in_all_that_is_kept(made: str, shared: list[set[int]]) -> None:
    cells = parse_study(f'title = "x"\n{kept(made)}'.encode(), "s.toml", lambda name: "").cells
    guests_, disks = [for_whom(cell, "vm") for cell in cells], [next(units(cell)).identity for cell in cells]
    for those in (guests_, disks):
        assert [{n for n, each in enumerate(those, 1) if each == one} for one in dict.fromkeys(those)] == shared


@pytest.mark.needs("guests")
def test_guests_that_outlive_a_trial_have_the_disk_of_their_own_level_and_what_was_made_on_it(lab: Laboratory) -> None:
    """A guest's disk is plugged in when it starts: one that is kept is no node for a level with another disk."""
    made = ', { layer = "mkfs", type = "ext4", block_size = "{level.blocks}" }, { layer = "mount" }'
    cache = "case {level.cache} in none) want=back;; *) want=through;; esac"
    blocks = "case {level.blocks} in 1k) size=1024;; *) size=4096;; esac"
    look = 'grep -qx "write $want" /sys/block/vdc/queue/write_cache && test $(stat -f -c %S $target) = $size'
    lab.succeed(kept(made, f"{cache}; {blocks}; {look}", rounds=2), trials=6)
