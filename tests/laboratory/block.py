"""A loop device, the load of which is known to the byte, and the tracer."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from storlab.base.programs import agent_path

small_ext4_blocks = pytest.mark.skipif(
    tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 19), reason="this kernel mounts ext4 with 16k"
)

NOMERGES = "2"  # /sys/block/DISK/queue/nomerges: no request is merged with any other


@dataclass(frozen=True)
class Statistics:
    """``/sys/block/DISK/stat``, as far as it counts requests; lengths in bytes."""

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    flushes: int

    def __sub__(self, before: Statistics) -> Statistics:
        return Statistics(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class LoopDisk:
    """A loop device of this test's own."""

    path: str

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def queue(self) -> Path:
        return Path("/sys/block") / self.name / "queue"

    @property
    def number(self) -> int:
        """As tracepoints have it: major << 20 | minor."""
        device = Path(self.path).stat().st_rdev
        return os.major(device) << 20 | os.minor(device)

    def statistics(self) -> Statistics:
        words = [int(word) for word in (Path("/sys/block") / self.name / "stat").read_text().split()]
        return Statistics(words[0], words[2] * 512, words[4], words[6] * 512, words[15])


@contextmanager
def loop_disk(file: Path, size: int, *parts: tuple[int, int]) -> Iterator[LoopDisk]:
    """A quiet one: nothing is merged, and udev leaves it alone while it is locked (systemd: block device locking).

    ``parts``: first sectors and sizes (of 512 bytes) of partitions, which only the kernel knows of. Only the kernel
    removes them, with the loop device (``--partscan``), once the last has closed it. `delpart` fails where another test
    has one open at that moment, as all do that scan for Btrfs, and leaves it to the next user of the loop device.
    """
    with file.open("wb") as image:
        os.posix_fallocate(image.fileno(), 0, size)
    argv = ["losetup", "--find", "--show", "--partscan", str(file)]
    disk = LoopDisk(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip())
    descriptor = os.open(disk.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for number, extent in enumerate(parts, start=1):
            subprocess.run(["addpart", disk.path, str(number), *map(str, extent)], check=True)
        (disk.queue / "nomerges").write_text(NOMERGES)
        yield disk
    finally:
        os.close(descriptor)
        (disk.queue / "nomerges").write_text("0")
        subprocess.run(["losetup", "-d", disk.path], check=True)


@dataclass
class Tracing:
    """A tracer at work; ``output`` is all that it printed, once it has ended."""

    process: subprocess.Popen[bytes]
    output: bytes = b""


TRACEFS = {
    "unmounted": "true",
    "mounted": "mount -t tracefs tracefs /sys/kernel/tracing",
    "in debugfs": "mount -t debugfs debugfs /sys/kernel/debug",
}


def with_tracefs(how: str) -> list[str]:
    """What a command begins with that finds tracefs so, whatever is mounted here: in a mount namespace of its own.

    Mounts that other tests have just now are not kept in it: their devices would stay busy.
    """
    mounts = """awk '$1 ~ "^/dev/loop" { print $2 }' /proc/self/mounts"""  # some of which are gone a moment later
    release = f"{mounts} | tac | xargs --no-run-if-empty umount --lazy 2> /dev/null"
    script = f'{release}; umount --all --lazy --types tracefs,debugfs && {TRACEFS[how]} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


@contextmanager
def traced(*arguments: str, tracefs: str = "unmounted") -> Iterator[Tracing]:
    """Trace for as long as the context lasts: all of its I/O is counted."""
    argv = [*with_tracefs(tracefs), str(agent_path()), "trace", *arguments]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    tracing = Tracing(process)
    assert process.stdout is not None
    try:
        tracing.output = process.stdout.readline()
        assert orjson.loads(tracing.output)["event"] == "started"
        yield tracing
    finally:
        process.terminate()
        tracing.output += process.stdout.read()
        process.stdout.close()
        assert process.wait(timeout=30) == 0


Request = tuple[str, int, int]
"""``read``, ``write`` or ``flush``, offset and length in bytes."""


def issue(disk: LoopDisk, requests: Sequence[Request], folder: Path, depth: int = 8) -> None:
    """Have fio issue just these, direct, by its replay of an I/O log."""
    names = {"flush": "sync"}
    lines = ["fio version 2 iolog", f"{disk.path} add", f"{disk.path} open"]
    lines += [
        f"{disk.path} {names.get(operation, operation)} {offset} {length}" for operation, offset, length in requests
    ]
    log = folder / "requests.log"
    log.write_text("\n".join([*lines, f"{disk.path} close", ""]))
    engine = "libaio" if depth > 1 else "psync"
    argv = ["fio", "--name=replay", f"--read_iolog={log}", "--direct=1", f"--ioengine={engine}", f"--iodepth={depth}"]
    subprocess.run([*argv, "--invalidate=0"], check=True, capture_output=True, cwd=folder)
