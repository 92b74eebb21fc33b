"""The made-up run of ``sample``: its cells and nodes, how it came about, and all that was measured, trial by trial."""

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from laboratory.samples import sample
from storlab.metrics import Declarations, MetricSpec
from storlab.nodes.agent.protocol import Cpus, Kernel, Memory, Tool
from storlab.records.manifest import Manifest, NodeFacts, Planned, PlannedCell, PlannedChain
from storlab.records.tables import derived
from storlab.registry import probe_types
from storlab.tools.fio.declared import declared as of_fio

SYSTEMS = ("ext4", "xfs", "btrfs", "zfs")
LOADS = ("random-write", "sequential-read")
NODES = ("a", "b")
ROUNDS = 8
FAILED = (3, 5)  # cell, round
NO_ZFS = "the kernel module zfs is not available: modprobe zfs ended with status 1"
DISK_FULL = "/dev/loop3 (btrfs) is full after 812 MiB; give the layer 'file' a larger size"
MIB = 2.0**20


@dataclass(frozen=True)
class Cell:
    number: int
    system: str
    load: str

    @property
    def levels(self) -> dict[str, str]:
        return {"filesystem": self.system, "load": self.load}

    @property
    def kind(self) -> str:
        return "write" if self.load == "random-write" else "read"


CELLS = tuple(
    Cell(number, system, load)
    for number, (load, system) in enumerate(((load, system) for load in LOADS for system in SYSTEMS), start=1)
)

STUDY = sample(__file__, "cases/file-systems.toml")


def manifest(seed: int) -> Manifest:
    versions = {"fio": "3.33", "mkfs.ext4": "1.47.0", "mkfs.xfs": "6.1.0"}
    node = NodeFacts(
        kind="local", kernel=Kernel("6.1.0-18-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1", "x86_64"),
        cpus=Cpus(4, None), memory=Memory(8 * 2**30, 6 * 2**30),
        tools={name: Tool(f"/usr/sbin/{name}", version) for name, version in versions.items()},
    )  # fmt: skip
    return Manifest(
        title="File systems under small writes and large reads",
        description="Which file system on a loop device is the better home for a small database?",
        study_text=STUDY,
        study_file="file-systems.toml",
        seed=seed,
        run="2026-03-14-092653-file-systems",
        started=datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC),
        finished=datetime(2026, 3, 14, 9, 31, 2, tzinfo=UTC),
        storlab="0.1.0",
        argv=("storlab", "run", "file-systems.toml", "--seed", str(seed)),
        nodes=dict.fromkeys(NODES, node),
        plan=Planned(
            factors={"filesystem": list(SYSTEMS), "load": list(LOADS)},
            cells=[_planned(cell.number, cell.levels, cell.system, cell.load) for cell in CELLS],
        ),
        platform_notes=("This machine is a virtual machine: its host's load can't be seen from here.",),
    )


def _planned(number: int, levels: dict[str, str], system: str, load: str) -> PlannedCell:
    layers: list[dict[str, Any]] = [
        {"layer": "file", "size": 2**30}, {"layer": "loop"}, {"layer": "mkfs", "type": system}, {"layer": "mount"},
    ]  # fmt: skip
    return PlannedCell(number, levels, [PlannedChain("host", "", layers)], [load], [])


def facts() -> dict[int, dict[str, dict[str, dict[str, object]]]]:
    info = (
        "meta-data=/dev/loop3   isize=512    agcount=4, agsize=65536 blks\n         =             sectsz=512   attr=2"
    )
    found: dict[int, dict[str, dict[str, dict[str, object]]]] = {}
    for cell in CELLS:
        if cell.system == "zfs":
            continue
        found[cell.number] = {
            node: {
                "file": {"path": "/var/tmp/storlab/disk.img", "size": 2**30, "preallocated": True},
                "loop": {"device": "/dev/loop3", "logical_sector": 512, "direct_io": True},
                "mkfs": {"type": cell.system, "output": info},
                "mount": {"options": ["rw", "noatime"], "line": f"/dev/loop3 /mnt {cell.system} rw,noatime 0 0"},
            }
            for node in NODES
        }
    return found


# bandwidth in B/s per node, latency in s
_TRUE = {
    ("ext4", "random-write"): (24.7 * MIB, 1.2e-3), ("xfs", "random-write"): (17.3 * MIB, 1.7e-3),
    ("btrfs", "random-write"): (4.79 * MIB, 6.1e-3), ("ext4", "sequential-read"): (512 * MIB, 0.24e-3),
    ("xfs", "sequential-read"): (521 * MIB, 0.23e-3), ("btrfs", "sequential-read"): (371 * MIB, 0.35e-3),
}  # fmt: skip
_QUANTILES = ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))


def _drift(number: int) -> float:
    return 1.0 - 0.012 * (number - 1)


def tables(rng: random.Random) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    trials: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    series: list[dict[str, Any]] = []
    histograms: list[dict[str, Any]] = []
    start = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
    for number in range(1, ROUNDS + 1):
        order = list(CELLS)
        rng.shuffle(order)
        for cell in order:
            place = {"trial": len(trials) + 1, "round": number, "cell": cell.number}
            status = "unsupported" if cell.system == "zfs" else "failed" if (cell.number, number) == FAILED else "done"
            trials.append(
                place
                | {
                    "status": status, "reason": {"unsupported": NO_ZFS, "failed": DISK_FULL, "done": None}[status],
                    "started": None if status == "unsupported" else start + timedelta(seconds=2.6 * len(trials)),
                    "duration": 2.4, "measured": 2.0, "start_skew": 0.0003, "factor.filesystem": cell.system,
                    "factor.load": cell.load,
                }
            )  # fmt: skip
            if status == "done":
                _trial(rng, cell, number, place, metrics, series, histograms)
    frame = pl.DataFrame(trials, schema_overrides={"started": pl.Datetime("us", "UTC")}, infer_schema_length=None)
    return (
        frame, pl.DataFrame(metrics, infer_schema_length=None), pl.DataFrame(series, infer_schema_length=None),
        pl.DataFrame(histograms, infer_schema_length=None),
    )  # fmt: skip


def _trial(
    rng: random.Random,
    cell: Cell,
    number: int,
    place: dict[str, Any],
    metrics: list[dict[str, Any]],
    series: list[dict[str, Any]],
    histograms: list[dict[str, Any]],
) -> None:
    bandwidth, latency = _TRUE[cell.system, cell.load]
    luck = _drift(number) * math.exp(rng.gauss(0, 0.035))
    merged: dict[int, int] = {}
    speeds = []
    for node in NODES:
        speed = bandwidth * luck * math.exp(rng.gauss(0, 0.01))
        speeds.append(speed)
        here = place | {"node": node, "source": cell.load, "job": None}
        block = 4096 if cell.kind == "write" else 131072
        metrics.append(here | _row(f"{cell.kind}.bandwidth", speed, "B/s", "higher", "sum"))
        metrics.append(here | _row(f"{cell.kind}.iops", speed / block, "1/s", "higher", "sum"))
        for second in range(1, 31):
            dip = 0.35 if cell.system == "btrfs" and second % 10 in (7, 8) else 1.0
            value = speed * dip * math.exp(rng.gauss(0, 0.06))
            series.append(
                here | {"metric": f"{cell.kind}.bandwidth", "t": float(second), "value": value, "unit": "B/s"}
            )
        for bin_number, count in _bins(rng, latency / luck).items():
            merged[bin_number] = merged.get(bin_number, 0) + count
            lower, upper = 10e-6 * 1.1**bin_number, 10e-6 * 1.1 ** (bin_number + 1)
            histograms.append(here | {"metric": f"{cell.kind}.latency", "lower": lower, "upper": upper, "count": count})
    together = place | {"node": None, "source": cell.load, "job": None}
    metrics.append(together | _row(f"{cell.kind}.bandwidth", sum(speeds), "B/s", "higher", "sum"))
    for quantile, name in _QUANTILES:
        value = _quantile(merged, quantile)
        metrics.append(together | _row(f"{cell.kind}.latency.{name}", value, "s", "lower", "merge"))
    host = place | {"node": "host", "source": "probe:host-load", "job": None}
    for name, load in (("load.1m", 6.9), ("load.5m", 3.3), ("load.15m", 2.1)):
        metrics.append(host | _row(name, load * math.exp(rng.gauss(0, 0.05)), "1", "neither", "max"))
    metrics.append(host | _row("cpu.iowait", 0.31 + rng.random() / 10, "1", "neither", "mean"))
    stall = 1.9 if cell.system == "btrfs" and cell.kind == "write" else 0.04
    stalls = place | {"node": None, "source": "probe:stalls", "job": None}
    metrics.append(stalls | _row("longest", stall * math.exp(rng.gauss(0, 0.3)), "s", "lower", "max"))


def _row(name: str, value: float, unit: str, better: str, across: str) -> dict[str, Any]:
    return {"metric": name, "value": value, "unit": unit, "better": better, "across": across}


def _bins(rng: random.Random, typical: float) -> dict[int, int]:
    """Counts of about 6,000 operations in bins a tenth apart, with a tail of one operation in fifty."""
    counts: dict[int, int] = {}
    for _ in range(300):
        tail = rng.random() < 0.02
        value = typical * math.exp(rng.gauss(2.5 if tail else 0, 0.7 if tail else 0.25))
        bin_number = max(0, math.floor(math.log(value / 10e-6, 1.1)))
        counts[bin_number] = counts.get(bin_number, 0) + (1 if tail else 20)
    return dict(sorted(counts.items()))


def _quantile(bins: dict[int, int], quantile: float) -> float:
    wanted, seen = quantile * sum(bins.values()), 0
    for bin_number, count in sorted(bins.items()):
        seen += count
        if seen >= wanted:
            return 10e-6 * 1.1 ** (bin_number + 1)
    raise AssertionError("no bin holds the quantile")


def declared(*sources: str, specs: tuple[MetricSpec, ...] | None = None) -> Declarations:
    """Those of ``sources``, by default fio's, with what follows from them; and those of all probes."""
    own = of_fio() if specs is None else specs
    ends = ("", "@host")
    probes = ((f"probe:{kind}{end}", cls().declares()) for kind, cls in probe_types().items() for end in ends)
    return Declarations.union([*((source, (*own, *derived(own))) for source in sources), *probes])
