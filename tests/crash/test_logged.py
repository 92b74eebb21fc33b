"""Where the log goes underneath a study's disk, what of a commit's acknowledgement is noted, and the durable twin."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from crash.logs import SECTOR, Request, log_bytes
from laboratory.samples import sample
from storlab.base.errors import TrialError
from storlab.crash.check import Checker, Cutter
from storlab.crash.logged import durable_twin, logged_study, witnessed
from storlab.crash.recover import Acknowledged
from storlab.crash.results import Broken
from storlab.layers.attach.attachment import VirtioBlkLayer
from storlab.layers.attach.blockdev import Cache
from storlab.layers.database.base import DatabaseLayer
from storlab.layers.resources import LoggedFile
from storlab.study.cells import Cell
from storlab.study.study import load_study
from storlab.tools.log_writes import read_log
from storlab.workloads.base import Pages
from storlab.workloads.ledger import LedgerWorkload

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FLUSH = Request(flags=1)


def test_the_log_lies_right_beneath_the_disk_that_the_load_commits_to() -> None:
    for cell in logged_study(load_study(EXAMPLES / "power-cut.toml")).cells:
        found = witnessed(cell)
        assert [link.layer.layer for link in found.chain.below] == ["file", "write-log"]
        assert [layer.layer for layer in found.above] == ["mkfs", "mount"]


@pytest.mark.parametrize("cache", ["none", "writeback", "writethrough", "directsync", "unsafe"])
def test_only_a_mode_that_ignores_flushes_keeps_them_out_of_the_log(cache: Cache) -> None:
    file = LoggedFile("host", "/x/disk.img", 2**20, log="/x/write.log", start="/x/start.img")
    (node,) = VirtioBlkLayer(cache=cache).demands(file, "disk0").devices.blockdevs
    top: dict[str, Any] = dict(node)
    assert (top["driver"], top["node-name"]) == ("blklogwrites", "disk0")
    assert top["cache"]["no-flush"] is (cache == "unsafe")
    assert top["file"]["cache"] == top["file"]["file"]["cache"] == {"direct": top["cache"]["direct"], "no-flush": True}
    assert (top["file"]["file"]["filename"], top["log"]["filename"]) == ("/x/disk.img", "/x/write.log")


def test_a_commit_is_noted_with_the_size_of_the_log_when_word_of_it_came(tmp_path: Path) -> None:
    requests = [Request(number, b"x" * SECTOR) for number in range(6)]
    data, path = log_bytes(requests), tmp_path / "log"
    heard = Acknowledged(LedgerWorkload(), path)
    for said, entries in ((b"1\n2", 2), (b"3\n\nnoise\n24\n25\n", 3), (b"7\n", 5)):
        path.write_bytes(data[: SECTOR + entries * 2 * SECTOR])
        heard.hear(said)
    path.write_bytes(data)
    assert heard.positions(read_log(path)) == [(2, 1), (3, 25), (5, 25)]  # 23: a line in two pieces; 7 takes none back
    with pytest.raises(TrialError, match="a line of more than"):
        heard.hear(b"x" * 5000)


def checker(tmp_path: Path, requests: list[Request], commits: list[tuple[int, int]], look: Any, **more: Any) -> Checker:
    for name, data in {"log": log_bytes(requests), "start": bytes(8 * SECTOR), "end": bytes(8 * SECTOR)}.items():
        (tmp_path / name).write_bytes(data)
    cutter = Cutter(read_log(tmp_path / "log"), tmp_path / "start", tmp_path / "end", tmp_path, 0)
    return Checker(cutter, commits, look, 1, "1", **more)


def test_a_cut_asks_for_all_that_was_acknowledged_by_then(tmp_path: Path) -> None:
    asked: list[tuple[int, int]] = []

    async def look(image: Path, acknowledged: int) -> None:
        asked.append((sum(image.read_bytes()) // SECTOR, acknowledged))

    requests = [each for number in range(8) for each in (Request(number, b"\1" * SECTOR), FLUSH)]
    asking = checker(tmp_path, requests, [(2 * n, n) for n in range(1, 9)], look)
    found = asyncio.run(asking.counted(20, 512))
    assert [cut.acknowledged for cut in found] == [cut.entries // 2 for cut in found]
    assert all(written >= acknowledged for written, acknowledged in asked)  # each was flushed before


def test_the_first_image_that_is_broken_is_kept_as_it_was_before_anybody_looked(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def look(image: Path, acknowledged: int) -> Broken:
        seen.append(image.read_bytes())
        image.write_bytes(b"changed".ljust(8 * SECTOR))
        return Broken("lost", "all of it")

    kept: list[bytes] = []
    requests = [Request(number % 8, bytes([number]) * SECTOR) for number in range(1, 60)]
    asking = checker(tmp_path, requests, [], look, keep=lambda image: kept.append(image.read_bytes()))
    found = asyncio.run(asking.counted(9, 512))
    assert len(found) == len(seen) == 9 and kept == seen[:1]


def test_a_log_that_lacks_a_write_fails_its_control(tmp_path: Path) -> None:
    async def look(image: Path, acknowledged: int) -> None:
        raise AssertionError("nothing is looked at")

    control = asyncio.run(checker(tmp_path, [Request(2, b"\1" * SECTOR)], [], look).whole())
    assert (control.passed, control.detail) == (
        False,
        "they differ at byte 1024, which entry 1 of the log wrote; perhaps a program changed its buffer meanwhile",
    )


def test_pages_are_torn_where_something_is_in_flight_and_no_more_once_one_is(tmp_path: Path) -> None:
    looked: list[int] = []

    async def look(image: Path, acknowledged: int) -> Broken | None:
        looked.append(1)
        data = image.read_bytes()
        torn = any(len(set(data[at : at + 2 * SECTOR])) > 1 for at in range(0, len(data), 2 * SECTOR))
        return Broken("torn", "half a page") if torn else None

    rounds = [(Request(2 * (n % 4), bytes([1 + n]) * 2 * SECTOR), FLUSH, FLUSH, FLUSH) for n in range(50)]
    tearing = checker(tmp_path, [request for each in rounds for request in each], [], look)
    assert tearing.cutter.at_risk() == [*range(1, 200, 4)]
    whole, torn = asyncio.run(tearing.of_pages(Pages(2 * SECTOR, protected=False)))
    assert whole.passed and torn.passed and torn.detail == f"at cut {len(looked) - 10}"


def test_pages_that_are_never_torn_fail_their_control(tmp_path: Path) -> None:
    async def look(image: Path, acknowledged: int) -> None:
        return None

    asking = checker(tmp_path, [Request(0, b"\1" * SECTOR)], [], look)
    whole, torn = asyncio.run(asking.of_pages(Pages(SECTOR, protected=False)))
    assert (whole.passed, torn.passed, torn.detail) == (True, False, "40 cuts, and none did")


def cell_with(folder: Path, database: str) -> Cell:
    path = folder / "study.toml"
    path.write_text(sample(__file__, "cases/database.toml", database=database))
    (cell,) = load_study(path).cells
    return cell


def database_of(cell: Cell) -> DatabaseLayer:
    (found,) = (layer for each in cell.declared for layer in each.layers if isinstance(layer, DatabaseLayer))
    return found


@pytest.mark.parametrize(
    ("database", "keys", "twin"),
    [
        ('layer = "mariadb", flush_at_commit = 0', "flush_at_commit = 0", 'layer = "mariadb"'),
        ('layer = "mariadb", flush_at_commit = 2, pool = "16M"', "flush_at_commit = 2",
         'layer = "mariadb", pool = "16M"'),
        ('layer = "postgresql", flush_at_commit = false', "flush_at_commit = false", 'layer = "postgresql"'),
        ('layer = "postgresql", settings = { fsync = "off", jit = "off" }', "fsync = off",
         'layer = "postgresql", settings = { jit = "off" }'),
    ],
)  # fmt: skip
def test_it_lacks_what_defers_durability_and_nothing_else(tmp_path: Path, database: str, keys: str, twin: str) -> None:
    found = durable_twin(cell_with(tmp_path, database))
    assert found is not None and found.name == f"without {keys}"
    assert database_of(found.cell) == database_of(cell_with(tmp_path, twin))


def test_a_durable_set_up_has_none(tmp_path: Path) -> None:
    assert durable_twin(cell_with(tmp_path, 'layer = "mariadb", doublewrite = false')) is None
