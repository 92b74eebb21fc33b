"""The noise of this machine: trials of one cell, again and again, for a time; and where what came out is kept.

One file for each machine, ``$XDG_STATE_HOME/storlab/noise/MACHINE.json``: home folders travel, noise does not.
"""

from __future__ import annotations

import math
import os
import platform
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import msgspec

from storlab.base.errors import RecordsError, UserError
from storlab.base.record import Seconds, read_record
from storlab.metrics import named
from storlab.records.files import write_whole
from storlab.run.executor import Outcome, run_study
from storlab.run.observer import Observer
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.run.planning.order import trial_time
from storlab.run.recovery.state import make_state, state_folder
from storlab.study.study import Study

BUILT_IN_TITLE = "A against A: short direct writes"
BUILT_IN_BLOCK = 4096
"""Bytes of each of them."""
BUILT_IN = f"""
schema      = 1
title       = "{BUILT_IN_TITLE}"
description = "One and the same load, trial after trial."
primary     = "bandwidth"
stack       = [{{ layer = "directory" }}]

[trial]
settle = {{ sync = false, drop_caches = false }}

[workload.load.fio]
rw         = "randwrite"
bs         = {BUILT_IN_BLOCK}
ioengine   = "psync"
direct     = 1
size       = "16M"
runtime    = "500ms"
time_based = true
"""

FIRST, FEWEST = 4, 10
"""Trials that say how long one takes, and how many there are at least in all."""
MOST = 2000


@dataclass(frozen=True)
class MachineNoise:
    """What was measured. ``values``: the primary metric, trial by trial; ``seconds``: of one trial with all it takes.

    ``overhead``: of those, what is not the load itself; ``None`` if the load's own length is not known.
    """

    machine: str
    measured: str  # ISO 8601, UTC
    study: str
    title: str
    metric: str
    seconds: Seconds
    overhead: Seconds | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class Trials:
    """Those that were run. ``left_behind`` is what could not be torn down, in words; empty as it should be."""

    values: tuple[float, ...]
    seconds: float
    overhead: float | None
    interrupted: bool
    left_behind: tuple[str, ...]


async def measure(
    study: Study,
    metric: str,
    seconds: float,
    folder: Path,
    observer: Observer,
    permissions: Permissions = NO_PERMISSIONS,
) -> Trials:
    """Run the one cell of ``study`` for about so long, at least ``FEWEST`` trials, into new folders in ``folder``.

    First a few, which say how long a trial takes. Raises ``UserError`` if trials fail or lack the metric.
    """
    began = time.monotonic()
    first = await run_study(study, folder / "first", 1, (FIRST, FIRST), observer, permissions)
    outcomes = [first]
    if first.ending == "complete":
        spent = time.monotonic() - began
        more = min(MOST, max(FEWEST - FIRST, math.floor((seconds - spent) / (spent / FIRST))))
        outcomes.append(await run_study(study, folder / "rest", 2, (more, more), observer, permissions))
    values = tuple(value for outcome in outcomes for value in _values(outcome, metric))
    records = [record for outcome in outcomes for record in outcome.folder.records() if record.status == "done"]
    interrupted = outcomes[-1].ending == "interrupted"
    left_behind = tuple(what for outcome in outcomes for what in outcome.left_behind)
    if not records and not interrupted and not left_behind:
        reason = next((record.reason for record in first.folder.records() if record.reason), "no trial was done")
        raise UserError(f"the noise can't be measured: {reason}")
    seconds_each = fmean(record.duration or 0.0 for record in records) if records else 0.0
    expected = trial_time(study.cells[0], overhead=0.0)
    overhead = max(0.0, seconds_each - expected) if records and expected is not None else None
    return Trials(values, seconds_each, overhead, interrupted, left_behind)


def _values(outcome: Outcome, metric: str) -> list[float]:
    """In the order of the trials: of all nodes together, from the first source that has the metric."""
    frame = outcome.tables.frame("metrics")
    rows = frame.filter(frame["node"].is_null() & frame["job"].is_null()).sort("trial")
    for source, name in named(metric, rows.select("source", "metric").unique(maintain_order=True).rows())[:1]:
        return [float(v) for v in rows.filter(source=source, metric=name)["value"].to_list()]
    return []


def this_machine() -> str:
    """A name that stays: systemd's machine id, or else the host's name."""
    try:
        identity = Path("/etc/machine-id").read_text("ascii").strip()
    except (OSError, ValueError):
        identity = ""
    return identity if identity.isalnum() else platform.node().replace(os.sep, "-") or "unknown"


def noise_file() -> Path:
    return state_folder() / "noise" / f"{this_machine()}.json"


def save(noise: MachineNoise) -> Path:
    """Keep it, in the place of what was there. Raises ``OSError`` and ``RecordsError``."""
    path = make_state("noise") / noise_file().name
    write_whole(path, msgspec.json.format(msgspec.json.encode(asdict(noise)), indent=2) + b"\n")
    return path


def saved() -> MachineNoise | None:
    """What is kept of this machine; ``None`` if there is nothing, or nothing that can be read."""
    try:
        return read_record(noise_file(), MachineNoise)
    except (OSError, RecordsError):
        return None


def now() -> str:
    """For ``MachineNoise.measured``."""
    return datetime.now(UTC).isoformat(timespec="seconds")
