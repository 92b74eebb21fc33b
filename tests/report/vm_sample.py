"""A made-up run of four virtual machines on five backings: nodes side by side, what lies underneath, and a caution.

The truth follows lab notes on such a study: small writes to a zvol are five times slower than to a file, of 512 B the
more so, and with ``sync=disabled`` the debt is paid after the load has ended.
"""

import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from storlab.analysis.design import CompareSpec, Design
from storlab.analysis.summarise import summarise
from storlab.findings.runs import RoundsDone
from storlab.layers.zfs.module import parse_properties
from storlab.nodes.agent.protocol import Cpus, Kernel, Memory
from storlab.records.derived import jain
from storlab.records.manifest import Manifest, NodeFacts
from storlab.records.tables import COLUMNS
from storlab.report.model.input import ReportInput

from .sample_run import declared

BACKINGS = ("zvol", "zvol-async", "zfs-file", "raw", "qcow2")
SIZES = {"4k": 4096, "512": 512}
GUESTS = ("vm-1", "vm-2", "vm-3", "vm-4")
ROUNDS = 12
KIB = 1024.0

# bandwidth of one guest in KiB/s, how unequal guests are, longest stall in s, bytes underneath for a byte of the load,
# drain in s, load average
_TRUE: dict[tuple[str, str], tuple[float, float, float, float, float, float]] = {
    ("zvol", "4k"): (4882, 0.006, 2.4, 3.1, 0.4, 7.1), ("zvol-async", "4k"): (19300, 0.02, 0.9, 1.4, 4.2, 9.6),
    ("zfs-file", "4k"): (25550, 0.01, 0.3, 1.3, 0.5, 13.0), ("raw", "4k"): (31200, 0.004, 0.06, 1.02, 0.05, 11.8),
    ("qcow2", "4k"): (27800, 0.03, 0.2, 1.19, 0.06, 12.1), ("zvol", "512"): (775, 0.15, 11.7, 19.4, 0.7, 6.2),
    ("zvol-async", "512"): (2990, 0.05, 3.1, 7.7, 3.9, 8.0), ("zfs-file", "512"): (3240, 0.002, 0.5, 8.3, 0.6, 11.3),
    ("raw", "512"): (3905, 0.003, 0.05, 8.0, 0.05, 10.4), ("qcow2", "512"): (3710, 0.01, 0.1, 8.4, 0.06, 10.9),
}  # fmt: skip
CELLS = tuple(
    (number, {"backing": backing, "bs": bs})
    for number, (bs, backing) in enumerate(((bs, backing) for bs in SIZES for backing in BACKINGS), start=1)
)
CAUTION = (
    "The guests ran emulated (TCG: KVM does not work here): good for counts and for relations between set-ups, "
    "not for absolute speeds."
)
PLACEMENT = "The disks were made on a guest that serves as storage host, since this machine has no ZFS."


def vm_sample(seed: int = 11, rounds: int = ROUNDS) -> ReportInput:
    rng = random.Random(seed)
    trials: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    start = datetime(2026, 3, 16, 12, 48, 0, tzinfo=UTC)
    for number in range(1, rounds + 1):
        for cell, levels in rng.sample(CELLS, len(CELLS)):
            place = {"trial": len(trials) + 1, "round": number, "cell": cell}
            skew = 0.0004 * math.exp(rng.gauss(0, 0.4))
            trials.append(
                place
                | {"status": "done", "reason": None, "started": start + timedelta(seconds=75 * len(trials))}
                | {"duration": 74.0, "measured": 60.0, "start_skew": skew}
                | {f"factor.{name}": level for name, level in levels.items()}
            )
            metrics += [place | row for row in _trial(rng, levels["backing"], levels["bs"], skew)]
    frame = pl.DataFrame(metrics, infer_schema_length=None)
    done = pl.DataFrame(trials, schema_overrides={"started": pl.Datetime("us", "UTC")}, infer_schema_length=None)
    return ReportInput(
        summary=summarise(done, frame, _design()), trials=done, metrics=frame, checks=_checks(trials),
        declared=declared("load"), manifest=_manifest(seed), facts=_facts(),
        guests={cell: {name: _guest(name, rng) for name in (*GUESTS, "storage")} for cell, _ in CELLS},
    )  # fmt: skip


def _checks(trials: list[dict[str, Any]]) -> pl.DataFrame:
    """One that passes everywhere, one that zvols lack, and one that failed on one guest in one round."""
    rows = []
    for trial in trials:
        place = [trial["trial"], trial["round"], trial["cell"]]
        lacking = trial["factor.backing"].startswith("zvol")
        for guest in GUESTS:
            failed = (trial["factor.backing"], trial["factor.bs"], trial["round"], guest) == ("raw", "4k", 3, "vm-2")
            rows += [
                (*place, guest, "check", "fsync", "pass", ""),
                (*place, guest, "check", "birth-time", *_OUTCOMES["unsupported" if lacking else "pass"]),
                (*place, guest, "check", "flock", *_OUTCOMES["fail" if failed else "pass"]),
            ]
    return pl.DataFrame(rows, schema=COLUMNS["checks"], orient="row")


_OUTCOMES = {
    "pass": ("pass", ""),
    "fail": ("fail", "flock(LOCK_EX) beside LOCK_SH succeeds, but should fail with EAGAIN or EACCES"),
    "unsupported": ("unsupported", "statx gives no birth time"),
}


def _design() -> Design:
    asked = ("bandwidth", "write.amplification.backing")
    return Design(
        title="What lies behind the disks of four virtual machines", primary="bandwidth",
        factors={"backing": BACKINGS, "bs": tuple(SIZES)}, cells=CELLS,
        comparisons=(CompareSpec("backing", (("zvol", "zfs-file"), ("zvol", "zvol-async")), True, False, asked),),
        stopped=RoundsDone(12, 12),
    )  # fmt: skip


def _trial(rng: random.Random, backing: str, bs: str, skew: float) -> list[dict[str, Any]]:
    speed, unequal, stall, amplification, drain, load = _TRUE[backing, bs]
    luck = math.exp(rng.gauss(0, 0.01))
    rows: list[dict[str, Any]] = []

    def add(node: str | None, source: str, *row: str | float | None) -> None:
        names = ("metric", "value", "unit", "better", "across")
        rows.append({"node": node, "source": source, "job": None} | dict(zip(names, row, strict=True)))

    speeds = [speed * KIB * luck * math.exp(rng.gauss(0, unequal)) for _ in GUESTS]
    stalls = [stall * math.exp(rng.gauss(0, 0.2)) for _ in GUESTS]
    for guest, one, longest in zip(GUESTS, speeds, stalls, strict=True):
        add(guest, "load", "write.bandwidth", one, "B/s", "higher", "sum")
        add(guest, "load", "write.iops", one / SIZES[bs], "1/s", "higher", "sum")
        add(guest, "probe:stalls", "stall.longest", longest, "s", "lower", "max")
        add(guest, "probe:stalls", "machine.stall.longest", longest / 20, "s", "lower", "max")
    add(None, "load", "write.bandwidth", sum(speeds), "B/s", "higher", "sum")
    add(None, "load", "write.iops", sum(speeds) / SIZES[bs], "1/s", "higher", "sum")
    add(None, "load", "write.bandwidth.fairness", jain(speeds), "1", "higher", "none")
    add(None, "load", "write.iops.fairness", jain(speeds), "1", "higher", "none")
    add(None, "probe:stalls", "stall.longest", max(stalls), "s", "lower", "max")
    add(None, "probe:stalls", "machine.stall.longest", max(stalls) / 20, "s", "lower", "max")
    add(None, "nodes", "start.skew", skew, "s", "lower", "none")
    for name, part in (("load.1m", 1.0), ("load.5m", 0.47), ("load.15m", 0.31)):
        value = load * part * math.exp(rng.gauss(0, 0.03))
        add("host", "probe:host-load@host", name, value, "1", "neither", "max")
        add(None, "probe:host-load@host", name, value, "1", "neither", "max")
    cpus = {name: (1.6 if name == "storage" else 0.97) * math.exp(rng.gauss(0, 0.02)) for name in (*GUESTS, "storage")}
    for name, used in cpus.items():
        for node in ("host", None):
            add(node, "probe:processes@host", f"guest.{name}.cpu", used, "1", "neither", "sum")
            add(node, "probe:processes@host", f"guest.{name}.memory", 412 * 2.0**20, "B", "neither", "max")
    add(None, "probe:processes@host", "guests.cpu", sum(cpus.values()), "1", "neither", "sum")
    asked = sum(speeds) * 60
    ratio = amplification * math.exp(rng.gauss(0, 0.004))
    for node in ("storage", None):
        add(node, "backing@storage", "backing.write.bytes", asked * ratio, "B", "neither", "sum")
        add(node, "backing@storage", "backing.writes", asked * ratio / 24000, "1", "neither", "sum")
        add(
            node, "backing@storage", "backing.flushes", 0.0 if backing == "zvol-async" else asked / 4e5, "1",
            "neither", "sum",
        )  # fmt: skip
        add(node, "backing@storage", "backing.drain", drain * math.exp(rng.gauss(0, 0.1)), "s", "lower", "max")
        add(node, "backing@storage", "write.amplification.backing", ratio, "1", "lower", "none")
        add(node, "backing@storage", "write.amplification.guest-disk", ratio / 1.01, "1", "lower", "none")
    return rows


def _guest(name: str, rng: random.Random) -> dict[str, Any]:
    return {
        "accelerator": "tcg", "machine": "q35", "cpu": "max", "cpus": 2 if name == "storage" else 1,
        "memory": (1024 if name == "storage" else 384) * 2**20, "qemu": "7.2.15", "kernel": "6.12.38+deb13-amd64",
        "image": "debian-13 8f1c2ab4", "boot": "cold", "boot_seconds": 2.3 * math.exp(rng.gauss(0, 0.1)),
        "pinning": "none", "disk": {"layer": "virtio-blk", "cache": "none"},
    }  # fmt: skip


def _volume(sync: str, source: str) -> dict[str, dict[str, object]]:
    """What ``zfs get`` printed of a clone of a volume, with another ``sync``."""
    facts = parse_properties((Path(__file__).parents[1] / "layers/golden/zfs_get.txt").read_text())
    facts["properties"]["sync"], facts["sources"]["sync"] = sync, source
    return facts


def _facts() -> dict[int, dict[str, dict[str, dict[str, object]]]]:
    attached: dict[str, object] = {
        "layer": "virtio-blk",
        "on": "host",
        "qemu": {"cache": "none", "direct": True, "no_flush": False, "write_cache": True, "aio": "threads"},
        "guest": {"write_cache": "write back", "fua": 0},
    }
    pool: dict[str, object] = {"layer": "zpool", "on": "storage", "ashift": 12}
    underlying: dict[str, list[dict[str, object]]] = {
        "zvol": [pool, {"layer": "zvol", "on": "storage", **_volume("standard", "default")}],
        "zvol-async": [pool, {"layer": "zvol", "on": "storage", **_volume("disabled", "local")}],
        "zfs-file": [pool, {"layer": "zfs", "on": "storage", "sync": "standard", "logbias": "latency"}],
        "raw": [{"layer": "image-copy", "on": "storage", "format": "raw"}],
        "qcow2": [{"layer": "image-clone", "on": "storage", "format": "qcow2", "lazy_refcounts": False}],
    }
    export: dict[str, object] = {
        "layer": "nbd-export", "on": "storage", "cache": "none", "aio": "native", "write_cache": True,
    }  # fmt: skip
    facts: dict[int, dict[str, dict[str, dict[str, object]]]] = {}
    for cell, levels in CELLS:
        layers = [*underlying[levels["backing"]], export, attached]
        named = {f"{position}. {layer['layer']}": layer for position, layer in enumerate(layers, start=1)}
        facts[cell] = dict.fromkeys(GUESTS, named)
    return facts


def _manifest(seed: int) -> Manifest:
    host = Kernel("6.1.0-18-amd64", "#1 SMP", "x86_64")
    return Manifest(
        title="What lies behind the disks of four virtual machines",
        description="How do zvols, files and images compare while four guests write at once, and do guests lock up?",
        study_text='title = "What lies behind the disks of four virtual machines"\nprimary = "bandwidth"\n',
        study_file="vm-backing.toml",
        seed=seed,
        run="20260316-124800-c0de",
        started=datetime(2026, 3, 16, 12, 48, tzinfo=UTC),
        finished=datetime(2026, 3, 16, 14, 2, tzinfo=UTC),
        storlab="0.1.0",
        argv=("storlab", "run", "vm-backing", "--seed", str(seed)),
        nodes={
            "host": NodeFacts("local", host, cpus=Cpus(8, None), memory=Memory(8 * 2**30, 6 * 2**30)),
            **dict.fromkeys((*GUESTS, "storage"), NodeFacts("vm", uid=0)),
        },
        platform_notes=(PLACEMENT,),
        cautions=(CAUTION,),
    )
