"""The graph of what is set up, on real layers: shared and failed parts, the order of undoing, what is kept how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

import orjson
import pytest

from laboratory import Laboratory
from laboratory.devices import tmpfs
from laboratory.guests import guests
from laboratory.samples import sample
from laboratory.studies import FIO, parsed
from storlab.base.errors import NodeLost, StorlabError
from storlab.layers.resources import Dir
from storlab.run.beginning import new_run_id
from storlab.run.build import Built, Setups
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.reclaim import tear_down_rest
from storlab.run.session import open_session
from storlab.study.cells import MAIN, Cell

FILE = '{ layer = "file", size = "64M" }'
EXT4 = '{ layer = "mkfs", type = "ext4" }, { layer = "mount" }'
KEPT = FILE.replace(" }", ', keep = "run" }')


def cells(stack: str, rest: str = "") -> tuple[Cell, ...]:
    load = '[workload.w]\ncommand = { argv = ["true"] }\n'
    return parsed(f'title = "x"\nprimary = "elapsed"\nstack = [{stack}]\n{rest}\n{load}').cells


@asynccontextmanager
async def a_run(folder: Path) -> AsyncIterator[Setups]:
    """A run's setups; afterwards nothing may be left of what the journal knows."""
    async with open_session(new_run_id()) as session:
        with Journal(folder / "journal.jsonl") as journal:
            session.begin(journal, str(folder))
            setups = Setups(session, journal, folder)
            try:
                yield setups
            finally:
                await setups.tear_down_all()
                rest = await tear_down_rest(journal, session)
            assert rest.failed == []
    assert mounts(folder) == [] and [*folder.glob("storlab-*")] == []


def check(folder: Path, body: Callable[[Setups], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with a_run(folder) as setups:
            await body(setups)

    asyncio.run(whole())


def in_a_run(test: Callable[[Setups], Awaitable[None]]) -> Callable[[Path], None]:
    @pytest.mark.needs("root")
    def given_setups(tmp_path: Path) -> None:
        check(tmp_path, test)

    return given_setups


async def set_up(setups: Setups, cell: Cell) -> Built:
    built = setups.begin(cell)
    await setups.set_up(built, setups.folder)
    return built


def directory(built: Built, node: str = "host") -> Path:
    resource = built.stacks[node, MAIN].resource
    assert isinstance(resource, Dir)
    return Path(resource.path)


def mounts(folder: Path) -> list[str]:
    return [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if f"{folder}/storlab-" in line]


def announced(folder: Path, undo: str) -> int:
    lines = (folder / "journal.jsonl").read_bytes().splitlines()
    return sum(orjson.loads(line).get("undo") == undo for line in lines)


def test_a_layout_has_one_unit_for_what_is_kept_whatever_stands_on_it_and_names_owners_as_parts_are_named() -> None:
    ext4 = 'layer = "mkfs", type = "ext4"'
    levels = f"[factors.fs]\na = {{ {ext4} }}\nb = {{ {ext4}, journal = false }}"
    found = cells(f'{KEPT}, {{ layer = "loop" }}, "{{fs}}", {{ layer = "mount" }}', levels)
    kept = [[unit.identity for unit in cell.units if unit.links and unit.keep == "run"] for cell in found]
    assert kept[0] == kept[1] and len(kept[0]) == 1
    assert found[0].layout.tops["host", MAIN] is not found[1].layout.tops["host", MAIN]
    more = '[nodes.host.extra]\none = { stack = [{ layer = "directory" }] }\n'
    more += 'two = { stack = [{ layer = "directory" }], count = 2 }'
    (cell,) = cells('{ layer = "directory" }', more)
    assert [unit.owner for unit in cell.units if unit.links] == ["host", "host-one", "host-two-1", "host-two-2"]


@in_a_run
async def test_cells_share_the_parts_that_are_kept_and_each_has_its_own_of_the_rest(setups: Setups) -> None:
    one, other = cells(
        f'{KEPT}, {{ layer = "loop", keep = "run" }}, "{{fs}}", {{ layer = "mount" }}',
        '[factors.fs]\na = { layer = "mkfs", type = "ext4" }\nb = { layer = "mkfs", type = "ext4", block_size = "1k" }',
    )
    first = await set_up(setups, one)
    await setups.tear_down(first, failed=False)
    assert mounts(setups.folder) == []
    second = await set_up(setups, other)
    common = [part for key, part in second.parts.items() if first.parts.get(key) is part]
    assert [part.unit.keep for part in common] == ["run", "run"], "the node, and its file with the loop device"
    assert directory(second) != directory(first) and announced(setups.folder, "loop.detach") == 1


@in_a_run
async def test_whoever_asks_for_a_part_while_it_is_made_waits_for_the_same(setups: Setups) -> None:
    (cell,) = cells(f'{FILE}, {{ layer = "loop" }}, {EXT4}', '[nodes.host]\nkeep = "round"')
    both = await asyncio.gather(*(set_up(setups, cell) for _ in range(2)))
    assert both[0].parts == both[1].parts and directory(both[0]) == directory(both[1])
    assert announced(setups.folder, "loop.detach") == 1
    await setups.end_of("round")
    assert mounts(setups.folder) == []


@in_a_run
async def test_two_cells_that_are_set_up_at_once_have_nodes_of_one_name_and_nothing_in_common(setups: Setups) -> None:
    (cell,) = cells(f'{FILE}, {{ layer = "loop" }}, {EXT4}', "[nodes.n]\ncount = 2")
    one, other = await asyncio.gather(*(set_up(setups, cell) for _ in range(2)))
    assert [*one.nodes] == [*other.nodes] == ["n-1", "n-2"]
    folders = {directory(built, node) for built in (one, other) for node in built.nodes}
    assert len(folders) == 4
    await setups.tear_down(one, failed=True)
    for node in other.nodes:
        (directory(other, node) / "file").write_text("still set up")
    assert len(mounts(setups.folder)) == 2
    await setups.tear_down(other, failed=False)
    again = await set_up(setups, cell)
    assert {directory(again, node) for node in again.nodes} < folders, "names do not grow with the trials"


@pytest.mark.needs("root")
@pytest.mark.parametrize("torn_down", [True, False])
def test_a_part_that_failed_is_made_again_and_not_used_half_built(tmp_path: Path, torn_down: bool) -> None:
    written = KEPT.replace("64M", "48M").replace(" }", ', allocate = "written" }')
    (cell,) = cells(f'{written}, {{ layer = "loop" }}, {EXT4}')
    small = tmp_path / "small"

    async def body(setups: Setups) -> None:
        built = setups.begin(cell)
        with pytest.raises(StorlabError, match="No space left"):
            await setups.set_up(built, setups.folder)
        assert [part.ready for part in setups.parts.all()] == [True, False], "the node, and the file that failed"
        if torn_down:
            await setups.tear_down(built, failed=True)
        await setups.session.host.run(["mount", "-o", "remount,size=256M", str(small)])
        again = await set_up(setups, cell)
        (directory(again) / "file").write_bytes(b"x" * 2**20)
        assert all(part.sound for part in setups.parts.all())

    with tmpfs(small, "16M"):
        check(small, body)


@in_a_run
async def test_what_stands_on_a_part_is_torn_down_before_it_and_with_it(setups: Setups) -> None:
    (cell,) = cells(f'{KEPT}, {{ layer = "loop", keep = "round" }}, {EXT4}')
    built = await set_up(setups, cell)
    file = next(part for part in built.parts.values() if part.unit.label.startswith("file"))
    done = await setups.parts.tear_down([file])
    kinds = [next(word for word in ("unmounted", "detached", "removed") if word in did) for did in done.did]
    last = max(place for place, kind in enumerate(kinds) if kind == "removed")
    assert kinds.index("unmounted") < kinds.index("detached") < last, done.did
    assert [part.unit.label for part in setups.parts.all()] == ["node host"]


@in_a_run
async def test_ends_of_a_trial_a_round_and_a_run_undo_what_was_kept_that_long(setups: Setups) -> None:
    (cell,) = cells(f'{KEPT}, {{ layer = "loop", keep = "round" }}, {EXT4}')

    def kept() -> list[str]:
        return [part.unit.label.partition(" for ")[0] for part in setups.parts.all()]

    built = await set_up(setups, cell)
    assert kept() == ["node host", "file 64M", "loop", "mkfs ext4, mount"]
    await setups.tear_down(built, failed=False)
    assert kept() == ["node host", "file 64M", "loop"]
    await setups.end_of("round")
    assert kept() == ["node host", "file 64M"]
    await setups.tear_down_all()
    assert kept() == []


@in_a_run
async def test_a_cell_that_fails_takes_nothing_from_others_and_what_both_have_goes_last(setups: Setups) -> None:
    (cell,) = cells(f'{KEPT}, {{ layer = "loop", keep = "run" }}, {EXT4}', '[nodes.host]\nkeep = "run"')
    one = await set_up(setups, cell)
    other = setups.begin(cell)
    other.parts.update(one.parts)
    await setups.tear_down(other, failed=True)
    (directory(one) / "file").write_text("still set up")
    assert len(setups.parts.all()) == len(one.parts)
    await setups.tear_down(one, failed=False)
    assert [part.unit.label for part in setups.parts.all()] == ["node host"], "whoever failed may have broken the rest"


@in_a_run
async def test_what_only_another_cell_has_is_no_loss_of_this_one(setups: Setups) -> None:
    (cell,) = cells(f'{FILE}, {{ layer = "loop" }}, {EXT4}', "[nodes.n]\ncount = 2")
    one, other = await asyncio.gather(*(set_up(setups, cell) for _ in range(2)))
    mine = next(part for key, part in one.parts.items() if key not in other.parts)
    setups.parts.losing(mine)("its server is gone", "")
    waiting = asyncio.create_task(setups.until_lost(other))
    with pytest.raises(NodeLost, match="its server is gone"):
        await setups.until_lost(one)
    await setups.tear_down(one, failed=True)
    assert setups.first_loss(other) is None
    await asyncio.sleep(0.5)
    assert not waiting.done()
    waiting.cancel()
    shared = next(part for key, part in other.parts.items() if part.unit.label.startswith("node n-1"))
    setups.parts.losing(shared)("the node, too", "")
    with pytest.raises(NodeLost, match="the node, too"):
        await setups.until_lost(other)


def study(keep: str) -> str:
    return sample(__file__, "cases/kept.toml", keep=keep, fio=FIO.replace('"4k"', '"{bs}"'))


@pytest.mark.needs("root")
@pytest.mark.parametrize(("keep", "times"), [("trial", 12), ("round", 6), ("run", 2)])
def test_stacks_are_set_up_once_for_as_long_as_they_are_kept_in_blocks(lab: Laboratory, keep: str, times: int) -> None:
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
MADE = ', { layer = "mkfs", type = "ext4", block_size = "{level.blocks}" }, { layer = "mount" }'
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
    [("", [{1, 3}, {2}]), (MADE, [{1}, {2}, {3}]), (MADE.replace(" }", ', keep = "trial" }'), [{1, 3}, {2}])],
)
def test_a_kept_guest_is_shared_by_those_who_agree_in_all_that_is_kept(made: str, shared: list[set[int]]) -> None:
    cells = parsed(f'title = "x"\n{kept(made)}').cells
    nodes = [next(unit for unit in cell.units if unit.node == "vm") for cell in cells]
    disks = [next(unit for unit in cell.units if unit.links) for cell in cells]
    for those in ([unit.identity for unit in nodes], [unit.identity for unit in disks]):
        assert [{n for n, each in enumerate(those, 1) if each == one} for one in dict.fromkeys(those)] == shared


@pytest.mark.needs("guests")
def test_guests_that_outlive_a_trial_have_the_disk_of_their_own_level_and_what_was_made_on_it(lab: Laboratory) -> None:
    """A guest's disk is plugged in when it starts: one that is kept is no node for a level with another disk."""
    cache = "case {level.cache} in none) want=back;; *) want=through;; esac"
    blocks = "case {level.blocks} in 1k) size=1024;; *) size=4096;; esac"
    look = 'grep -qx "write $want" /sys/block/vdc/queue/write_cache && test $(stat -f -c %S $target) = $size'
    lab.succeed(kept(MADE, f"{cache}; {blocks}; {look}", rounds=2), trials=6)
