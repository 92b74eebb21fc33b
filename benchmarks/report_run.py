"""Reporting a run of many short trials: the whole of ``storlab report --format text``, for the first time and again.

    uv run python -m benchmarks.report_run [--quick] [--json FILE]

The run is made up: 360 trials, each with results and logs of a real run of fio (its null engine, which does no I/O),
requests of some 100 kinds with their latencies as the tracer prints them, and samples of this machine's load. The first
report derives all tables and keeps them, ``again`` finds them kept, and ``one more`` finds one trial's files changed.
Beside it a tenth of it, which shows what a start, the libraries and the report's own tables take, and ``loop``, ten
million additions in plain Python: how fast the machine is just now. It may be busy: trust CPU seconds more than seconds
and ratios of reports that follow each other more than either.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.made_run import CELLS, make_run

ROUNDS = 60


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a tenth of the trials, one repeat")
    options.add_argument("--repeats", type=int)
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    repeats = chosen.repeats or (1 if chosen.quick else 5)
    rounds = ROUNDS // 10 if chosen.quick else ROUNDS
    with tempfile.TemporaryDirectory(prefix="storlab-benchmark-") as made:
        runs = {
            "report": make_run(Path(made) / "whole", rounds),
            "tenth": make_run(Path(made) / "tenth", max(1, rounds // 10)),
        }
        results = [turn(runs) for _ in range(repeats)]
    print(table(results, rounds))
    if chosen.json:
        chosen.json.write_text(json.dumps({"trials": rounds * CELLS, "runs": results}, indent=2) + "\n")


def turn(runs: dict[str, Path]) -> dict[str, dict[str, float]]:
    """Each kind of report once."""
    found = {}
    for name, run in runs.items():
        shutil.rmtree(run / "tables", ignore_errors=True)
        found[name] = measured(run)
        found[f"{name} again"] = measured(run)
    (runs["report"] / "trials" / "0001" / "host" / "load" / "fio.json").touch()
    found["one more"] = measured(runs["report"])
    return found | {"loop": loop()}


def measured(run: Path) -> dict[str, float]:
    """Seconds and CPU seconds of one report."""
    command = [str(Path(sys.executable).with_name("storlab")), "report", str(run), "--format", "text"]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "100"}, check=True)
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": seconds, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def loop() -> dict[str, float]:
    """What ten million additions take here and now."""
    begun, cpu = time.perf_counter(), time.process_time()
    total = 0
    for each in range(10_000_000):
        total += each
    return {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}


def table(results: list[dict[str, dict[str, float]]], rounds: int) -> str:
    whole, tenth = (f"{count * CELLS} trials" for count in (rounds, max(1, rounds // 10)))
    names = {
        "report": whole,
        "report again": f"{whole}, again",
        "one more": f"{whole}, one changed",
        "tenth": tenth,
        "tenth again": f"{tenth}, again",
        "loop": "loop",
    }
    lines = [f"{'':24} {'seconds':>8} {'CPU s':>7} {'of loop':>8} {'of first':>9}"]
    for name, shown in names.items():
        seconds, cpu = (statistics.median(each[name][key] for each in results) for key in ("seconds", "cpu"))
        of_loop, of_first = (
            statistics.median(each[name]["cpu"] / each[base]["cpu"] for each in results) for base in ("loop", "report")
        )
        lines.append(f"{shown:24} {seconds:8.2f} {cpu:7.2f} {of_loop:8.1f} {of_first:9.2f}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if shutil.which("fio") is None:
        raise SystemExit("fio is needed: apt-get install fio")
    main()
