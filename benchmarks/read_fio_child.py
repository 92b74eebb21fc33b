"""One side of ``read_fio`` in its own process: ``SIDE TASK PATH`` in, seconds, bytes and rows out."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BATCH = 50  # reports made into frames at once


def storlab_json() -> Callable[[Path], int]:
    import polars as pl

    import storlab.tools.fio.output  # noqa: F401 (counted as an import, not in the task)

    def read(folder: Path) -> int:
        together = [pl.concat(frames) for frames in zip(*storlab_batches(folder), strict=True)]
        return sum(frame.height for frame in together)

    return read


def storlab_json_streamed() -> Callable[[Path], int]:
    import storlab.tools.fio.output  # noqa: F401 (counted as an import, not in the task)

    def read(folder: Path) -> int:
        rows = 0
        with tempfile.TemporaryDirectory() as tables:
            for number, frames in enumerate(storlab_batches(folder)):
                for name, frame in zip(("metrics", "series", "histograms"), frames, strict=True):
                    frame.write_parquet(Path(tables) / f"{name}-{number}.parquet")
                    rows += frame.height
        return rows

    return read


def storlab_batches(folder: Path) -> Iterator[tuple[Any, ...]]:
    import polars as pl

    from storlab.tools.fio.output import frames, read_report

    paths = sorted(folder.iterdir())
    for first in range(0, len(paths), BATCH):
        reports = [read_report(path.read_bytes(), path.name) for path in paths[first : first + BATCH]]
        yield tuple(frame.with_columns(pl.col("report") + first) for frame in frames(reports))


def storlab_json_one() -> Callable[[Path], int]:
    import polars as pl

    from storlab.tools.fio.output import parse_fio

    def read(folder: Path) -> int:
        metrics, histograms = [], []
        for trial, path in enumerate(sorted(folder.iterdir()), start=1):
            measured = parse_fio(path.read_bytes(), path.name)
            metrics.append(measured.metrics.with_columns(trial=pl.lit(trial)))
            histograms.append(measured.histograms.with_columns(trial=pl.lit(trial)))
        return pl.concat(metrics).height + pl.concat(histograms).height

    return read


def storlab_log() -> Callable[[Path], int]:
    from storlab.tools.fio.operations import read_operations

    def read(log: Path) -> int:
        histograms = read_operations({1: log}).histograms
        return int(histograms.filter(histograms["metric"] == "latency")["count"].sum())

    return read


def pandas_json() -> Callable[[Path], int]:
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]

    def read(folder: Path) -> int:
        metrics, bins = [], []
        for trial, path in enumerate(sorted(folder.iterdir()), start=1):
            with path.open() as file:
                jobs = json.load(file)["jobs"]
            for number, job in enumerate(jobs):
                for direction in ("read", "write", "trim"):
                    # Taken out, so that json_normalize doesn't make a column of every bin.
                    counts: dict[str, int] = job[direction]["clat_ns"].pop("bins", {})
                    if counts:
                        frame = pd.DataFrame({"bin": counts.keys(), "count": counts.values()})
                        frame["bin"] = frame["bin"].astype("int64")
                        bins.append(frame.assign(trial=trial, job=number, direction=direction))
            metrics.append(pd.json_normalize(jobs).assign(trial=trial))
        together = pd.concat(metrics, ignore_index=True)
        return len(together) + len(pd.concat(bins, ignore_index=True))

    return read


def pandas_log() -> Callable[[Path], int]:
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]

    def read(log: Path) -> int:
        names = ["time", "value", "direction", "size"]
        lines = pd.read_csv(log, header=None, names=names, usecols=[0, 1, 2, 3])
        latencies: Any = lines.groupby("direction")["value"]
        latencies.quantile([0.5, 0.9, 0.95, 0.99, 0.999, 0.9999])
        latencies.agg(["min", "max", "mean"])
        lines["second"] = lines["time"] // 1000
        columns: dict[str, Any] = {"ios": ("value", "size"), "latency": ("value", "mean"), "bytes": ("size", "sum")}
        lines.groupby(["second", "direction"]).agg(**columns)
        return len(lines)

    return read


SIDES = {
    ("storlab", "json"): storlab_json,
    ("storlab", "json-streamed"): storlab_json_streamed,
    ("storlab", "json-one"): storlab_json_one,
    ("storlab", "log"): storlab_log,
    ("pandas", "json"): pandas_json,
    ("pandas", "log"): pandas_log,
}


def peak() -> int:
    """The process's peak memory so far, bytes."""
    # Not getrusage: its ru_maxrss also counts what the parent held when this process was forked.
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    read = SIDES[sys.argv[1], sys.argv[2]]()
    imports = peak()
    started, used = time.perf_counter(), time.process_time()
    rows = read(Path(sys.argv[3]))
    seconds, used = time.perf_counter() - started, time.process_time() - used
    print(json.dumps({"seconds": seconds, "cpu": used, "imports": imports, "peak": peak(), "rows": rows}))
