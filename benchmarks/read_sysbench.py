"""sysbench's text of two runs of 12 hours: Storlab beside plain Python with a regular expression and matplotlib.

    uv run --group bench python -m benchmarks.read_sysbench [--quick] [--json FILE]

The two public runs, where STORLAB_REFERENCE names their folder; else two files of as many lines, 21,600 each, written
here with a recorded seed in the form of sysbench 1.0. The plain side opens a file, matches a compiled expression
against each line, and appends what was found to lists, as scripts for such files do; ``plain, tps alone`` takes only
time and TPS.

- ``read``: within one process, after imports, until all numbers are in memory. Storlab also has the closing block, the
  options, and every line checked to its end. ``pandas`` splits the lines and takes their numbers by ``str.extract``.
- ``text``: whole processes. Storlab imports into a run (durably written, with its tables) and reports it as text, in
  two commands; the plain side reads, and prints mean, variance, quartiles, outliers and a histogram of 29 bins.
- ``charts``: whole processes. Storlab imports, and writes its page with all charts, and each as SVG and PNG; the plain
  side reads, and draws twelve charts as PNG (``plain_charts_child.py``).

Python's libraries and all programs are compiled, as they are after a first start: each side has run once before. Sides
take turns, and a ratio is the median over pairs of neighbours, with its range. Of a machine that does other things too,
trust the CPU seconds rather than the others.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ALL = ("storlab", "plain", "plain, tps alone")
SIDES = {"read": (*ALL, "pandas"), "text": ALL, "charts": ("storlab", "plain")}
REFERENCE = ("sysbench/mysql-12h-doublewrite-off.txt", "sysbench/mysql-12h-doublewrite-on.txt")
HERE = Path(__file__).parent
SEED = 20261121
CLOSING = """SQL statistics:
    transactions:                        {transactions} ({tps:.2f} per sec.)

General statistics:
    total time:                          {time:.4f}s
    total number of events:              {transactions}

Latency (ms):
         min:                                    3.09
         avg:                                   23.81
         max:                                  211.24
         95th percentile:                       33.72
         sum:                           5529015010.01

Threads fairness:
    events (avg/stddev):           1813861.7891/2345.89
    execution time (avg/stddev):   43195.4298/0.06

"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a tenth of the data and two repeats")
    options.add_argument("--repeats", type=int)
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    lines = 2160 if chosen.quick else 21600
    repeats = chosen.repeats or (2 if chosen.quick else 9)
    with tempfile.TemporaryDirectory(prefix="storlab-benchmark-") as made:
        files = reference() if not chosen.quick else []
        public = bool(files)
        files = files or [
            write_file(Path(made) / f"{name}.txt", lines, SEED + at) for at, name in enumerate(("off", "on"))
        ]
        os.environ["PYTHONPYCACHEPREFIX"] = f"{made}/compiled"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["MPLBACKEND"] = "Agg"  # files, even where there is a screen
        results = {task: compare(task, files, repeats) for task in tasks()}
    print(table(results))
    figures = {"lines": 2 * lines, "seed": None if public else SEED, "public runs": public, "tasks": results}
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


def reference() -> list[Path]:
    """The two public runs, if they are there."""
    folder = os.environ.get("STORLAB_REFERENCE")
    files = [Path(folder) / name for name in REFERENCE] if folder else []
    return files if all(file.is_file() for file in files) else []


def tasks() -> list[str]:
    """All, but for charts where there is nothing to draw them with."""
    if importlib.util.find_spec("matplotlib") is not None:
        return list(SIDES)
    print("matplotlib is not installed: `uv sync --group bench`; no charts are compared", file=sys.stderr)
    return [task for task in SIDES if task != "charts"]


def write_file(path: Path, lines: int, seed: int) -> Path:
    """A file in the form of sysbench 1.0.17's, of 128 threads."""
    drawn = random.Random(seed)
    text = ["sysbench 1.0.17 (using bundled LuaJIT 2.1.0-beta2)\n\nNumber of threads: 128\n\nThreads started!\n\n"]
    total = 0.0
    for at in range(1, lines + 1):
        tps = drawn.gauss(5300, 60)
        total += 2 * tps
        text.append(
            f"[ {2 * at}s ] thds: 128 tps: {tps:.2f} qps: {20 * tps:.2f} (r/w/o: {14 * tps:.2f}/{4 * tps:.2f}/"
            f"{2 * tps:.2f}) lat (ms,95%): {drawn.choice((33.12, 33.72, 34.33))} err/s: 0.00 reconn/s: 0.00\n"
        )
    text.append(CLOSING.format(transactions=int(total), tps=total / lines / 2, time=2.0 * lines))
    path.write_text("".join(text))
    return path


@dataclass(frozen=True)
class Run:
    """One run of one side."""

    seconds: float
    cpu: float


def compare(task: str, files: list[Path], repeats: int) -> dict[str, object]:
    """All sides in turn, and by what factor Storlab is faster than each of the others."""
    sides = SIDES[task]
    runs: dict[str, list[Run]] = {side: [] for side in sides}
    for side in sides:
        child(side, task, files)
    for at in range(repeats):
        for side in sides if at % 2 else reversed(sides):
            runs[side].append(child(side, task, files))
    ours = runs["storlab"]
    return {
        "runs": {side: [asdict(run) for run in each] for side, each in runs.items()},
        "times faster": {
            side: spread([b.seconds / a.seconds for a, b in zip(ours, runs[side], strict=True)]) for side in sides[1:]
        },
        "times less CPU": {
            side: spread([b.cpu / a.cpu for a, b in zip(ours, runs[side], strict=True)]) for side in sides[1:]
        },
    }


def spread(ratios: list[float]) -> dict[str, float]:
    return {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def child(side: str, task: str, files: list[Path]) -> Run:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.read_sysbench_child", side, task, *map(str, files)]
    said = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, check=True, text=True).stdout
    seconds, cpu = map(float, said.split())
    return Run(seconds, cpu)


def table(results: dict[str, dict[str, object]]) -> str:
    lines = [f"{'task':8} {'side':18} {'seconds':>8} {'CPU s':>7}"]
    for task, result in results.items():
        runs = result["runs"]
        assert isinstance(runs, dict)
        for side, each in runs.items():
            seconds, cpu = (statistics.median(run[name] for run in each) for name in ("seconds", "cpu"))
            lines.append(f"{task:8} {side:18} {seconds:8.3f} {cpu:7.3f}")
        for name in ("times faster", "times less CPU"):
            ratios = result[name]
            assert isinstance(ratios, dict)
            for side, ratio in ratios.items():
                said = f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"
                lines.append(f"{'':8} {name} than {side}: {said}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
