"""A run's folder made up for ``report_run``: records as Storlab leaves them, of trials that never ran."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from storlab.metrics import PROBE
from storlab.nodes.process import ExitRecord
from storlab.probes.subject import Subject, write_subject
from storlab.records.manifest import Manifest, write_manifest
from storlab.records.run_folder import NodeRecord, TrialRecord, raw_folder, write_trial
from storlab.version import __version__
from storlab.workloads.base import NAME as EXIT

SIZES = ("4k", "8k", "16k", "32k", "64k", "128k")
CELLS = len(SIZES)
STUDY = """
title = "A run that was made up"
primary = "write.bandwidth"
stack = [{ layer = "directory" }]
[repeat]
until = "max"
[factors.bs]
levels = ["4k", "8k", "16k", "32k", "64k", "128k"]
[workload.load]
fio = { rw = "randrw", bs = "{bs}", ioengine = "null", size = "1M" }
[probes]
alignment = {}
host-load = {}
"""
FIO = ("fio", "--name=load", "--rw=randrw", "--ioengine=null", "--norandommap", "--output-format=json+", "--size=64M")
LOGS = ("--output=fio.json", "--write_bw_log=series", "--write_iops_log=series", "--write_lat_log=series")
STARTED = {"event": "started", "hook": "btf", "disks": ["loop0"], "latency": True, "monotonic_ns": 1, "realtime_ns": 1}
FILES = (
    "/proc/loadavg",
    "/proc/stat",
    "/proc/diskstats",
    *(f"/proc/pressure/{what}" for what in ("cpu", "io", "memory")),
)


def make_run(folder: Path, rounds: int) -> Path:
    """A run of ``rounds`` of ``CELLS`` trials; the seed is 1."""
    draw = random.Random(1)
    folder.mkdir(parents=True)
    loads = [_fio(folder / "fio", size) for size in SIZES]
    for trial in range(1, rounds * CELLS + 1):
        at, cell = divmod(trial - 1, CELLS)
        made = folder / "trials" / f"{trial:04d}"
        raw = raw_folder(made, "host", "load")
        raw.mkdir(parents=True)
        for name, contents in loads[cell].items():
            (raw / name).write_bytes(contents)
        _watched(made, draw)
        record = TrialRecord(
            trial=trial,
            round=at + 1,
            cell=cell + 1,
            levels={"bs": SIZES[cell]},
            status="done",
            started=datetime(2026, 1, 1, tzinfo=UTC),
            duration=2.0,
            measured=1.0,
            start_skew=0.0,
            nodes={"host": NodeRecord(10.0, 11.0, "a machine", ["loop0"])},
            probes={"alignment": ["host"], "host-load": ["host"]},
            loads={"load": ["host"]},
        )
        write_trial(made, record, durable=False)
    write_manifest(folder, _manifest(rounds))
    return folder


def _manifest(rounds: int) -> Manifest:
    return Manifest(
        run="made-up",
        title="A run that was made up",
        description="",
        study_file="made-up.toml",
        study_text=STUDY,
        overrides=(),
        only=(),
        inputs={},
        seed=1,
        storlab=__version__,
        argv=("storlab", "run"),
        started=datetime(2026, 1, 1, tzinfo=UTC),
        finished=datetime(2026, 1, 1, 1, tzinfo=UTC),
        rounds=(rounds, rounds),
    )


def _fio(folder: Path, size: str) -> dict[str, bytes]:
    """What a run of fio leaves, by name."""
    folder = folder / size
    folder.mkdir(parents=True)
    subprocess.run([*FIO, *LOGS, f"--bs={size}", "--log_avg_msec=1000"], cwd=folder, capture_output=True, check=True)
    ended = ExitRecord(("fio",), 0, None, False, None, 0.0, 10.0, 1.0, 0.5, 0.1, 1 << 24, 0)
    left = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return left | {EXIT: json.dumps(asdict(ended)).encode()}


def _watched(trial: Path, draw: random.Random) -> None:
    """What the probes saw."""
    contents = [Path(name).read_text() if Path(name).exists() else None for name in FILES]
    samples = [
        {"paths": FILES, "interval": 1.0},
        *({"t": t, "late": 0.0, "contents": contents} for t in (9.9, 10.9, 11.1)),
    ]
    counts = {"event": "counts", "final": True, "monotonic_ns": 2, "realtime_ns": 2, "lost": {}, **_counted(draw)}
    for probe, name, lines in (
        ("host-load", "samples.jsonl", samples),
        ("alignment", "trace.jsonl", [STARTED, counts]),
    ):
        raw = raw_folder(trial, "host", PROBE + probe)
        write_subject(raw, Subject(group="host", disks=("loop0",)))
        (raw / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _counted(draw: random.Random) -> dict[str, object]:
    """Some 100 kinds of requests, and their latencies in some 100 bins."""
    requests, latency = [], []
    for way in ("read", "write"):
        for length in (4096, 8192, 16384, 65536):
            for power in range(12, 24):
                count = draw.randrange(1, 200)
                touched = [count * -(-length // unit) for unit in (4096, 8192, 16384, 32768, 65536)]
                requests.append(["loop0", way, "sync", length, 1 << power, None, count, touched])
        for what in ("service", "queued"):
            latency += [["loop0", way, what, at * 1024, (at + 1) * 1024, draw.randrange(1, 90)] for at in range(8, 32)]
    return {"requests": requests, "latency": latency, "others": [["loop0", "write", "back_merge", draw.randrange(9)]]}
