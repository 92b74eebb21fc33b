"""What is on the medium after a power cut, and the images that follow: of every log, and of those that QEMU writes."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from crash.logs import SECTOR, Request, log_bytes, replayed
from storlab.base.errors import ParseError
from storlab.crash.check import Cutter, copy_image, first_difference, replaying
from storlab.crash.cut import Loss, drawn, durable, in_flight, nothing, survivors
from storlab.crash.results import exact_interval
from storlab.layers.attach.blockdev import Cache, blockdev
from storlab.layers.resources import LoggedFile
from storlab.tools.log_writes import Flag, WriteLog, read_log

Data = st.DataObject
SECTORS = 24
START = bytes(range(1, SECTORS + 1)) * 1
DISK = b"".join(bytes([value]) * SECTOR for value in START)
UNITS = (512, 1024, 4096)


def writes(flags: st.SearchStrategy[int]) -> st.SearchStrategy[Request]:
    """No two of them bring the same: each sector is told by its value."""
    contents = st.binary(min_size=1, max_size=8).map(lambda data: b"".join(bytes([each]) * SECTOR for each in data))
    return st.builds(Request, st.integers(0, SECTORS - 8), contents, flags)


FLUSH = Request(flags=Flag.FLUSH)
flagged = st.sampled_from([Flag.FUA, Flag.FLUSH, Flag.FLUSH | Flag.FUA])
discards = st.builds(Request, st.integers(0, 16), st.just(b""), st.just(Flag.DISCARD), st.integers(1, 8))
others = st.sampled_from([FLUSH, Request(flags=Flag.MARK)])
logs = st.lists(st.one_of(writes(st.just(0)), writes(flagged), discards, others), max_size=25)
losses = st.builds(Loss, st.floats(0, 1), st.floats(0, 1), st.sampled_from(UNITS))


def cut(requests: list[Request], moment: int, loss: Loss, seed: int, begin: int = 0) -> bytes:
    (image,) = cuts(requests, [moment], loss, seed, begin)
    return image


def cuts(requests: list[Request], moments: Iterable[int], loss: Loss, seed: int, begin: int = 0) -> list[bytes]:
    """The disk after each of several cuts, one after another."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "log").write_bytes(log_bytes(requests))
        (folder / "start").write_bytes(DISK)
        cutter = Cutter(read_log(folder / "log"), folder / "start", folder / "end", folder, begin)
        cutter.rewind()
        images = []
        for moment in moments:
            cutter.cut(moment, loss, Random(seed))
            images.append(cutter.image.read_bytes())
        return images


@given(logs, st.data(), st.sampled_from(UNITS))
def test_a_cut_that_loses_nothing_is_a_plain_replay(requests: list[Request], data: st.DataObject, unit: int) -> None:
    moment = data.draw(st.integers(0, len(requests)))
    assert cut(requests, moment, nothing(unit), 1) == replayed(DISK, requests[:moment])


@given(logs, st.data(), losses, st.integers(0, 2**16))
def test_what_is_durable_is_there_and_only_that(requests: list[Request], data: Data, loss: Loss, seed: int) -> None:
    moment = data.draw(st.integers(0, len(requests)))
    after = cut(requests, moment, loss, seed)
    for sector in range(SECTORS):
        assert after[sector * SECTOR : (sector + 1) * SECTOR] in allowed(requests[:moment], sector)


def allowed(requests: list[Request], sector: int) -> set[bytes]:
    """What a sector may hold: what the last durable write brought, or any write after that."""
    at = sector * SECTOR
    found = [(-1, DISK[at : at + SECTOR], True)]
    for number, each in enumerate(requests):
        if each.sector <= sector < each.sector + each.length // SECTOR:
            skip = (sector - each.sector) * SECTOR
            content = each.data[skip : skip + SECTOR] or bytes(SECTOR)
            flushed = any(later.flags & Flag.FLUSH for later in requests[number + 1 :])
            found.append((number, content, bool(each.flags & Flag.FUA) or flushed))
    last = max(index for index, (_, _, sure) in enumerate(found) if sure)
    return {content for _, content, _ in found[last:]}


@given(writes(st.just(0)), losses, st.integers(0, 2**16))
def test_a_unit_is_there_whole_or_not_at_all(request: Request, loss: Loss, seed: int) -> None:
    after = cut([request], 1, loss, seed)
    whole = replayed(DISK, [request])
    for at in range(0, len(DISK), loss.unit):
        assert after[at : at + loss.unit] in (DISK[at : at + loss.unit], whole[at : at + loss.unit])


def page(seed: int, unit: int) -> bytes:
    """A page of 4k over another, torn at ``unit``."""
    return cut([Request(0, b"\xff" * 4096)], 1, Loss(0.0, 1.0, unit), seed)[:4096]


def test_a_page_is_torn_at_512_only_and_overlapping_writes_come_in_any_order() -> None:
    old, new = DISK[:4096], b"\xff" * 4096
    assert {page(seed, 4096) for seed in range(20)} == {old, new}
    assert {page(seed, 512) for seed in range(20)} - {old, new}
    requests = [Request(0, b"a" * 1024), Request(0, b"b" * 1024)]
    seen = {cut(requests, 2, Loss(0.5, 0.5, 512), seed)[:1024] for seed in range(200)}
    first, second = (DISK[at : at + SECTOR] for at in (0, SECTOR))
    a, b = b"a" * SECTOR, b"b" * SECTOR
    assert seen == {one + other for one in (first, a, b) for other in (second, a, b)}


def test_a_disk_without_a_write_cache_loses_nothing_that_was_completed(tmp_path: Path) -> None:
    entries = log_of(tmp_path, Request(0, b"a" * SECTOR), FLUSH, Request(1, b"b" * SECTOR)).entries
    assert [durable(entries, moment, write_through=True) for moment in range(4)] == [0, 1, 2, 3]


def test_what_was_there_before_the_load_counts_as_durable() -> None:
    requests = [Request(0, b"a" * SECTOR), Request(1, b"b" * SECTOR)]
    everything = Loss(1.0, 0.0, 512)
    assert cut(requests, 2, everything, 1, begin=1) == replayed(DISK, requests[:1])
    assert cut(requests, 2, everything, 1) == DISK


@given(logs, st.integers(0, 2**16))
def test_the_same_seed_cuts_the_same(requests: list[Request], seed: int) -> None:
    loss = drawn(Random(seed), 512)
    assert cut(requests, len(requests), loss, seed) == cut(requests, len(requests), loss, seed)


@given(logs, st.lists(st.integers(0, 25), min_size=1, max_size=5), losses, st.integers(0, 2**16))
def test_cuts_in_a_row_are_as_each_alone(requests: list[Request], moments: list[int], loss: Loss, seed: int) -> None:
    moments = sorted(min(moment, len(requests)) for moment in moments)
    assert cuts(requests, moments, loss, seed) == [cut(requests, moment, loss, seed) for moment in moments]


def log_of(tmp_path: Path, *requests: Request) -> WriteLog:
    (tmp_path / "log").write_bytes(log_bytes(requests))
    return read_log(tmp_path / "log")


def test_only_a_flush_that_was_completed_covers_what_came_before(tmp_path: Path) -> None:
    write, both = Request(0, b"a" * SECTOR), Request(1, b"b" * SECTOR, Flag.FLUSH)
    entries = log_of(tmp_path, write, FLUSH, write, both, write).entries
    assert [durable(entries, moment) for moment in range(6)] == [0, 0, 2, 2, 3, 3]
    assert [in_flight(entries, durable(entries, moment), moment) for moment in range(6)] == [0, 1, 0, 1, 1, 2]
    assert [*survivors(entries, 3, 5, Loss(1.0, 0.0, 512), Random(1))] == []


def test_the_end_image_is_compared_to_the_byte(tmp_path: Path) -> None:
    requests = [Request(3, b"a" * 1024), FLUSH, Request(4, b"", Flag.DISCARD, 2)]
    (tmp_path / "log").write_bytes(log_bytes(requests))
    (tmp_path / "start").write_bytes(DISK)
    end = bytearray(replayed(DISK, requests))
    cutter = Cutter(read_log(tmp_path / "log"), tmp_path / "start", tmp_path / "end", tmp_path, 0)
    (tmp_path / "end").write_bytes(end)
    assert cutter.difference() == ""
    end[-1] ^= 1
    (tmp_path / "end").write_bytes(end)
    assert cutter.difference() == f"they differ at byte {len(DISK) - 1}, which nothing in the log wrote"
    (tmp_path / "end").write_bytes(end[:-1])
    assert cutter.difference() == f"they differ at byte {len(DISK) - 1}, which nothing in the log wrote"
    end[4 * SECTOR] ^= 1
    (tmp_path / "end").write_bytes(end)
    assert cutter.difference() == f"they differ at byte {4 * SECTOR}, which entry 3 of the log discarded"


def test_a_write_beyond_the_end_of_the_disk_is_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, Request(SECTORS, b"a" * SECTOR))
    (tmp_path / "image").write_bytes(DISK)
    beyond = pytest.raises(ParseError, match=f"a write at byte {len(DISK)} lies beyond the end of the disk")
    with replaying(log, tmp_path / "image") as replay, beyond:
        replay.write_all(log.entries)
    assert (tmp_path / "image").read_bytes() == DISK


def test_a_copy_has_the_same_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.seek(64 * 2**20)
        file.write(b"x")
        file.truncate(2**30)
    copy_image(source, target)
    assert first_difference(source, target) is None and target.stat().st_size == 2**30
    assert target.stat().st_blocks * 512 < 2**20


SIZE = 4 * 2**20
BLOCK = 4096

needs_qemu_io = pytest.mark.needs("qemu-io")


def logged(folder: Path, commands: list[str], cache: Cache = "writeback") -> WriteLog:
    """The log of these commands, see qemu-io(1)."""
    for name in ("disk.img", "start.img", "write.log"):
        (folder / name).write_bytes(b"\xee" * SIZE if name.endswith("img") else b"")
    file = LoggedFile("host", str(folder / "disk.img"), SIZE, log=str(folder / "write.log"), start="")
    disk = json.dumps(blockdev(file, "disk0", cache, "threads", discard=True))
    argv = ["qemu-io", "-d", "unmap", "-t", "unsafe" if cache == "unsafe" else "writeback", f"json:{disk}"]
    ran = subprocess.run(argv, input="\n".join(commands), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and "rror" not in ran.stdout + ran.stderr, ran
    return read_log(folder / "write.log")


def replays(folder: Path, log: WriteLog) -> bool:
    return Cutter(log, folder / "start.img", folder / "disk.img", folder, 0).difference() == ""


@needs_qemu_io
@pytest.mark.parametrize("seed", range(5))
def test_requests_in_flight_at_the_same_time_replay_to_the_same_bytes(tmp_path: Path, seed: int) -> None:
    """Those that overlap in time don't overlap on the disk, as file systems see to."""
    random, commands = Random(seed), []
    for _ in range(20):
        blocks = random.sample(range(4, SIZE // BLOCK, 4), 16)
        lengths = (random.randint(1, 4) * BLOCK for _ in blocks)
        commands += [f"aio_write -P {random.randrange(256)} {at * BLOCK} {next(lengths)}" for at in blocks]
        commands += [f"aio_write -z {random.randrange(4) * BLOCK} {BLOCK}", "aio_flush"]
        commands += [f"discard {random.randrange(SIZE // BLOCK) * BLOCK} {BLOCK}"] * random.randint(0, 1)
    log = logged(tmp_path, commands)
    assert len(log.entries) > 20 * 17 and replays(tmp_path, log)


@needs_qemu_io
def test_a_write_with_fua_is_followed_by_its_flush(tmp_path: Path) -> None:
    log = logged(tmp_path, ["write 0 4k", "write -f 4k 4k", "write 8k 4k", "flush", "write 12k 4k"])
    kinds = [(entry.offset // BLOCK, bool(entry.flags & Flag.FLUSH)) for entry in log.entries]
    assert kinds[:6] == [(0, False), (1, False), (0, True), (2, False), (0, True), (3, False)]
    assert [durable(log.entries, moment) for moment in range(7)] == [0, 0, 0, 3, 3, 5, 5]
    assert replays(tmp_path, log)


@needs_qemu_io
def test_a_mode_that_ignores_flushes_logs_none_and_each_entry_is_counted_once_answered(tmp_path: Path) -> None:
    log = logged(tmp_path, ["write 0 4k", "flush", "write -f 4k 4k", "flush"], "unsafe")
    assert [entry.flags for entry in log.entries] == [0, 0] and replays(tmp_path, log)
    log = logged(tmp_path, ["write 0 4k"] * 50)
    assert int.from_bytes((tmp_path / "write.log").read_bytes()[16:24], "little") == len(log.entries) >= 50


def test_none_of_thirty_is_not_safe() -> None:
    assert exact_interval(0, 30) == pytest.approx((0.0, 0.1157), abs=1e-4)  # 1 - 0.025 ** (1 / 30)
    assert exact_interval(0, 5) == pytest.approx((0.0, 0.5218), abs=1e-4)
    assert exact_interval(30, 30) == pytest.approx((0.8843, 1.0), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_each_limit_leaves_a_tail_of_a_fortieth(moments: int, data: st.DataObject) -> None:
    broken = data.draw(st.integers(0, moments))
    lower, upper = exact_interval(broken, moments)
    assert lower <= broken / moments <= upper
    assert lower == 0 or binom.sf(broken - 1, moments, lower) == pytest.approx(0.025, rel=1e-6)
    assert upper == 1 or binom.cdf(broken, moments, upper) == pytest.approx(0.025, rel=1e-6)
