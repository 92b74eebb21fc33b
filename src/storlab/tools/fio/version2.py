"""fio 2's JSON as fio 3 would have written it.

Source: ``stat.c`` of fio 2.0.10 to 2.21. Latencies are in whole µs, means with a fraction; ``bw`` is KiB/s.
``io_bytes`` are KiB up to 2.20; from 2.21 on (commit c12d597a) bytes, beside ``io_kbytes``. That is held against
``bw``. Bins, which JSON+ has since 2.8, are left out: they are none of fio 3's. Before 2.3, options are not printed.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from storlab.errors import ParseError
from storlab.tools.fio.blocks import (
    NO_LATENCY,
    Count,
    DirectionBlock,
    JobBlock,
    Latency,
    Number,
    Operations,
    Root,
    untold,
)

INSTEAD = "read its figures as a table of your own instead (storlab import csv)"
_NS = 1000
_KIB = 1024


class _Latency(Struct, frozen=True):
    minimum: Number = msgspec.field(name="min", default=None)
    maximum: Number = msgspec.field(name="max", default=None)
    mean: Number = None
    percentile: dict[str, Count] = {}

    @property
    def now(self) -> Latency:
        least, most = (int((each or 0) * _NS) for each in (self.minimum, self.maximum))
        percentile = {name: value * _NS for name, value in self.percentile.items() if value}
        return Latency(least, most, (self.mean or 0.0) * _NS, 0, percentile)


class _Direction(Struct, frozen=True):
    io_bytes: Count
    total_ios: Operations
    runtime: Count
    bw: Number = 0
    io_kbytes: Count | None = None
    slat: _Latency | None = None
    clat: _Latency | None = None
    lat: _Latency | None = None

    def now(self, where: str, source: str, line: int) -> DirectionBlock:
        size = self.io_bytes if self.io_kbytes is not None else self.io_bytes * _KIB
        rate = size * 1000 / self.runtime / _KIB if self.runtime else 0.0
        if self.runtime and abs(rate - (self.bw or 0)) > 1.5 + rate / 1000:
            said = f"{where}: bw is {self.bw}, and io_bytes over runtime {rate:.0f} KiB/s: their units are not sure"
            raise ParseError(f"{said}; {INSTEAD}", source, line)
        slat, clat, lat = (None if each is None else each.now for each in (self.slat, self.clat, self.lat))
        return DirectionBlock(size, self.total_ios, self.runtime, slat, clat or NO_LATENCY, lat)


class _Job(Struct, frozen=True):
    jobname: str
    groupid: Count = 0
    error: Count = 0
    usr_cpu: Number = None
    sys_cpu: Number = None
    read: _Direction | None = None
    write: _Direction | None = None
    trim: _Direction | None = None
    mixed: _Direction | None = None
    total_err: Count | None = None
    options: dict[str, Any] | None = msgspec.field(name="job options", default=None)


class _Root(Struct, frozen=True):
    version: str | None = msgspec.field(name="fio version", default=None)
    options: dict[str, Any] | None = msgspec.field(name="global options", default=None)
    timestamp: Count | None = None
    timestamp_ms: Count | None = None
    jobs: list[_Job] | None = None
    client_stats: list[_Job] | None = None


DECODER = msgspec.json.Decoder(_Root)


def current(root: _Root, source: str, line: int) -> Root:
    """The document, which begins at ``line``, in the form of fio 3's. Raises ``ParseError`` where units are unsure."""
    jobs, stats = (
        None if listed is None else [_now(job, source, line) for job in listed]
        for listed in (root.jobs, root.client_stats)
    )
    return Root(root.version, root.timestamp, root.timestamp_ms, jobs, stats, root.options)


def _now(job: _Job, source: str, line: int) -> JobBlock:
    ways = {name: getattr(job, name) for name in ("read", "write", "trim", "mixed")}
    there = {name: way.now(f"job {job.jobname}: {name}", source, line) for name, way in ways.items() if way is not None}
    return JobBlock(
        job.jobname,
        job.groupid,
        job.error,
        job.usr_cpu,
        job.sys_cpu,
        total_err=job.total_err,
        options=untold(job.jobname) if job.options is None else job.options,
        **there,
    )
