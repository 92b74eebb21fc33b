"""What fio measures, declared: of each direction, of all of them, of fsync and its like, and of its steady state."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache

from storlab.metrics import PERCENTILES, MetricSpec, Quantity, by_name, latencies

DIRECTIONS = ("read", "write", "trim", "mixed")
PREFIXES = (*(f"{name}." for name in DIRECTIONS), "")
"""Of the names of what is of one direction, and of all together."""
SYNC = "sync."
OPERATIONS = {
    "filecreate": "create", "filestat": "stat", "filedelete": "delete",
    "dircreate": "mkdir", "dirstat": "stat", "dirdelete": "rmdir",
}  # fmt: skip
"""Engine → what it does to files, of which it moves no data: fio prints that as reads of one block each."""
DONE = tuple(dict.fromkeys(OPERATIONS.values()))

_PERCENTILES = frozenset(PERCENTILES)
MOST_PERCENTILES = 20  # FIO_IO_U_LIST_MAX_LEN in stat.h of 3.33
_PERCENTILE = re.compile(r"\d{1,3}(?:\.\d{1,9})?")

_BYTES: dict[str, Quantity] = {"read.": "bytes read", "write.": "bytes written"}


def rates(prefix: str) -> tuple[MetricSpec, ...]:
    bandwidth = MetricSpec("bandwidth", "B/s", "higher", quantity="throughput", series=True, follows="iops")
    iops = MetricSpec("iops", "1/s", "higher", quantity="throughput", series=True)
    return (
        *(replace(spec, name=f"{prefix}{spec.name}", total=spec.name if prefix else "") for spec in (bandwidth, iops)),
        MetricSpec(f"{prefix}bytes", "B", quantity=_BYTES.get(prefix, "bytes")),
        MetricSpec(f"{prefix}ios", "1", quantity="operations"),
    )  # fmt: skip


def _done(name: str) -> tuple[MetricSpec, ...]:
    rate = MetricSpec(f"{name}.rate", "1/s", "higher", quantity="throughput")
    return (rate, MetricSpec(f"{name}.ios", "1", quantity="operations"))


def wanted_percentiles(lists: Iterable[str]) -> tuple[float, ...]:
    """Which become metrics: ``PERCENTILES``, and those that any ``percentile_list`` of jobs asks for."""
    asked = frozenset().union(*map(_asked, lists))
    return PERCENTILES if asked <= _PERCENTILES else tuple(sorted(asked | _PERCENTILES))


@lru_cache(256)
def _asked(percentile_list: str) -> frozenset[float]:
    each = (text for text in percentile_list.split(":")[:MOST_PERCENTILES] if _PERCENTILE.fullmatch(text))
    return frozenset(number for text in each if 0 < (number := float(text)) <= 100)


def _latency(prefix: str, percentiles: tuple[float, ...]) -> tuple[MetricSpec, ...]:
    return latencies(f"{prefix}latency", f"{prefix}ios", percentiles)


_SYNCS = MetricSpec(f"{SYNC}ios", "1")
_WHOLE = (
    MetricSpec("cpu.user", "1", across="mean"),
    MetricSpec("cpu.system", "1", across="mean"),
    MetricSpec("runtime", "s", across="max"),
    MetricSpec("errors", "1", "lower"),
)
_STALLS = (
    MetricSpec("stall.longest", "s", "lower", "max", tail=True),
    MetricSpec("stall.total", "s", "lower"),
    MetricSpec("stall.count", "1", "lower"),
)
_SLICES = (
    MetricSpec("slices", "1", across="none"),
    MetricSpec("slices.active", "s", across="none"),
    MetricSpec("slices.left_out", "1", across="none"),
)
"""Of a load that worked in slices: how many, their time, operations that were in flight when one ended."""
_STEADY = (
    MetricSpec("steady.attained", "1", across="min", domain="share"),
    MetricSpec("steady.deviation", "1", "lower", "max"),
    MetricSpec("steady.slope", "1/s", across="none"),
)
_TARGET = (MetricSpec("latency_target.depth", "1", "higher"),)
"""The queue depth at which fio kept to its ``latency_target``, over all jobs together."""


def submissions(prefix: str, percentiles: tuple[float, ...]) -> tuple[MetricSpec, ...]:
    return latencies(f"{prefix}submission", f"{prefix}ios", percentiles)


WAYS = (*PREFIXES, SYNC, *(f"{name}." for name in DONE))
"""Of the names of all that latencies are of."""


@cache
def columns(percentiles: tuple[float, ...] = PERCENTILES) -> tuple[MetricSpec, ...]:
    return (
        *(spec for prefix in PREFIXES for spec in rates(prefix)),
        *(spec for name in DONE for spec in _done(name)),
        _SYNCS,
        *(spec for prefix in WAYS for spec in _latency(prefix, percentiles)[1:]),  # without the histogram
        *_WHOLE,
    )


METRICS = by_name([*columns(), *_STALLS, *_SLICES, *_STEADY, *_TARGET])


@cache
def declared(
    directions: frozenset[str] = frozenset((*DIRECTIONS, *DONE)),
    *,
    sync: bool = True,
    steady: bool = True,
    target: bool = True,
    percentiles: tuple[float, ...] = PERCENTILES,
    submission: bool = True,
) -> tuple[MetricSpec, ...]:
    """All that fio yields of jobs that may do I/O in these directions, with fsync or its like, a steady state, a
    target of latency, or percentiles of submission.

    Among ``directions`` may be any of ``DONE``, for jobs of these engines.
    """
    prefixes = [prefix for prefix in PREFIXES if not prefix or prefix[:-1] in directions]
    return (
        *(spec for prefix in prefixes for spec in (*rates(prefix), *_latency(prefix, percentiles))),
        *(spec for name in DONE if name in directions for spec in (*_done(name), *_latency(f"{name}.", percentiles))),
        *((_SYNCS, *_latency(SYNC, percentiles)) if sync else ()),
        *(spec for prefix in prefixes if submission and prefix for spec in submissions(prefix, percentiles)),
        *_WHOLE,
        *_STALLS,
        *_SLICES,
        *(_STEADY if steady else ()),
        *(_TARGET if target else ()),
    )
