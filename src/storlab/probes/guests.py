"""Probe ``guests``: CPU time and memory of each guest's QEMU, each second, on the machine that runs them.

What a guest costs its host: besides the guest's own work there is emulation of its devices, and, without KVM, of its
CPU too. A machine without guests has nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import orjson
import polars as pl
from pydantic import Field

from storlab.errors import ParseError
from storlab.measurements import SERIES_COLUMNS, Measurements, Value, metric_frame
from storlab.probes.base import Post, Probe, Where, Window
from storlab.probes.procfs import parse_process_stat, parse_resident
from storlab.probes.sampling import Snapshot, around, read_samples, sampling
from storlab.units import Duration

NAME = "guests.json"
"""Beside the samples: guest → process id of its QEMU."""


class GuestsProbe(Probe):
    """Watches the QEMU process of each guest."""

    kind: ClassVar[str] = "guests"
    where: ClassVar[Where] = "machines"

    interval: Duration = Field(1.0, gt=0, description="Between two samples.")

    def watch(self, post: Post) -> AbstractAsyncContextManager[None]:
        if not post.processes:
            return nullcontext()
        (post.raw / NAME).write_bytes(orjson.dumps(dict(post.processes)))
        paths = [path for pid in post.processes.values() for path in (_stat(pid), _status(pid))]
        return sampling(post.node, paths, self.interval, post.raw)

    def parse(self, raw: Path, window: Window, disk: str | None) -> Measurements:
        if not (raw / NAME).exists():
            return Measurements()
        snapshots = around(read_samples(raw), window)
        values: list[Value] = []
        series: list[tuple[None, str, float, float, str]] = []
        warnings: list[str] = []
        for guest, pid in read_guests(raw).items():
            looks = find_looks(snapshots, pid)
            if len(looks) < 2:
                warnings.append(f"guests: too few samples of {guest}'s QEMU in the measured phase")
                continue
            if looks[-1].t < min(snapshots[-1].t, window.end):
                after = looks[-1].t - window.start
                warnings.append(f"guests: {guest}'s QEMU was gone {after:.1f} s after the measured phase began")
            values.append(Value(f"guest.{guest}.cpu", _cpus(looks[0], looks[-1]), "1"))
            values.append(Value(f"guest.{guest}.memory", looks[-1].resident, "B", "neither", "max"))
            for before, now in pairwise(looks):
                series.append((None, f"guest.{guest}.cpu", now.t - window.start, _cpus(before, now), "1"))
        if values:
            cpus = [value.value for value in values if value.metric.endswith(".cpu")]
            values.append(Value("guests.cpu", math.fsum(cpus), "1"))
        frame = pl.DataFrame(series, schema=SERIES_COLUMNS, orient="row")
        return Measurements(metrics=metric_frame(values), series=frame, warnings=tuple(warnings))


@dataclass(frozen=True)
class Look:
    """One look at a process: when, CPU time since it began (both in s), resident bytes."""

    t: float
    cpu_time: float
    resident: int


def find_looks(snapshots: Sequence[Snapshot], pid: int) -> list[Look]:
    """What ``snapshots`` show of the process, as long as it is there, and is the one that was there first."""
    looks: list[Look] = []
    begun: int | None = None
    for snapshot in snapshots:
        stat = parse_process_stat(snapshot.texts.get(_stat(pid), ""))
        resident = parse_resident(snapshot.texts.get(_status(pid), ""))
        if stat is None or resident is None or stat.state in "ZX":  # a zombie has no memory either
            continue
        if begun is not None and stat.begun != begun:
            break  # another process, which got the same id
        begun = stat.begun
        if not looks or snapshot.t > looks[-1].t:
            looks.append(Look(snapshot.t, stat.cpu_time, resident))
    return looks


def read_guests(raw: Path) -> dict[str, int]:
    """Guest → process id. Raises ``ParseError``."""
    path = raw / NAME
    try:
        return {str(name): int(pid) for name, pid in orjson.loads(path.read_bytes()).items()}
    except (OSError, orjson.JSONDecodeError, AttributeError, TypeError, ValueError) as error:
        raise ParseError(f"can't be read: {error}", str(path), 1) from None


def _cpus(before: Look, after: Look) -> float:
    """CPUs kept busy between two looks: 1.0 is one of them all the time."""
    return max(after.cpu_time - before.cpu_time, 0.0) / (after.t - before.t)


def _stat(pid: int) -> str:
    return f"/proc/{pid}/stat"


def _status(pid: int) -> str:
    return f"/proc/{pid}/status"
