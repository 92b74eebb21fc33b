"""What is read of fio's JSON document; msgspec skips the rest undecoded, three quarters of the text."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from storlab.base.errors import ParseError

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
MOST_OPERATIONS = 1 << 53
"""In one histogram: lets a thousand be added without overflow."""
Operations = Annotated[int, Meta(ge=0, le=MOST_OPERATIONS)]
Number = Annotated[float, Meta(ge=-1e300, le=1e300)] | None
"""``None``: what fio could not compute (``nan``), as where there was nothing to measure."""


class Latency(Struct, frozen=True):
    """``slat_ns``, ``clat_ns``, ``lat_ns``. ``percentile`` where fio kept percentiles of this kind, and ``bins`` then
    only in json+.

    ``n`` since fio 3.18; ``counted`` gives it where it is missing.
    """

    minimum: Count = msgspec.field(name="min")
    maximum: Count = msgspec.field(name="max")
    mean: Number
    n: Operations = msgspec.field(name="N", default=0)
    percentile: dict[str, Count] = {}  # "99.000000": ns
    bins: dict[str, Operations] = {}  # the value that fio prints for a bin, "19072": operations

    @property
    def has_bins(self) -> bool:
        return any(self.bins.values())

    def counted(self, operations: int) -> Latency:
        """With the number of its operations: those in its bins or, where there are none either, ``operations``."""
        if self.n or not self.maximum:  # nothing was measured where the maximum is 0, as with disable_clat
            return self
        return msgspec.structs.replace(self, n=sum(self.bins.values()) or operations)


NO_LATENCY = Latency(0, 0, 0.0, 0)


class DirectionBlock(Struct, frozen=True):
    """``read``, ``write``, ``trim``, ``mixed``; ``runtime`` in ms."""

    io_bytes: Count
    total_ios: Operations
    runtime: Count
    slat_ns: Latency | None = None
    clat_ns: Latency | None = None
    lat_ns: Latency | None = None


class SyncBlock(Struct, frozen=True):
    """``sync``: fsync and its like."""

    lat_ns: Latency
    total_ios: Operations = 0


class Samples(Struct, frozen=True):
    """``steadystate.data``: samples of the last window."""

    iops: list[Number] | None = None
    bw: list[Number] | None = None
    lat_ns: list[Number] | None = None


class SteadyBlock(Struct, frozen=True):
    """``steadystate``; ``ss`` is the criterion, such as ``iops_slope:0.3%``."""

    criterion: str = msgspec.field(name="ss")
    attained: Count
    duration: Count
    max_deviation: Number
    slope: Number
    data: Samples


class JobBlock(Struct, frozen=True):
    """One of ``jobs``; ``job_runtime`` (since fio 3.8) in ms, summed over merged jobs; CPU times in percent of it.

    ``hostname`` and ``port``: of the server that ran it, under ``fio --client``.
    """

    jobname: str
    groupid: Count
    error: Count
    usr_cpu: Number
    sys_cpu: Number
    job_runtime: Count | None = None
    total_err: Count | None = None
    first_error: Count | None = None
    read: DirectionBlock | None = None
    write: DirectionBlock | None = None
    trim: DirectionBlock | None = None
    mixed: DirectionBlock | None = None
    sync: SyncBlock | None = None
    steadystate: SteadyBlock | None = None
    latency_depth: Count | None = None  # with ``latency_target``, as the next one
    latency_target: Count | None = None
    options: dict[str, Any] | None = msgspec.field(name="job options", default=None)
    hostname: str = ""
    port: Count = 0


class _WithoutOptions(Struct, frozen=True):
    version: str | None = msgspec.field(name="fio version", default=None)
    timestamp: Count | None = None  # of the report: when fio wrote it, s
    timestamp_ms: Count | None = None  # under ``fio --client`` there is none
    jobs: list[JobBlock] | None = None
    client_stats: list[JobBlock] | None = None


class Root(_WithoutOptions, frozen=True):
    """The document. ``client_stats`` takes the place of ``jobs`` under ``fio --client``."""

    options: dict[str, Any] | None = msgspec.field(name="global options", default=None)


class OfServers(_WithoutOptions, frozen=True):
    """Of several servers, since fio 3.39: the options of each, among them its ``hostname`` and ``port``."""

    options: list[dict[str, Any]] = msgspec.field(name="global options", default=[])

    @property
    def one(self) -> Root:
        """With the options that all servers have in common, and those of one with its jobs."""
        servers = {(each.pop("hostname", ""), each.pop("port", 0)): each for each in map(dict, self.options)}
        first, *others = servers.values() or ({},)
        common = {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}

        def with_its_own(job: JobBlock) -> JobBlock:
            of_server = servers.get((job.hostname, job.port), {})
            its_own = {name: value for name, value in of_server.items() if name not in common}
            return msgspec.structs.replace(job, options={**its_own, **(job.options or {})})

        jobs, stats = (
            None if each is None else list(map(with_its_own, each)) for each in (self.jobs, self.client_stats)
        )
        return Root(self.version, self.timestamp, self.timestamp_ms, jobs, stats, common)


def untold(job: str) -> dict[str, Any]:
    """The options of a job of which nothing is known: dashes, and not fio's defaults; its name must do."""
    return {**dict.fromkeys(("rw", "bs", "ioengine", "iodepth", "direct"), "–"), "job": job}


# fio 2's JSON as fio 3 would have written it.
#
# Source: ``stat.c`` of fio 2.0.10 to 2.21. Latencies are in whole µs, means with a fraction; ``bw`` is KiB/s.
# ``io_bytes`` are KiB up to 2.20; from 2.21 on (commit c12d597a) bytes, beside ``io_kbytes``. That is held against
# ``bw``. Bins, which JSON+ has since 2.8, are left out: they are none of fio 3's. Before 2.3, options are not
# printed.

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
    first_error: Count | None = None
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
        first_error=job.first_error,
        options=untold(job.jobname) if job.options is None else job.options,
        **there,
    )
