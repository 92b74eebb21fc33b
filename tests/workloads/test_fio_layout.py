"""Files that the agent lays out in fio's place: which those are, and that they are as fio's own."""

import asyncio
import json
import os
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from formats.fio.samples import run_fio
from laboratory.devices import new_device, sh, tmpfs
from storlab.base.errors import DiskFull
from storlab.layers.resources import Dir
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Confinement
from storlab.workloads.base import RunContext
from storlab.workloads.fio.layout import known_files
from storlab.workloads.fio.options import Job, Option
from storlab.workloads.fio.workload import FioWorkload

BASE: dict[str, Option] = {"size": "1M", "bs": "4k", "rw": "randread", "directory": "/t", "ioengine": "psync"}


def known(**options: Option) -> list[dict[str, Any]] | None:
    return known_files([Job("load", {**BASE, **options})], "/t")


def files(**options: Option) -> list[dict[str, Any]]:
    found = known(**options)
    assert found is not None
    return found


def test_names_sizes_and_contents_follow_from_the_options() -> None:
    (file,) = files()
    assert file == {"path": "/t/load.0.0", "size": 2**20, "block": 4096, "reserve": True}
    assert [file["path"] for file in files(numjobs=2, nrfiles=2)] == [
        "/t/load.0.0", "/t/load.0.1", "/t/load.1.0", "/t/load.1.1",
    ]  # fmt: skip
    assert {file["size"] for file in files(nrfiles=3)} == {2**20 // 3}
    assert [file["path"] for file in files(filename="one", numjobs=4)] == ["/t/one"]
    assert [file["path"] for file in files(filename_format="f$jobnum", numjobs=2)] == ["/t/f0", "/t/f1"]
    for written in ({"rw": "randrw"}, {"rw": "write", "overwrite": True}, {"rw": "write", "ioengine": "mmap"}):
        assert files(**written) == [file]
    assert files(rw="randwrite", fallocate="none") == [{**file, "block": None, "reserve": False}]


@pytest.mark.parametrize(
    "option",
    [
        {"buffer_compress_percentage": 50}, {"dedupe_percentage": 1}, {"zero_buffers": True}, {"buffer_pattern": "0x1"},
        {"refill_buffers": 1}, {"create_fsync": 0}, {"create_on_open": 1}, {"fill_device": 1}, {"io_size": "1M"},
        {"offset": "4k"}, {"filesize": "1M"}, {"unlink": 0}, {"verify": "md5"}, {"file_append": 1}, {"made_up": 1},
        {"size": "50%"}, {"size": "1MiB"}, {"size": "2k"}, {"bs": "4k,8k"}, {"bs": "1000"}, {"bs": 0},
        {"numjobs": "x"}, {"nrfiles": 0, "rw": "write:4k"}, {"numjobs": 65}, {"overwrite": "yes"}, {"blocksize": "8k"},
        {"fallocate": "keep"}, {"fallocate": "posix"}, {"ioengine": "null"}, {"rw": "trim"}, {"rw": "write:8k"},
        {"filename": "a:b"}, {"filename": "a/b"}, {"filename": "a", "nrfiles": 2}, {"filename": ".."},
        {"filename_format": "d/$jobnum"}, {"filename_format": "$clientuid"}, {"directory": "/t/sub"}, {"kb_base": 1000},
    ],
)  # fmt: skip
def test_what_is_not_known_exactly_is_left_to_fio(option: dict[str, Option]) -> None:
    assert known(**option) is None


def test_one_job_that_is_not_known_leaves_all_to_fio() -> None:
    jobs = [Job("a", BASE), Job("b", {**BASE, "verify": "md5"})]
    assert known_files(jobs[:1], "/t") is not None and known_files(jobs, "/t") is None


@dataclass(frozen=True)
class Found:
    """A file as far as whoever measures could tell. ``kinds``: of its extents, as filefrag(8) has them. ``packed``:
    bytes if compressed, which are a little fewer of fio's random ones.
    """

    size: int
    blocks: int
    mode: int
    owner: int
    kinds: frozenset[str]
    zeros: bool
    packed: int = field(compare=False)


def look(path: Path) -> Found:
    os.sync()
    about, data = path.stat(), path.read_bytes()
    zeros = not data.strip(b"\0")
    blocks = {data[at : at + 4096] for at in range(0, len(data), 4096)}
    assert zeros or len(blocks) == -(-len(data) // 4096)
    extents = subprocess.run(["filefrag", "-v", path], check=True, capture_output=True, text=True).stdout.splitlines()
    kinds = frozenset(word for line in extents if ":" in line for word in line.rpartition(":")[2].strip().split(","))
    kinds &= {"unwritten", "encoded"}
    packed = len(zlib.compress(data))
    return Found(about.st_size, about.st_blocks, about.st_mode, about.st_uid, kinds, zeros, packed)


FILE_SYSTEMS = {
    "ext4": ("mkfs.ext4 -q -F", "noatime"),
    "xfs": ("mkfs.xfs -q -f", "noatime"),
    "btrfs": ("mkfs.btrfs -q -f", "compress-force=zstd"),
}


@pytest.fixture(params=FILE_SYSTEMS)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    make, options = FILE_SYSTEMS[request.param]
    path = tmp_path / "mnt"
    path.mkdir()
    with new_device(tmp_path / "disk.img", 384 * 2**20) as device:
        sh(*make.split(), device.path)
        sh("mount", "-o", options, device.path, str(path))
        try:
            yield path
        finally:
            sh("umount", str(path))


def prepare(target: Path, folder: Path, **options: Any) -> dict[str, Any] | None:
    """As in a trial, confined; what the agent recorded, or ``None`` if fio did it."""
    folder.mkdir(exist_ok=True)
    target.mkdir(exist_ok=True)

    async def prepared() -> None:
        async with local_node("host") as node:
            user = 62_000 if os.geteuid() == 0 else None
            confined = node.confined(Confinement(writable=(str(target), str(folder)), user=user))
            place = RunContext(confined, Dir("host", str(target)), str(folder), "load", 0.0, 7, {"target": str(target)})
            workload = FioWorkload.model_validate(options)
            await workload.prepare(place)
            await workload.launch(place)  # writes the job file

    asyncio.run(prepared())
    record: dict[str, Any] = json.loads((folder / "layout.json").read_text())
    return record if "seed" in record else None


READ: dict[str, dict[str, Option]] = {
    "random": {"rw": "randread", "bs": "4k", "size": "3M"},
    "mixed": {"rw": "randrw", "bs": "64k", "size": "1M", "numjobs": 2, "nrfiles": 3},
    "again": {
        "rw": "write", "bs": "128k", "size": "3000k", "overwrite": True, "fallocate": "none",
        "filename": "again",
    },
    "direct": {"rw": "read", "bs": "1M", "size": "5000k", "fallocate": "none", "direct": True, "ioengine": "libaio"},
    "mapped": {"rw": "write", "bs": "4k", "size": "1M", "ioengine": "mmap"},
}  # fmt: skip
ONLY_WRITTEN: dict[str, dict[str, Option]] = {
    "reserved": {"rw": "randwrite", "bs": "4k", "size": "3M"},
    "growing": {"rw": "write", "bs": "16k", "size": "1M", "fallocate": "none"},
}


def laying_out(folder: Path) -> set[str]:
    ran = run_fio("--create_only=1", "job.fio", cwd=folder)
    assert ran.returncode == 0
    return {line.partition(":")[0] for line in ran.stdout.decode().splitlines() if "Laying out" in line}


@pytest.mark.needs("root", "fio", "mkfs.xfs", "mkfs.btrfs")
def test_the_agents_files_are_as_fios_and_fio_lays_out_nothing_more(directory: Path, tmp_path: Path) -> None:
    ours, theirs, jobs = directory / "agent", directory / "fio", {**READ, **ONLY_WRITTEN}
    recorded = prepare(ours, tmp_path / "of-agent", jobs=jobs)
    assert recorded is not None and all(file["how"] != "found" for file in recorded["files"])
    assert prepare(theirs, tmp_path / "of-fio", jobs=jobs, unlink=False) is None
    found = {path.name: look(path) for path in ours.iterdir()}
    others = {path.name: look(path) for path in theirs.iterdir()}
    assert found == others and all(found[name].packed >= others[name].packed for name in found)
    assert {name.partition(".")[0] for name, file in found.items() if not file.zeros} == READ.keys()
    before = {path: path.stat().st_mtime_ns for path in ours.iterdir()}
    assert laying_out(tmp_path / "of-agent") == {"growing"}
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed <= {"growing.0.0"}
    for path in ours.iterdir():
        path.unlink()
    assert laying_out(tmp_path / "of-agent") == jobs.keys()


@pytest.mark.needs("root", "fio")
def test_files_are_found_again_and_of_a_full_file_system_fio_speaks(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "2m") as small:
        first = prepare(small / "a", tmp_path / "folder", rw="read", bs="4k", size="1M")
        again = prepare(small / "a", tmp_path / "folder", rw="read", bs="4k", size="1M")
        assert first is not None and [file["how"] for file in first["files"]] == ["written"]
        assert again is not None and [file["how"] for file in again["files"]] == ["found"]
        with pytest.raises(DiskFull, match="laying out a file of load"):
            prepare(small / "b", tmp_path / "folder", rw="read", bs="4k", size="4M")
