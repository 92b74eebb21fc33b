"""All that one trial of fio left in its raw folder, as measurements: ``fio.json``, its logs, and its stalls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from storlab.errors import CommandFailed, ParseError, TrialError
from storlab.grouping import grouped
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import Value
from storlab.nodes.process import ExitRecord
from storlab.text import is_whole
from storlab.tools.fio.declared import METRICS
from storlab.tools.fio.histogram_log import PACKED_HISTOGRAMS, read_histogram_logs, with_histogram_logs
from storlab.tools.fio.log_lines import IS_PACKED, packed_logs
from storlab.tools.fio.logs import (
    AVERAGED_WRONG,
    MAXIMA,
    averages_are_sound,
    find_logs,
    latencies_are_means,
    read_series,
)
from storlab.tools.fio.operations import added, longest_gap
from storlab.tools.fio.output import measured as of_report
from storlab.tools.fio.output import parse_fio, read_report
from storlab.tools.fio.phases import AT_ONCE, Phases
from storlab.workloads.base import bytes_of, read_exit, read_turns
from storlab.workloads.fio import sliced
from storlab.workloads.fio.asked import TOO_SHORT, fell_short, is_too_short
from storlab.workloads.fio.options import Job
from storlab.workloads.fio.phases import phases_of

OUTPUT = "fio.json"
LOGS = "series"
_LOG = re.compile(r".+_(?:bw|iops|lat|clat|clat_hist)\.([0-9]+)\.log")
_HISTOGRAM_LOG = re.compile(r".+_clat_hist\.([0-9]+)\.log")
UNKNOWN_STARTS = (
    "fio's options and its report don't say when each of its jobs began (startdelay, wait_for, or a ramp_time of its "
    "own), and their logs count from there: series of all jobs together, and stalls, are left out"
)
STALL = 1.0  # s: times without a completed operation that are longer are summed up


def read_results(raw: Path, log_interval: float, ran: Sequence[Job]) -> Measurements:
    """What the jobs that ``ran`` measured; ``log_interval``: seconds over which fio averaged its logs.

    Raises ``DiskFull`` or ``CommandFailed`` with fio's own message, ``ParseError`` where its results can't be read.
    """
    messages = bytes_of(raw / "stderr")
    output = bytes_of(raw / OUTPUT)
    record = read_exit(raw)
    if not output:
        raise CommandFailed(_ended(record, messages, "left no results"))
    report = read_report(output, str(raw / OUTPUT), messages)
    turns = read_turns(raw)
    if record.code != 0 and not (turns is not None and record.stopped_by == "INT"):
        raise CommandFailed(_ended(record, messages, "failed"))
    measured, jobs = of_report(report), [job.name for job in report.jobs]
    if turns is not None:
        return sliced.measured(measured, jobs, raw, turns)
    options, total = _options(measured), measured.facts["latency"] == "total"
    if short := fell_short(ran, measured.totals(), ramped=any("ramp_time" in each for each in options)):
        raise TrialError(short)
    rates, means = averages_are_sound(options), latencies_are_means(options)
    phases = phases_of(ran, report.jobs, _logged(raw))
    series = read_series(raw, LOGS, log_interval, jobs, rates=rates, means=means, total=total, phases=phases or AT_ONCE)
    stalls = [] if phases is None else _stalls(raw, log_interval, measured, phases)
    left_out = {f"bandwidth and IOPS are left out: {AVERAGED_WRONG}": rates, f"latency are left out: {MAXIMA}": means}
    warnings = [f"its logs of {said}" for said, sound in left_out.items() if not sound]
    warnings += [f"its logs {IS_PACKED}: there are no series"] if packed_logs(raw, LOGS) else []
    warnings += [TOO_SHORT] if is_too_short(measured.totals()) else []
    measured = replace(
        measured,
        metrics=pl.concat([measured.metrics, metric_frame(stalls)]),
        series=pl.concat([measured.series, series]),
        warnings=(*measured.warnings, *warnings),
    )
    measured = _with_histogram_logs(measured, raw, jobs, phases or AT_ONCE)
    return measured if phases is not None else _without_series_of_all(measured)


def _without_series_of_all(measured: Measurements) -> Measurements:
    return replace(
        measured,
        series=measured.series.filter(pl.col("job").is_not_null()),
        warnings=(*measured.warnings, UNKNOWN_STARTS),
    )


def _options(measured: Measurements) -> list[Mapping[str, object]]:
    options = measured.facts.get("options")
    return [each for each in options.values() if isinstance(each, dict)] if isinstance(options, dict) else []


def _with_histogram_logs(measured: Measurements, raw: Path, jobs: Sequence[str], phases: Phases) -> Measurements:
    """What the study's own ``write_hist_log`` adds, whatever it is called."""
    options = _options(measured)
    if not any("write_hist_log" in each for each in options):
        return measured
    if any(raw.glob("*_clat_hist.*.log.fz")):
        return replace(measured, warnings=(*measured.warnings, f"its histogram logs {PACKED_HISTOGRAMS}"))
    logs = {int(found[1]): path for path in raw.iterdir() if (found := _HISTOGRAM_LOG.fullmatch(path.name))}
    intervals = {str(each["log_hist_msec"]) for each in options if "log_hist_msec" in each}
    interval = intervals.pop() if len(intervals) == 1 else ""
    if not logs or not is_whole(interval) or not int(interval):
        return measured
    in_order = {number: logs[number] for number in sorted(logs)}
    return with_histogram_logs(measured, read_histogram_logs(in_order, int(interval) / 1000, jobs, phases))


def _ended(record: ExitRecord, messages: bytes, what: str) -> str:
    said = messages.decode(errors="replace").strip().splitlines()
    how = "was stopped at the time-out" if record.timed_out else f"ended with status {record.code or record.signal}"
    return f"fio {how} and {what}: {said[-1] if said else 'no message'}"


def _logged(raw: Path) -> int:
    """How many processes left logs: fio numbers them."""
    return max((int(found[1]) for path in raw.iterdir() if (found := _LOG.fullmatch(path.name))), default=0)


def _stalls(raw: Path, log_interval: float, measured: Measurements, phases: Phases) -> list[Value]:
    """What the load itself saw: times in which none of its operations completed, known to within ``log_interval``."""
    logs = grouped((phases.of_log(number), path) for number, path in find_logs(raw, LOGS, "iops").items())
    runtime = measured.totals().get("runtime")
    if not logs or runtime is None:
        return []
    lengths = phases.lengths or (runtime,)
    gaps = added([longest_gap(paths, STALL, log_interval, lengths[phase]) for phase, paths in logs.items()])
    return [METRICS[f"stall.{name}"].value(getattr(gaps, name)) for name in ("longest", "total", "count")]


def raise_failure(output: bytes, messages: bytes, source: str) -> None:
    """Raise what fio says of its own failure, if its output says so; return where it does not."""
    try:
        parse_fio(output, source, messages)
    except ParseError:
        return
