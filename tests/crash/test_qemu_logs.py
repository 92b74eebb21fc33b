"""Logs as QEMU's own filter writes them, without a guest: qemu-io sends requests to a disk as a guest's is opened."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from storlab.crash.check import Cutter
from storlab.crash.cut import durable
from storlab.formats.log_writes import Flag, WriteLog, read_log
from storlab.layers.attach.blockdev import Cache, blockdev
from storlab.layers.resources import LoggedFile

SIZE = 4 * 2**20
BLOCK = 4096

pytestmark = pytest.mark.skipif(shutil.which("qemu-io") is None, reason="needs qemu-io: apt install qemu-utils")


def logged(folder: Path, commands: list[str], cache: Cache = "writeback") -> WriteLog:
    """The log of these commands, see qemu-io(1)."""
    for name in ("disk.img", "start.img", "write.log"):
        (folder / name).touch()
    for name in ("disk.img", "start.img"):
        (folder / name).write_bytes(b"\xee" * SIZE)
    file = LoggedFile("host", str(folder / "disk.img"), SIZE, log=str(folder / "write.log"), start="")
    disk = json.dumps(blockdev(file, "disk0", cache, "threads", discard=True))
    argv = ["qemu-io", "-d", "unmap", "-t", "unsafe" if cache == "unsafe" else "writeback", f"json:{disk}"]
    ran = subprocess.run(argv, input="\n".join(commands), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and "rror" not in ran.stdout + ran.stderr, ran
    return read_log(folder / "write.log")


def replays(folder: Path, log: WriteLog) -> bool:
    return Cutter(log, folder / "start.img", folder / "disk.img", folder, 0).difference() is None


@pytest.mark.parametrize("seed", range(5))
def test_requests_in_flight_at_the_same_time_replay_to_the_same_bytes(tmp_path: Path, seed: int) -> None:
    """Those that overlap in time don't overlap on the disk, as file systems see to."""
    random, commands = Random(seed), []
    for _ in range(20):
        blocks = random.sample(range(4, SIZE // BLOCK, 4), 16)
        commands += [
            f"aio_write -P {random.randrange(256)} {at * BLOCK} {random.randint(1, 4) * BLOCK}" for at in blocks
        ]
        commands += [f"aio_write -z {random.randrange(4) * BLOCK} {BLOCK}", "aio_flush"]
        commands += [f"discard {random.randrange(SIZE // BLOCK) * BLOCK} {BLOCK}"] * random.randint(0, 1)
    log = logged(tmp_path, commands)
    assert len(log.entries) > 20 * 17
    assert replays(tmp_path, log)


def test_a_write_with_fua_is_followed_by_its_flush(tmp_path: Path) -> None:
    log = logged(tmp_path, ["write 0 4k", "write -f 4k 4k", "write 8k 4k", "flush", "write 12k 4k"])
    kinds = [(entry.offset // BLOCK, bool(entry.flags & Flag.FLUSH)) for entry in log.entries]
    assert kinds[:6] == [(0, False), (1, False), (0, True), (2, False), (0, True), (3, False)]
    assert [durable(log.entries, moment) for moment in range(7)] == [0, 0, 0, 3, 3, 5, 5]
    assert replays(tmp_path, log)


def test_a_mode_that_ignores_flushes_logs_none(tmp_path: Path) -> None:
    log = logged(tmp_path, ["write 0 4k", "flush", "write -f 4k 4k", "flush"], "unsafe")
    assert [entry.flags for entry in log.entries] == [0, 0]
    assert replays(tmp_path, log)


def test_each_entry_is_counted_by_the_time_that_its_request_is_answered(tmp_path: Path) -> None:
    log = logged(tmp_path, ["write 0 4k"] * 50)
    assert int.from_bytes((tmp_path / "write.log").read_bytes()[16:24], "little") == len(log.entries) >= 50
