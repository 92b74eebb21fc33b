"""One side of ``read_sysbench`` in its own process: ``SIDE TASK FILE…`` in, seconds and CPU seconds out."""

from __future__ import annotations

import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

NUMBER = r"(\d+\.\d+)"
LINE = re.compile(
    rf"\[ (\d+)s \] thds: (\d+) tps: {NUMBER} qps: {NUMBER} \(r/w/o: {NUMBER}/{NUMBER}/{NUMBER}\) "
    rf"lat \(ms,(\d+)%\): {NUMBER} err/s: {NUMBER} reconn/s: {NUMBER}"
)
TPS_ALONE = re.compile(rf"\[ (\d+)s \] thds: \d+ tps: {NUMBER}")


def read_plain(path: Path, line_form: re.Pattern[str] = LINE) -> list[list[float]]:
    """Each column of the interval lines as a list."""
    columns: list[list[float]] = [[] for _ in range(line_form.groups)]
    with path.open() as file:
        for line in file:
            match = line_form.match(line)
            if match:
                for column, text in zip(columns, match.groups(), strict=True):
                    column.append(float(text))
    return columns


def read_tps(path: Path) -> list[list[float]]:
    return read_plain(path, TPS_ALONE)


def print_plain(read: Callable[[Path], list[list[float]]], tps: int, files: list[Path]) -> None:
    values = [read(path)[tps] for path in files]
    least, most = min(map(min, values)), max(map(max, values))
    for path, each in zip(files, values, strict=True):
        low, _, high = statistics.quantiles(each, n=4, method="inclusive")
        outliers = sum(not low - 1.5 * (high - low) <= value <= high + 1.5 * (high - low) for value in each)
        bins = [0] * 29
        for value in each:
            bins[min(28, int((value - least) / (most - least) * 29))] += 1
        print(path.stem, statistics.fmean(each), statistics.pvariance(each), low, high, outliers, bins)


def read_storlab(files: list[Path]) -> None:
    from storlab.cli.output import one_thread_for_algebra

    one_thread_for_algebra()  # as `storlab import` does
    from storlab.tools.sysbench.importer import SysbenchImporter

    importer = SysbenchImporter()
    timed(lambda: [importer.read(path.read_bytes(), str(path), {}) for path in files])


def read_pandas(files: list[Path]) -> None:
    import pandas as pd

    timed(lambda: [pd.Series(path.read_text().splitlines()).str.extract(LINE).dropna().astype(float) for path in files])


def report_storlab(files: list[Path], form: str) -> None:
    program = str(Path(sys.executable).with_name("storlab"))
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        imports = [program, "import", "sysbench", *map(str, files), "--out", run]
        reports = [program, "report", run, "--format", form]
        timed(lambda: [subprocess.run(each, check=True, stdout=subprocess.DEVNULL) for each in (imports, reports)])


def print_in_process(side: str, files: list[Path]) -> None:
    """As a script of its own would be run: with its interpreter's start."""
    read = "read_plain, 2" if side == "plain" else "read_tps, 1"
    call = f"from benchmarks.read_sysbench_child import *; print_plain({read}, [Path(name) for name in sys.argv[1:]])"
    command = [sys.executable, "-c", call, *map(str, files)]
    timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def draw_in_process(files: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.plain_charts_child", folder, *map(str, files)]
        timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def timed(work: Callable[[], object]) -> None:
    """Do it, keeping what it made until the clock has stopped, and print seconds and CPU seconds."""
    started, cpu = time.perf_counter(), cpu_seconds()
    kept = work()
    print(time.perf_counter() - started, cpu_seconds() - cpu)
    assert kept is not None


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    side, task = sys.argv[1:3]
    files = [Path(name) for name in sys.argv[3:]]
    match side, task:
        case "storlab", "read":
            read_storlab(files)
        case "storlab", _:
            report_storlab(files, "html" if task == "charts" else "text")
        case "pandas", "read":
            read_pandas(files)
        case _, "read":
            timed(lambda: [(read_plain if side == "plain" else read_tps)(path) for path in files])
        case _, "text":
            print_in_process(side, files)
        case _:
            draw_in_process(files)


if __name__ == "__main__":
    main()
