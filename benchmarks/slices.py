"""Do slices measure the same, and with how much less noise?

    sudo python -m benchmarks.slices [--rounds 12] [--pairs 12] [--equal 60] [--json FILE]

Twelve pairs that differ are measured twice, for the same time of work: each trial by itself, and in slices. Of each:
the typical ratio with its interval, whether the two intervals meet, and the variance of the rounds' log ratios in
slices, as a share of that of whole trials. Six equal set-ups then take turns for many rounds: how often are equal ones
called different, looked at after every round, and does a slice depend on whose slice was before?
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import storlab
from storlab.analysis.stats.signed_rank import interval, log_difference, typical
from storlab.workloads.base import read_turns

ALPHA = 0.05
SECONDS = 1.0
WINDOW = 12  # rounds of one study of equals
DISK = '{ layer = "file", size = "512M", allocate = "preallocated" }, { layer = "loop" }'
EXT4 = f'{DISK}, {{ layer = "mkfs", type = "ext4" }}, {{ layer = "mount" }}'
FS = f'{DISK}, "{{side}}", {{ layer = "mount" }}'
FILE_SYSTEMS = 'ext4 = { layer = "mkfs", type = "ext4" }\nxfs = { layer = "mkfs", type = "xfs" }'
DEEP = 'ioengine = "libaio", direct = 1'


@dataclass(frozen=True)
class Pair:
    """Two set-ups or loads, by a factor ``side``."""

    name: str
    stack: str
    levels: str
    fio: str
    metric: str = "iops"


def _levels(*names: str) -> str:
    return f"levels = {json.dumps(names)}"


PAIRS = (
    Pair("random reads of 4k, 8k", DISK, _levels("4k", "8k"), f'rw = "randread", bs = "{{side}}", iodepth = 8, {DEEP}'),
    Pair(
        "random reads, 1 and 8 deep",
        DISK,
        _levels("1", "8"),
        f'rw = "randread", bs = "4k", iodepth = "{{side}}", {DEEP}',
    ),
    Pair(
        "reads in order of 64k, 128k",
        DISK,
        _levels("64k", "128k"),
        f'rw = "read", bs = "{{side}}", iodepth = 2, {DEEP}',
    ),
    Pair(
        "random writes of 4k, 8k", DISK, _levels("4k", "8k"), f'rw = "randwrite", bs = "{{side}}", iodepth = 4, {DEEP}'
    ),
    Pair(
        "random writes, 1 and 8 deep",
        DISK,
        _levels("1", "8"),
        f'rw = "randwrite", bs = "4k", iodepth = "{{side}}", {DEEP}',
    ),
    Pair("fsync: ext4, XFS", FS, FILE_SYSTEMS, 'rw = "randwrite", bs = "4k", ioengine = "psync", fsync = 1'),
    Pair(
        "fsync each, each fourth",
        EXT4,
        _levels("1", "4"),
        'rw = "randwrite", bs = "4k", ioengine = "psync", fsync = "{side}"',
    ),
    Pair("random writes: ext4, XFS", FS, FILE_SYSTEMS, f'rw = "randwrite", bs = "4k", iodepth = 4, {DEEP}'),
    Pair("random reads: ext4, XFS", FS, FILE_SYSTEMS, f'rw = "randread", bs = "4k", iodepth = 4, {DEEP}'),
    Pair(
        "random reads, 1 and 2 jobs",
        DISK,
        _levels("1", "2"),
        f'rw = "randread", bs = "4k", numjobs = "{{side}}", iodepth = 1, {DEEP}',
    ),
    Pair(
        "sectors of 512, 4k",
        DISK.replace('"loop"', '"loop", sector_size = "{side}"'),
        _levels("512", "4k"),
        f'rw = "randwrite", bs = "4k", iodepth = 4, {DEEP}',
    ),
    Pair(
        "mixed, 20 and 80 % reads",
        DISK,
        _levels("20", "80"),
        f'rw = "randrw", bs = "4k", rwmixread = "{{side}}", iodepth = 4, {DEEP}',
    ),
)


def main() -> None:
    """Run them and print the tables."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two pairs, six rounds, six rounds of equals")
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--pairs", type=int, default=len(PAIRS))
    options.add_argument("--equal", type=int, default=60, help="rounds of six equal set-ups")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    rounds, number, equal = (6, 2, 6) if chosen.quick else (chosen.rounds, chosen.pairs, chosen.equal)
    with tempfile.TemporaryDirectory(prefix="storlab-bench-") as folder:
        found = [_both(pair, rounds, Path(folder)) for pair in PAIRS[:number]]
        equals = _equals(equal, Path(folder))
    print(_table(found))
    print(_about_equals(equals))
    if chosen.json:
        chosen.json.write_text(json.dumps({"pairs": found, "equals": equals}, indent=2))


def _study(pair: Pair, rounds: int, slices: str) -> str:
    return f"""
schema = 1
title = "{pair.name}"
primary = "{pair.metric}"
stack = [{pair.stack}]
repeat = {{ until = "max", min = {rounds}, max = {rounds} }}
factors.side = {{ {", ".join(pair.levels.splitlines())} }}
trial = {{ {slices} }}
workload.load.fio = {{ {pair.fio}, size = "64M", runtime = "{SECONDS}s", time_based = true }}
probes = {{}}
"""


def _run(text: str, folder: Path, name: str) -> Path:
    study, out = folder / f"{name}.toml", folder / name
    study.write_text(text)
    argv = [sys.executable, "-m", "storlab.cli.main", "run", str(study), "--out", str(out)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{name}: status {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
    return out


def _values(out: Path, metric: str) -> dict[str, list[float]]:
    """Level → its values, round by round."""
    run = storlab.open_run(out)
    column = next(name for name in run.trials.columns if name.startswith("factor."))
    of_load = (pl.col("source") == "load") & (pl.col("metric") == metric)
    rows = run.metrics.filter(of_load & pl.col("job").is_null() & (pl.col("node") == "host"))
    rows = rows.join(run.trials.select("trial", "round", column), on="trial").sort("round")
    return {str(level): of["value"].to_list() for (level,), of in rows.group_by([column], maintain_order=True)}


def _both(pair: Pair, rounds: int, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"pair": pair.name}
    for way, slices in (("whole", ""), ("slices", 'slices = "0.1s"')):
        name = f"{pair.name.replace(' ', '-')}-{way}"
        values = _values(_run(_study(pair, rounds, slices), folder, name), pair.metric)
        one, other = (np.log(np.array(values[level])) for level in sorted(values))
        ratios = one - other
        low, high = interval(ratios, math.log(1 / ALPHA))
        found[way] = {"ratio": math.exp(typical(ratios)), "low": math.exp(low), "high": math.exp(high)}
        found[way]["variance"] = float(np.var(ratios, ddof=1))
    return found


def _equals(rounds: int, folder: Path) -> dict[str, Any]:
    levels = _levels(*(f"equal {number}" for number in range(1, 7)))
    pair = Pair("equals", DISK, levels, f'rw = "randread", bs = "4k", iodepth = 4, {DEEP}')
    out = _run(_study(pair, rounds, 'slices = "0.1s"'), folder, "equals")
    logs = {level: np.log(np.array(values)) for level, values in _values(out, pair.metric).items()}
    windows = [slice(at, at + WINDOW) for at in range(0, rounds - WINDOW + 1, WINDOW)]
    disjoint = [pair for at, pair in enumerate(combinations(sorted(logs), 2)) if at in (0, 9, 14)]
    studies = [(logs[one] - logs[other])[window] for one, other in disjoint for window in windows]
    false = sum(_ever_different(ratios) for ratios in studies)
    return {"studies": len(studies), "false": false, "order": list(_order_effects(out))}


def _ever_different(ratios: Any) -> bool:
    return any(float(log_difference(ratios[:seen])) >= math.log(1 / ALPHA) for seen in range(1, ratios.size + 1))


def _order_effects(out: Path) -> Iterator[float]:
    """The log of each slice's rate less the mean of its trial's, by cell before: the largest mean, and its error."""
    by_pair: dict[tuple[int, int], list[float]] = {}
    run = storlab.open_run(out)
    of_all = run.series.filter(pl.col("metric") == "iops", pl.col("job").is_null())
    for record in run.records():
        turns = read_turns(run.trial_folder(record.trial) / "host" / "load")
        series = of_all.filter(pl.col("trial") == record.trial)
        if turns is None or not series.height:
            continue
        rates = series.sort("t")["value"].to_list()[: len(turns.measured)]
        mean = statistics.fmean(rates)
        for before, rate in zip(turns.after[turns.warm_up :], rates, strict=False):
            by_pair.setdefault((before, record.cell), []).append(rate / mean - 1)
    for _, of in sorted(by_pair.items()):
        if len(of) > 2:
            yield statistics.fmean(of)


def _table(found: Sequence[dict[str, Any]]) -> str:
    lines = ["| pair | whole trials | in slices | intervals meet | variance |", "| --- | --- | --- | --- | --- |"]
    for each in found:
        ways = [each["whole"], each["slices"]]
        shown = [f"{way['ratio']:.3f} ({way['low']:.3f}–{way['high']:.3f})" for way in ways]
        meet = ways[0]["low"] <= ways[1]["high"] and ways[1]["low"] <= ways[0]["high"]
        share = ways[1]["variance"] / ways[0]["variance"]
        lines.append(f"| {each['pair']} | {shown[0]} | {shown[1]} | {'yes' if meet else 'NO'} | × {share:.2f} |")
    shares = [each["slices"]["variance"] / each["whole"]["variance"] for each in found]
    lines.append(f"| geometric mean | | | | × {math.exp(statistics.fmean(map(math.log, shares))):.2f} |")
    return "\n".join(lines)


def _about_equals(equals: dict[str, Any]) -> str:
    order = equals["order"]
    spread = f"{min(order):+.1%} to {max(order):+.1%}" if order else "not known"
    return (
        f"\nEqual set-ups: {equals['false']} of {equals['studies']} studies of {WINDOW} rounds, looked at after each, "
        f"call two of them different.\nA slice by whose slice was before it: {spread} of its rate, over all pairs."
    )


if __name__ == "__main__":
    main()
