"""What sysbench left of one trial, as measurements; or why it failed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl

from storlab.errors import CommandFailed, ParseError, TimedOut, TrialError
from storlab.findings.runs import BegunAgain
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import PERCENTILES, by_name, percentile_name
from storlab.nodes.process import ExitRecord, telling
from storlab.percentiles import percentiles
from storlab.tools.sysbench.metrics import IGNORED, LIVE, measured
from storlab.tools.sysbench.text import read_sysbench
from storlab.workloads.base import bytes_of, elapsed_values, read_exit

_FATAL = re.compile(rb"^FATAL: (.+)$", re.M)
_SPECS = by_name(LIVE)


def read_results(raw: Path, max_ignored: float) -> Measurements:
    """``max_ignored``: errors that it ignored, for each transaction.

    Raises ``TimedOut``, ``CommandFailed`` with its own message, ``TrialError`` for too many errors, ``ParseError``.
    """
    ended, text = read_exit(raw), bytes_of(raw / "stdout")
    if not ended.ok:
        raise _failure(ended, text, bytes_of(raw / "stderr"))
    source = str(raw / "stdout")
    runs = read_sysbench(text, source)
    if len(runs) != 1:
        raise ParseError(f"holds {len(runs)} results of sysbench, and not one", source)
    (run,) = runs
    events = run.closed.get("events", 0)
    if not events:
        raise TrialError("sysbench finished no transaction", text.decode(errors="replace"))
    errors = run.closed.get("errors", 0)
    ignored = f"sysbench restarted {errors:.0f} of {events:.0f} transactions after a deadlock or a conflict"
    if errors > max_ignored * events:
        raise TrialError(f"{ignored}: more than max_ignored_errors = {max_ignored:.1%} allows")
    found = measured(run)
    exact = percentiles(run.histogram) if run.histogram.height else {}
    own = [_SPECS[f"latency.{percentile_name(p)}"].value(exact[p]) for p in PERCENTILES if p in exact]
    renamed = found.metrics.with_columns(pl.col("metric").replace("errors", IGNORED.name))
    kept = renamed.filter(pl.col("metric").is_in(list(_SPECS)) & ~pl.col("metric").str.starts_with("latency.p"))
    series = found.series.filter(~pl.col("metric").str.starts_with("latency."))
    return replace(
        found,
        metrics=pl.concat([kept, metric_frame([*own, *elapsed_values(ended)])]),
        series=series,
        declared=(),
        found=(BegunAgain(((round(errors), round(events)),)),) if errors else (),
    )


def _failure(ended: ExitRecord, text: bytes, stderr: bytes) -> TrialError:
    said = (stderr or text).decode(errors="replace")
    if ended.timed_out:
        return TimedOut("sysbench was stopped at the time-out", said)
    fatal = [line.decode(errors="replace") for line in (*_FATAL.findall(text), *_FATAL.findall(stderr))]
    message = fatal[0] if fatal else telling(said.splitlines() or ["no message"])
    return CommandFailed(f"{ended.describe()}: {message}", said)
