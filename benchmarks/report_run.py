"""Reporting a run of many short trials: the whole of ``storlab report --format text``, which derives all tables anew.

    uv run python -m benchmarks.report_run [--quick] [--json FILE]

The run is made up: 360 trials, each with results and logs of a real run of fio (its null engine, which does no I/O),
requests of some 100 kinds with their latencies as the tracer prints them, and samples of this machine's load. Beside it
a tenth of it, which shows what a start, the libraries and the report's own tables take, and ``loop``, ten million
additions in plain Python: how fast the machine is just now. It may be busy: trust CPU seconds more than seconds, and
multiples of the loop more than either.
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
        results = [{name: measured(run) for name, run in runs.items()} | {"loop": loop()} for _ in range(repeats)]
    print(table(results, rounds))
    if chosen.json:
        chosen.json.write_text(json.dumps({"trials": rounds * CELLS, "runs": results}, indent=2) + "\n")


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
    names = {"report": f"{rounds * CELLS} trials", "tenth": f"{max(1, rounds // 10) * CELLS} trials", "loop": "loop"}
    lines = [f"{'':12} {'seconds':>8} {'CPU s':>7} {'of loop':>8}"]
    for name, shown in names.items():
        seconds, cpu = (statistics.median(each[name][key] for each in results) for key in ("seconds", "cpu"))
        ratio = statistics.median(each[name]["cpu"] / each["loop"]["cpu"] for each in results)
        lines.append(f"{shown:12} {seconds:8.2f} {cpu:7.2f} {ratio:8.1f}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if shutil.which("fio") is None:
        raise SystemExit("fio is needed: apt-get install fio")
    main()
