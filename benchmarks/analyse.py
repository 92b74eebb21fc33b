"""Analysing a large study: 10,000 trials with 100 metrics each, made up, in a process of its own.

    uv run python -m benchmarks.analyse [--quick] [--json FILE]

Four file systems × 25 block sizes × 100 rounds: 10,000 estimates, 156 comparisons with verdicts, and the effects of
both factors. ``balanced``: every round has every cell. ``unbalanced``: one trial in fifty failed. Seconds are those of
``summarise`` alone, memory is the peak of the whole process, with the tables in it; ``imports`` is the peak before
they were made. The machine may be busy: trust CPU seconds more.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from storlab.analysis.design import Design
from storlab.analysis.summarise import summarise

FILE_SYSTEMS, SIZES, METRICS = 4, 25, 100
MOST_SECONDS, MOST_BYTES = 5, 500e6
FAILED = 0.02


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a tenth of the trials, one repeat")
    options.add_argument("--repeats", type=int)
    options.add_argument("--json", type=Path, help="write the figures there too")
    options.add_argument("--child", choices=("balanced", "unbalanced"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    rounds = 10 if chosen.quick else 100
    if chosen.child:
        print(json.dumps(measure(rounds, chosen.child == "unbalanced")))
        return
    repeats = chosen.repeats or (1 if chosen.quick else 3)
    results = {kind: [child(kind, chosen.quick) for _ in range(repeats)] for kind in ("balanced", "unbalanced")}
    print(table(results))
    if not chosen.quick:
        for kind, runs in results.items():
            fits = min(run["cpu"] for run in runs) < MOST_SECONDS and max(run["peak"] for run in runs) < MOST_BYTES
            print(f"{kind}: {'within' if fits else 'beyond'} {MOST_SECONDS} CPU s and {MOST_BYTES / 1e6:.0f} MB")
    figures = {"trials": FILE_SYSTEMS * SIZES * rounds, "metrics": METRICS, "tasks": results}
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


def child(kind: str, quick: bool) -> dict[str, float]:
    """One analysis in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.analyse", "--child", kind, *(["--quick"] if quick else [])]
    said: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return said


def measure(rounds: int, unbalanced: bool) -> dict[str, float]:
    """Make the tables, analyse them: seconds, CPU seconds, peak bytes, and how much came out."""
    imports = peak()
    trials, metrics, design = study(rounds, unbalanced)
    begin, begun = time.perf_counter(), time.process_time()
    summary = summarise(trials, metrics, design, ended=True)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begun
    assert len(summary.effects) == 1
    return {
        "seconds": seconds,
        "cpu": cpu,
        "imports": imports,
        "peak": peak(),
        "estimates": len(summary.estimates),
        "comparisons": len(summary.comparisons),
        "shares": len(summary.effects[0].shares),
    }


def study(rounds: int, unbalanced: bool) -> tuple[pl.DataFrame, pl.DataFrame, Design]:
    """Trials, metrics and design of a made-up study; the seed is 1."""
    rng = np.random.default_rng(1)
    factors = {"fs": tuple(f"fs{n}" for n in range(FILE_SYSTEMS)), "bs": tuple(f"{n}k" for n in range(SIZES))}
    places = [(fs, bs) for fs in factors["fs"] for bs in factors["bs"]]
    cells = tuple((number, {"fs": fs, "bs": bs}) for number, (fs, bs) in enumerate(places, start=1))
    trial = np.arange(len(cells) * rounds)
    kept = rng.random(len(trial)) >= (FAILED if unbalanced else 0.0)
    trials = pl.DataFrame(
        {"trial": trial + 1, "round": trial // len(cells) + 1, "cell": trial % len(cells) + 1, "done": kept}
    ).with_columns(
        status=pl.when("done").then(pl.lit("done")).otherwise(pl.lit("failed")), reason=pl.lit(None, pl.String)
    )
    done = trials.filter("done")
    names = pl.Series(["write.bandwidth", *(f"m{n}" for n in range(1, METRICS))])
    metrics = (
        done.select("trial", "round", "cell")
        .join(names.to_frame("metric"), how="cross")
        .with_columns(
            pl.Series("value", np.exp(0.05 * rng.normal(size=done.height * METRICS))),
            node=pl.lit(None, pl.String),
            job=pl.lit(None, pl.String),
            source=pl.lit("load"),
            unit=pl.lit("B/s"),
            better=pl.lit("higher"),
        )
    )
    return trials, metrics, Design("A large study", "bandwidth", factors, cells)


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def table(results: dict[str, list[dict[str, float]]]) -> str:
    lines = [f"{'study':12} {'seconds':>8} {'CPU s':>7} {'peak MB':>8} {'imports':>8}"]
    for kind, runs in results.items():
        seconds, cpu, most, imports = (
            statistics.median(run[key] for run in runs) for key in ("seconds", "cpu", "peak", "imports")
        )
        lines.append(f"{kind:12} {seconds:8.2f} {cpu:7.2f} {most / 1e6:8.0f} {imports / 1e6:8.0f}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
