"""All that one trial of fio left in its raw folder, as measurements: ``fio.json``, its logs, and its stalls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from storlab.base.errors import CommandFailed, ParseError, TrialError
from storlab.base.text import grouped, is_whole
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import Value
from storlab.nodes.process import ExitRecord
from storlab.tools.fio.declared import DONE, METRICS
from storlab.tools.fio.histogram import PACKED_HISTOGRAMS, read_histogram_logs, with_histogram_logs
from storlab.tools.fio.log_lines import AT_ONCE, IS_PACKED, Phases, packed_logs
from storlab.tools.fio.logs import (
    AVERAGED_WRONG,
    MAXIMA,
    averages_are_sound,
    find_logs,
    latencies_are_means,
    read_series,
)
from storlab.tools.fio.metrics import Job as Reported
from storlab.tools.fio.operations import added, longest_gap
from storlab.tools.fio.output import measured as of_report
from storlab.tools.fio.output import parse_fio, read_report
from storlab.workloads.base import bytes_of, read_exit, read_turns
from storlab.workloads.fio import sliced
from storlab.workloads.fio.options import WAITS, Job, is_on, plain, processes, runtime, text, work

# Whether fio did what it was asked: all bytes of jobs that end after an amount, the whole time of the others.
#
# fio ends with status 0 where it did less, as on a device that was full at once (``fill_device``).

_EARLIER = {"number_ios", "fill_device", "fill_fs", "exitall", "exit_what", "latency_target", "steadystate", "ss"}
"""Options by which a job ends before it has done all."""
_LESS_BYTES = {"filesize", "offset", "offset_increment", "zonemode", "zonesize", *_EARLIER}
_LESS_TIME = {"io_size", "io_limit", "timeout", *_EARLIER}
_COUNTS = ("file", "dir", "external")
"""How engines begin that may do operations without bytes."""
_MIB = 2**20
_ENOUGH = 0.9
"""Share of what was asked: a size that is no multiple of the block is not reached, and times are whole ms."""


def fell_short(ran: Sequence[Job], totals: Mapping[str, float], ramped: bool) -> str:
    """What is missing, in a clause; "" where it did all, or its options don't tell what that is.

    ``totals``: metric → value of all jobs together; ``ramped``: whether a beginning isn't in them.
    """
    did = totals.get("bytes", 0.0)
    counts_only = any(str(job.options.get("ioengine", "")).startswith(_COUNTS) for job in ran)
    operations = any(totals.get(f"{name}.ios") for name in DONE) or (counts_only and totals.get("ios"))
    if not did and not operations:
        return "fio did no I/O"
    options = {plain(key) for job in ran for key in job.options}
    passed_over = totals.get("errors")  # which move no bytes; they are counted
    wanted = work(ran) if not ramped and not passed_over and not options & _LESS_BYTES else None
    if wanted is not None and wanted.longest is None and not operations and did < _ENOUGH * wanted.moved:
        return f"fio did {did / _MIB:.4g} MiB of the {wanted.moved / _MIB:.4g} MiB that it was asked for"
    longest = max((seconds for job in ran if (seconds := runtime(job.options)) is not None), default=0.0)
    lasted = totals.get("runtime", longest)
    if lasted < _ENOUGH * longest and not options & _LESS_TIME:
        return f"fio ran for {lasted:g} s of the {longest:g} s that it was asked for"
    return ""


_COARSE = 0.1  # s: fio's own clock is too coarse for less
TOO_SHORT = "fio's jobs ran for less than 100 ms, which it counts in whole ms: rates may be wrong by 1 % and more"


# Which of fio's jobs ran at once, and which one after another.
#
# A job's logs count from its own start. fio's report (3.33) has groups of jobs, and doesn't say whether they waited
# for each other: options do.

_BEGINS = ("startdelay", "ramp_time")
"""What a job does before its logs begin to count."""


def phases_of(jobs: Sequence[Job], reported: Sequence[Reported], logged: int) -> Phases | None:
    """The phases of these jobs, of which ``logged`` processes left logs.

    ``None`` where jobs of one phase began at different times, or what fio reported isn't what the options tell.
    """
    if logged <= 1:
        return AT_ONCE
    of, groups = _planned(jobs)
    if _begin_apart(jobs, of) or len({job.phase for job in reported}) != len(groups):
        return None
    if not any(of):
        return AT_ONCE
    own = tuple(phase for job, phase in zip(jobs, of, strict=True) for _ in range(processes(job.options)))
    if logged != len(own):
        return None
    longest = grouped((groups[job.phase], job.runtime) for job in reported)
    return Phases(own, tuple(max(longest[phase]) for phase in sorted(longest)))


def _planned(jobs: Iterable[Job]) -> tuple[list[int], list[int]]:
    of, groups = list[int](), [0]
    for job in jobs:
        waits = _has(job, *WAITS)
        if of and (waits or _has(job, "new_group")):
            groups.append(groups[-1] + waits)
        of.append(groups[-1])
    return of, groups


def _begin_apart(jobs: Sequence[Job], of: Sequence[int]) -> bool:
    delays = [_delay(job, "startdelay") for job in jobs]
    if any("-" in delay or ":" in delay for delay in delays):  # fio draws one for each process
        return True
    if any(of) and any(delays):  # what is still to begin is not waited for
        return True
    begins = grouped((phase, [_delay(job, key) for key in _BEGINS]) for job, phase in zip(jobs, of, strict=True))
    apart = any(each != begin[0] for begin in begins.values() for each in begin)
    return apart or any(_has(job, "wait_for") for job in jobs)


def _has(job: Job, *keys: str) -> bool:
    return any(is_on(value) for key, value in job.options.items() if plain(key) in keys)


def _delay(job: Job, key: str) -> str:
    return next((text(value) for name, value in job.options.items() if plain(name) == key and is_on(value)), "")


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
    logged = [int(found[1]) for path in raw.iterdir() if (found := _LOG.fullmatch(path.name))]  # fio numbers processes
    phases = phases_of(ran, report.jobs, max(logged, default=0))
    series = read_series(raw, LOGS, log_interval, jobs, rates=rates, means=means, total=total, phases=phases or AT_ONCE)
    stalls = [] if phases is None else _stalls(raw, log_interval, measured, phases)
    left_out = {f"bandwidth and IOPS are left out: {AVERAGED_WRONG}": rates, f"latency are left out: {MAXIMA}": means}
    warnings = [f"its logs of {said}" for said, sound in left_out.items() if not sound]
    warnings += [f"its logs {IS_PACKED}: there are no series"] if packed_logs(raw, LOGS) else []
    warnings += [TOO_SHORT] if 0 < measured.totals().get("runtime", _COARSE) < _COARSE else []
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
