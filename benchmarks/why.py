"""Does the chapter "why" name what was planted, and nothing where nothing was?

    sudo python -m benchmarks.why [--studies 20] [--rounds 7] [--simulated 500] [--planted WORD] [--json FILE]

Real loads on loop devices, and over NBD between two network namespaces. In each study one mechanism is planted: an
fsync after each write; read-ahead of half the size; requests of a sixteenth of the size; Nagle's algorithm left on by a
server. It is found if one of the first three lines is about it. Then both levels are the same, and any line at all is
false. A study is a window of rounds of one long run: windows share no round, and every round has a stack of its own.
What differs is looked at whatever the verdict on speed is, which on a busy machine is
often none.

Then the same without storage: of metrics that differ in nothing, on machines with noise of every kind, made up and
recorded, how often is any named, looked at after every round?
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.soundness.noise import KINDS, slots
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Difference
from storlab.analysis.why.watched import named, paired
from storlab.records.derive import tables_of
from storlab.records.run_folder import RunFolder
from storlab.run.planning.recorded import design_of_run

FIRST = 3
SEED = 20_261_123
ALPHA = 0.05
DISK = '{ layer = "file", size = "96M", allocate = "preallocated" }, { layer = "loop" }'
EXT4 = '{ layer = "file", size = "512M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }'

# A header by itself, then 4 KiB, both less than a segment: the data wait for the header's ACK.
NBD = """
network = { mtu = 9000 }
nodes.server = { kind = "netns", keep = "run", stack = [{ layer = "file", size = "16M" }] }
nodes.client = { kind = "netns", from = "server", stack = [
  { layer = "nbd-export" }, { layer = "relay", head = 16, nagle = "{side}" }, { layer = "connect" }] }
"""


@dataclass(frozen=True)
class Planted:
    """A load with what tells its two levels apart; ``{side}`` stands for it. ``about``: metrics that show it."""

    name: str
    levels: tuple[str | bool, str | bool]
    stack: str
    load: str
    metric: str
    prepare: str
    about: tuple[str, ...]
    nodes: str = ""  # what the study has instead of ``stack``, with probes to watch it

    @property
    def nothing(self) -> Planted:
        """The same load, with nothing that differs."""
        same = {field: getattr(self, field).replace("{side}", str(self.levels[0])) for field in ("load", "prepare")}
        same["nodes"] = self.nodes.replace('"{side}"', json.dumps(self.levels[0]))
        return Planted(f"nothing: {self.name}", ("one", "other"), self.stack, metric=self.metric, about=(), **same)


PLANTED = (
    Planted(
        "an fsync after each write",
        ("0", "1"),
        EXT4,
        'fio = { rw = "randwrite", bs = "4k", ioengine = "psync", direct = 1, fsync = "{side}", size = "16M", '
        'runtime = "300ms", time_based = true }',
        "iops",
        "",
        ("disk.target.flushes", "disk.target.flush_time"),
    ),
    Planted(
        "read-ahead of half the size",
        ("256", "128"),
        DISK,
        'fio = { rw = "read", bs = "4k", ioengine = "psync", size = "64M" }',
        "bandwidth",
        '["blockdev", "--setra", "{side}", "{target}"]',
        ("disk.target.reads", "disk.target.read_size"),
    ),
    Planted(
        "requests of a sixteenth of the size",
        ("1024", "64"),
        DISK,
        'fio = { rw = "write", bs = "1M", ioengine = "psync", direct = 1, size = "64M", runtime = "300ms", '
        "time_based = true }",
        "bandwidth",
        '["sh", "-c", "echo {side} > /sys/class/block/${1#/dev/}/queue/max_sectors_kb", "sh", "{target}"]',
        ("disk.target.writes", "disk.target.write_size"),
    ),
    Planted(
        "Nagle's algorithm left on by a server",
        (False, True),
        "",
        'command = { argv = ["qemu-img", "bench", "-f", "raw", "-c", "64", "-d", "1", "-s", "4k", "{target}"] }',
        "elapsed",
        "",
        ("delayed-acks",),
        NBD,
    ),
)


def main() -> None:
    """Run them and print the tables."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two studies of each kind, 50 simulated ones")
    options.add_argument("--studies", type=int, default=20)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--simulated", type=int, default=500)
    options.add_argument("--json", type=Path, help="write the figures there too")
    options.add_argument("--planted", default="", metavar="WORD", help="only those whose name has this word")
    chosen = options.parse_args()
    every = [planted for planted in PLANTED if chosen.planted in planted.name]
    studies, simulated = (2, 50) if chosen.quick else (chosen.studies, chosen.simulated)
    figures: dict[str, Any] = {"rounds": chosen.rounds, "planted": [], "nothing": [], "simulated": []}
    with tempfile.TemporaryDirectory(prefix="storlab-bench-") as folder:
        for planted in every:
            figures["planted"].append(_planted(planted, studies, chosen.rounds, Path(folder)))
            print(figures["planted"][-1], flush=True)
        for planted in every:
            each = -(-studies // len(every))
            figures["nothing"].append(_nothing(planted.nothing, each, chosen.rounds, Path(folder)))
            print(figures["nothing"][-1], flush=True)
    for kind in KINDS:
        figures["simulated"].append(_simulated(kind, simulated))
    print(_table(figures))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2))


def _study(planted: Planted, rounds: int) -> str:
    prepare = f"prepare = [{planted.prepare}]" if planted.prepare else ""
    setup = planted.nodes or f'stack = [{planted.stack}]\nnodes.host.keep = "round"'
    return f"""
schema = 1
title = "{planted.name}"
primary = "{planted.metric}"
{setup}
repeat = {{ until = "max", min = {rounds}, max = {rounds} }}
factors.side = {{ levels = {json.dumps(planted.levels)} }}
trial = {{ {", ".join(filter(None, ["settle = { sync = false, drop_caches = false }", prepare]))} }}
workload.load = {{ {planted.load} }}
[probes]
host-load = {{}}
stalls = {{}}
{"tcp = {}" if planted.nodes else ""}
"""


def _run(text: str, folder: Path, name: str) -> RunFolder:
    study, out = folder / f"{name}.toml", folder / name
    study.write_text(text)
    argv = [sys.executable, "-m", "storlab.cli.main", "run", str(study), "--out", str(out), "--unconfined"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{name}: status {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
    return RunFolder(out)


def _windows(run: RunFolder, rounds: int) -> Iterator[tuple[str, tuple[Difference, ...]]]:
    """Of each study the verdict on speed, and what differs underneath."""
    tables = tables_of(run)
    design = design_of_run(run.manifest, tables)
    trials, metrics = tables.frame("trials"), tables.frame("metrics")
    for begin in range(0, int(str(trials["round"].max())), rounds):
        within = pl.col("round").is_between(begin + 1, begin + rounds)
        (comparison,) = summarise(trials.filter(within), metrics.filter(within), design, ended=True).comparisons
        assert comparison.why is not None
        yield comparison.verdict, comparison.why.differences


def _planted(planted: Planted, studies: int, rounds: int, folder: Path) -> dict[str, Any]:
    name = planted.name.replace(" ", "-")
    ranks, verdicts, lines = list[int](), list[str](), list[int]()
    for verdict, differences in _windows(_run(_study(planted, studies * rounds), folder, name), rounds):
        at = [rank for rank, d in enumerate(differences, start=1) if _shows(planted, d)]
        ranks.append(min(at, default=0))
        verdicts.append(verdict)
        lines.append(len(differences))
    found = sum(0 < rank <= FIRST for rank in ranks)
    return {"name": planted.name, "found": found, "studies": studies, "ranks": ranks, "lines": lines} | {
        "decided": sum(verdict in ("better", "worse") for verdict in verdicts)
    }


def _shows(planted: Planted, d: Difference) -> bool:
    """Whether a line is about what was planted, in whichever words."""
    return bool({d.metric, *(name.rpartition(":")[2] for name in d.alike)} & {*planted.about})


def _nothing(planted: Planted, studies: int, rounds: int, folder: Path) -> dict[str, Any]:
    name = planted.name.replace(" ", "-").replace(":", "")
    named_here = [
        [f"{d.source}:{d.metric}" for d in differences]
        for _, differences in _windows(_run(_study(planted, studies * rounds), folder, name), rounds)
    ]
    return {"name": planted.name, "false": sum(map(bool, named_here)), "studies": studies, "named": named_here}


METRICS, ROUNDS = 40, 15


def _simulated(kind: str, studies: int) -> dict[str, Any]:
    """Metrics of one study share half of the machine's noise; each has as much of its own."""
    rng = np.random.default_rng(SEED)
    ever = sum(_ever(_metrics(kind, rng)) for _ in range(studies))
    return {"kind": kind, "share": ever / studies, "studies": studies}


def _metrics(kind: str, rng: np.random.Generator) -> tuple[Floats, Floats]:
    machine = slots(kind, METRICS, 2 * ROUNDS, rng) + slots(kind, 1, 2 * ROUNDS, rng)
    first = rng.random(ROUNDS) < 0.5  # one order for all of them, since they are of the same trials
    even, odd = np.exp(machine[:, ::2]), np.exp(machine[:, 1::2])
    return np.where(first, even, odd), np.where(first, odd, even)


def _ever(metrics: tuple[Floats, Floats]) -> bool:
    a, b = metrics
    return any(named(paired(a[:, :rounds], b[:, :rounds]), [0.0] * METRICS, ALPHA) for rounds in range(6, ROUNDS + 1))


def _table(figures: dict[str, Any]) -> str:
    lines = [f"| planted | among the first {FIRST} | studies | decided by speed |", "| --- | --- | --- | --- |"]
    lines += [f"| {e['name']} | {e['found']} | {e['studies']} | {e['decided']} |" for e in figures["planted"]]
    lines += ["", "| both levels the same | something named | studies |", "| --- | --- | --- |"]
    lines += [f"| {e['name'].partition(': ')[2]} | {e['false']} | {e['studies']} |" for e in figures["nothing"]]
    lines += ["", f"| simulated, {METRICS} metrics | something named by round {ROUNDS} |", "| --- | --- |"]
    lines += [f"| {e['kind']} | {e['share']:.1%} |" for e in figures["simulated"]]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
