"""All that one trial of fio left in its raw folder, as measurements: ``fio.json``, its logs, and its stalls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from storlab.errors import CommandFailed, ParseError
from storlab.measurements import Measurements, Value, metric_frame
from storlab.workloads.exit_record import ExitRecord, read_exit
from storlab.workloads.fio_logs import find_logs, read_series
from storlab.workloads.fio_operations import longest_gap
from storlab.workloads.fio_output import job_names, parse_fio

OUTPUT = "fio.json"
LOGS = "series"
STALL = 1.0  # s: times without a completed operation that are longer are summed up


def read_results(raw: Path, log_interval: float) -> Measurements:
    """``log_interval``: seconds over which fio averaged its logs.

    Raises ``DiskFull`` or ``CommandFailed`` with fio's own message, ``ParseError`` where its results can't be read.
    """
    messages = _bytes(raw / "stderr")
    output = _bytes(raw / OUTPUT)
    record = read_exit(raw)
    if not output:
        raise CommandFailed(_ended(record, messages, "left no results"))
    measured = parse_fio(output, str(raw / OUTPUT), messages)
    if record.code != 0:
        raise CommandFailed(_ended(record, messages, "failed"))
    series = read_series(raw, LOGS, log_interval, job_names(output, str(raw / OUTPUT)))
    stalls = _stalls(raw, log_interval, measured)
    return replace(
        measured,
        metrics=pl.concat([measured.metrics, metric_frame(stalls)]),
        series=pl.concat([measured.series, series]),
    )


def _ended(record: ExitRecord, messages: bytes, what: str) -> str:
    said = messages.decode(errors="replace").strip().splitlines()
    how = "was stopped at the time-out" if record.timed_out else f"ended with status {record.code or record.signal}"
    return f"fio {how} and {what}: {said[-1] if said else 'no message'}"


def _stalls(raw: Path, log_interval: float, measured: Measurements) -> list[Value]:
    """What the load itself saw: times in which none of its operations completed, known to within ``log_interval``."""
    logs = find_logs(raw, LOGS, "iops").values()
    runtime = measured.metrics.filter(pl.col("metric") == "runtime", pl.col("job").is_null())["value"]
    if not logs or runtime.is_empty():
        return []
    gaps = longest_gap(logs, STALL, log_interval, float(runtime[0]))
    return [
        Value("stall.longest", gaps.longest, "s", "lower", "max"),
        Value("stall.total", gaps.total, "s", "lower", "sum"),
        Value("stall.count", gaps.count, "1", "lower", "sum"),
    ]


def raise_failure(output: bytes, messages: bytes, source: str) -> None:
    """Raise what fio says of its own failure, if its output says so; return where it does not."""
    try:
        parse_fio(output, source, messages)
    except ParseError:
        return


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
