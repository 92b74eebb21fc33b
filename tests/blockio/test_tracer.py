"""The tracer against disks that do what loop devices never do: commands of a driver's own, and requests sent back."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from laboratory.block import LoopDisk, loop_disk, traced
from storlab.base.programs import agent_path
from storlab.blockio.requests import by_disk
from storlab.blockio.trace_output import Output, decode_lines, decode_output

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("alone_tracing")]

HOOKS = ("btf", "tracepoint")
BTF = Path("/sys/kernel/btf/vmlinux")
NOBODY = str(1 << 40)  # the number of no cgroup


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopDisk]:
    with loop_disk(tmp_path_factory.mktemp("tracer") / "disk.img", 16 * 1024**2) as disk:
        yield disk


@pytest.fixture
def serial() -> Path:
    """A file that is read by a command to its disk: of virtio's disks."""
    for file in sorted(Path("/sys/block").glob("vd*/serial")):
        return file
    pytest.skip("no disk of virtio here")


def own(program: str, folder: Path) -> str:
    """A copy under a name that no other worker's has: by it the tracer tells commands apart, also on a shared disk."""
    name = f"{program}-{os.getpid()}"  # of which the kernel keeps 15 letters
    shutil.copy(shutil.which(program) or program, folder / name)
    return name


def counted(output: bytes) -> Output:
    return decode_output(BytesIO(output))


@pytest.mark.parametrize("hook", HOOKS)
def test_a_command_of_the_drivers_own_lies_nowhere(hook: str, serial: Path, tmp_path: Path) -> None:
    name, cat = serial.parent.name, own("cat", tmp_path)
    operation = {"btf": "drv_in", "tracepoint": "other"}[hook]
    with traced("--disk", name, "--op", operation, "--events", "--by-comm", "--hook", hook) as tracing:
        subprocess.run([tmp_path / cat, serial], check=True, capture_output=True)
    found = counted(tracing.output)
    row = (name, operation, "", 20, 0, cat, 1, (0,) * 5)
    assert [each for each in found.counts.requests if each[5] == cat] == [row]
    events = [line for line in decode_lines(tracing.output) if isinstance(line, tuple) and line[6] == cat]
    assert [event[:5] for event in events] == [(name, operation, "", 20, 0)]
    assert sum(each[5] for each in found.counts.latency if each[2] == "service") >= 1
    assert found.counts.in_flight == 0
    histograms = by_disk(found.counts.request_frame())[name]
    assert (histograms.total, histograms.alignment) == (0, {})


@pytest.mark.needs("fio")
@pytest.mark.parametrize("hook", HOOKS)
def test_a_request_that_is_sent_back_counts_once_for_its_first_command(hook: str, tmp_path: Path) -> None:
    load, file = tmp_path / own("fio", tmp_path), tmp_path / "file"
    file.write_bytes(os.urandom(64 * 1024**2))
    os.sync()
    number = file.stat().st_dev
    whole = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    name = whole.parent.name if (whole / "partition").exists() else whole.name
    if not (Path("/sys/block") / name / "mq").exists():
        pytest.skip("files lie on no disk that makes requests")
    arguments = ["--disk", name, "--op", "read", "--hook", hook]
    argv = [str(load), "--name=load", f"--filename={file}", "--rw=randread", "--bs=256k", "--direct=1"]
    disk = LoopDisk(f"/dev/{name}")
    before = disk.statistics()
    with (
        traced(*arguments, "--by-comm") as apart,
        traced(*arguments, "--comm", load.name) as alone,
        traced(*arguments, "--comm", load.name, "--no-latency") as untimed,
    ):
        subprocess.run([*argv, "--ioengine=libaio", "--iodepth=128", "--size=64M"], check=True, capture_output=True)
    kernel = disk.statistics() - before
    counts = counted(apart.output).counts
    if not any(what == "requeue" for _, _, what, _ in counts.others):
        pytest.skip("this disk sends no request back")
    assert sum(row[6] for row in counts.requests) <= kernel.reads + counts.in_flight
    issued = by_place(row for row in counts.requests if row[5] == load.name)
    assert issued
    assert by_place(counted(alone.output).counts.requests) == issued
    assert by_place(counted(untimed.output).counts.requests) == issued


def by_place(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[int, int]]:
    """Length, alignment of the offset → requests."""
    found = Counter[tuple[int, int]]()
    for _, _, _, length, alignment, _, count, _ in rows:
        found[length, alignment] += count
    return found


def test_times_in_the_queue_are_not_told_where_the_kernel_does_not_keep_them(disk: LoopDisk) -> None:
    reading = ["dd", f"if={disk.path}", "of=/dev/null", "bs=4k", "count=8", "iflag=direct", "status=none"]
    subprocess.run(reading, check=True)
    (disk.queue / "iostats").write_text("0")
    try:
        with traced("--disk", disk.name, "--op", "read") as tracing:
            subprocess.run(reading, check=True)
    finally:
        (disk.queue / "iostats").write_text("1")
    latency = counted(tracing.output).counts.latency
    assert sum(count for _, _, what, _, _, count in latency if what == "service") == 8
    assert not [row for row in latency if row[2] == "queued"]


def write_back(disk: LoopDisk) -> None:
    argv = ["dd", "if=/dev/zero", f"of={disk.path}", "bs=64k", "count=8", "conv=notrunc", "status=none"]
    subprocess.run(argv, check=True)
    os.sync()


@pytest.mark.parametrize("hook", HOOKS)
def test_what_the_page_cache_writes_back_is_issued_by_the_kernel(hook: str, disk: LoopDisk) -> None:
    with traced("--disk", disk.name, "--op", "write", "--cgroup", NOBODY, "--hook", hook) as tracing:
        write_back(disk)
    frames = counted(tracing.output).counts.frames_by_issuer()
    assert frames.kernel["count"].sum() > 0
    assert frames.own.is_empty()


def with_types(types: Path | None, *arguments: str) -> list[str]:
    """The tracer where the kernel has these types, or none, in a mount namespace of its own."""
    hide = f"mount --bind '{types}' {BTF}" if types else f"mount -t tmpfs tmpfs {BTF.parent}"
    return ["unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "sh", str(agent_path()), "trace", *arguments]


def run(argv: list[str], load: Callable[[], object]) -> Output:
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        load()
        process.send_signal(signal.SIGTERM)
        return counted(first + process.stdout.read())


def test_without_the_kernels_types_no_thread_is_taken_for_its_own_and_it_says_so(disk: LoopDisk) -> None:
    found = run(with_types(None, "--disk", disk.name, "--op", "write", "--cgroup", NOBODY), partial(write_back, disk))
    assert found.started.hook == "tracepoint"
    assert "this kernel has no BTF" in str(found.started.reason)
    assert "its own threads are not told from other processes" in str(found.started.reason)
    frames = found.counts.frames_by_issuer()
    assert frames.kernel.is_empty() and frames.own.is_empty()
    assert frames.others["count"].sum() > 0


def renamed_operations(types: bytes) -> bytes:
    """As before Linux 6.0, whose operations are of the type ``req_opf``, and with ZONE_APPEND for DRV_IN."""
    header, type_at, type_size, text_at, text_size = struct.unpack_from("<IIIII", types, 4)
    text = types[header + text_at : header + text_at + text_size]
    new = bytearray(types[: header + text_at] + text + b"req_opf\0")
    struct.pack_into("<I", new, 20, text_size + len(b"req_opf\0"))
    at = header + type_at
    while at < header + type_at + type_size:
        name, info, _ = struct.unpack_from("<III", new, at)
        kind, members = info >> 24 & 31, info & 0xFFFF
        place, at = at, at + 12
        sizes = {1: 4, 3: 12, 14: 4, 17: 4, **dict.fromkeys((4, 5, 15, 19), 12 * members)}
        size = sizes.get(kind, 8 * members if kind in (6, 13) else 0)
        if kind == 6 and text[name : text.index(b"\0", name)] == b"req_op":
            struct.pack_into("<I", new, place, text_size)
            for member in range(at, at + size, 8):
                (of,) = struct.unpack_from("<I", new, member)
                if text[of : text.index(b"\0", of)] == b"REQ_OP_ZONE_APPEND":
                    struct.pack_into("<I", new, member + 4, 34)
        at += size
    return bytes(new)


def test_operations_on_zones_are_known_by_their_name_before_linux_6_0(serial: Path, tmp_path: Path) -> None:
    types = tmp_path / "vmlinux"
    types.write_bytes(renamed_operations(BTF.read_bytes()))
    cat = own("cat", tmp_path)
    reading = partial(subprocess.run, [tmp_path / cat, serial], check=True, capture_output=True)
    found = run(with_types(types, "--disk", serial.parent.name, "--by-comm", "--hook", "btf"), reading)
    assert [row[1] for row in found.counts.requests if row[5] == cat and row[3] == 20] == ["zone_append"]
