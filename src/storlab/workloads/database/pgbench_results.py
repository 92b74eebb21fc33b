"""What pgbench left of one trial, as measurements; or why it failed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl

from storlab.errors import CommandFailed, ParseError, TimedOut
from storlab.measurements import Measurements, metric_frame
from storlab.nodes.process import telling
from storlab.tools.pgbench.results import read_pgbench
from storlab.workloads.base import bytes_of, elapsed_values, read_exit

_SAID = re.compile(r"^pgbench: (?:error: )?(.*)$", re.M)


def read_results(raw: Path, log: str) -> Measurements:
    """``log``: what names of its logs begin with. Raises ``TimedOut``, ``CommandFailed``, ``ParseError``."""
    ended, said = read_exit(raw), bytes_of(raw / "stderr").decode(errors="replace")
    if ended.timed_out:
        raise TimedOut("pgbench was stopped at the time-out", said)
    if not ended.ok:
        lines = _SAID.findall(said) or [telling(said.splitlines() or ["no message"])]
        raise CommandFailed(f"{ended.describe()}: {lines[-1]}", said)
    logs = sorted(raw.glob(f"{log}.*"))
    if not logs:
        raise ParseError("pgbench wrote no log of its transactions", str(raw))
    text = bytes_of(raw / "stdout").decode(errors="replace")
    found = read_pgbench(text, map(bytes_of, logs), str(raw / "stdout"))
    return replace(found, metrics=pl.concat([found.metrics, metric_frame(elapsed_values(ended))]))
