"""Reading fio's results: Storlab beside pandas, each in a process of its own.

    uv run python -m benchmarks.read_fio [--quick] [--json FILE]

Two tasks, on what real runs of the installed fio (its null engine, which does no I/O) wrote:

``json``: 1,000 json+ files into frames. They are copies of a few dozen runs of different options. Storlab
makes of each the metrics, and the latency histograms of every job and direction, of every job, and of all
jobs merged; pandas, with ``json.load``, ``json_normalize`` and a ``DataFrame`` of the bins of every job and
direction, makes the numbers as fio wrote them, merges nothing and checks nothing. Storlab makes frames of
50 files at once; in ``json, one by one`` of each by itself, with ``parse_fio``, as a trial's results are read. ``json,
streamed`` writes the frames to Parquet rather than keeping them.

``log``: a latency log of 3,000,000 operations into percentiles by direction and a series by second. Where
one fio run's log is shorter, it is repeated with its times shifted. pandas: ``read_csv`` with ``usecols``,
``quantile``, ``groupby``. Storlab's percentiles are from bins (to within 1/128), pandas' are exact.

Each run is a new interpreter: seconds are those of the task after imports. Memory is the process's peak, as a
whole and above what it was after the imports (NumPy and Polars, or pandas), which are a floor that no reader
gets below. Both count pages of libraries that are mapped from files. Runs of both sides alternate, and a ratio
is the median over pairs of neighbours, with its range. Of a machine that does other things too, trust the CPU
seconds rather than the others.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

FIO = ("fio", "--name=rand", "--ioengine=null", "--norandommap", "--output-format=json+")


@dataclass(frozen=True)
class Run:
    """One run of one side: seconds and CPU seconds of the task, peak bytes of the process, rows or lines made or read.

    ``imports``: the peak before the task began.
    """

    seconds: float
    cpu: float
    imports: int
    peak: int
    rows: int


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a tenth of the data and two repeats")
    options.add_argument("--repeats", type=int)
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    shrink = 10 if chosen.quick else 1
    repeats = chosen.repeats or (2 if chosen.quick else 7)
    with tempfile.TemporaryDirectory(prefix="storlab-benchmark-") as made:
        folder = Path(made)
        files, distinct = make_files(folder / "json", 1000 // shrink, 6 if chosen.quick else 36)
        log, lines, segments = make_log(folder / "log", 3_000_000 // shrink)
        print(f"{files} json+ files, copies of {distinct} runs; a log of {lines} lines, of {segments} segment(s)\n")
        results = {
            "json": compare("json", folder / "json", repeats),
            "json, one by one": compare("json-one", folder / "json", repeats, "json"),
            "json, streamed": compare("json-streamed", folder / "json", repeats, "json"),
            "log": compare("log", log, repeats),
        }
    print(table(results))
    figures = {"files": files, "distinct": distinct, "lines": lines, "segments": segments, "tasks": results}
    print(json.dumps(figures, indent=2))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


def make_files(folder: Path, number: int, distinct: int) -> tuple[int, int]:
    """``number`` json+ files, of ``distinct`` runs with different directions, block sizes, jobs and lengths."""
    folder.mkdir(parents=True)
    ways = list(product(("randread", "randwrite", "randrw"), ("4k", "64k"), (1, 4, 8), (10_000, 40_000)))
    texts = []
    for rw, size, jobs, ios in ways[:: max(len(ways) // distinct, 1)][:distinct]:
        extra = (f"--rw={rw}", f"--bs={size}", f"--numjobs={jobs}", f"--size={ios * int(size[:-1])}k")
        texts.append(subprocess.run([*FIO, *extra], capture_output=True, check=True).stdout)
    for at in range(number):
        (folder / f"{at:04}.json").write_bytes(texts[at % len(texts)])
    return number, len(texts)


def make_log(folder: Path, lines: int) -> tuple[Path, int, int]:
    """A latency log of ``lines`` operations."""
    folder.mkdir(parents=True)
    rate = f"--rate_iops={max(lines // 20, 1)}"  # of each direction: about ten seconds, for a series of some length
    extra = ("--rw=randrw", "--bs=4k", f"--size={4 * lines}k", rate, "--write_lat_log=x", "--disable_slat=1")
    subprocess.run([*FIO, *extra], cwd=folder, capture_output=True, check=True)
    for unused in [*folder.glob("x_lat*"), *folder.glob("x_slat*")]:
        unused.unlink()
    log = folder / "x_clat.1.log"
    segment = log.read_bytes().splitlines(keepends=True)
    repeats = -(-lines // len(segment))
    last = int(segment[-1].split(b",")[0]) + 1
    with log.open("wb") as file:
        for at in range(repeats):
            for line in segment[: lines - at * len(segment)]:
                time, rest = line.split(b",", 1)
                file.write(b"%d,%s" % (int(time) + at * last, rest))
    return log, lines, repeats


def compare(task: str, path: Path, repeats: int, pandas_task: str | None = None) -> dict[str, object]:
    """Runs of both sides in turn, first one ahead, then the other."""
    ours, theirs = [], []
    for at in range(repeats):
        pair = {"storlab": task, "pandas": pandas_task or task}
        order = list(pair) if at % 2 else list(reversed(pair))
        done = {side: child(side, pair[side], path) for side in order}
        ours.append(done["storlab"])
        theirs.append(done["pandas"])
    pairs = list(zip(ours, theirs, strict=True))
    return {
        "storlab": [asdict(run) for run in ours],
        "pandas": [asdict(run) for run in theirs],
        "times faster": spread([theirs.seconds / ours.seconds for ours, theirs in pairs]),
        "times less CPU": spread([theirs.cpu / ours.cpu for ours, theirs in pairs]),
        "share of memory": spread([ours.peak / theirs.peak for ours, theirs in pairs]),
        "share of memory above imports": spread(
            [(ours.peak - ours.imports) / (theirs.peak - theirs.imports) for ours, theirs in pairs]
        ),
    }


def spread(ratios: list[float]) -> dict[str, float]:
    return {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def child(side: str, task: str, path: Path) -> Run:
    """One run in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("read_fio_child.py")), side, task, str(path)]
    said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return Run(**said)


RATIOS = ("times faster", "times less CPU", "share of memory", "share of memory above imports")


def table(results: dict[str, dict[str, object]]) -> str:
    lines = [
        f"{'task':16} {'side':8} {'seconds':>8} {'CPU s':>7} {'rows':>8} {'rows/s':>10} {'peak MB':>8} {'imports':>8}"
    ]
    for task, result in results.items():
        for side in ("storlab", "pandas"):
            runs = result[side]
            assert isinstance(runs, list)
            seconds, cpu, peak, imports = (
                statistics.median(run[name] for run in runs) for name in ("seconds", "cpu", "peak", "imports")
            )
            rows = runs[0]["rows"]
            lines.append(
                f"{task:16} {side:8} {seconds:8.3f} {cpu:7.3f} {rows:8} {rows / seconds:10.0f} "
                f"{peak / 1e6:8.0f} {imports / 1e6:8.0f}"
            )
        for name in RATIOS:
            ratio = result[name]
            assert isinstance(ratio, dict)
            lines.append(f"{'':16} {name}: {ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if shutil.which("fio") is None:
        raise SystemExit("fio is needed: apt-get install fio")
    main()
