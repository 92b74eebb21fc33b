"""What tools, kernels, agents and Storlab itself write, undamaged and short: what mutants are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from attacks.liar import EXIT, HELLO, OUTPUT, STARTED
from formats.fio.test_histogram_log import line
from importing.test_virtiofs_tests import ran, raw_file, refused, terse
from locks import lines as locks
from probes import test_share_requests as requests
from probes.test_alignment import LATENCY, LOST, OTHERS, REQUESTS
from probes.test_alignment import STARTED as TRACING
from probes.test_backing import STAT
from probes.test_processes import stat_text, status_text
from storlab.nodes.agent.protocol import PREFACE, Frame, encode
from storlab.nodes.process import ExitRecord
from storlab.probes.subject import ProcessGroup, Subject
from storlab.workloads.base import exit_bytes
from tcp.lines import closed, connection, printed
from tcp.lines import sample as sample_of_tcp

TESTS = Path(__file__).parent.parent


def golden(*patterns: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for pattern in patterns for path in sorted(TESTS.glob(pattern))]


def few(pattern: str, alike: bytes, most: int) -> Callable[[], list[bytes]]:
    """Golden files, of whose lines that are like ``alike`` there are the first few only: all others are as they."""
    return lambda: [_with_few(data, re.compile(alike), most) for data in golden(pattern)()]


def _with_few(data: bytes, alike: re.Pattern[bytes], most: int) -> bytes:
    number = count()
    return b"".join(line for line in data.splitlines(keepends=True) if not alike.match(line) or next(number) < most)


def files() -> list[bytes]:
    """The golden files, with three bins of each operation and as many operations as these hold."""
    documents = [orjson.loads(data) for data in golden("workloads/golden/files*.json")()]
    for operation in (
        each for document in documents for phase in document["phases"] for each in phase["operations"].values()
    ):
        operation["bins"] = operation["bins"][:3]
        operation["count"] = sum(count for *_, count in operation["bins"])
    return [orjson.dumps(document) for document in documents]


def these(*samples: str | bytes) -> Callable[[], list[bytes]]:
    return lambda: [each.encode() if isinstance(each, str) else each for each in samples]


def sampled(paths: Sequence[str], *looks: Sequence[str | None]) -> bytes:
    lines = [orjson.dumps({"paths": paths, "interval": 1.0})]
    lines += [orjson.dumps({"t": 99.0 + at, "late": 0.0, "contents": each}) for at, each in enumerate(looks)]
    return b"\n".join(lines) + b"\n"


def host_load() -> list[bytes]:
    """The golden file with fewer lines, fewer disks and interrupts, and the measured phase in the middle of it."""
    text = (TESTS / "probes/golden/host-load.jsonl").read_text()
    first, *lines = re.sub(r"[^\n]{9}[1-9] loop.*?\\n|( 0){20,}", "", text).splitlines()
    looks = [{**orjson.loads(line), "t": 99.0 + at} for at, line in enumerate(lines[:4])]
    return [b"\n".join([first.encode(), *map(orjson.dumps, looks)]) + b"\n"]


def share_requests() -> list[bytes]:
    return [sampled(requests.PATHS, [requests.NONE] * 3, [requests.SEND, requests.END, requests.OF_9P])]


DISK = "/sys/class/block/sda/stat"
ONE_DISK = Subject(group="host", end="below", above=("vm",), disks=("sda",))
QEMU = ProcessGroup(role="guest", pid=7, cgroup="/sys/fs/cgroup/x")
ONE_GUEST = Subject(group="host", processes={"vm": QEMU})
OF_QEMU = ("/proc/7/stat", "/proc/7/status", f"{QEMU.cgroup}/cpu.stat", f"{QEMU.cgroup}/memory.current")


def stats(flushes: int) -> str:
    return STAT.format(sectors=160 + flushes, flushes=flushes)


def qemu(ticks: int) -> list[str]:
    return [stat_text(7, ticks=ticks), status_text(1 << 20), f"usage_usec {ticks * 10_000}\n", "1048576\n"]


def traced() -> list[bytes]:
    counts = {"event": "counts", "final": True, "monotonic_ns": 2, "realtime_ns": 2, "requests": REQUESTS}
    counts |= {"latency": LATENCY, "others": OTHERS, "lost": LOST}
    counts |= {"own": REQUESTS[:1], "own_latency": LATENCY[:1], "kernel_latency": LATENCY[1:2]}
    event = ["vda", "write", "sync", 4096, 8, 77, "fio", 3]
    return [b"".join(orjson.dumps(each) + b"\n" for each in (TRACING, event, event, counts))]


def connections() -> list[bytes]:
    """Two that stay, one that goes."""
    first = [connection(7, bytes_sent=10, snd_mss=1448), connection(8)]
    last = connection(7, bytes_sent=9000, segs_out=40, data_segs_out=8, snd_mss=1448, rtt=200, cwnd=10)
    disks = [["sda", [1, 2, 4096, 8192]]]
    lines = (
        sample_of_tcp(99, *first, disks=disks), closed(104, connection(8, bytes_received=400)),
        sample_of_tcp(105, last, gone=[8], disks=disks), sample_of_tcp(111, disks=disks, final=True),
    )  # fmt: skip
    return [b"".join(printed(*lines))]


def lock_waits() -> list[bytes]:
    return [locks.printed(locks.counts(locks.waits("f"), locks.waits("g", 3, lock="rwsem-read", waiter="own")))]


def histogram_log() -> list[bytes]:
    return [
        "".join(line(50_000 * at, at % 3, {700: 9, 900: at}, coarseness) for at in range(1, 4)).encode()
        for coarseness in (4, 6)
    ]


def exits() -> list[bytes]:
    ended = ExitRecord(("agent", "-x"), 0, None, False, None, 0.0, 1.0, 2.0, 0.5, 0.25, 2**21, 0)
    return [exit_bytes(ended)]


def journal() -> list[bytes]:
    machine = {"id": "0" * 32, "boot": "1" * 32}
    node = {"name": "host", "kind": "local", "address": "", "machine": machine, "volatile": False}
    arguments = {"path": "/x/storlab-1", "more": ["a", 1, None]}
    lines: list[dict[str, Any]] = [
        {"time": "", "registered": 1, "node": node, "undo": "a.b", "arguments": arguments, "outlives_boot": True},
        {"time": "", "registered": 2, "node": node, "undo": "a.c", "arguments": {}, "outlives_boot": False},
        {"time": "", "event": "note", "x": 1},
        {"time": "", "undone": 1},
    ]
    return [b"".join(orjson.dumps(each) + b"\n" for each in lines)]


def stream() -> list[bytes]:
    events: list[dict[str, Any]] = [{**HELLO}, {**STARTED}, {**OUTPUT}, {**EXIT}, {"event": "done"}]
    payloads = {"stdout": b"text"}
    frames = (Frame({"id": 3, **event}, payloads.get(event["event"], b"")) for event in events)
    return [PREFACE + b"".join(map(encode, frames))]


BLKALGN = (
    '{"Block size": {"0": 1, "12": 27, "14": 3}, "Algn size": {"0": 1, "12": 27, "14": 3}}',
    '{"disks": {"vda": {"granularity": {"8": 27, "32": 3}, "alignment": {"12": 27, "14": 3}}}}',
    '{"disks": {"vda": {"granularity": {"4608": 27, "16896": 3}, "alignment": {"4096": 27, "16384": 3}}}}',
    '{"disks": {"a": {"granularity": {"4096": 2}, "alignment": {"4096": 2}}}}\n' * 3,
)
CSV = (
    "fs,rep,t,IOPS,lat [ms]\nxfs,1,0,1000,1.5\next4,1,0,900,1.7\nxfs,2,0,1010,\next4,2,0.5,930,NA\n",
    'fs;rep;t;IOPS;lat (us)\r\n"x;fs";1;1;1e3;2\r\n"ext""4";2;3;1;2\r\n',
)
VIRTIOFS = (
    raw_file("a", [ran("seqread-psync", terse("seqread-psync", (10239, 2560))), refused("seqread-mmap")]),
    raw_file("b", [ran("randrw-psync-multi", terse("randrw-psync-multi", (40320, 10084), (13477, 3369)))] * 2),
)
WIPEFS = (
    '{"signatures": [{"device": "x", "offset": "0x438", "type": "ext4", "uuid": "a", "label": null},'
    ' {"type": "zfs_member", "uuid": "b", "label": "p"}]}',
    "",
)
QEMU_IMG = (
    '{"virtual-size": 1048576, "filename": "x", "cluster-size": 65536, "format": "qcow2", "actual-size": 1,'
    ' "format-specific": {"type": "qcow2", "data": {"compat": "1.1", "lazy-refcounts": false}}, "dirty-flag": false}',
)
JOBS = (
    "; x\n[global]\nbs=4k\nsize=1G\n[a]\nrw=randrw\nruntime=10s\ntime_based\nnumjobs=4\n[b]\nstonewall\nfilename=x:y",
)
KERNEL = (
    "[    0.1] Kernel panic - not syncing: Fatal exception\nstorlab-init: ready\nstorlab-init: no; powering off\n"
    "[   9.0] Out of memory: Killed process 77 (fio) total-vm:1kB\n",
)
SAID = ("fio: x\nBad option <foo=1>\nDid you mean bar?\nfio: job a dropped\n", "valid values: a\nvalue out of range\n")
MODULES = (
    "kernel/fs/xfs.ko.xz: kernel/lib/crc.ko.xz\nsoftdep xfs pre: crc32c post: y\nalias fs-xfs xfs\nalias crypto-x y\n",
)
STANZAS = ("Package: a\nVersion: 1.2-3~x\nDescription: x\n y\n z\n\nPackage: b\nVersion: 4:5\n",)
SUBJECT_JSON = (ONE_DISK.model_dump_json(exclude_defaults=True), ONE_GUEST.model_dump_json())
IMAGE_JSON = (
    '{"name": "debian-13", "release": "13", "parts": {"kernel": "k-1", "root": "r-1"}, "recipe": "x", "built": 1.5,'
    ' "versions": {"a": "1"}}',
)
NOISE_JSON = (
    '{"machine": "m", "measured": "2026-01-01T00:00:00", "study": "x", "title": "y", "metric": "iops", "seconds": 1.5,'
    f' "overhead": 0.5, "values": [{", ".join(str(100 + at % 7) for at in range(12))}]' + "}",
)
TRIAL_JSON = (
    '{"trial": 1, "round": 1, "cell": 1, "levels": {"fs": "xfs"}, "status": "done", "started": "2026-01-01T00:00:00Z",'
    ' "duration": 1.5, "phases": {"measure": 1.0}, "facts": {"host": [{"layer": "file", "size": 1}]},'
    ' "loads": {"load": ["host"]}, "warnings": []}',
)
