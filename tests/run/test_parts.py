"""The graph of what is set up, on real layers of this machine: shared parts, failed parts, the order of undoing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from laboratory.devices import tmpfs
from storlab.errors import NodeLost, StorlabError
from storlab.layers.resources import Dir
from storlab.run.beginning import new_run_id
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.teardown import tear_down_rest
from storlab.run.session import open_session
from storlab.run.setup.build import Built
from storlab.run.setup.setups import Setups
from storlab.study.cells import MAIN, Cell
from storlab.study.study import parse_study

FILE = '{ layer = "file", size = "64M" }'
EXT4 = '{ layer = "mkfs", type = "ext4" }, { layer = "mount" }'
pytestmark = pytest.mark.needs("root")

KEPT = FILE.replace(" }", ', keep = "run" }')


def cells(stack: str, rest: str = "") -> tuple[Cell, ...]:
    load = '[workload.w]\ncommand = { argv = ["true"] }\n'
    text = f'title = "x"\nprimary = "elapsed"\nstack = [{stack}]\n{rest}\n{load}'
    return parse_study(text.encode(), "s.toml", lambda name: "").cells


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
    assert mounts(folder) == []
    assert [*folder.glob("storlab-*")] == []


def check(folder: Path, body: Callable[[Setups], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with a_run(folder) as setups:
            await body(setups)

    asyncio.run(whole())


def in_a_run(test: Callable[[Setups], Awaitable[None]]) -> Callable[[Path], None]:
    """A test that is given the setups of a run."""
    return lambda tmp_path: check(tmp_path, test)


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
    assert [part.keep for part in common] == ["run", "run"], "the node, and its file with the loop device"
    assert directory(second) != directory(first)
    assert announced(setups.folder, "loop.detach") == 1


@in_a_run
async def test_whoever_asks_for_a_part_while_it_is_made_waits_for_the_same(setups: Setups) -> None:
    (cell,) = cells(f'{FILE}, {{ layer = "loop" }}, {EXT4}', '[nodes.host]\nkeep = "round"')
    both = await asyncio.gather(*(set_up(setups, cell) for _ in range(2)))
    assert both[0].parts == both[1].parts
    assert directory(both[0]) == directory(both[1])
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
    file = next(part for part in built.parts.values() if part.label.startswith("file"))
    done = await setups.parts.tear_down([file])
    kinds = [next(word for word in ("unmounted", "detached", "removed") if word in did) for did in done.did]
    last = max(place for place, kind in enumerate(kinds) if kind == "removed")
    assert kinds.index("unmounted") < kinds.index("detached") < last, done.did
    assert [part.label for part in setups.parts.all()] == ["node host"]


@in_a_run
async def test_ends_of_a_trial_a_round_and_a_run_undo_what_was_kept_that_long(setups: Setups) -> None:
    (cell,) = cells(f'{KEPT}, {{ layer = "loop", keep = "round" }}, {EXT4}')

    def kept() -> list[str]:
        return [part.label.partition(" for ")[0] for part in setups.parts.all()]

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
    assert [part.label for part in setups.parts.all()] == ["node host"], "whoever failed may have broken the rest"


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
    shared = next(part for key, part in other.parts.items() if part.label.startswith("node n-1"))
    setups.parts.losing(shared)("the node, too", "")
    with pytest.raises(NodeLost, match="the node, too"):
        await setups.until_lost(other)
